/* SPDX-License-Identifier: BSD-3-Clause */
/* space_report.c -- see space_report.h. */
#include "selection/space_report.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "model/model.h"
#include "selection/prune.h"

#define MAX_SHOWN_PATH 160u /* a longer path would leave no room for the rest of the message */

/* Find out what `sidestep prune --keep-last 1` would free, by a dry run. */
static bool look(struct store_dir *root, const char *path, const char *run_id, uint64_t *bytes,
                 size_t *count)
{
    static const struct retention only_newest = {.wanted = true};
    struct gc_report *report = gc_report_new(path);
    OWNED_DIR *annotations_dir = NULL;

    if (report == NULL)
        return false;
    (void)store_dir_open(root->store, root, FILE_NAME_SERIES_DIR, &annotations_dir, NULL);
    struct prune prune = {.store = root->store,
                          .path = path,
                          .root = root,
                          .annotations_dir = annotations_dir,
                          .retention = &only_newest,
                          .run_id = run_id,
                          .dry_run = true,
                          .report = report};
    bool done = prune_run(&prune, NULL) == SIDESTEP_OK && !report->failed;
    *bytes = report->bytes;
    *count = report->removed_count;
    gc_report_free(report);
    return done && *count != 0;
}

void space_describe(struct store_dir *root, const char *path, const char *run_id,
                    char words[SPACE_REPORT_BYTES])
{
    bool is_series = run_id != NULL && run_id[0] != '\0';
    uint64_t bytes = 0;
    size_t count = 0;

    words[0] = '\0';
    if (!look(root, path, is_series ? run_id : NULL, &bytes, &count))
        return;
    bool is_shown = strlen(path) <= MAX_SHOWN_PATH && strchr(path, '\'') == NULL;
    snprintf(words, SPACE_REPORT_BYTES,
             "; deleting all checkpoints but the newest would free %s (%zu "
             "checkpoint%s): %s`sidestep prune --keep-last 1 %s%s%s` does that%s",
             display_bytes(bytes).text, count, count != 1 ? "s" : "",
             is_series ? "on_full=\"make_room\" (SIDESTEP_SERIES_MAKE_ROOM) does that before "
                         "a save, and "
                       : "",
             is_shown ? "'" : "", is_shown ? path : "ROOT", is_shown ? "'" : "",
             is_series ? " when this run has ended" : "");
}

void space_report(struct sidestep_error *err, struct store_dir *dir, const char *what,
                  uint64_t needed, uint64_t stored, const char *words)
{
    struct store_traits traits = {0};

    if (err == NULL || err->status != SIDESTEP_ENOSPC || err->sys_errno == EFBIG)
        return;
    if (err->sys_errno == EDQUOT)
        error_wrap(err, "%s %s, more than the quota allows%s", what, display_bytes(needed).text,
                   words);
    else if (store_dir_traits(dir, &traits, NULL) == SIDESTEP_OK && traits.has_free_bytes)
        error_wrap(err, "the storage is full: %s %s, and %s were free%s", what,
                   display_bytes(needed).text, display_bytes(traits.free_bytes + stored).text,
                   words);
}
