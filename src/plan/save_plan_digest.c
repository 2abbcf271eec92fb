/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * save_plan_digest.c -- hashes this rank's layout, to tell whether it has changed since the last
 * save.
 *
 * It runs at each save on the trainer's thread.  So it allocates nothing, and passes large pieces
 * to the hash.  Each text and array has its length in front, so different layouts give different
 * bytes.  Numbers are little-endian.
 */
#include "plan/save_plan.h"

#include <endian.h>
#include <string.h>

#define XXH_INLINE_ALL /* the state on the stack has the size that this header says */
#include <xxhash.h>

#define DIGEST_VERSION 1u

struct digest {
    XXH3_state_t state;
    size_t used;
    uint8_t pending[2048];
};

static void digest_flush(struct digest *d)
{
    (void)XXH3_64bits_update(&d->state, d->pending, d->used); /* fails only for NULL */
    d->used = 0;
}

static void digest_put(struct digest *d, const void *bytes, size_t length)
{
    if (length > sizeof(d->pending) - d->used)
        digest_flush(d);
    if (length > sizeof(d->pending)) {
        (void)XXH3_64bits_update(&d->state, bytes, length);
    } else if (length != 0) {
        memcpy(d->pending + d->used, bytes, length);
        d->used += length;
    }
}

static void digest_put_number(struct digest *d, uint64_t number)
{
    number = htole64(number);
    digest_put(d, &number, sizeof(number));
}

static void digest_put_text(struct digest *d, const char *text)
{
    size_t length = strlen(text);

    digest_put_number(d, length);
    digest_put(d, text, length);
}

static void digest_put_array(struct digest *d, uint32_t ndim, const int64_t *numbers)
{
    for (uint32_t i = 0; i < ndim; i++)
        digest_put_number(d, (uint64_t)numbers[i]);
}

static void digest_put_entry(struct digest *d, const struct state_entry *entry)
{
    digest_put_number(d, entry->is_object);
    digest_put_text(d, entry->name);
    digest_put_number(d, entry->path_length);
    for (uint32_t i = 0; i < entry->path_length; i++) {
        digest_put_number(d, (uint64_t)(entry->path[i].key != NULL) | entry->path[i].flags << 1);
        if (entry->path[i].key != NULL)
            digest_put_text(d, entry->path[i].key);
        else
            digest_put_number(d, (uint64_t)entry->path[i].index);
    }
    if (entry->is_object)
        return;
    digest_put_number(d, (uint64_t)entry->dtype);
    digest_put_number(d, entry->flags & STATE_LAYOUT_FLAGS);
    digest_put_number(d, entry->ndim);
    digest_put_array(d, entry->ndim, entry->shape);
    digest_put_array(d, entry->ndim, entry->box.offsets);
    digest_put_array(d, entry->ndim, entry->box.lengths);
}

uint64_t save_plan_digest(const struct sidestep_state_dict *state)
{
    struct digest d;

    d.used = 0;
    (void)XXH3_64bits_reset(&d.state);
    digest_put_number(&d, DIGEST_VERSION);
    digest_put_number(&d, state->count);
    for (size_t i = 0; i < state->count; i++)
        digest_put_entry(&d, &state->entries[i]);
    digest_flush(&d);
    uint64_t digest = XXH3_64bits_digest(&d.state);
    return digest != 0 ? digest : 1;
}
