/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * archive_zip.h -- finds the members of a zip that is not trusted, and refuses a zip that other
 * readers may read in another way.
 *
 * A zip describes each member two or three times: in local headers, data descriptors and the
 * directory, in 32 and in 64 bits.  Readers differ in what they use.  So all copies must agree, and
 * each byte must belong to something: the members begin at 0 and follow each other in the order of
 * the directory.  Then come the directory and the end records, and nothing else.
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
    const char *name; /* without the prefix and its '/'; without NUL and control bytes */
    size_t name_length;
    uint64_t data_offset; /* in the zip */
    uint64_t size;
    uint32_t crc;
    bool has_crc; /* false: it is 0 although there is data, so the writer omitted it */
};

#define ARCHIVE_ZIP_HEAD_BYTES 4096u
#define ARCHIVE_ZIP_TAIL_BYTES 1024u

struct archive_zip {
    bool is_large;      /* set before archive_zip_open(): a file of torch.save(), not an item */
    struct arena arena; /* for the directory and archive_zip_load() */
    const struct source *source;
    uint64_t offset; /* of the zip in the source */
    uint64_t length;
    struct archive_member *members;
    size_t count;
    /* The first and last bytes of the zip, read once.  Most items need nothing else. */
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

/* The member of this name, or NULL. */
const struct archive_member *archive_zip_find(const struct archive_zip *zip, const char *name);

/* Load all bytes of a member, and a NUL after them, and check the CRC.  They live as long as
 * ${zip}.  EUNSUPPORTED: it has more than ${max_bytes}. */
enum sidestep_status archive_zip_load(struct archive_zip *zip, const struct archive_member *member,
                                      uint64_t max_bytes, const uint8_t **bytes,
                                      struct sidestep_error *err);

/* Check the CRC of a member of any size, if it has one. */
enum sidestep_status archive_zip_verify(const struct archive_zip *zip,
                                        const struct archive_member *member,
                                        struct sidestep_error *err);

/* archive_zip_unique.c: part of archive_zip_open().  ECORRUPT: two members have one name. */
enum sidestep_status archive_zip_check_unique(const struct archive_zip *zip,
                                              struct sidestep_error *err);

/* archive_read.c: check the version, and read the byte order. */
enum sidestep_status archive_read_byte_order(struct archive_zip *zip, bool *is_big,
                                             struct sidestep_error *err);
/* archive_read.c: parse data.pkl, of at most ${max_bytes}, to nodes in ${arena}, and set the
 * arena's limit. */
enum sidestep_status archive_read_pickle(struct archive_zip *zip, uint64_t max_bytes,
                                         struct arena *arena, struct pickle_node **root,
                                         struct sidestep_error *err);

#endif
