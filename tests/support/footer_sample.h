/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * footer_sample.h -- a footer with everything that a footer may contain, and a file that ends with
 * it but has no items.
 */
#ifndef SUPPORT_FOOTER_SAMPLE_H
#define SUPPORT_FOOTER_SAMPLE_H

#include "format/footer.h"

/* The items end, and the footer begins, at this offset. */
#define SAMPLE_ITEMS_END ((uint64_t)4 << 20)

enum { WEIGHT, BIG, SCALAR, EMPTY, WIDE, LISTED, UTF8, MANY, OBJECT, NOTHING, SAMPLES };

struct sample {
    struct footer footer;
    struct footer_item items[SAMPLES];
};
void sample_init(struct sample *sample);
/* Append footer and trailer; fail the test if that fails. */
void sample_encode(const struct sample *sample, struct buffer *out);

/* A file of ${prefix} zeroes that take no memory, and ${bytes}. Fault point: "read". */
struct sample_file {
    struct source source;
    uint8_t *bytes;
    uint64_t prefix;
    unsigned reads_before_change; /* after these, the byte 60 before the end changes; 0: never */
};
void sample_file_init(struct sample_file *file, uint64_t prefix, uint8_t *bytes, size_t length);
/* Call footer_read() on a file that ends with ${bytes}, which end at a guard page. */
enum sidestep_status sample_read(const void *bytes, size_t length, struct arena *arena,
                                 struct footer *out, struct sidestep_error *err);

void sample_put_le(uint8_t *to, uint64_t value, unsigned bytes);
/* Recompute the hashes of an encoded footer and trailer. */
void sample_fix_hashes(uint8_t *bytes, size_t length);
/* Flip each bit behind the hashes of a footer, and correct those: what is read again encodes to the
 * same bytes. Counts the flips that are read, and those that are refused. */
void sample_flip_bits(uint8_t *bytes, size_t length, size_t *accepted, size_t *refused);
/* Fail the test unless all fields are the same. */
void sample_assert_equal(const struct footer_item *a, const struct footer_item *b);

#endif
