/* SPDX-License-Identifier: BSD-3-Clause */
/* mirror_owner.c -- reads and records which run a mirror has; see mirror.h. */
#include <stdio.h>
#include <string.h>

#include "mirror/mirror.h"

/* The record is a line "run <id> incarnation <n>", as the state of a series is. It has a name of
 * its own: a series whose root is this directory may have a state, too. */
#define RECORD "mirror-of"

static enum sidestep_status read_record(const struct mirror_level *far,
                                        struct lease_elsewhere *owner, struct sidestep_error *err)
{
    struct sidestep_error why = {.rank = -1};
    struct lease_state state;
    OWNED_BUFFER text = {0};

    *owner = (struct lease_elsewhere){0};
    if (far->annotations_dir == NULL)
        return SIDESTEP_OK;
    enum sidestep_status status =
        small_file_read(far->annotations_dir, RECORD, 0, LEASE_MAX_BYTES, &text, &why);
    if (status == SIDESTEP_ENOTFOUND)
        return SIDESTEP_OK;
    if (status != SIDESTEP_OK)
        return error_copy(err, &why);
    buffer_put_u8(&text, 0);
    TRY(buffer_check(&text, err));
    if (lease_state_parse((const char *)text.bytes, &state, NULL) != SIDESTEP_OK)
        return SIDESTEP_OK; /* the checkpoints tell */
    memcpy(owner->run_id, state.run_id, sizeof(owner->run_id));
    owner->incarnation = state.incarnation;
    return SIDESTEP_OK;
}

/* A run may have saved to this directory as to its own root. If it is the same run, it goes on from
 * a near level now. Its state tells no incarnation, because each deletion counts in it. */
static enum sidestep_status add_series(const struct mirror_level *far,
                                       struct lease_elsewhere *owner, struct sidestep_error *err)
{
    char run_id[SAVE_ID_HEX];
    uint64_t incarnation;

    if (far->annotations_dir == NULL ||
        lease_read(far->annotations_dir, run_id, &incarnation, NULL) != SIDESTEP_OK)
        return SIDESTEP_OK;
    if (owner->run_id[0] == '\0')
        memcpy(owner->run_id, run_id, sizeof(owner->run_id));
    if (strcmp(run_id, owner->run_id) == 0)
        return SIDESTEP_OK;
    return FAIL(err, SIDESTEP_EMISMATCH,
                "'%s' is the root of a run of its own (%s), which saves there: name another "
                "mirror; nothing was changed",
                far->root, run_id);
}

enum sidestep_status mirror_read_owner(const struct mirror_level *far,
                                       struct lease_elsewhere *owner, struct sidestep_error *err)
{
    TRY(read_record(far, owner, err));
    for (size_t i = 0; i < far->list.count; i++) {
        const struct sidestep_listed *entry = sidestep_list_entry(&far->list, i);
        if (entry->state != SIDESTEP_COMMITTED || entry->run_id == NULL)
            continue;
        if (owner->run_id[0] == '\0')
            snprintf(owner->run_id, sizeof(owner->run_id), "%s", entry->run_id);
        if (strcmp(entry->run_id, owner->run_id) != 0)
            return FAIL(err, SIDESTEP_EMISMATCH,
                        "'%s' is of another run (%s) than the mirror that it is in (%s): give each "
                        "run a mirror of its own; nothing was changed",
                        entry->path, entry->run_id, owner->run_id);
        owner->incarnation = max_u64(owner->incarnation, entry->incarnation);
    }
    return add_series(far, owner, err);
}

bool mirror_is_remembered(struct store_dir *dir, const char *mirror)
{
    OWNED_BUFFER text = {0};

    return small_file_read(dir, MIRROR_AT, 0, COMMIT_PATH_BYTES, &text, NULL) == SIDESTEP_OK &&
           text.length == object_url_trimmed(mirror) &&
           memcmp(text.bytes, mirror, text.length) == 0;
}

enum sidestep_status mirror_open_to_write(struct mirror_level *far, struct sidestep_error *err)
{
    if (far->annotations_dir != NULL)
        return SIDESTEP_OK;
    enum sidestep_status status = store_dir_make(far->dir, FILE_NAME_SERIES_DIR, err);
    if (status == SIDESTEP_OK)
        status = store_dir_sync(far->dir, err);
    if (status != SIDESTEP_OK && status != SIDESTEP_EEXISTS)
        return status;
    return store_dir_open(far->store, far->dir, FILE_NAME_SERIES_DIR, &far->annotations_dir, err);
}

enum sidestep_status mirror_record_owner(struct mirror_level *far,
                                         const struct lease_elsewhere *owner,
                                         struct sidestep_error *err)
{
    struct lease_elsewhere now;
    uint8_t id[SAVE_ID_BYTES];
    char text[128], tmp[FILE_NAME_BYTES], hex[SAVE_ID_HEX];

    TRY(read_record(far, &now, err));
    if (now.incarnation == owner->incarnation && strcmp(now.run_id, owner->run_id) == 0)
        return SIDESTEP_OK;
    TRY(mirror_open_to_write(far, err));
    TRY(random_bytes(id, sizeof(id), err)); /* several processes may record at once */
    hash_to_hex(id, sizeof(id), hex);
    snprintf(tmp, sizeof(tmp), "new.%s", hex);
    snprintf(text, sizeof(text), "run %s incarnation %llu\n", owner->run_id,
             (unsigned long long)owner->incarnation);
    return small_file_replace(far->annotations_dir, RECORD, tmp, text, strlen(text), err);
}
