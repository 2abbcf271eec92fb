/* SPDX-License-Identifier: BSD-3-Clause */
/* choose.c -- see choose.h: chooses the newest valid checkpoint of a listing, or explains why there
 * is none. */
#include "selection/choose.h"

#include <stdio.h>
#include <string.h>

/* The status if all candidates are rejected: EUNSUPPORTED if all have it, otherwise ECORRUPT. */
static enum sidestep_status judge_rejected(enum sidestep_status all, enum sidestep_status one)
{
    if (all == SIDESTEP_OK)
        return one == SIDESTEP_EUNSUPPORTED ? one : SIDESTEP_ECORRUPT;
    return all == one ? all : SIDESTEP_ECORRUPT;
}

/* Fail, and tell "nothing yet" from "nothing left": a run that is told "nothing yet" trains from
 * the beginning. */
static enum sidestep_status report_none(const struct sidestep_list *list,
                                        struct sidestep_error *err)
{
    const struct sidestep_listed *incomplete = NULL, *link = NULL, *part = NULL;
    size_t bad = 0;
    const char *name = "";

    for (size_t i = 0; i < list->count; i++) {
        if (list_is_link(sidestep_list_entry(list, i)) && sidestep_list_entry(list, i)->step >= 0)
            link = sidestep_list_entry(list, i);
        if (sidestep_list_entry(list, i)->state == SIDESTEP_PART)
            part = sidestep_list_entry(list, i);
        if (sidestep_list_entry(list, i)->state == SIDESTEP_INCOMPLETE)
            incomplete = sidestep_list_entry(list, i);
        if (sidestep_list_entry(list, i)->state == SIDESTEP_BAD) {
            bad++;
            name = sidestep_list_entry(list, i)->name;
        }
    }
    if (bad == 0 && link != NULL)
        return FAIL(err, SIDESTEP_EMISMATCH, "there is no checkpoint to resume from: '%s': %s",
                    link->name, link->reason);
    if (bad == 0 && part != NULL)
        return FAIL(
            err, SIDESTEP_EMISMATCH,
            "there is no checkpoint to resume from: '%s': %s; open the series on all nodes, "
            "with SIDESTEP_SERIES_PER_NODE",
            part->name, part->reason);
    if (bad == 0 && incomplete != NULL)
        return FAIL(err, SIDESTEP_ENOTFOUND, "there is no whole checkpoint yet: in '%s', %s",
                    incomplete->name, incomplete->reason);
    if (bad == 0)
        return FAIL(err, SIDESTEP_ENOTFOUND, "there is no checkpoint yet");
    return FAIL(err, SIDESTEP_ECORRUPT,
                "there is no checkpoint left: %zu are damaged and were set aside, '%s' for one",
                bad, name);
}

/* Can it be loaded: by sidestep, or, ${with_others}, by the program that wrote it? */
static bool is_choice(const struct sidestep_listed *entry, bool with_others)
{
    return list_is_candidate(entry) || (with_others && entry->state == SIDESTEP_COMPLETE);
}

/* Verify up to twice, the second time without the page cache and without what a listing remembers.
 * A checkpoint of another program without checksums cannot be verified. */
static enum sidestep_status verify_entry(const struct choose_options *how,
                                         const struct sidestep_listed *entry,
                                         struct sidestep_error *err)
{
    if (entry->state == SIDESTEP_COMPLETE && how->mode == SIDESTEP_VERIFY_STRUCTURE)
        return SIDESTEP_OK;
    if (entry->state == SIDESTEP_COMPLETE)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "it has no checksums to verify it by (%s)",
                    entry->layout);
    /* What the listing has read is not read again. */
    enum sidestep_status status =
        how->root != NULL && !entry->is_link
            ? verify_in(how->root, entry->name, entry->path, how->mode, how->workers, how->options,
                        err)
            : verify_path(how->store, entry->path, how->mode, 0, how->workers, how->options, err);
    if (status != SIDESTEP_OK && status != SIDESTEP_ENOMEM && status != SIDESTEP_ECANCELLED)
        status = verify_path(how->store, entry->path, how->mode, STORE_DROP_CACHE, how->workers,
                             how->options, err);
    return status;
}

/* Was it deleted?  A deletion removes the name first, so an error without a name is not damage. */
static bool is_gone(struct store *store, const struct sidestep_listed *entry)
{
    OWNED_DIR *dir = NULL;

    return list_is_candidate(entry) &&
           store_dir_open(store, NULL, entry->path, &dir, NULL) == SIDESTEP_ENOTFOUND;
}

enum sidestep_status choose_fail_unreadable(const struct sidestep_error *why,
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

/* Pass over ${entry}, if its error ${why} means damage.  Any other error ends the search. */
static enum sidestep_status pass_over(const struct choose_options *how,
                                      const struct sidestep_listed *entry,
                                      enum sidestep_status status, const struct sidestep_error *why,
                                      struct sidestep_error *err)
{
    if (status == SIDESTEP_ECANCELLED)
        return error_copy(err, why);
    if (!reader_status_is_damage(status)) {
        struct sidestep_error named = *why;
        error_wrap(&named, "checkpoint '%s'", entry->path);
        return choose_fail_unreadable(&named, err);
    }
    return how->reject != NULL ? how->reject(how->context, entry, why, err) : SIDESTEP_OK;
}

enum sidestep_status choose_newest_valid(const struct choose_options *how,
                                         const struct sidestep_list *list, size_t *chosen,
                                         bool *gone, struct sidestep_error *err)
{
    struct sidestep_error why = {0};
    char rejected[512] = "";
    size_t seen = 0;
    enum sidestep_status all = SIDESTEP_OK;

    *gone = false;
    for (size_t i = list->count; i-- > 0;) {
        const struct sidestep_listed *entry = sidestep_list_entry(list, i);
        if (!is_choice(entry, how->with_others))
            continue;
        seen++;
        *chosen = i;
        enum sidestep_status status = verify_entry(how, entry, &why);
        if (status == SIDESTEP_OK)
            return SIDESTEP_OK;
        *gone = is_gone(how->store, entry);
        if (*gone)
            return FAIL(err, SIDESTEP_ENOTFOUND, "'%s' was deleted meanwhile", entry->path);
        TRY(pass_over(how, entry, status, &why, err));
        all = judge_rejected(all, status);
        size_t used = strlen(rejected);
        snprintf(rejected + used, sizeof(rejected) - used, "%s'%s': %s", used != 0 ? "; " : "",
                 entry->path, why.message);
    }
    if (seen == 0)
        return report_none(list, err);
    return FAIL(err, all, "none of %zu checkpoints is valid: %s", seen, rejected);
}
