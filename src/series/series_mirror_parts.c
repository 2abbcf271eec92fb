/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * series_mirror_parts.c -- the mirror of a series that is made of parts: sends the parts of this
 * node when rank 0 sends a save, and finds what is to be loaded from the mirror.
 *
 * While the run goes on, the ranks talk by what is at the mirror (mirror/mirror.h). Only where all
 * call anyway, at a save, a resume and the end, rank 0 tells the others what it knows.
 */
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "mirror/mirror.h"
#include "series/series.h"

#define FIRST_POLL_NS 100000000ull /* after a save, or an answer ... */
#define LAST_POLL_NS 5000000000ull /* ... and if nothing happens */
#define REFUSE_NS 5000000000ull    /* a save that has no part here, and is not under way here */
#define TELL_NS 1000000000ull      /* how often rank 0 tells at the end that it goes on */

/* ---- rank 0 */

/* Where the part of another node is not there, that one says so. */
static const char *find_objection(void *context, const struct sidestep_listed *part)
{
    struct sidestep_series *series = context;
    struct series_mirror *mirror = series->mirror;

    if (part->ranks < 2)
        return "its manifest is not that of a part";
    if (name_list_contains(&mirror->refused, part->save_id) && !mirror->is_awaited)
        return "another node could not send its part; closing tries again";
    if (part->incarnation == series->incarnation || series_is_whole(series, part))
        return NULL;
    return "it is a part, and whether all other parts are there is not known";
}

bool series_mirror_gives_up(void *context)
{
    struct series_mirror *mirror = ((struct sidestep_series *)context)->mirror;

    if (mirror->options.cancel != NULL && *mirror->options.cancel)
        mirror->gives_up = true;
    return mirror->gives_up;
}

void series_note_refused(struct sidestep_series *series, const struct mirror_look *m)
{
    struct series_mirror *mirror = series->mirror;

    if (m->failed_id[0] != '\0' && !name_list_contains(&mirror->refused, m->failed_id))
        (void)name_list_add(&mirror->refused, m->failed_id, NULL); /* else it is tried again */
}

void series_set_mirror_parts(struct sidestep_series *series)
{
    if (series->mirror != NULL)
        series->mirror->parts =
            (struct mirror_parts){.objection = find_objection,
                                  .gives_up = series_mirror_gives_up,
                                  .context = series,
                                  .rank = (uint32_t)series->engine->comm.rank,
                                  .timeout_ns = series->engine->timeout_ms * 1000000u};
}

void series_wake_mirror(struct sidestep_series *series)
{
    lock_acquire(&series->shared.lock);
    series->shared.mirror_begins = true;
    series->shared.mirror_wakes = true;
    lock_wake_all(&series->shared.changed);
    lock_release(&series->shared.lock);
}

/* ---- the others */

/* Is a save of this id under way here, so that there will be a part? */
static bool is_under_way(struct sidestep_series *series, const char *save_id, const char *name)
{
    lock_acquire(&series->shared.lock);
    bool found = series_is_pending(series, name); /* perhaps this rank is still in that call */
    for (unsigned i = 0; i < series->save_count && !found; i++)
        found = !save_state_is_final(save_get_state(series->saves[i])) &&
                strcmp(series->saves[i]->commit.save_id, save_id) == 0;
    lock_release(&series->shared.lock);
    return found;
}

/* How long a save has been wanted that has no part here. */
struct wanted {
    char save_id[SAVE_ID_HEX];
    uint64_t since_ns;
};

/* The save that must be refused; "": there is none. */
static const char *find_refused(struct sidestep_series *series, const struct mirror_answer *answer,
                                struct wanted *wanted)
{
    uint64_t now = clock_now(clock_system());

    if (!answer->is_wanted || strcmp(answer->save_id, wanted->save_id) != 0 ||
        is_under_way(series, answer->save_id, answer->name)) {
        *wanted = (struct wanted){.since_ns = now};
        memcpy(wanted->save_id, answer->save_id, sizeof(wanted->save_id));
        return "";
    }
    return series->mirror->is_awaited || now - wanted->since_ns >= REFUSE_NS ? wanted->save_id : "";
}

static void answer_until_stopped(struct sidestep_series *series, struct mirror_look *m)
{
    uint64_t poll_ns = FIRST_POLL_NS;
    struct mirror_answer answer = {0};
    struct wanted wanted = {0};

    for (bool stops = false; !stops && !series_mirror_gives_up(series);) {
        struct sidestep_error why = {.rank = -1};
        const char *refused = find_refused(series, &answer, &wanted);
        bool again = false;
        if (mirror_answer(m, &answer, refused, &again, &why) != SIDESTEP_OK &&
            !series_mirror_gives_up(series))
            series_emit_mirror_failed(series, &why);
        uint64_t most_ns = series->mirror->is_awaited ? LAST_POLL_NS / 10 : LAST_POLL_NS;
        poll_ns = again ? FIRST_POLL_NS : min_u64(most_ns, 2 * poll_ns);
        uint64_t began_ns = clock_now(clock_system());
        stops = series_await_mirror_work(series, poll_ns);
        if (clock_now(clock_system()) - began_ns < poll_ns) /* a save was started, or closing was */
            poll_ns = FIRST_POLL_NS;
    }
}

void series_answer_mirror(struct sidestep_series *series)
{
    struct mirror_look m = series_begin_look(series);

    m.parts = &series->mirror->parts;
    if (throttle_init(&m.throttle, true, m.options.bytes_per_second, NULL, &series->mirror->err) !=
        SIDESTEP_OK)
        return;
    throttle_attach_thread(&m.throttle);
    answer_until_stopped(series, &m);
    throttle_detach_thread(&m.throttle);
    throttle_destroy(&m.throttle);
}

/* ---- all together */

/* Let the thread of rank 0 look, and wait until it has. Meanwhile the others go on answering. */
static enum sidestep_status look_all(struct sidestep_series *series, bool stops,
                                     struct sidestep_error *err)
{
    struct comm *comm = &series->engine->comm;
    bool looks = comm->rank == 0 && series->mirror->has_thread;
    uint64_t look = 0, is_made;
    enum sidestep_status status;

    if (series->mirror != NULL)
        look = series_ask_mirror(series, stops && comm->rank == 0);
    do {
        is_made =
            !looks || series_await_look(series, look, clock_now(clock_system()) + TELL_NS) ? 1 : 0;
        status = comm_broadcast_all(comm, &is_made, sizeof(is_made), 0, err);
    } while (is_made == 0 && status == SIDESTEP_OK);
    return status;
}

enum sidestep_status series_stop_mirror_all(struct sidestep_series *series,
                                            struct sidestep_error *err)
{
    struct comm *comm = &series->engine->comm;
    enum sidestep_status status = series->has_mirror ? look_all(series, true, err) : SIDESTEP_OK;

    /* What this rank still sends, nobody waits for. After an error that is not known. */
    if (series->mirror != NULL && (status != SIDESTEP_OK || comm->rank != 0))
        series->mirror->gives_up = true;
    enum sidestep_status sent = series_stop_mirror(series, status == SIDESTEP_OK ? err : NULL);
    return status != SIDESTEP_OK ? status : sent;
}

/* Rank 0: how the look that somebody waited for has ended. */
static enum sidestep_status take_outcome(struct sidestep_series *series, struct sidestep_error *err)
{
    struct sidestep_error why;

    lock_acquire(&series->shared.lock);
    why = series->shared.mirror_err;
    lock_release(&series->shared.lock);
    if (why.status == SIDESTEP_OK)
        return SIDESTEP_OK;
    error_wrap(&why, "the newest checkpoint of '%s' is safe there, but '%s' does not have it",
               series->root, series->mirror->root);
    return error_copy(err, &why);
}

enum sidestep_status sidestep_series_flush(struct sidestep_series *series,
                                           struct sidestep_error *err)
{
    TRY(series_check(series, err));
    struct comm *comm = &series->engine->comm;
    enum sidestep_status status = SIDESTEP_OK;

    if (series->save_count != 0)
        turn_join(series->saves[0]);        /* earlier ones end before it */
    TRY(comm_agree_all(comm, status, err)); /* so all parts are there */
    if (!series->has_mirror)
        return SIDESTEP_OK;
    status = look_all(series, false, err);
    if (series->mirror != NULL)
        series->mirror->is_awaited = false;
    if (status != SIDESTEP_OK)
        return status;
    if (comm->rank == 0)
        status = take_outcome(series, err);
    return comm_agree_all(comm, status, err);
}

/* Rank 0: what the others have not been told yet, after a byte that says that there is something.
 */
static void put_settled(struct sidestep_series *series, struct buffer *news)
{
    lock_acquire(&series->shared.lock);
    if (series->shared.has_news)
        buffer_put_u8(news, 1);
    for (size_t i = 0; series->shared.has_news && i < series->shared.settled.count; i++)
        buffer_put(news, series->shared.settled.names[i], SAVE_ID_HEX);
    series->shared.has_news = false;
    lock_release(&series->shared.lock);
}

static void tell_again(struct sidestep_series *series)
{
    lock_acquire(&series->shared.lock);
    series->shared.has_news = true;
    lock_release(&series->shared.lock);
}

enum sidestep_status series_share_settled_all(struct sidestep_series *series,
                                              struct sidestep_error *err)
{
    struct comm *comm = &series->engine->comm;
    struct name_list settled = {0};
    OWNED_BUFFER news = {0};

    if (!series_has_parts(series) || !series->has_mirror)
        return SIDESTEP_OK;
    if (comm->rank == 0)
        put_settled(series, &news);
    enum sidestep_status status = comm_broadcast_buffer_all(comm, &news, err);
    if (status != SIDESTEP_OK && comm->rank == 0)
        tell_again(series);
    if (status != SIDESTEP_OK || comm->rank == 0 || news.length == 0)
        return status;
    for (size_t at = 1; at + SAVE_ID_HEX <= news.length; at += SAVE_ID_HEX) {
        news.bytes[at + SAVE_ID_HEX - 1] = '\0'; /* another rank sent it */
        (void)name_list_add(&settled, (const char *)news.bytes + at, NULL); /* else it stays */
    }
    series_set_settled(series, &settled);
    name_list_release(&settled);
    return SIDESTEP_OK;
}

struct rejecting {
    struct sidestep_series *series;
    struct series_far *far;
};

static void reject(void *context, const char *path, const char *why)
{
    struct rejecting *r = context;
    char text[COMMIT_PATH_BYTES + sizeof(((struct sidestep_error *)0)->message)];

    snprintf(text, sizeof(text), "'%s': %s", path, why);
    series_note_rejected(r->series, r->far->whole.rejected, path, text);
    r->far->has_damaged = true;
}

/* Rank 0. An error of the mirror is not "nothing there". */
static enum sidestep_status find_far(struct sidestep_series *series,
                                     const struct series_whole *whole, int64_t asked,
                                     const struct name_list *damaged, struct series_far *far,
                                     struct sidestep_error *err)
{
    struct mirror_look m = series_begin_look(series);
    struct rejecting rejecting = {series, far};
    struct mirror_found near = {
        .step = whole->step, .incarnation = whole->incarnation, .is_adopted = whole->is_adopted};
    if (whole->step >= 0)
        name_template_format_name(&series->naming, (uint64_t)whole->step, near.name);
    memcpy(near.save_id, whole->save_id, sizeof(near.save_id));
    const struct mirror_wanted wanted = {.near = near,
                                         .asked = asked,
                                         .naming = &series->naming,
                                         .passed = damaged,
                                         .reject = reject,
                                         .context = &rejecting};
    struct mirror_found found;

    TRY(series_not_absent(mirror_find_later(&m, &wanted, &found, err), err));
    far->whole.step = found.step;
    far->whole.incarnation = found.incarnation;
    memcpy(far->whole.save_id, found.save_id, sizeof(far->whole.save_id));
    int length = snprintf(far->path, sizeof(far->path), "%s/%s", series->mirror->root, found.name);
    return length > 0 && (size_t)length < sizeof(far->path)
               ? SIDESTEP_OK
               : FAIL(err, SIDESTEP_EINVAL, "the mirror's path is too long");
}

enum sidestep_status series_find_far_all(struct sidestep_series *series,
                                         const struct series_whole *near, int64_t asked,
                                         const struct name_list *damaged, struct series_far *far,
                                         struct sidestep_error *err)
{
    struct comm *comm = &series->engine->comm;
    enum sidestep_status status = SIDESTEP_OK;

    *far = (struct series_far){.whole.step = -1};
    if (!series->has_mirror)
        return SIDESTEP_OK;
    if (comm->rank == 0)
        status = find_far(series, near, asked, damaged, far, err);
    TRY(comm_agree_all(comm, status, err));
    TRY(comm_broadcast_all(comm, far, sizeof(*far), 0, err));
    far->path[sizeof(far->path) - 1] = far->whole.save_id[SAVE_ID_HEX - 1] = '\0';
    return SIDESTEP_OK;
}
