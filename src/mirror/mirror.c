/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mirror.c -- sidestep_mirror(): brings the mirror of a series up to date.
 *
 * In order: look at both levels; carry annotations; send, the newest first, until nothing is left
 * to be sent; clean up at the mirror.
 */
#include "mirror/mirror.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "commit/commit.h"
#include "object/object.h"

#define MAX_THREADS 64u

_Static_assert(sizeof(struct sidestep_mirror_options) == 64, "a field was added: check it below");

/* ---- the report */

static enum sidestep_status add_text(const char ***texts, size_t *count, size_t *capacity,
                                     const char *text, struct sidestep_error *err)
{
    const char **grown = memory_grow(*texts, capacity, *count, sizeof(*grown));

    if (grown != NULL)
        *texts = grown;
    if (grown == NULL || text == NULL)
        return FAIL_NOMEM(err, sizeof(text));
    grown[(*count)++] = text;
    return SIDESTEP_OK;
}

static enum sidestep_status add_sent(struct mirror_look *m, const char *path,
                                     struct sidestep_error *err)
{
    struct mirror_findings *f = m->findings;

    return add_text(&f->sent, &f->sent_count, &f->sent_capacity,
                    arena_strndup(&f->arena, path, strlen(path)), err);
}

/* Why it was not sent, although nothing stands against it. */
static const char *explain(struct mirror_look *m, const struct mirror_item *item)
{
    if (item->is_left_behind)
        return "it was left behind by a resume from an older checkpoint";
    if (item->step <= m->newest_there)
        return arena_printf(&m->findings->arena, "step %lld is at the mirror, which is newer",
                            (long long)m->newest_there);
    return arena_printf(&m->findings->arena,
                        "it is less than %llu steps after step %lld, which is at the mirror",
                        (unsigned long long)m->options.every, (long long)m->newest_there);
}

static enum sidestep_status note_passed(struct mirror_look *m, struct sidestep_error *err)
{
    struct mirror_findings *f = m->findings;

    for (size_t i = m->count; i-- > 0;) {
        const struct mirror_item *item = &m->items[i];
        if (item->is_there)
            continue;
        const char *why = item->objection != NULL ? item->objection : explain(m, item);
        if (why == NULL)
            return FAIL_NOMEM(err, sizeof(why));
        TRY(add_text(&f->passed, &f->passed_count, &f->passed_capacity,
                     arena_printf(&f->arena, "%s: %s", m->entries[i].path, why), err));
        if (m->report->passed_status == SIDESTEP_OK && item->step > m->newest_there)
            m->report->passed_status = item->status;
    }
    return SIDESTEP_OK;
}

static void fill_report(struct mirror_look *m)
{
    const struct mirror_findings *f = m->findings;
    struct sidestep_mirror_report *report = m->report;

    for (size_t i = 0; i < m->count; i++)
        if (!m->items[i].is_left_behind && (m->items[i].is_there || m->items[i].objection == NULL))
            report->step = m->items[i].step;
    report->mirrored_step = m->newest_there;
    report->sent = f->sent;
    report->sent_count = f->sent_count;
    report->passed = f->passed;
    report->passed_count = f->passed_count;
    if (f->pruned != NULL) {
        report->removed = f->pruned->removed;
        report->removed_count = f->pruned->removed_count;
    }
}

void sidestep_mirror_report_release(struct sidestep_mirror_report *report)
{
    struct mirror_findings *f = report->owner;

    if (f != NULL) {
        arena_release(&f->arena);
        gc_report_free(f->pruned);
        free(f->sent);
        free(f->passed);
        free(f);
    }
    *report = (struct sidestep_mirror_report){.step = -1, .mirrored_step = -1};
}

/* ---- send */

static bool is_ours_to_send(const struct mirror_look *m, size_t i)
{
    return m->entries[i].state != SIDESTEP_PART || mirror_leads_parts(m, &m->entries[i]);
}

static enum sidestep_status copy(struct mirror_look *m, size_t i, const char *to,
                                 struct sidestep_copy_report *copied, struct sidestep_error *err)
{
    bool replaces = mirror_replaces(m, m->entries[i].name); /* mirror_read() has allowed it */
    struct checkpoint_copy c = {.source = m->entries[i].path,
                                .destination = to,
                                .replaces =
                                    replaces ? mirror_find(m, m->entries[i].name)->save_id : NULL,
                                .from = m->near.store,
                                .to = m->far.store,
                                .clock = m->clock,
                                .throttle = &m->throttle,
                                .options = {.flags = replaces ? SIDESTEP_COPY_REPLACE : 0,
                                            .threads = mirror_threads(m),
                                            .on_progress = m->options.on_progress,
                                            .context = m->options.context,
                                            .cancel = m->options.cancel}};
    enum sidestep_status status = copy_run(&c, copied, err);

    copy_release(&c);
    return status;
}

/* Is it that another process cannot send its part, or keeps what a part would replace, or that
 * something has the name that was not seen as a checkpoint? */
static bool is_of_others(const struct mirror_look *m, size_t i, enum sidestep_status status)
{
    return m->entries[i].state == SIDESTEP_PART &&
           (status == SIDESTEP_EPEER || status == SIDESTEP_ELOCKED || status == SIDESTEP_EEXISTS);
}

/* Does the failure concern this checkpoint alone, so that the next one is tried? */
static bool is_of_one(const struct mirror_look *m, size_t i, enum sidestep_status status)
{
    return status == SIDESTEP_EEXISTS || is_of_others(m, i, status) ||
           mirror_is_damaged(&m->near, &m->entries[i], status);
}

/* Others are sent, and then the look fails. What another process refused is not tried again soon. A
 * reader that holds what is replaced, and what else has the name, may be gone soon. */
static void record_failure(struct mirror_look *m, size_t i, enum sidestep_status status,
                           const struct sidestep_error *why)
{
    if (!is_of_others(m, i, status) || m->failure.status != SIDESTEP_OK)
        return;
    m->failure = *why;
    if (status == SIDESTEP_EPEER)
        snprintf(m->failed_id, sizeof(m->failed_id), "%s", m->entries[i].save_id);
}

static enum sidestep_status settle(struct mirror_look *m, size_t i, struct sidestep_error *err)
{
    return m->items[i].is_asked ? name_list_add(&m->settled, m->entries[i].save_id, err)
                                : SIDESTEP_OK;
}

static enum sidestep_status record_there(struct mirror_look *m, size_t i, const char *to,
                                         struct sidestep_error *err)
{
    m->items[i].is_there = true;
    if (!m->items[i].is_left_behind && m->items[i].step > m->newest_there)
        m->newest_there = m->items[i].step;
    if (!is_ours_to_send(m, i)) /* who sent it knows what was said of it */
        return SIDESTEP_OK;
    return WRAP(mirror_annotate(m, &m->entries[i], err), err, "annotate '%s'", to);
}

static enum sidestep_status record_sent(struct mirror_look *m, size_t i, const char *to,
                                        struct sidestep_error *err)
{
    TRY(add_sent(m, to, err));
    TRY(settle(m, i, err));
    return record_there(m, i, to, err);
}

static enum sidestep_status send(struct mirror_look *m, size_t i, const char *to,
                                 struct sidestep_copy_report *copied, struct sidestep_error *err)
{
    const struct sidestep_listed *entry = &m->entries[i];

    if (!is_ours_to_send(m, i))
        return mirror_await_parts(m, entry, to, err);
    return entry->state == SIDESTEP_PART ? mirror_send_parts(m, entry, to, copied, err)
                                         : copy(m, i, to, copied, err);
}

static enum sidestep_status send_one(struct mirror_look *m, size_t i, struct sidestep_error *err)
{
    const char *root = m->far.root;
    struct sidestep_copy_report copied = {.step = -1};
    struct sidestep_error why = {.rank = -1};
    const char *to = arena_printf(&m->findings->arena, "%.*s/%s", (int)object_url_trimmed(root),
                                  root, m->entries[i].name);

    if (to == NULL)
        return FAIL_NOMEM(err, strlen(root));
    enum sidestep_status status = send(m, i, to, &copied, &why);
    m->report->bytes += copied.copied_bytes;
    if (status == SIDESTEP_OK)
        return record_sent(m, i, to, err);
    if (m->entries[i].state == SIDESTEP_PART && status == SIDESTEP_EEXISTS &&
        mirror_is_there(m, &m->entries[i], to))
        return record_there(m, i, to, err);
    if (!is_of_one(m, i, status)) {
        error_wrap(&why, "send '%s' to '%s'", m->entries[i].path, to);
        return error_copy(err, &why);
    }
    record_failure(m, i, status, &why);
    if (status != SIDESTEP_EEXISTS && status != SIDESTEP_ENOTFOUND) /* deleted meanwhile */
        m->items[i].status = status;
    if (m->items[i].status != SIDESTEP_OK && m->entries[i].state != SIDESTEP_PART)
        TRY(settle(m, i, err)); /* it is damaged */
    m->items[i].objection = arena_strndup(&m->findings->arena, why.message, strlen(why.message));
    return m->items[i].objection != NULL ? SIDESTEP_OK : FAIL_NOMEM(err, strlen(why.message));
}

static enum sidestep_status send_all(struct mirror_look *m, struct sidestep_error *err)
{
    for (;;) {
        size_t next = mirror_choose(m->items, m->count, m->newest_there, m->options.every);
        if (next == m->count)
            return SIDESTEP_OK;
        TRY(send_one(m, next, err));
    }
}

/* What the mirror has of the steps that it keeps by their number, also where this near level has
 * nothing of them: another node may have a part. */
static enum sidestep_status list_settled(struct mirror_look *m, struct sidestep_error *err)
{
    uint64_t every = m->retention.keep_every;

    for (size_t i = 0; every != 0 && i < m->far.list.count; i++) {
        const struct sidestep_listed *far = sidestep_list_entry(&m->far.list, i);
        if (far->state == SIDESTEP_COMMITTED && far->save_id != NULL && mirror_is_of_run(m, far) &&
            far->step >= 0 && (uint64_t)far->step % every == 0)
            TRY(name_list_add(&m->settled, far->save_id, err));
    }
    m->is_read = true;
    return SIDESTEP_OK;
}

static enum sidestep_status update(struct mirror_look *m, struct sidestep_error *err)
{
    TRY(mirror_read(m, err));
    TRY(list_settled(m, err));
    for (size_t i = 0; i < m->count; i++)
        if (m->items[i].is_there && is_ours_to_send(m, i))
            TRY(WRAP(mirror_annotate(m, &m->entries[i], err), err, "annotate '%s' at the mirror",
                     m->entries[i].name));
    enum sidestep_status status = send_all(m, err);
    if (m->parts != NULL && m->parts->is_over)
        mirror_end_sending(m);
    if (status != SIDESTEP_OK) {
        (void)note_passed(m, NULL);
        return status;
    }
    TRY(note_passed(m, err));
    TRY(WRAP(mirror_clean(m, err), err, "delete at the mirror"));
    return m->failure.status == SIDESTEP_OK ? SIDESTEP_OK : error_copy(err, &m->failure);
}

/* ---- the call */

enum sidestep_status mirror_check_options(const struct sidestep_mirror_options *o,
                                          struct sidestep_error *err)
{
    if (o->flags != 0)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "mirror options: unknown flags 0x%x", o->flags);
    if (o->threads > MAX_THREADS)
        return FAIL(err, SIDESTEP_EINVAL, "mirror options: at most %u threads", MAX_THREADS);
    return SIDESTEP_OK;
}

enum sidestep_status mirror_run(struct mirror_look *m, struct sidestep_mirror_report *report,
                                struct sidestep_error *err)
{
    *report = (struct sidestep_mirror_report){.step = -1, .mirrored_step = -1};
    TRY(mirror_check_options(&m->options, err));
    TRY(retention_copy(&m->retention, m->options.retention, err));
    m->findings = memory_new(1, sizeof(*m->findings));
    if (m->findings == NULL)
        return FAIL_NOMEM(err, sizeof(*m->findings));
    m->report = report;
    report->owner = m->findings;
    m->newest_there = -1;
    if (!m->is_claimed) /* not a process of the run */
        mirror_take_parts(m);
    TRY(throttle_init(&m->throttle, true, m->options.bytes_per_second, NULL, err));
    throttle_attach_thread(&m->throttle);
    enum sidestep_status status = update(m, err);
    throttle_detach_thread(&m->throttle);
    throttle_destroy(&m->throttle);
    fill_report(m);
    mirror_release(m);
    return status;
}

/* A call of sidestep_mirror(), which its thread makes. */
struct mirror_call {
    struct mirror_look look;
    struct sidestep_mirror_report report;
    struct sidestep_error err;
    enum sidestep_status status;
};

static void *run(void *argument)
{
    struct mirror_call *call = argument;

    call->status = mirror_run(&call->look, &call->report, &call->err);
    name_list_release(&call->look.settled);
    return NULL;
}

static enum sidestep_status run_apart(struct mirror_call *call, struct sidestep_error *err)
{
    pthread_t thread;

    TRY(thread_start(&thread, "sidestep-mirror", run, call, err));
    pthread_join(thread, NULL);
    return call->status == SIDESTEP_OK ? SIDESTEP_OK : error_copy(err, &call->err);
}

enum sidestep_status sidestep_mirror(const char *root, const char *mirror,
                                     const struct sidestep_mirror_options *theirs,
                                     struct sidestep_mirror_report *report,
                                     struct sidestep_error *err)
{
    OWNED_STORE *near = NULL, *far = NULL;
    struct mirror_call call = {.look.clock = clock_system(), .err.rank = -1};

    if (report != NULL)
        *report = (struct sidestep_mirror_report){.step = -1, .mirrored_step = -1};
    if (root == NULL || mirror == NULL)
        return FAIL(err, SIDESTEP_EINVAL, "root or mirror is NULL");
    TRY(options_copy(&call.look.options, sizeof(call.look.options), theirs, "mirror options", err));
    TRY(WRAP(object_path_open(root, &near, err), err, "mirror '%s'", root));
    TRY(WRAP(object_path_open(mirror, &far, err), err, "mirror to '%s'", mirror));
    call.look.near = (struct mirror_level){.root = root, .store = near};
    call.look.far = (struct mirror_level){.root = mirror, .store = far};
    enum sidestep_status status = run_apart(&call, err);
    if (report != NULL)
        *report = call.report;
    else
        sidestep_mirror_report_release(&call.report);
    return WRAP(status, err, "mirror '%s' to '%s'", root, mirror);
}
