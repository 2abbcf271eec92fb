/* SPDX-License-Identifier: BSD-3-Clause */
/* space_report.c -- see space_report.h. */
#include "catalog/space_report.h"

#include <stdio.h>
#include <string.h>

#include "base/owned.h"
#include "engine/engine.h"
#include "series/prune.h"

/* Like `sidestep prune --keep-last 1 --dry-run`. */
static bool look(struct store_dir *root, const char *path, const char *run_id, uint64_t *bytes,
                 size_t *count)
{
    static const struct retention only_newest = {.wanted = true};
    struct collecting *report = collecting_new(path);
    OWNED_DIR *marks = NULL;

    if (report == NULL)
        return false;
    (void)store_dir_open(root->store, root, NAMES_SERIES_DIR, &marks, NULL);
    struct prune prune = {.store = root->store,
                          .path = path,
                          .root = root,
                          .marks = marks,
                          .retention = &only_newest,
                          .run_id = run_id,
                          .dry_run = true,
                          .report = report};
    bool done = prune_run(&prune, NULL) == SIDESTEP_OK && !report->failed;
    *bytes = report->bytes;
    *count = report->removed_count;
    collecting_free(report);
    return done && *count != 0;
}

void room_describe(struct store_dir *root, const char *path, const char *run_id,
                   char words[ROOM_WORDS])
{
    bool is_series = run_id != NULL && run_id[0] != '\0';
    uint64_t bytes = 0;
    size_t count = 0;

    words[0] = '\0';
    if (look(root, path, is_series ? run_id : NULL, &bytes, &count))
        snprintf(words, ROOM_WORDS,
                 "; deleting all checkpoints but the newest would free %llu bytes (%zu "
                 "checkpoint%s): %s`sidestep prune --keep-last 1` does that%s",
                 (unsigned long long)bytes, count, count != 1 ? "s" : "",
                 is_series ? "on_full=\"make_room\" (SIDESTEP_SERIES_MAKE_ROOM) does that before "
                             "a save, and "
                           : "",
                 is_series ? " when this run has ended" : "");
}

/* Describe the parent directory of the checkpoint. */
static void describe(struct sidestep_save *save, char words[ROOM_WORDS])
{
    const struct commit *commit = &save->commit;
    size_t length = strlen(commit->path) - strlen(commit->name);
    char root[COMMIT_PATH_BYTES];

    memcpy(root, commit->path, length);
    root[length > 1 ? length - 1 : length] = '\0';
    room_describe(commit->parent, root, commit->run_id, words);
}

void room_report(struct sidestep_error *err, struct store_dir *dir, const char *what,
                 uint64_t needed, uint64_t stored, const char *words)
{
    struct store_traits traits = {0};

    if (err == NULL || err->status != SIDESTEP_ENOSPC || err->sys_errno == EFBIG)
        return;
    if (err->sys_errno == EDQUOT)
        error_wrap(err, "%s take %llu bytes, more than the quota allows%s", what,
                   (unsigned long long)needed, words);
    else if (store_dir_traits(dir, &traits, NULL) == SIDESTEP_OK && traits.has_free_bytes)
        error_wrap(err, "the storage is full: %s take %llu bytes, and %llu were free%s", what,
                   (unsigned long long)needed, (unsigned long long)(traits.free_bytes + stored),
                   words);
}

static uint64_t needed_by(struct sidestep_save *save)
{
    pthread_mutex_lock(&save->shared.lock);
    uint64_t needed = save->shared.info.bytes_total;
    pthread_mutex_unlock(&save->shared.lock);
    return needed;
}

/* Another rank failed.  If space is short now, add what only rank 0 looks for. */
static void explain_other(struct sidestep_save *save, struct sidestep_error *why)
{
    struct store_traits traits = {0};
    char words[ROOM_WORDS] = "";

    if (store_dir_traits(save->commit.dir, &traits, NULL) != SIDESTEP_OK ||
        !traits.has_free_bytes || traits.free_bytes >= needed_by(save))
        return;
    describe(save, words);
    if (words[0] != '\0')
        error_wrap(why, "%llu bytes are free%s", (unsigned long long)traits.free_bytes, words);
}

void room_explain(struct sidestep_save *save, struct sidestep_error *why)
{
    struct commit *commit = &save->commit;
    char words[ROOM_WORDS] = "", what[40];

    if (commit->dir == NULL)
        return;
    if (commit->rank == 0 && why->status == SIDESTEP_EPEER)
        explain_other(save, why);
    if (why->status != SIDESTEP_ENOSPC)
        return;
    if (commit->rank == 0)
        describe(save, words);
    snprintf(what, sizeof(what), "the files of rank %u", commit->rank);
    room_report(why, commit->dir, what, needed_by(save), commit_shards_stored(commit), words);
}
