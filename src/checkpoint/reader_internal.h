/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_internal.h -- internal header of reader.h: steps of opening a checkpoint. */
#ifndef CHECKPOINT_READER_INTERNAL_H
#define CHECKPOINT_READER_INTERNAL_H

#include "checkpoint/reader.h"

enum sidestep_status reader_new(struct store *store, const char *path, uint32_t flags,
                                struct reader **out, struct sidestep_error *err);
/* Hold a shared lock on .metadata, if it can be taken. */
void reader_take_lease(struct reader *r);
/* Does a manifest list this .metadata? Then its save is known, and, if the manifest lists files,
 * the footers of these files say the same as .metadata. */
enum sidestep_status reader_find_listed(struct reader *r, uint32_t flags,
                                        struct sidestep_error *err);
/* Read the manifest of the save that the metadata names, if it is one of sidestep, unless
 * reader_find_listed() has. */
enum sidestep_status reader_read_manifest(struct reader *r, uint32_t flags,
                                          struct sidestep_error *err);
/* Take the manifest that another rank has read and compared with .metadata. */
enum sidestep_status reader_take_manifest(struct reader *r, const struct buffer *text,
                                          struct sidestep_error *err);
/* List the files that manifest and metadata reference, each once. */
enum sidestep_status reader_list_files(struct reader *r, struct sidestep_error *err);
/* Must the reader open its files late? */
bool reader_is_late(const struct reader *r);
/* Open and check the files of a share. A reader that opens late only checks their sizes if they are
 * many. */
enum sidestep_status reader_open_share(struct reader *r, const struct reader_share *share,
                                       struct sidestep_error *err);
/* Check that .metadata and the footer of the file agree about a chunk, or about all. */
enum sidestep_status reader_check_chunk(struct reader *r, const struct metadata_entry *entry,
                                        const struct metadata_storage *storage,
                                        const struct box *box, struct sidestep_error *err);
enum sidestep_status reader_check_chunks(struct reader *r, struct sidestep_error *err);

#endif
