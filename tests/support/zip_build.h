/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * zip_build.h -- for tests of the archive reader: builds zip files as ordinary zip programs do
 * (sizes in local headers, no descriptors, no zip64), and finds their fields, so that tests can
 * change them.
 */
#ifndef SUPPORT_ZIP_BUILD_H
#define SUPPORT_ZIP_BUILD_H

#include "base/buffer.h"

#define ZIP_BUILD_MEMBERS 1100

struct zip_build {
    struct buffer bytes;
    struct {
        const char *name; /* owned by the caller; the whole name */
        uint32_t crc;
        uint32_t size;
        uint32_t offset;
    } members[ZIP_BUILD_MEMBERS];
    uint16_t count;
};

void zip_build_release(struct zip_build *zip);
#define OWNED_ZIP_BUILD __attribute__((cleanup(zip_build_release))) struct zip_build

void zip_build_put(struct zip_build *zip, const char *name, const void *data, size_t size);
void zip_build_text(struct zip_build *zip, const char *name, const char *text);
/* Write the directory and the end record. */
void zip_build_end(struct zip_build *zip);

enum zip_place {
    ZIP_LOCAL,
    ZIP_LOCAL_NAME,
    ZIP_LOCAL_EXTRA,
    ZIP_DATA,
    ZIP_DESCRIPTOR,
    ZIP_CENTRAL,
    ZIP_CENTRAL_NAME,
    ZIP_END64,
    ZIP_LOCATOR,
    ZIP_END,
};
/* The offset of ${place} (of the member ${name} after the prefix; NULL for the last three) in a
 * valid zip without a comment. */
size_t zip_find(const uint8_t *zip, size_t length, enum zip_place place, const char *name);

/* Little-endian numbers of ${width} bytes. */
uint64_t zip_get(const uint8_t *at, unsigned width);
void zip_set(uint8_t *at, unsigned width, uint64_t value);

#endif
