/* SPDX-License-Identifier: BSD-3-Clause */
/* chunk_list.c -- see chunk_list.h: writes lists of stored chunks. */
#include "format/chunk_list.h"

#include <assert.h>
#include <string.h>

#define NO_SHAPE (SIDESTEP_MAX_NDIM + 1u)
#define NUMBER_BYTES 10u /* at most, of 64 bits */

struct chunk_list *chunk_list_new(struct sidestep_error *err)
{
    struct chunk_list *list = memory_new(1, sizeof(*list));

    if (list == NULL)
        (void)FAIL_NOMEM(err, sizeof(*list));
    else
        list->ndim = NO_SHAPE;
    return list;
}

void chunk_list_free(struct chunk_list **list)
{
    if (*list == NULL)
        return;
    buffer_release(&(*list)->bytes);
    free(*list);
    *list = NULL;
}

void chunk_list_begin(struct chunk_list *list)
{
    list->name[0] = '\0';
    list->ndim = NO_SHAPE;
}

static void put_number(struct buffer *b, uint64_t number)
{
    uint8_t *to = buffer_extend(b, NUMBER_BYTES);
    size_t used = 0;

    if (to == NULL)
        return;
    for (; number >= 0x80; number >>= 7)
        to[used++] = (uint8_t)(number | 0x80);
    to[used++] = (uint8_t)number;
    b->length -= NUMBER_BYTES - used;
}

static void put_numbers(struct buffer *b, const int64_t *numbers, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        put_number(b, (uint64_t)numbers[i]);
}

static void put_text(struct buffer *b, const char *text, size_t length)
{
    put_number(b, length);
    buffer_put(b, text, length);
}

static void put_name(struct chunk_list *list, const char *name)
{
    size_t length = strlen(name), common = 0;

    assert(length <= SIDESTEP_MAX_NAME);
    while (common < length && name[common] == list->name[common])
        common++;
    put_number(&list->bytes, common);
    put_text(&list->bytes, name + common, length - common);
    memcpy(list->name + common, name + common, length - common + 1);
}

static bool has_same_shape(const struct chunk_list *list, const struct chunk_record *record)
{
    return list->ndim == record->ndim &&
           (record->ndim == 0 ||
            memcmp(list->shape, record->shape, record->ndim * sizeof(*record->shape)) == 0);
}

static uint8_t flags_of(const struct chunk_list *list, const struct chunk_record *record)
{
    uint8_t flags = record->transform != NULL ? CHUNK_LIST_TRANSFORM : 0;

    if (record->is_first) {
        flags |= CHUNK_LIST_FIRST;
        if (record->path_length != 0 &&
            path_matches_name(record->name, record->path, record->path_length))
            flags |= CHUNK_LIST_JOINED;
    }
    if (record->is_object)
        return flags | CHUNK_LIST_OBJECT;
    if (record->requires_grad)
        flags |= CHUNK_LIST_REQUIRES_GRAD;
    if (has_same_shape(list, record))
        flags |= CHUNK_LIST_SAME_SHAPE;
    return box_is_whole(&record->box, record->shape) ? flags | CHUNK_LIST_WHOLE : flags;
}

static void put_tensor(struct chunk_list *list, const struct chunk_record *record, uint8_t flags)
{
    struct buffer *b = &list->bytes;

    assert(record->ndim <= SIDESTEP_MAX_NDIM && record->box.ndim == record->ndim);
    buffer_put_u8(b, (uint8_t)record->dtype);
    if ((flags & CHUNK_LIST_SAME_SHAPE) == 0) {
        put_number(b, record->ndim);
        put_numbers(b, record->shape, record->ndim);
        list->ndim = record->ndim;
        if (record->ndim != 0) /* otherwise the array may be NULL */
            memcpy(list->shape, record->shape, record->ndim * sizeof(*record->shape));
    }
    if ((flags & CHUNK_LIST_WHOLE) == 0) {
        put_numbers(b, record->box.offsets, record->ndim);
        put_numbers(b, record->box.lengths, record->ndim);
    }
}

static unsigned kind_of(const struct sidestep_path_item *item)
{
    if (item->key != NULL)
        return 0;
    return path_item_is_int_key(item) ? CHUNK_LIST_INT_KEY : CHUNK_LIST_INDEX;
}

static void put_path(struct buffer *b, const struct chunk_record *record, bool is_joined)
{
    char decimal[PATH_ITEM_DECIMAL_BYTES];

    put_number(b, record->place);
    put_number(b, record->path_length);
    for (uint32_t i = 0; i < record->path_length; i++) {
        const struct sidestep_path_item *item = &record->path[i];
        const char *text = path_item_text(item, decimal);
        size_t length = strlen(text);
        put_number(b, length << 2 | kind_of(item));
        if (!is_joined)
            buffer_put(b, text, length);
    }
}

void chunk_list_add(struct chunk_list *list, const struct chunk_record *record)
{
    struct buffer *b = &list->bytes;
    uint8_t flags = flags_of(list, record);

    buffer_put_u8(b, flags);
    put_name(list, record->name);
    if (record->is_first)
        put_path(b, record, (flags & CHUNK_LIST_JOINED) != 0);
    if (!record->is_object)
        put_tensor(list, record, flags);
    put_number(b, record->file);
    put_number(b, record->offset);
    put_number(b, record->length);
    if (record->transform != NULL)
        put_text(b, record->transform, strlen(record->transform));
}
