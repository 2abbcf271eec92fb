/* SPDX-License-Identifier: BSD-3-Clause */
/* latest.c -- sidestep_find_latest(): finds what a resume would take under a root, and reports what
 * it would pass over, and why. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base.h"
#include "commit/commit.h"
#include "checkpoint/checkpoint.h"
#include "object/object.h"
#include "selection/choose.h"
#include "selection/kept.h"

#define THREADS 4u /* if the caller sets no number */

/* What a report points into. */
struct finding {
    struct arena arena;
    struct sidestep_passed_over *passed; /* capacity: the number of entries in the listing */
    size_t count;
    const char *path; /* NULL: none was found */
};

/* ---- what is passed over ---- */

static const char *copy(struct finding *f, const char *text)
{
    return text != NULL ? arena_strndup(&f->arena, text, strlen(text)) : NULL;
}

static enum sidestep_status add_passed(struct finding *f, const struct sidestep_listed *entry,
                                       const char *state, const char *reason,
                                       enum sidestep_status status, struct sidestep_error *err)
{
    struct sidestep_passed_over *passed = &f->passed[f->count++];

    *passed = (struct sidestep_passed_over){.path = copy(f, entry->path),
                                            .state_name = state,
                                            .reason = copy(f, reason),
                                            .step = entry->step,
                                            .status = status};
    return passed->path != NULL && passed->reason != NULL ? SIDESTEP_OK
                                                          : FAIL_NOMEM(err, strlen(entry->path));
}

static enum sidestep_status note_rejected(void *context, const struct sidestep_listed *entry,
                                          const struct sidestep_error *why,
                                          struct sidestep_error *err)
{
    enum sidestep_status status = (enum sidestep_status)why->status;

    /* What is not supported may be whole, for another program or another version of sidestep. */
    return add_passed(context, entry,
                      status == SIDESTEP_EUNSUPPORTED ? entry->state_name : "damaged", why->message,
                      status, err);
}

/* Would a person who looks into the root take the entry for a checkpoint? */
static bool looks_like_one(const struct sidestep_listed *entry)
{
    switch (entry->state) {
    case SIDESTEP_COMMITTED:
        return list_is_skipped(entry);
    case SIDESTEP_FOREIGN:
        return list_is_link(entry) && entry->step >= 0;
    case SIDESTEP_UNREADABLE:
        return strcmp(entry->name, "lost+found") != 0;
    default:
        return entry->state == SIDESTEP_BAD || entry->state == SIDESTEP_INCOMPLETE ||
               entry->state == SIDESTEP_PART;
    }
}

static bool is_noted(const struct finding *f, const struct sidestep_listed *entry)
{
    for (size_t i = 0; i < f->count; i++)
        if (strcmp(f->passed[i].path, entry->path) == 0)
            return true;
    return false;
}

static int compare_places(const void *a, const void *b)
{
    const struct sidestep_passed_over *x = a, *y = b;

    if (x->step != y->step)
        return x->step > y->step ? -1 : 1;
    return strcmp(y->path, x->path);
}

/* Report the checkpoints that are newer than ${found} and were not even tried; all of them if
 * ${found} is NULL. */
static enum sidestep_status note_untried(struct finding *f, const struct sidestep_list *list,
                                         const char *found, struct sidestep_error *err)
{
    for (size_t i = list->count; i-- > 0;) {
        const struct sidestep_listed *entry = sidestep_list_entry(list, i);
        if (found != NULL && strcmp(entry->path, found) == 0)
            break;
        if (looks_like_one(entry) && !is_noted(f, entry))
            TRY(add_passed(f, entry, entry->state_name, entry->reason, entry->status, err));
    }
    if (f->count != 0)
        qsort(f->passed, f->count, sizeof(*f->passed), compare_places);
    return SIDESTEP_OK;
}

/* ---- choosing ---- */

/* Set ${out} to the entries of ${list} that a resume does not skip, in ${*kept}.  ${*skipped}: the
 * newest of the others, or NULL. */
static enum sidestep_status leave_out_skipped(const struct sidestep_list *list,
                                              struct sidestep_list *out,
                                              struct sidestep_listed **kept,
                                              const struct sidestep_listed **skipped,
                                              struct sidestep_error *err)
{
    *out = (struct sidestep_list){0};
    *skipped = NULL;
    *kept = memory_new(list->count + 1, sizeof(**kept));
    if (*kept == NULL)
        return FAIL_NOMEM(err, list->count * sizeof(**kept));
    for (size_t i = 0; i < list->count; i++) {
        if (list_is_skipped(sidestep_list_entry(list, i)))
            *skipped = sidestep_list_entry(list, i);
        else
            (*kept)[out->count++] = *sidestep_list_entry(list, i);
    }
    out->entries = *kept;
    return SIDESTEP_OK;
}

static bool has_candidate(const struct sidestep_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        if (list_is_candidate(sidestep_list_entry(list, i)))
            return true;
    return false;
}

/* Checkpoints of other programs count only if sidestep has nothing to load. */
static enum sidestep_status choose(struct choose_options *how, const struct sidestep_list *all,
                                   struct finding *f, struct sidestep_latest_report *report,
                                   bool *gone, struct sidestep_error *err)
{
    OWNED struct sidestep_listed *kept = NULL;
    const struct sidestep_listed *skipped;
    struct sidestep_list list;
    size_t chosen = 0;

    TRY(leave_out_skipped(all, &list, &kept, &skipped, err));
    how->with_others = !has_candidate(&list) && skipped == NULL;
    enum sidestep_status status = choose_newest_valid(how, &list, &chosen, gone, err);
    if (status == SIDESTEP_ENOTFOUND && skipped != NULL) /* and not "nothing yet" */
        return FAIL(err, SIDESTEP_EMISMATCH, "there is no checkpoint to resume from: '%s' %s",
                    skipped->name, skipped->reason);
    TRY(status);
    const struct sidestep_listed *found = &kept[chosen];
    report->path = f->path = copy(f, found->path);
    report->layout = copy(f, found->layout);
    report->step = found->step;
    report->saved_at = found->saved_at;
    if (report->path == NULL || (found->layout != NULL && report->layout == NULL))
        return FAIL_NOMEM(err, strlen(found->path));
    return SIDESTEP_OK;
}

/* A root that does not exist has no checkpoints yet.  Any other error is reported, because a caller
 * that is told "nothing yet" starts training from the beginning. */
static enum sidestep_status fail_root(const char *root, enum sidestep_status status,
                                      const struct sidestep_error *why, struct sidestep_error *err)
{
    struct stat st;
    bool is_dangling = why->sys_errno == ENOENT && lstat(root, &st) == 0;

    if (status == SIDESTEP_ENOTFOUND && (why->sys_errno == ENOTDIR || is_dangling))
        return FAIL(err, SIDESTEP_EINVAL, "'%s' is %s", root,
                    is_dangling ? "a symbolic link that leads nowhere" : "not a directory");
    return error_copy(err, why);
}

static bool was_rejected(const void *context, const struct sidestep_listed *entry)
{
    const struct finding *f = context;

    for (size_t i = 0; i < f->count; i++)
        if (strcmp(f->passed[i].path, entry->path) == 0)
            return f->passed[i].status != SIDESTEP_OK;
    return false;
}

/* Why retention keeps what was found. */
static enum sidestep_status find_kept(const struct finding *f, struct sidestep_list *list,
                                      struct sidestep_latest_report *report,
                                      struct sidestep_error *err)
{
    if (f->path == NULL)
        return SIDESTEP_OK;
    TRY(kept_mark(list, was_rejected, f, err));
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(sidestep_list_entry(list, i)->path, f->path) == 0) {
            report->kept = sidestep_list_entry(list, i)->kept;
            report->kept_because = sidestep_list_entry(list, i)->kept_because;
        }
    return SIDESTEP_OK;
}

/* Choose from ${list}, and report what is passed over. */
static enum sidestep_status report_choice(const char *root, struct choose_options *how,
                                          struct sidestep_list *list,
                                          struct sidestep_latest_report *report, bool *gone,
                                          struct sidestep_error *err)
{
    struct finding *f = report->owner;

    f->passed = arena_new(&f->arena, list->count, sizeof(*f->passed));
    if (f->passed == NULL)
        return FAIL_NOMEM(err, list->count * sizeof(*f->passed));
    enum sidestep_status status = choose(how, list, f, report, gone, err);
    if (*gone || status == SIDESTEP_ENOMEM)
        return status;
    if (status == SIDESTEP_ENOTFOUND && referenced_files_has_metadata(how->store, NULL, root))
        return FAIL(err, SIDESTEP_EINVAL,
                    "'%s' is a checkpoint itself; give the directory that contains the "
                    "checkpoints",
                    root);
    if (status != SIDESTEP_OK)
        error_wrap(err, "'%s'", root);
    TRY(note_untried(f, list, f->path, status == SIDESTEP_OK ? err : NULL));
    report->passed_count = f->count;
    report->passed = f->passed;
    if (status == SIDESTEP_OK)
        status = find_kept(f, list, report, err);
    if (status != SIDESTEP_OK)
        report->path = NULL;
    return status;
}

/* Hand ${from} out as sidestep_list_root() makes it. */
static enum sidestep_status give_list(struct sidestep_list *from, struct sidestep_list *to,
                                      bool *gone, struct sidestep_error *err)
{
    TRY(list_check(from, gone, err));
    TRY(kept_mark(from, NULL, NULL, err));
    *to = *from;
    *from = (struct sidestep_list){0};
    return SIDESTEP_OK;
}

/* Look once.  ${*gone}: a checkpoint that was found has been deleted, so look again. */
static enum sidestep_status look(const char *root, struct choose_options *how,
                                 struct sidestep_list *given, struct sidestep_latest_report *report,
                                 bool *gone, struct sidestep_error *err)
{
    OWNED_BY(sidestep_list_release) struct sidestep_list list = {0};
    struct sidestep_error why = {.rank = -1};

    *gone = false;
    enum sidestep_status status =
        list_root(how->store, root, LIST_WITH_UNREADABLE | LIST_STAYS_OPEN, &list, &why);
    if (status != SIDESTEP_OK)
        return fail_root(root, status, &why, err);
    how->root = list_root_dir(&list);
    status = report_choice(root, how, &list, report, gone, err);
    if (given == NULL || *gone || status == SIDESTEP_ENOMEM)
        return status;
    enum sidestep_status listed = give_list(&list, given, gone, err);
    if (listed != SIDESTEP_OK)
        report->path = NULL;
    return listed != SIDESTEP_OK ? listed : status;
}

/* Empty ${*report}, and give it an owner. */
static enum sidestep_status begin(struct sidestep_latest_report *report, struct choose_options *how,
                                  struct sidestep_error *err)
{
    struct finding *f = memory_new(1, sizeof(*f));

    sidestep_latest_report_release(report);
    if (f == NULL)
        return FAIL_NOMEM(err, sizeof(*f));
    *report = (struct sidestep_latest_report){.step = -1, .saved_at = -1, .owner = f};
    how->reject = note_rejected;
    how->context = f;
    return SIDESTEP_OK;
}

static enum sidestep_status find(const char *root, struct choose_options *how,
                                 struct sidestep_list *list, struct sidestep_latest_report *report,
                                 struct sidestep_error *err)
{
    for (unsigned attempt = 1;; attempt++) {
        bool gone;
        TRY(begin(report, how, err));
        enum sidestep_status status = look(root, how, list, report, &gone, err);
        if (!gone)
            return status;
        if (list != NULL)
            sidestep_list_release(list);
        if (attempt == LIST_MAX_ATTEMPTS) /* and not "nothing yet" */
            return FAIL(err, SIDESTEP_ELOCKED,
                        "'%s': each checkpoint that was found was deleted before it could be "
                        "looked at",
                        root);
    }
}

const struct sidestep_passed_over *
sidestep_latest_report_passed(const struct sidestep_latest_report *report, size_t i)
{
    const struct sidestep_passed_over *entries = report->passed;

    return i < report->passed_count ? &entries[i] : NULL;
}

void sidestep_latest_report_release(struct sidestep_latest_report *report)
{
    struct finding *f = report->owner;

    if (f != NULL)
        arena_release(&f->arena);
    free(f);
    *report = (struct sidestep_latest_report){.step = -1, .saved_at = -1};
}

static enum sidestep_status find_in(const char *root, enum sidestep_verify_mode verify,
                                    const struct sidestep_verify_options *theirs,
                                    struct sidestep_list *list,
                                    struct sidestep_latest_report *report,
                                    struct sidestep_error *err)
{
    OWNED_BY(workers_free) struct workers *workers = NULL;
    OWNED_STORE *store = NULL;
    struct sidestep_verify_options options;

    if (root == NULL || report == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "root or report is NULL");
    *report = (struct sidestep_latest_report){.step = -1, .saved_at = -1};
    TRY(options_copy(&options, sizeof(options), theirs, "verify options", err));
    if (options.flags != 0)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "verify options: unknown flags 0x%x",
                    options.flags);
    TRY(object_path_open(root, &store, err));
    if (verify != SIDESTEP_VERIFY_STRUCTURE)
        TRY(workers_new((options.threads != 0 ? options.threads : THREADS) - 1, "sidestep-verify",
                        &workers, err));
    const struct verify_options inner = {
        .on_progress = options.on_progress, .context = options.context, .cancel = options.cancel};
    struct choose_options how = {
        .store = store, .mode = verify, .workers = workers, .options = &inner};
    return find(root, &how, list, report, err);
}

enum sidestep_status sidestep_find_latest(const char *root, enum sidestep_verify_mode verify,
                                          const struct sidestep_verify_options *options,
                                          struct sidestep_latest_report *report,
                                          struct sidestep_error *err)
{
    return find_in(root, verify, options, NULL, report, err);
}

enum sidestep_status sidestep_look(const char *root, enum sidestep_verify_mode verify,
                                   const struct sidestep_verify_options *options,
                                   struct sidestep_list *list,
                                   struct sidestep_latest_report *report,
                                   struct sidestep_error *err)
{
    if (list == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "list is NULL");
    *list = (struct sidestep_list){0};
    return find_in(root, verify, options, list, report, err);
}
