/* SPDX-License-Identifier: BSD-3-Clause */
/* dcp_metadata.h -- reads `.metadata` of all versions of torch, and writes the one that most
 * versions of torch load. */
#ifndef FORMAT_DCP_METADATA_H
#define FORMAT_DCP_METADATA_H

#include "base/base.h"
#include "model/model.h"

#define DCP_METADATA_MAX_BYTES ((uint64_t)2 << 30)
#define DCP_METADATA_MIN_CHUNK_BYTES 8u           /* of the file for each chunk that it lists */
#define DCP_METADATA_MIN_PATH_BYTES 2u            /* of the file for each item of a path */
#define DCP_METADATA_MAX_FIELDS 256u              /* of one object */
#define DCP_METADATA_INT_KEYS "sidestep_int_keys" /* our attribute of Metadata */
#define DCP_METADATA_MAX_TRANSFORMS 16u           /* of one item */
#define DCP_METADATA_MAX_TRANSFORM_NAME 64u       /* bytes */

/*
 * Parse and check.
 *  - ECORRUPT: a box lies outside its shape, a chunk or a name comes twice, a chunk has no storage
 *    entry ("tensor '...': chunk at (0, 4) has no storage entry"), or a path lacks an integer key.
 *  - EUNSAFE: a file name leads out of the directory, or there is a symbol instead of data (the
 *    message names it).  Attributes that sidestep does not use may contain anything.
 *  - EUNSUPPORTED: too many dimensions, too long names or paths, or a layout that is not strided.
 * A chunk without elements is ignored if another chunk begins at its place.  plan/tiling.h checks
 * that the chunks cover a tensor.  ${*out} is set only on success.
 */
enum sidestep_status dcp_metadata_read(const void *bytes, size_t length, struct metadata *out,
                                       struct sidestep_error *err);

/*
 * Merge the metadata of one rank, of a save with use_collectives=False (`__0.metadata` ...), into
 * ${into}.  Call it in the order of the ranks: if several have a box or an object, the lowest
 * rank's is used.
 */
enum sidestep_status dcp_metadata_merge(struct metadata *into, const struct metadata *more,
                                        struct sidestep_error *err);

/* Append the pickle (protocol 4) of ${metadata}, with version "1.0.0".  storage_meta has the
 * checkpoint_id (str or None) and the save_id.  planner_data has the path of each entry (by default
 * its name).  There, integer keys are text; DCP_METADATA_INT_KEYS says where they are.  Takes
 * linear time, at about 1 GB/s. */
enum sidestep_status dcp_metadata_write(struct buffer *out, const struct metadata *metadata,
                                        struct sidestep_error *err);

/* ${end} has the last bytes of a `.metadata` that dcp_metadata_write() made.  Is its save_id this
 * one?  No text in it can look like the save_id's bytes, which are not UTF-8.  False also if many
 * integer keys follow the save_id, so that it lies before ${end}: then only dcp_metadata_read() can
 * tell. */
#define DCP_METADATA_END_BYTES 4096u
bool dcp_metadata_end_has_save_id(const void *end, size_t length, const char *save_id);

#endif
