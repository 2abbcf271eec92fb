/* SPDX-License-Identifier: BSD-3-Clause */
/* dcp_metadata.h -- torch's `.metadata`: reading every version, writing the most widely loadable.
 */
#ifndef FORMAT_DCP_METADATA_H
#define FORMAT_DCP_METADATA_H

#include "base/base.h"
#include "model/model.h"

#define DCP_METADATA_MAX_BYTES ((uint64_t)2 << 30)
#define DCP_METADATA_MIN_CHUNK_BYTES 8u           /* of the file, per chunk that it lists */
#define DCP_METADATA_MIN_PATH_BYTES 2u            /* ... per item of a path */
#define DCP_METADATA_MAX_FIELDS 256u              /* of one object */
#define DCP_METADATA_INT_KEYS "sidestep_int_keys" /* our attribute of Metadata */
#define DCP_METADATA_MAX_TRANSFORMS 16u           /* of one item */
#define DCP_METADATA_MAX_TRANSFORM_NAME 64u       /* bytes */

/*
 * Parse and check: file names stay beneath the directory, boxes inside their shapes, no chunk or
 * name twice, chunks without a storage entry are ECORRUPT ("tensor '...': chunk at (0, 4) has no
 * storage entry"), and so are integer keys that paths do not have.  A chunk without elements that
 * stands where another chunk begins is left out. EUNSAFE, naming it, for a symbol where data is
 * expected; attributes that nobody asks for may hold anything.  EUNSUPPORTED for more dimensions,
 * longer names or paths than we have, and for layouts other than strided.  Coverage of a tensor by
 * its chunks is not checked here (plan/tiling.h).  ${*out} is only set on success.
 */
enum sidestep_status dcp_metadata_read(const void *bytes, size_t length, struct metadata *out,
                                       struct sidestep_error *err);

/*
 * Merge the rank-local metadata of a save with use_collectives=False (`__0.metadata` ...), in rank
 * order, into ${into}: equal boxes of a tensor, and objects, are taken from the lowest rank.
 */
enum sidestep_status dcp_metadata_merge(struct metadata *into, const struct metadata *more,
                                        struct sidestep_error *err);

/* Append the pickle (protocol 4) of ${metadata}: storage_meta with checkpoint_id (str or None) and
 * save_id, planner_data for each entry (default path: its name; integer keys as text, and where
 * they are in DCP_METADATA_INT_KEYS), version "1.0.0".  Linear, about 1 GB/s. */
enum sidestep_status dcp_metadata_write(struct buffer *out, const struct metadata *metadata,
                                        struct sidestep_error *err);

#endif
