/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * archive_zip.h -- the members of a hostile zip, found in the one way that every reader would
 * find them.
 *
 * A zip says everything two or three times: in local headers, data descriptors and the directory,
 * in 32 and in 64 bits.  Readers differ in what they believe, so an archive that says different
 * things is refused, and so is one with a byte that belongs to nothing: members must lie in the
 * order of the directory, the first at 0, each where the one before ended, the directory behind
 * the last, the end records behind that, and nothing behind these.
 */
#ifndef FORMAT_ARCHIVE_ZIP_H
#define FORMAT_ARCHIVE_ZIP_H

#include "base/base.h"
#include "format/pickle.h"

#define ZIP_LOCAL_SIGNATURE 0x04034b50u
#define ZIP_DESCRIPTOR_SIGNATURE 0x08074b50u
#define ZIP_CENTRAL_SIGNATURE 0x02014b50u
#define ZIP_END64_SIGNATURE 0x06064b50u
#define ZIP_LOCATOR_SIGNATURE 0x07064b50u
#define ZIP_END_SIGNATURE 0x06054b50u

struct archive_member {
    const char *name; /* behind the prefix and its '/'; not NUL-terminated, no control bytes */
    size_t name_length;
    uint64_t data_offset; /* in the slice */
    uint64_t size;
    uint32_t crc;
    bool has_crc; /* false: zero for data that is not empty, so the writer left it out */
};

#define ARCHIVE_ZIP_HEAD_BYTES 4096u
#define ARCHIVE_ZIP_TAIL_BYTES 1024u

struct archive_zip {
    bool is_large;      /* may be set before it is opened: a file of torch.save(), not an item */
    struct arena arena; /* the directory, and what archive_zip_load() loads */
    const struct source *source;
    uint64_t offset; /* of the slice in the source */
    uint64_t length;
    struct archive_member *members;
    size_t count;
    /* The slice's ends, where most archives have all that is asked for, read once. */
    size_t head_bytes;
    size_t tail_bytes;
    uint8_t head[ARCHIVE_ZIP_HEAD_BYTES];
    uint8_t tail[ARCHIVE_ZIP_TAIL_BYTES];
    uint8_t *scratch; /* for names and extras of local headers; in the arena */
};

void archive_zip_release(struct archive_zip *zip);
#define OWNED_ARCHIVE_ZIP __attribute__((cleanup(archive_zip_release))) struct archive_zip

/* Parse the zip that fills [offset, offset + length) of ${source} into a zeroed ${zip}. */
enum sidestep_status archive_zip_open(struct archive_zip *zip, const struct source *source,
                                      uint64_t offset, uint64_t length, struct sidestep_error *err);

/* NULL if there is none. */
const struct archive_member *archive_zip_find(const struct archive_zip *zip, const char *name);

/* All bytes of a member of at most ${max_bytes} (more: EUNSUPPORTED), its CRC checked, a NUL
 * behind them; they live as long as ${zip}. */
enum sidestep_status archive_zip_load(struct archive_zip *zip, const struct archive_member *member,
                                      uint64_t max_bytes, const uint8_t **bytes,
                                      struct sidestep_error *err);

/* Check the CRC of a member of any size; a no-op if it has none. */
enum sidestep_status archive_zip_verify(const struct archive_zip *zip,
                                        const struct archive_member *member,
                                        struct sidestep_error *err);

/* archive_zip_unique.c: ECORRUPT if two members have one name.  Done when it is opened. */
enum sidestep_status archive_zip_check_unique(const struct archive_zip *zip,
                                              struct sidestep_error *err);

/* archive_read.c: its version can be read, and its byte order is big or little.  And its data.pkl,
 * of at most ${max_bytes}, as nodes in ${arena}, which gets a limit. */
enum sidestep_status archive_read_byte_order(struct archive_zip *zip, bool *is_big,
                                             struct sidestep_error *err);
enum sidestep_status archive_read_pickle(struct archive_zip *zip, uint64_t max_bytes,
                                         struct arena *arena, struct pickle_node **root,
                                         struct sidestep_error *err);

#endif
