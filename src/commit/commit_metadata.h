/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * commit_metadata.h -- builds `.metadata` from the footers of the shards, one footer after the
 * other.
 *
 * It is the only builder, at commit and when a lost `.metadata` is rebuilt. So code that has
 * checked that a `.metadata` is the one that was built need not parse it. The order of the footers
 * decides the order of the entries and chunks.
 */
#ifndef COMMIT_COMMIT_METADATA_H
#define COMMIT_COMMIT_METADATA_H

#include "format/format.h"
#include "model/model.h"

struct commit_metadata_chunk {
    size_t entry;
    struct metadata_chunk chunk;
};
/* Zeroed, with ${out} and ${copies} set: ready for the first footer. */
struct commit_metadata_builder {
    struct metadata *out;
    bool copies;          /* copy what ${out} needs of a footer; otherwise footers outlive ${out} */
    struct arena scratch; /* ${chunks} */
    struct commit_metadata_chunk *chunks; /* of all tensors, in the order of files and items */
    size_t count, capacity;
    size_t next;           /* the entry after that of the last item: mostly that of the next one */
    const char *transform; /* the last one that was copied */
};
void commit_metadata_builder_release(struct commit_metadata_builder *builder);
#define OWNED_METADATA_BUILDER                                                                     \
    __attribute__((cleanup(commit_metadata_builder_release))) struct commit_metadata_builder

/* Add a footer. ${name} of its file must outlive ${out}. EDISAGREE: the footers contradict each
 * other. */
enum sidestep_status commit_metadata_add(struct commit_metadata_builder *builder,
                                         const struct footer *footer, const char *name,
                                         struct sidestep_error *err);
/* All footers are added: complete ${out}, and release the builder. */
enum sidestep_status commit_metadata_finish(struct commit_metadata_builder *builder,
                                            struct sidestep_error *err);
/* Check that the boxes of all footers tile every tensor. EDISAGREE: they do not. */
enum sidestep_status commit_metadata_check_tiling(const struct metadata *metadata,
                                                  struct sidestep_error *err);

/* Build all of ${out} from footers that outlive it. ${names} are the names of their files. */
enum sidestep_status commit_metadata_from_footers(const struct footer *footers,
                                                  const char *const *names, size_t count,
                                                  struct metadata *out, struct sidestep_error *err);

/* A smaller index of chunks is not stored: to parse .metadata, which is read anyway, is as fast as
 * to open one file more. */
#define COMMIT_MIN_INDEX_BYTES ((size_t)64 << 10)
/* Append the index of chunks to ${out}, which is empty, and set manifest->index.  If none is
 * stored,
 * ${out} stays empty. */
enum sidestep_status commit_encode_index(const struct metadata *metadata, struct manifest *manifest,
                                         struct buffer *out, struct sidestep_error *err);

#endif
