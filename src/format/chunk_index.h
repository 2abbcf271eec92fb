/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * chunk_index.h -- writes and reads `.sidestep.index.<save id>`, which says where the chunks of
 * each name are, so that a reader of few chunks reads few bytes.
 *
 * It consists of pages, which are lists of chunks (chunk_list.h) sorted by name, and a table of the
 * pages.  The manifest has the hash of the table, and the table has the hashes of the pages.
 * docs/FORMAT.md, section 4.1, specifies the bytes.
 */
#ifndef FORMAT_CHUNK_INDEX_H
#define FORMAT_CHUNK_INDEX_H

#include "base/base.h"
#include "format/footer.h"
#include "format/manifest.h"
#include "model/model.h"

#define CHUNK_INDEX_PAGE_BYTES ((size_t)64 << 10) /* a page ends after the record that fills it */
#define CHUNK_INDEX_MAX_PAGE_BYTES ((size_t)1 << 20)
#define CHUNK_INDEX_MAX_TABLE_BYTES ((size_t)64 << 20)

/* Append the index of ${metadata}, whose files are those of ${manifest}, and set manifest->index.
 * If a limit forbids one, manifest->index.bytes is 0, and nothing is appended.  ${out} must be
 * empty. */
enum sidestep_status chunk_index_encode(const struct metadata *metadata, struct manifest *manifest,
                                        struct buffer *out, struct sidestep_error *err);

struct chunk_index_page {
    uint64_t begin; /* in the file */
    uint32_t bytes;
    uint64_t hash;     /* hash_block() */
    const char *first; /* the name of its first record */
};
struct chunk_index {
    size_t page_count;
    const struct chunk_index_page *pages; /* in the order of names */
};
/* Read the table, which follows ${page_bytes} bytes of pages, and must have this ${save_id}.
 * Strings live in ${arena}.  ECORRUPT, EUNSUPPORTED. */
enum sidestep_status chunk_index_table_read(const void *table, size_t length, uint64_t page_bytes,
                                            const char *save_id, struct arena *arena,
                                            struct chunk_index *out, struct sidestep_error *err);
/* The chunks of ${name} are in pages [*begin, *end), if there are any. */
void chunk_index_find(const struct chunk_index *index, const char *name, size_t *begin,
                      size_t *end);

#endif
