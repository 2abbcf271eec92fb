/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dcp_metadata_nodes.h -- asking the nodes of a `.metadata` for what they should be, with an error
 * that says what they are.  What is copied out of a node is copied once (node->kept), however
 * often the node is referred to: so memory stays linear in the size of the file.
 */
#ifndef FORMAT_DCP_METADATA_NODES_H
#define FORMAT_DCP_METADATA_NODES_H

#include "format/pickle.h"

struct dcp_nodes {
    struct arena *arena; /* where copies go */
    struct sidestep_error *err;
};

/* Of an object: NEWOBJ's class, or what copyreg._reconstructor() (protocols 0 and 1) was told. */
bool dcp_nodes_is_instance(const struct pickle_node *node, const char *class);

/* Fail: "${what} is not ${wanted}" (ECORRUPT), or that a symbol stands there (EUNSAFE). */
enum sidestep_status dcp_nodes_type_error(const struct dcp_nodes *n, const struct pickle_node *node,
                                          const char *what, const char *wanted);

/* The fields of an object of ${class}; ${*fields} is NULL if it has none. */
enum sidestep_status dcp_nodes_fields(const struct dcp_nodes *n, const struct pickle_node *node,
                                      const char *what, const char *class,
                                      const struct pickle_node **fields);
/* A field; NULL if it is absent or None, or there are no fields. */
struct pickle_node *dcp_nodes_field(const struct pickle_node *fields, const char *name);

/* UTF-8 without NUL, at most ${max} bytes; lives in the arena. */
enum sidestep_status dcp_nodes_text(const struct dcp_nodes *n, struct pickle_node *node,
                                    const char *what, size_t max, const char **text);
/* 0 or more. */
enum sidestep_status dcp_nodes_count(const struct dcp_nodes *n, const struct pickle_node *node,
                                     const char *what, uint64_t *count);
/* torch.Size or a tuple of integers; lives in the arena.  Negative ones are not refused here. */
enum sidestep_status dcp_nodes_size(const struct dcp_nodes *n, const struct pickle_node *node,
                                    const char *what, uint32_t *ndim, const int64_t **lengths);
/* torch's name of an element type; lives in the arena. */
enum sidestep_status dcp_nodes_dtype(const struct dcp_nodes *n, struct pickle_node *node,
                                     const char **name);
/* Strided, or a refusal. */
enum sidestep_status dcp_nodes_check_layout(const struct dcp_nodes *n,
                                            const struct pickle_node *node);
/* One of the spellings of torch's memory formats, or a refusal. */
enum sidestep_status dcp_nodes_check_memory_format(const struct dcp_nodes *n,
                                                   const struct pickle_node *node);
/* A str or a pathlib object as text; ${*path} is NULL if it is not UTF-8. */
enum sidestep_status dcp_nodes_path(const struct dcp_nodes *n, struct pickle_node *node,
                                    const char *what, const char **path);

#endif
