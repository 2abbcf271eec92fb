/* SPDX-License-Identifier: BSD-3-Clause */
/* zip_build.c -- builds zip files, and finds their fields. */
#include "support/zip_build.h"

#include <stdlib.h>
#include <string.h>

#include "codec/hash.h"

void zip_build_release(struct zip_build *zip)
{
    buffer_release(&zip->bytes);
}

/* Write the fields that local header and directory share. */
static void put_fields(struct zip_build *zip, size_t i)
{
    buffer_put_u16le(&zip->bytes, 20);
    buffer_put_u16le(&zip->bytes, 0); /* flags */
    buffer_put_u16le(&zip->bytes, 0); /* method */
    buffer_put_u32le(&zip->bytes, 0x00210000);
    buffer_put_u32le(&zip->bytes, zip->members[i].crc);
    buffer_put_u32le(&zip->bytes, zip->members[i].size);
    buffer_put_u32le(&zip->bytes, zip->members[i].size);
    buffer_put_u16le(&zip->bytes, (uint16_t)strlen(zip->members[i].name));
    buffer_put_u16le(&zip->bytes, 0); /* extra */
}

void zip_build_put(struct zip_build *zip, const char *name, const void *data, size_t size)
{
    size_t i = zip->count++;

    if (i >= ZIP_BUILD_MEMBERS)
        abort();
    zip->members[i].name = name;
    zip->members[i].crc = hash_crc32(0, data, size);
    zip->members[i].size = (uint32_t)size;
    zip->members[i].offset = (uint32_t)zip->bytes.length;
    buffer_put_u32le(&zip->bytes, 0x04034b50);
    put_fields(zip, i);
    buffer_put_text(&zip->bytes, name);
    buffer_put(&zip->bytes, data, size);
}

void zip_build_text(struct zip_build *zip, const char *name, const char *text)
{
    zip_build_put(zip, name, text, strlen(text));
}

void zip_build_end(struct zip_build *zip)
{
    size_t start = zip->bytes.length;

    for (size_t i = 0; i < zip->count; i++) {
        buffer_put_u32le(&zip->bytes, 0x02014b50);
        buffer_put_u16le(&zip->bytes, 0x0314);
        put_fields(zip, i);
        buffer_put_u16le(&zip->bytes, 0); /* comment */
        buffer_put_u16le(&zip->bytes, 0); /* disk */
        buffer_put_u16le(&zip->bytes, 0);
        buffer_put_u32le(&zip->bytes, 0600u << 16);
        buffer_put_u32le(&zip->bytes, zip->members[i].offset);
        buffer_put_text(&zip->bytes, zip->members[i].name);
    }
    size_t end = zip->bytes.length;
    buffer_put_u32le(&zip->bytes, 0x06054b50);
    buffer_put_u32le(&zip->bytes, 0);
    buffer_put_u16le(&zip->bytes, zip->count);
    buffer_put_u16le(&zip->bytes, zip->count);
    buffer_put_u32le(&zip->bytes, (uint32_t)(end - start));
    buffer_put_u32le(&zip->bytes, (uint32_t)start);
    buffer_put_u16le(&zip->bytes, 0);
    if (zip->bytes.failed)
        abort();
}

uint64_t zip_get(const uint8_t *at, unsigned width)
{
    uint64_t value = 0;

    memcpy(&value, at, width);
    return value;
}

void zip_set(uint8_t *at, unsigned width, uint64_t value)
{
    memcpy(at, &value, width);
}

/* Find the directory's entry of ${name}. */
static size_t find_central(const uint8_t *zip, size_t length, const char *name)
{
    size_t at = zip_get(zip + length - 6, 4);

    while (zip_get(zip + at, 4) == 0x02014b50) {
        size_t name_bytes = zip_get(zip + at + 28, 2);
        const char *slash = memchr(zip + at + 46, '/', name_bytes);
        size_t prefix_bytes = slash != NULL ? (size_t)((const uint8_t *)slash - zip - at - 45) : 0;

        if (name_bytes - prefix_bytes == strlen(name) &&
            memcmp(zip + at + 46 + prefix_bytes, name, strlen(name)) == 0)
            return at;
        at += 46 + name_bytes + zip_get(zip + at + 30, 2);
    }
    abort();
}

size_t zip_find(const uint8_t *zip, size_t length, enum zip_place place, const char *name)
{
    if (place == ZIP_END)
        return length - 22;
    if (place == ZIP_LOCATOR)
        return length - 42;
    if (place == ZIP_END64)
        return length - 98;
    size_t central = find_central(zip, length, name);
    if (place == ZIP_CENTRAL)
        return central;
    if (place == ZIP_CENTRAL_NAME)
        return central + 46;
    size_t local = zip_get(zip + central + 42, 4);
    if (place == ZIP_LOCAL)
        return local;
    if (place == ZIP_LOCAL_NAME)
        return local + 30;
    size_t extra = local + 30 + zip_get(zip + local + 26, 2);
    if (place == ZIP_LOCAL_EXTRA)
        return extra;
    size_t data = extra + zip_get(zip + local + 28, 2);
    return place == ZIP_DATA ? data : data + zip_get(zip + central + 24, 4);
}
