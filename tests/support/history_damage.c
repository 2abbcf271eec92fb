/* SPDX-License-Identifier: BSD-3-Clause */
/* history_damage.c -- damages the metadata or the data of a checkpoint of a random history. */
#include "support/history.h"

#include "base/owned.h"
#include "format/file_name.h"
#include "commit/name_list.h"
#include "support/unit.h"

static struct store_dir *open_dir(struct history *h, const struct known_save *of)
{
    struct store_dir *dir = NULL;
    char path[64];

    snprintf(path, sizeof(path), HISTORY_ROOT "/step-%llu", (unsigned long long)of->step);
    CHECK(store_dir_open(sim_store(h->sim, 0), NULL, path, &dir, NULL) == SIDESTEP_OK);
    return dir;
}

static bool may_damage(const struct known_save *to)
{
    return to->is_there && !to->is_damaged && !to->is_rotten && !to->is_pinned && !to->is_left &&
           !to->may_be_gone && !to->is_replaced;
}

/* Does ${other} share the file ${inode}, under any name? */
static bool has_file(struct history *h, const struct known_save *other, uint64_t inode)
{
    OWNED_DIR *dir = other->is_there ? open_dir(h, other) : NULL;
    OWNED_NAMES struct name_list names = {0};
    bool has = false;

    CHECK(dir == NULL || name_list_read(dir, &names, NULL) == SIDESTEP_OK);
    for (size_t i = 0; i < names.count; i++) {
        struct store_stat stat;
        has |= store_stat(dir, names.names[i], &stat, NULL) == SIDESTEP_OK && stat.inode == inode;
    }
    return has;
}

/* The offset of ${value} in a file, repeated as in a tensor; 0: not found. */
static uint64_t find_data(struct history *h, struct store_file *file, uint64_t size, float value)
{
    OWNED uint8_t *bytes = memory_new(size, 1);
    float pattern[FLOATS];

    for (int i = 0; i < FLOATS; i++)
        pattern[i] = value;
    CHECK(bytes != NULL && store_file_read_at(file, bytes, size, 0, NULL) == SIDESTEP_OK);
    const uint8_t *at = memmem(bytes, size, pattern, sizeof(pattern));
    return at != NULL ? (uint64_t)(at - bytes) : 0;
}

/* Damage ${file} of ${to} at ${at}, and so all checkpoints that share it. */
static void damage_at(struct history *h, const struct known_save *to, struct store_file *file,
                      uint64_t at, bool is_data)
{
    bool has[MAX_SAVES] = {false};
    struct store_stat stat;

    CHECK(store_file_stat(file, &stat, NULL) == SIDESTEP_OK);
    for (size_t i = 0; i < h->count; i++) {
        has[i] = has_file(h, &h->saves[i], stat.inode);
        if (has[i] && !may_damage(&h->saves[i]))
            return; /* the test could not tell what to expect of it */
    }
    CHECK(store_file_write_at(file, "damage", 6, at, NULL) == SIDESTEP_OK);
    CHECK(store_file_sync(file, NULL) == SIDESTEP_OK);
    for (size_t i = 0; i < h->count; i++) {
        if (!has[i])
            continue;
        h->saves[i].is_damaged |= !is_data;
        h->saves[i].is_rotten |= is_data;
        h->saves[i].may_be_gone = true; /* a resume sets it aside */
        seen.shared_damage += &h->saves[i] != to;
    }
    h->knows_files =
        h->knows_files && !is_data; /* it would share a damaged file without reading it again */
}

/* Damage the end of a file, which in a shard is the footer, or the data of a tensor. */
void history_damage(struct history *h)
{
    static const char *const names[] = {FILE_NAME_METADATA, "__0_0.distcp", "__0_1.distcp"};
    struct known_save *to = h->count != 0 ? &h->saves[prng_below(&h->prng, h->count)] : NULL;
    uint64_t which = prng_below(&h->prng, ARRAY_LENGTH(names));
    bool is_data = which != 0 && prng_below(&h->prng, 2) == 0;
    OWNED_DIR *dir = to != NULL && may_damage(to) ? open_dir(h, to) : NULL;
    OWNED_FILE *file = NULL;
    struct store_stat stat;

    if (dir == NULL || store_file_open(dir, names[which], STORE_WRITE, &file, NULL) != SIDESTEP_OK)
        return;
    CHECK(store_file_stat(file, &stat, NULL) == SIDESTEP_OK);
    float value = which == 1 ? (float)to->step : to->base; /* zeros may be padding */
    uint64_t at = stat.size - 20;
    if (is_data)
        at = value != 0 ? find_data(h, file, stat.size, value) : 0;
    if (at != 0)
        damage_at(h, to, file, at, is_data);
}
