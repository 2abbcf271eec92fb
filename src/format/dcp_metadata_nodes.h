/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dcp_metadata_nodes.h -- converts nodes of a `.metadata` to texts, numbers and sizes.  Errors say
 * what the node is.
 *
 * Each node is copied once (node->kept), however many nodes refer to it.  So the memory is linear
 * in the size of the file.
 */
#ifndef FORMAT_DCP_METADATA_NODES_H
#define FORMAT_DCP_METADATA_NODES_H

#include "format/pickle.h"

struct dcp_nodes {
    struct arena *arena; /* for copies */
    struct sidestep_error *err;
};

/* Is it an object of ${class}?  It is made by NEWOBJ, or by copyreg._reconstructor() (protocols 0
 * and 1). */
bool dcp_nodes_is_instance(const struct pickle_node *node, const char *class);

/* Fail with "${what} is not ${wanted}" (ECORRUPT), or with the name of the symbol that is there
 * (EUNSAFE). */
enum sidestep_status dcp_nodes_type_error(const struct dcp_nodes *n, const struct pickle_node *node,
                                          const char *what, const char *wanted);

/* Get the fields of an object of ${class}.  ${*fields} is NULL if it has none. */
enum sidestep_status dcp_nodes_fields(const struct dcp_nodes *n, const struct pickle_node *node,
                                      const char *what, const char *class,
                                      const struct pickle_node **fields);
/* A field.  NULL: it is absent or None, or ${fields} is NULL. */
struct pickle_node *dcp_nodes_field(const struct pickle_node *fields, const char *name);

/* UTF-8 without NUL, of at most ${max} bytes, in the arena. */
enum sidestep_status dcp_nodes_text(const struct dcp_nodes *n, struct pickle_node *node,
                                    const char *what, size_t max, const char **text);
/* An integer >= 0. */
enum sidestep_status dcp_nodes_count(const struct dcp_nodes *n, const struct pickle_node *node,
                                     const char *what, uint64_t *count);
/* A torch.Size or a tuple of integers, in the arena.  Does not refuse negative ones. */
enum sidestep_status dcp_nodes_size(const struct dcp_nodes *n, const struct pickle_node *node,
                                    const char *what, uint32_t *ndim, const int64_t **lengths);
/* torch's name of a dtype, in the arena. */
enum sidestep_status dcp_nodes_dtype(const struct dcp_nodes *n, struct pickle_node *node,
                                     const char **name);
/* Refuse a layout that is not strided. */
enum sidestep_status dcp_nodes_check_layout(const struct dcp_nodes *n,
                                            const struct pickle_node *node);
/* Refuse a node that is not a memory format of torch. */
enum sidestep_status dcp_nodes_check_memory_format(const struct dcp_nodes *n,
                                                   const struct pickle_node *node);
/* A str or a pathlib object, as text.  ${*path} is NULL if it is not UTF-8. */
enum sidestep_status dcp_nodes_path(const struct dcp_nodes *n, struct pickle_node *node,
                                    const char *what, const char **path);

#endif
