/* SPDX-License-Identifier: BSD-3-Clause */
/* archive_rebuild.h -- reads the pickle of a tensor, without calling anything. */
#ifndef FORMAT_ARCHIVE_REBUILD_H
#define FORMAT_ARCHIVE_REBUILD_H

#include "format/archive.h"
#include "format/pickle.h"

/* The storage with the tensor's elements. */
struct archive_storage {
    const char *key; /* the member data/<key> has its bytes; lives as long as the nodes */
    uint64_t bytes;
};

/*
 * Set ${tensor}, except data_*, has_crc and swapped, from ${root}.  Checks that all its elements
 * lie inside the storage.  ECORRUPT; EUNSUPPORTED: a call of torch that does not make a plain
 * tensor; EUNSAFE: another call.
 */
enum sidestep_status archive_rebuild_parse_tensor(const struct pickle_node *root,
                                                  struct archive_tensor *tensor,
                                                  struct archive_storage *storage,
                                                  struct sidestep_error *err);

/* What a call of torch makes, if that is a tensor but no plain one: "module.Class" or "a quantised
 * tensor"; empty: it is another call. */
struct display_text archive_rebuild_describe(const struct pickle_node *call);

struct archive_member;
/*
 * Set the rest of ${tensor}: its data are in ${member}.  ECORRUPT: its size is not the one
 * that the pickle has.  If it is smaller, torch 2.6 reads uninitialised memory; if it is larger,
 * torch 2.14 refuses the file.
 */
enum sidestep_status archive_rebuild_set_data(struct archive_tensor *tensor,
                                              const struct archive_storage *storage,
                                              const struct archive_member *member, bool is_big,
                                              struct sidestep_error *err);

#endif
