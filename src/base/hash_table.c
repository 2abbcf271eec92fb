/* SPDX-License-Identifier: BSD-3-Clause */
/* hash_table.c -- see hash_table.h. */
#include "base/hash_table.h"

#include <assert.h>
#include <string.h>
#include <xxhash.h>

#include "base/checked.h"
#include "base/random.h"

#define TABLE_MIN_CAPACITY 64u

struct hash_table_slot {
    const char *name; /* NULL: free */
    uint64_t hash;
    size_t index;
};

void hash_table_release(struct hash_table *t)
{
    arena_release(&t->arena);
    *t = (struct hash_table){0};
}

static struct hash_table_slot *find_slot(const struct hash_table *t, const char *name,
                                         uint64_t hash)
{
    size_t mask = t->capacity - 1;
    size_t at = hash & mask;

    while (t->slots[at].name != NULL &&
           (t->slots[at].hash != hash || strcmp(t->slots[at].name, name) != 0))
        at = (at + 1) & mask;
    return &t->slots[at];
}

static uint64_t hash_name(const struct hash_table *t, const char *name)
{
    return XXH3_64bits_withSeed(name, strlen(name), t->seed);
}

size_t hash_table_find(const struct hash_table *t, const char *name)
{
    if (t->count == 0)
        return SIZE_MAX;
    struct hash_table_slot *slot = find_slot(t, name, hash_name(t, name));
    return slot->name != NULL ? slot->index : SIZE_MAX;
}

/* The largest number of names in a table of ${capacity} slots. */
static size_t max_count(size_t capacity)
{
    return capacity / 4 * 3;
}

static enum sidestep_status table_grow(struct hash_table *t, size_t capacity,
                                       struct sidestep_error *err)
{
    struct hash_table bigger = {.capacity = capacity, .count = t->count, .seed = t->seed};

    assert((capacity & (capacity - 1)) == 0);
    if (t->capacity == 0)
        TRY(random_bytes(&bigger.seed, sizeof(bigger.seed), err));
    bigger.slots = arena_new(&bigger.arena, bigger.capacity, sizeof(*bigger.slots));
    if (bigger.slots == NULL)
        return FAIL_NOMEM(err, bigger.capacity * sizeof(*bigger.slots));
    for (size_t i = 0; i < t->capacity; i++)
        if (t->slots[i].name != NULL)
            *find_slot(&bigger, t->slots[i].name, t->slots[i].hash) = t->slots[i];
    arena_release(&t->arena);
    *t = bigger;
    return SIDESTEP_OK;
}

enum sidestep_status hash_table_reserve(struct hash_table *t, size_t count,
                                        struct sidestep_error *err)
{
    size_t capacity = max_u64(t->capacity, TABLE_MIN_CAPACITY);

    while (max_count(capacity) < count && capacity <= SIZE_MAX / 2)
        capacity *= 2;
    return capacity > t->capacity ? table_grow(t, capacity, err) : SIDESTEP_OK;
}

enum sidestep_status hash_table_insert(struct hash_table *t, const char *name, size_t index,
                                       size_t *existing, struct sidestep_error *err)
{
    TRY(hash_table_reserve(t, t->count + 1, err));
    uint64_t hash = hash_name(t, name);
    struct hash_table_slot *slot = find_slot(t, name, hash);
    *existing = SIZE_MAX;
    if (slot->name != NULL) {
        *existing = slot->index;
        return SIDESTEP_OK;
    }
    *slot = (struct hash_table_slot){.name = name, .hash = hash, .index = index};
    t->count++;
    return SIDESTEP_OK;
}
