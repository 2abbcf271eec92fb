/* SPDX-License-Identifier: BSD-3-Clause */
/* list_choose.c -- the newest of a listing that is valid, and what is said where there is none. */
#include <stdio.h>
#include <string.h>

#include "base/owned.h"
#include "engine/list.h"
#include "engine/verify.h"
#include "format/names.h"

/* Where all were rejected for the same reason, and that is no damage: that reason. */
static enum sidestep_status judge_rejected(enum sidestep_status all, enum sidestep_status one)
{
    bool is_access = one == SIDESTEP_EPERM || one == SIDESTEP_EIO || one == SIDESTEP_EUNSUPPORTED;

    if (all == SIDESTEP_OK)
        return is_access ? one : SIDESTEP_ECORRUPT;
    return all == one ? all : SIDESTEP_ECORRUPT;
}

/* Nothing yet, or nothing left?  A restart that is told the former trains from the beginning. */
static enum sidestep_status report_none(const struct sidestep_list *list,
                                        struct sidestep_error *err)
{
    const struct sidestep_listed *incomplete = NULL;
    size_t bad = 0;
    const char *name = "";

    for (size_t i = 0; i < list->count; i++) {
        if (list->entries[i].state == SIDESTEP_INCOMPLETE)
            incomplete = &list->entries[i];
        if (list->entries[i].state == SIDESTEP_BAD) {
            bad++;
            name = list->entries[i].name;
        }
    }
    if (bad == 0 && incomplete != NULL)
        return FAIL(err, SIDESTEP_ENOTFOUND, "there is no whole checkpoint yet: in '%s', %s",
                    incomplete->name, incomplete->reason);
    if (bad == 0)
        return FAIL(err, SIDESTEP_ENOTFOUND, "there is no checkpoint yet");
    return FAIL(
        err, SIDESTEP_ECORRUPT,
        "there is no checkpoint left: %zu are damaged, '%s' for one ('sidestep rebuild' makes "
        "a lost .metadata anew)",
        bad, name);
}

/* May it be loaded from: by us, or, ${with_others}, by the program that wrote it? */
static bool is_choice(const struct sidestep_listed *entry, bool with_others)
{
    return entry->state == SIDESTEP_COMMITTED || (with_others && entry->state == SIDESTEP_COMPLETE);
}

/* Twice, past the cache the second time; without checksums there is nothing to verify by. */
static enum sidestep_status verify_entry(struct store *store, const struct sidestep_listed *entry,
                                         enum sidestep_verify_mode mode, struct workers *workers,
                                         struct sidestep_error *err)
{
    if (entry->state == SIDESTEP_COMPLETE && mode == SIDESTEP_VERIFY_STRUCTURE)
        return SIDESTEP_OK;
    if (entry->state == SIDESTEP_COMPLETE)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "'%s' has no checksums to verify it by (%s)",
                    entry->path, entry->layout);
    enum sidestep_status status = verify_path(store, entry->path, mode, 0, workers, err);
    if (status != SIDESTEP_OK && status != SIDESTEP_ENOMEM)
        status = verify_path(store, entry->path, mode, STORE_UNCACHED, workers, err);
    return status;
}

enum sidestep_status list_choose(
    struct store *store, const struct sidestep_list *list, bool with_others,
    enum sidestep_verify_mode mode, struct workers *workers,
    enum sidestep_status (*reject)(void *context, const struct sidestep_listed *entry,
                                   const struct sidestep_error *why, struct sidestep_error *err),
    void *context, size_t *chosen, struct sidestep_error *err)
{
    struct sidestep_error why = {0};
    char rejected[512] = "";
    size_t seen = 0;
    enum sidestep_status all = SIDESTEP_OK;

    for (size_t i = list->count; i-- > 0;) {
        const struct sidestep_listed *entry = &list->entries[i];
        if (!is_choice(entry, with_others))
            continue;
        seen++;
        *chosen = i;
        enum sidestep_status status = verify_entry(store, entry, mode, workers, &why);
        if (status == SIDESTEP_OK)
            return SIDESTEP_OK;
        if (status == SIDESTEP_ENOMEM) {
            if (err != NULL)
                *err = why;
            return status;
        }
        all = judge_rejected(all, status);
        size_t used = strlen(rejected);
        snprintf(rejected + used, sizeof(rejected) - used, "%s%s", used != 0 ? "; " : "",
                 why.message);
        if (reject != NULL)
            TRY(reject(context, entry, &why, err));
    }
    if (seen == 0)
        return report_none(list, err);
    return FAIL(err, all, "none of %zu checkpoints is valid: %s", seen, rejected);
}

static bool is_checkpoint(const char *path)
{
    OWNED_DIR *dir = NULL;
    struct store_stat stat;

    return store_dir_open(store_posix(), NULL, path, &dir, NULL) == SIDESTEP_OK &&
           store_stat(dir, NAMES_METADATA, &stat, NULL) == SIDESTEP_OK;
}

enum sidestep_status sidestep_latest(const char *root, enum sidestep_verify_mode verify,
                                     char **path, struct sidestep_error *err)
{
    OWNED_BY(sidestep_list_release) struct sidestep_list list = {0};
    struct workers *workers = NULL;
    size_t chosen = 0;

    if (root == NULL || path == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "root or path is NULL");
    TRY(list_candidates(store_posix(), root, &list, err));
    TRY(workers_new(3, "sidestep-verify", &workers, err));
    enum sidestep_status status =
        list_choose(store_posix(), &list, false, verify, workers, NULL, NULL, &chosen, err);
    if (status == SIDESTEP_ENOTFOUND)
        status = list_choose(store_posix(), &list, true, verify, workers, NULL, NULL, &chosen, err);
    workers_free(&workers);
    if (status == SIDESTEP_ENOTFOUND && is_checkpoint(root))
        return FAIL(err, SIDESTEP_EINVAL,
                    "'%s' is a checkpoint itself; the latest is looked for among those in a "
                    "directory",
                    root);
    if (status != SIDESTEP_OK) {
        error_wrap(err, "'%s'", root);
        return status;
    }
    *path = memory_strdup(list.entries[chosen].path);
    return *path != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, strlen(list.entries[chosen].path));
}
