/* SPDX-License-Identifier: BSD-3-Clause */
/* footer_layout.h -- defines what the footer's writer (footer.c) and reader (footer_read.c) share.
 * docs/FORMAT.md specifies the bytes. */
#ifndef FORMAT_FOOTER_LAYOUT_H
#define FORMAT_FOOTER_LAYOUT_H

#include "format/footer.h"

#define FOOTER_VERSION 1u
#define FOOTER_MAGIC "SSFOOTER"
#define FOOTER_TRAILER_MAGIC "SIDESTEP"
#define FOOTER_MAGIC_BYTES 8u
#define FOOTER_HEADER_BYTES 64u
#define FOOTER_RECORD_BYTES 72u
#define FOOTER_TRAILER_HASHED_BYTES 56u /* bytes of the trailer that its hash covers */

/* The flags byte of a record. */
#define FOOTER_FLAG_OBJECT 0x01u
#define FOOTER_FLAG_REQUIRES_GRAD 0x02u
#define FOOTER_FLAG_WHOLE_TENSOR 0x04u /* the box is the whole tensor: only the shape is stored */
#define FOOTER_FLAG_PATH_IS_NAME 0x08u /* the path, joined by '.', is the name */
#define FOOTER_FLAG_WIDTH_SHIFT 4u     /* two bits: log2 of the bytes of a dimension */
#define FOOTER_FLAG_WIDTH_MASK 0x30u   /* the other two bits are 0 */

/* The 16-bit tag of a path item. */
#define FOOTER_PATH_INDEX 0x8000u
#define FOOTER_PATH_LENGTH 0x7fffu

/* The extensions. */
#define FOOTER_EXTENSION_HEADER_BYTES 8u
#define FOOTER_INT_KEYS_BIT 0u
#define FOOTER_INT_KEYS_BYTES 12u /* for each item with integer keys: its number, mask */
#define FOOTER_TRANSFORMS_BIT 1u
#define FOOTER_EXTRAS_BIT 2u
#define FOOTER_EXTRA_BYTES (4u + 8u + HASH_SHA256_BYTES + 1u) /* of a file, without its name */
#define FOOTER_EXTRA_ALIAS 1u
#define FOOTER_EXTRA_FIRST_RANK 2u
#define FOOTER_ENCODER_FEATURES                                                                    \
    (FOOTER_OPTIONAL_INT_KEYS | FOOTER_OPTIONAL_TRANSFORMS | FOOTER_OPTIONAL_EXTRAS)

/* The flags byte of ${item}.  No other is allowed, so that a footer has only one encoding. */
uint8_t footer_item_flags(const struct footer_item *item);

/*
 * Check all that footer.h promises about the numbers, for a file whose items end before ${end}.
 * footer_check_header() checks only those in the header and in the trailer.
 * ${status}: the status of a violation (EINVAL for a writer, ECORRUPT for a reader).
 */
enum sidestep_status footer_check_header(const struct footer *footer, enum sidestep_status status,
                                         struct sidestep_error *err);
enum sidestep_status footer_check(const struct footer *footer, uint64_t end,
                                  enum sidestep_status status, struct sidestep_error *err);

#endif
