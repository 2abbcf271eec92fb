/* SPDX-License-Identifier: BSD-3-Clause */
/* mirror_fetch.c -- brings the newest checkpoint of the mirror back to the near level; see
 * mirror.h. */
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "mirror/mirror.h"
#include "object/object.h"

#define FETCH_THREADS 8u /* a resume waits for it */

/* The save id of the checkpoint of the near level that the copy replaces: a damaged one of the same
 * save, or one that the run has left behind, here or at the mirror. NULL: there is none. */
static const char *find_replaced(const struct mirror_look *m, const struct sidestep_listed *far)
{
    for (size_t i = 0; i < m->count; i++) {
        const struct sidestep_listed *near = &m->entries[i];
        if (strcmp(near->name, far->name) != 0 || near->is_pinned || near->save_id == NULL)
            continue;
        bool is_left_behind = (near->is_abandoned || near->incarnation < far->incarnation) &&
                              near->run_id != NULL && strcmp(near->run_id, m->run_id) == 0;
        return is_left_behind || strcmp(near->save_id, far->save_id) == 0 ? near->save_id : NULL;
    }
    return NULL;
}

/* Does the near level have it, as far as a listing tells? */
static bool is_near(const struct mirror_look *m, const struct sidestep_listed *far)
{
    const struct sidestep_listed *near = mirror_find_near(m, far);

    return near != NULL && near->state == SIDESTEP_COMMITTED;
}

static enum sidestep_status copy_back(struct mirror_look *m, const struct sidestep_listed *far,
                                      struct sidestep_error *err)
{
    char to[COMMIT_PATH_BYTES];
    const char *replaced = find_replaced(m, far);
    struct checkpoint_copy c = {.source = far->path,
                                .destination = to,
                                .replaces = replaced,
                                .from = m->far.store,
                                .to = m->near.store,
                                .clock = m->clock,
                                .options = {.flags = replaced != NULL ? SIDESTEP_COPY_REPLACE : 0,
                                            .threads = FETCH_THREADS}};
    int length = snprintf(to, sizeof(to), "%.*s/%s", (int)object_url_trimmed(m->near.root),
                          m->near.root, far->name);

    if (length < 0 || (size_t)length >= sizeof(to))
        return FAIL(err, SIDESTEP_EINVAL, "the path of '%s' is too long", far->name);
    enum sidestep_status status = copy_run(&c, NULL, err);
    copy_release(&c);
    return status;
}

struct wanted {
    int64_t newer_than, at_most;
    const struct name_template *naming;
    const struct sidestep_listed *chosen; /* of the near level, at ${newer_than}; NULL: none */
};

/* Is it later in the run than what the near level has? A later incarnation may have gone back to a
 * lower step, elsewhere. Then the near level's newest is left behind, as both levels show. What
 * cannot be read may be of a later incarnation. */
static bool is_later(const struct wanted *wanted, const struct sidestep_listed *entry, int64_t step)
{
    const struct sidestep_listed *chosen = wanted->chosen;

    return step > wanted->newer_than ||
           (chosen != NULL &&
            (chosen->is_abandoned ||
             (step == wanted->newer_than &&
              (entry->incarnation > chosen->incarnation ||
               (entry->state == SIDESTEP_UNREADABLE && entry->save_id == NULL)))));
}

static bool is_single(const struct wanted *wanted)
{
    return wanted->at_most - 1 == wanted->newer_than;
}

/* What the near level has chosen, as both levels show it. */
static void find_chosen(const struct mirror_look *m, struct wanted *wanted,
                        const struct sidestep_listed *both, size_t count)
{
    for (size_t i = 0; i < count && !is_single(wanted); i++)
        if (both[i].step == wanted->newer_than && !mirror_is_far(m, &both[i]))
            wanted->chosen = &both[i];
}

static bool is_wanted(const struct mirror_look *m, const struct wanted *wanted,
                      const struct sidestep_listed *entry, int64_t *step)
{
    uint64_t named;

    if (!mirror_is_far(m, entry) || (entry->is_abandoned && !is_single(wanted)) ||
        is_near(m, entry) || !name_template_parse_name(wanted->naming, entry->name, &named) ||
        named > INT64_MAX)
        return false;
    *step = (int64_t)named;
    return is_later(wanted, entry, *step) && *step <= wanted->at_most;
}

static enum sidestep_status fetch(struct mirror_look *m, struct wanted *wanted,
                                  mirror_reject *reject, void *context, int64_t *step,
                                  struct sidestep_error *err)
{
    size_t most = m->count + m->far.list.count;
    OWNED struct sidestep_listed *both = memory_new(most + 1, sizeof(*both));

    if (both == NULL)
        return FAIL_NOMEM(err, most * sizeof(*both));
    size_t count = mirror_gather(m, both);
    find_chosen(m, wanted, both, count);
    for (size_t i = count; i-- > 0;) {
        struct sidestep_error why = {.rank = -1};
        int64_t named;
        if (!is_wanted(m, wanted, &both[i], &named))
            continue;
        if (list_check_readable(&both[i], &why) != SIDESTEP_OK)
            return choose_fail_unreadable(&why, err);
        if (both[i].state == SIDESTEP_DAMAGED) {
            reject(context, both[i].path, both[i].reason);
            continue;
        }
        enum sidestep_status status = copy_back(m, &both[i], &why);
        if (status == SIDESTEP_OK) {
            *step = named;
            return SIDESTEP_OK;
        }
        if (!mirror_is_damaged(&m->far, &both[i], status)) {
            error_wrap(&why, "bring '%s' back to '%s'", both[i].path, m->near.root);
            return error_copy(err, &why);
        }
        reject(context, both[i].path, why.message);
    }
    return SIDESTEP_OK;
}

enum sidestep_status mirror_fetch(struct mirror_look *m, int64_t newer_than, int64_t at_most,
                                  const struct name_template *naming, mirror_reject *reject,
                                  void *context, int64_t *step, struct sidestep_error *err)
{
    struct wanted wanted = {.newer_than = newer_than, .at_most = at_most, .naming = naming};

    *step = -1;
    enum sidestep_status status = mirror_read(m, err);
    if (status == SIDESTEP_OK)
        status = fetch(m, &wanted, reject, context, step, err);
    mirror_release(m);
    return status;
}

/* ---- where each node has a directory for itself: the mirror's is loaded from there */

static bool is_of_step(const struct sidestep_listed *entry, const struct name_template *naming,
                       int64_t *step)
{
    uint64_t named;

    if (!name_template_parse_name(naming, entry->name, &named) || named > INT64_MAX)
        return false;
    *step = (int64_t)named;
    return true;
}

/* Has the run gone on from ${near}, as the mirror knows it, too? */
static bool is_adopted(const struct mirror_look *m, const struct mirror_found *near)
{
    return near->is_adopted && annotations_find(&m->far.annotations, ANNOTATION_ABANDONED,
                                                near->name, near->save_id) == NULL;
}

/* Does the run go on from ${entry}, if its near level has come to ${near}? A later incarnation left
 * behind what had the same step or a higher one, unless the run has gone back to it. What cannot be
 * read may be of a later incarnation. */
static bool is_later_than(const struct mirror_look *m, const struct mirror_found *near,
                          const struct sidestep_listed *entry, int64_t step)
{
    if (near->step < 0)
        return true;
    if (entry->incarnation > near->incarnation && !(is_adopted(m, near) && step <= near->step))
        return true;
    if (entry->save_id == NULL)
        return step >= near->step;
    return step > near->step && (entry->incarnation == near->incarnation ||
                                 annotations_find(&m->far.annotations, ANNOTATION_ADOPTED,
                                                  entry->name, entry->save_id) != NULL);
}

static bool is_wanted_later(const struct mirror_look *m, const struct mirror_wanted *wanted,
                            const struct sidestep_listed *entry, int64_t *step)
{
    if (!mirror_is_far(m, entry) || !is_of_step(entry, wanted->naming, step) ||
        (entry->save_id != NULL && name_list_contains(wanted->passed, entry->save_id)))
        return false;
    return wanted->asked >= 0
               ? *step == wanted->asked
               : !entry->is_abandoned && is_later_than(m, &wanted->near, entry, *step);
}

static enum sidestep_status find_later(const struct mirror_look *m,
                                       const struct mirror_wanted *wanted,
                                       const struct sidestep_listed *both, size_t count,
                                       struct mirror_found *found, struct sidestep_error *err)
{
    for (size_t i = count; i-- > 0;) {
        const struct sidestep_listed *entry = &both[i];
        struct sidestep_error why = {.rank = -1};
        int64_t step;
        if (!is_wanted_later(m, wanted, entry, &step))
            continue;
        if (list_check_readable(entry, &why) != SIDESTEP_OK)
            return choose_fail_unreadable(&why, err);
        if (entry->state == SIDESTEP_DAMAGED || entry->save_id == NULL) {
            wanted->reject(wanted->context, entry->path, entry->reason);
            continue;
        }
        *found = (struct mirror_found){.step = step, .incarnation = entry->incarnation};
        snprintf(found->save_id, sizeof(found->save_id), "%s", entry->save_id);
        snprintf(found->name, sizeof(found->name), "%s", entry->name);
        return SIDESTEP_OK;
    }
    return SIDESTEP_OK;
}

enum sidestep_status mirror_find_later(struct mirror_look *m, const struct mirror_wanted *wanted,
                                       struct mirror_found *found, struct sidestep_error *err)
{
    OWNED struct sidestep_listed *both = NULL;

    *found = (struct mirror_found){.step = -1};
    enum sidestep_status status = mirror_read(m, err);
    if (status == SIDESTEP_OK) {
        both = memory_new(m->count + m->far.list.count + 1, sizeof(*both));
        if (both == NULL)
            status = FAIL_NOMEM(err, m->far.list.count * sizeof(*both));
    }
    if (status == SIDESTEP_OK)
        status = find_later(m, wanted, both, mirror_gather(m, both), found, err);
    mirror_release(m);
    return status;
}

/* ---- going back */

static enum sidestep_status leave_behind(struct mirror_look *m, int64_t step,
                                         struct sidestep_error *err)
{
    for (size_t i = 0; i < m->far.list.count; i++) {
        const struct sidestep_listed *far = sidestep_list_entry(&m->far.list, i);
        bool is_other = far->run_id != NULL && strcmp(far->run_id, m->run_id) != 0;
        if ((far->state != SIDESTEP_COMMITTED && far->state != SIDESTEP_UNREADABLE) ||
            far->step <= step || far->is_abandoned || is_other)
            continue;
        if (far->save_id == NULL)
            TRY(list_check_readable(far, err));
        if (far->run_id == NULL) /* another program's */
            continue;
        TRY(mirror_open_to_write(&m->far, err));
        TRY(annotations_set(m->far.annotations_dir, ANNOTATION_ABANDONED, NULL, far->name,
                            far->save_id, NULL, err));
    }
    return SIDESTEP_OK;
}

/* The same that a resume records at the near level (series_record_resume()). */
static enum sidestep_status adopt(struct mirror_look *m, int64_t step, const char *save_id,
                                  struct sidestep_error *err)
{
    char text[32];

    snprintf(text, sizeof(text), "step %lld\n", (long long)step);
    for (size_t i = 0; i < m->far.list.count; i++) {
        const struct sidestep_listed *far = sidestep_list_entry(&m->far.list, i);
        if (far->save_id == NULL || strcmp(far->save_id, save_id) != 0 || !far->is_abandoned)
            continue;
        TRY(mirror_open_to_write(&m->far, err));
        TRY(annotations_remove(m->far.annotations_dir, ANNOTATION_ABANDONED, NULL, far->name, err));
        TRY(annotations_set(m->far.annotations_dir, ANNOTATION_ADOPTED, NULL, far->name, save_id,
                            text, err));
    }
    return SIDESTEP_OK;
}

enum sidestep_status mirror_go_back(struct mirror_look *m, int64_t step, const char *save_id,
                                    struct sidestep_error *err)
{
    enum sidestep_status status = mirror_read(m, err);

    if (status == SIDESTEP_OK)
        status = leave_behind(m, step, err);
    if (status == SIDESTEP_OK && save_id != NULL)
        status = adopt(m, step, save_id, err);
    mirror_release(m);
    return WRAP(status, err, "mark at '%s' what is left behind", m->far.root);
}
