/* SPDX-License-Identifier: BSD-3-Clause */
/* list_choose.c -- the newest of a listing that is valid, and what is said where there is none. */
#include <stdio.h>
#include <string.h>

#include "base/owned.h"
#include "commit/named.h"
#include "engine/list.h"
#include "engine/verify.h"
#include "format/names.h"

/* Where all were rejected for the same reason, and that is no damage: that reason. */
static enum sidestep_status judge_rejected(enum sidestep_status all, enum sidestep_status one)
{
    if (all == SIDESTEP_OK)
        return one == SIDESTEP_EUNSUPPORTED ? one : SIDESTEP_ECORRUPT;
    return all == one ? all : SIDESTEP_ECORRUPT;
}

/* Nothing yet, or nothing left?  A restart that is told the former trains from the beginning. */
static enum sidestep_status report_none(const struct sidestep_list *list,
                                        struct sidestep_error *err)
{
    const struct sidestep_listed *incomplete = NULL, *link = NULL;
    size_t bad = 0;
    const char *name = "";

    for (size_t i = 0; i < list->count; i++) {
        if (list_is_link(&list->entries[i]) && list->entries[i].step >= 0)
            link = &list->entries[i];
        if (list->entries[i].state == SIDESTEP_INCOMPLETE)
            incomplete = &list->entries[i];
        if (list->entries[i].state == SIDESTEP_BAD) {
            bad++;
            name = list->entries[i].name;
        }
    }
    if (bad == 0 && link != NULL)
        return FAIL(err, SIDESTEP_EMISMATCH, "there is none to resume from: '%s': %s", link->name,
                    link->reason);
    if (bad == 0 && incomplete != NULL)
        return FAIL(err, SIDESTEP_ENOTFOUND, "there is no whole checkpoint yet: in '%s', %s",
                    incomplete->name, incomplete->reason);
    if (bad == 0)
        return FAIL(err, SIDESTEP_ENOTFOUND, "there is no checkpoint yet");
    return FAIL(err, SIDESTEP_ECORRUPT,
                "there is no checkpoint left: %zu are damaged and were set aside, '%s' for one",
                bad, name);
}

bool list_is_candidate(const struct sidestep_listed *entry)
{
    return entry->state == SIDESTEP_COMMITTED || entry->state == SIDESTEP_DAMAGED;
}

/* May it be loaded from: by us, or, ${with_others}, by the program that wrote it? */
static bool is_choice(const struct sidestep_listed *entry, bool with_others)
{
    return list_is_candidate(entry) || (with_others && entry->state == SIDESTEP_COMPLETE);
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

/* What is being deleted loses its name first, so what was found wrong with it is no damage. */
static bool is_gone(struct store *store, const struct sidestep_listed *entry)
{
    OWNED_DIR *dir = NULL;

    return list_is_candidate(entry) &&
           store_dir_open(store, NULL, entry->path, &dir, NULL) == SIDESTEP_ENOTFOUND;
}

enum sidestep_status list_fail_unreadable(const struct sidestep_error *why,
                                          struct sidestep_error *err)
{
    enum sidestep_status status = FAIL(
        err, (enum sidestep_status)why->status,
        "a checkpoint could not be read, which does not mean that it is damaged, so nothing older "
        "was taken; make it readable and try again, or resume from an older step by naming it: "
        "%.400s",
        why->message);
    if (err != NULL) {
        err->sys_errno = why->sys_errno;
        err->rank = why->rank;
    }
    return status;
}

enum sidestep_status list_choose(
    struct store *store, const struct sidestep_list *list, bool with_others,
    enum sidestep_verify_mode mode, struct workers *workers,
    enum sidestep_status (*reject)(void *context, const struct sidestep_listed *entry,
                                   const struct sidestep_error *why, struct sidestep_error *err),
    void *context, size_t *chosen, bool *gone, struct sidestep_error *err)
{
    struct sidestep_error why = {0};
    char rejected[512] = "";
    size_t seen = 0;
    enum sidestep_status all = SIDESTEP_OK;

    *gone = false;
    for (size_t i = list->count; i-- > 0;) {
        const struct sidestep_listed *entry = &list->entries[i];
        if (!is_choice(entry, with_others))
            continue;
        seen++;
        *chosen = i;
        enum sidestep_status status = verify_entry(store, entry, mode, workers, &why);
        if (status == SIDESTEP_OK)
            return SIDESTEP_OK;
        *gone = is_gone(store, entry);
        if (*gone)
            return FAIL(err, SIDESTEP_ENOTFOUND, "'%s' was deleted meanwhile", entry->path);
        if (!verify_is_damage(status))
            return list_fail_unreadable(&why, err);
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

/* ${list} without what no resume would take, as a list of its own (of ${*kept}, to be freed).  The
 * newest of those is told where nothing is left. */
static enum sidestep_status pass_over(const struct sidestep_list *list, struct sidestep_list *out,
                                      struct sidestep_listed **kept, const char **passed,
                                      const char **why, struct sidestep_error *err)
{
    *out = (struct sidestep_list){0};
    *kept = memory_new(list->count + 1, sizeof(**kept));
    if (*kept == NULL)
        return FAIL_NOMEM(err, list->count * sizeof(**kept));
    for (size_t i = 0; i < list->count; i++) {
        const struct sidestep_listed *entry = &list->entries[i];
        if (entry->state == SIDESTEP_COMMITTED && entry->reason != NULL) {
            *passed = entry->name;
            *why = entry->reason;
        } else {
            (*kept)[out->count++] = *entry;
        }
    }
    out->entries = *kept;
    return SIDESTEP_OK;
}

static enum sidestep_status choose_latest(const struct sidestep_list *all,
                                          enum sidestep_verify_mode verify, struct workers *workers,
                                          const struct sidestep_listed **latest,
                                          struct sidestep_listed **kept, bool *gone,
                                          struct sidestep_error *err)
{
    const char *passed = NULL, *reason = NULL;
    struct sidestep_list list;
    size_t chosen = 0;

    TRY(pass_over(all, &list, kept, &passed, &reason, err));
    enum sidestep_status status =
        list_choose(store_posix(), &list, false, verify, workers, NULL, NULL, &chosen, gone, err);
    if (status == SIDESTEP_ENOTFOUND && passed != NULL) /* and not "nothing yet" */
        status =
            FAIL(err, SIDESTEP_EMISMATCH, "there is none to resume from: '%s' %s", passed, reason);
    else if (status == SIDESTEP_ENOTFOUND && !*gone)
        status = list_choose(store_posix(), &list, true, verify, workers, NULL, NULL, &chosen, gone,
                             err);
    *latest = status == SIDESTEP_OK ? &(*kept)[chosen] : NULL;
    return status;
}

static enum sidestep_status look_for_latest(const char *root, enum sidestep_verify_mode verify,
                                            struct workers *workers, char **path, bool *gone,
                                            struct sidestep_error *err)
{
    OWNED_BY(sidestep_list_release) struct sidestep_list list = {0};
    OWNED struct sidestep_listed *kept = NULL;
    const struct sidestep_listed *latest;

    *gone = false;
    TRY(list_candidates(store_posix(), root, &list, err));
    enum sidestep_status status = choose_latest(&list, verify, workers, &latest, &kept, gone, err);
    if (*gone)
        return SIDESTEP_ENOTFOUND;
    if (status == SIDESTEP_ENOTFOUND && named_has_metadata(store_posix(), NULL, root))
        return FAIL(err, SIDESTEP_EINVAL,
                    "'%s' is a checkpoint itself; the latest is looked for among those in a "
                    "directory",
                    root);
    if (status != SIDESTEP_OK) {
        error_wrap(err, "'%s'", root);
        return status;
    }
    *path = memory_strdup(latest->path);
    return *path != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, strlen(latest->path));
}

enum sidestep_status sidestep_latest(const char *root, enum sidestep_verify_mode verify,
                                     char **path, struct sidestep_error *err)
{
    struct workers *workers = NULL;
    enum sidestep_status status;
    bool gone = false;

    if (root == NULL || path == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "root or path is NULL");
    TRY(workers_new(3, "sidestep-verify", &workers, err));
    for (unsigned attempt = 1;; attempt++) {
        status = look_for_latest(root, verify, workers, path, &gone, err);
        if (!gone || attempt == LIST_TRIES)
            break;
    }
    workers_free(&workers);
    if (gone) /* and not "nothing yet" */
        status = FAIL(
            err, SIDESTEP_ELOCKED,
            "'%s': each checkpoint that was found was deleted before it could be looked at", root);
    return status;
}
