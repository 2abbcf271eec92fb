/* SPDX-License-Identifier: BSD-3-Clause */
/* turn.c -- saves wait for each other, and learn how each one ended; see turn.h. */
#include "save/turn.h"

#include <assert.h>
#include <string.h>

#include "save/save.h"

/* Bits per save in rank 0's verdicts: its state + 1, or 0. */
#define VERDICT_BITS 4u

_Static_assert(TURN_MAX_SAVES *VERDICT_BITS <= 64, "the verdicts do not fit into one word");
_Static_assert(SIDESTEP_SAVE_UNKNOWN + 1 < 1 << VERDICT_BITS, "a verdict does not fit");

/* ---- one save ---- */

/* Wait until the thread that started ${save} lets it run, and until the save before it has ended,
 * so that saves are committed in order.  False: end at once. */
static bool wait_for_predecessor(struct sidestep_save *save)
{
    lock_acquire(&save->shared.lock);
    while (!save->shared.may_run)
        lock_wait(&save->shared.lock, &save->shared.changed);
    bool starts = !save->shared.must_stop;
    lock_release(&save->shared.lock);
    struct sidestep_save *before = starts ? TAKE(save->previous) : NULL;

    if (before != NULL) {
        turn_await(before);
        save_release(before);
    }
    return starts;
}

/* Whoever has hurried ${save} waits for it no more.  ${ended}: nor can anybody do so later. */
static void end_hurry(struct sidestep_save *save, bool ended)
{
    lock_acquire(&save->shared.lock);
    bool hurried = save->shared.is_urgent;
    save->shared.is_urgent = false;
    save->shared.runner_ended = ended;
    lock_wake_all(&save->shared.changed);
    lock_release(&save->shared.lock);
    if (hurried)
        throttle_wait_end(&save->engine->throttle);
}

void turn_end_hurry(struct sidestep_save *save)
{
    end_hurry(save, false);
}

static void *runner_main(void *argument)
{
    struct sidestep_save *save = argument;

    if (wait_for_predecessor(save))
        save->run(save);
    end_hurry(save, true);
    return NULL;
}

enum sidestep_status turn_start(struct sidestep_save *save, void (*run)(struct sidestep_save *save),
                                struct sidestep_error *err)
{
    save->run = run;
    TRY(thread_start(&save->runner, "sidestep-save", runner_main, save, err));
    save->has_runner = true;
    return SIDESTEP_OK;
}

void turn_begin(struct sidestep_save *save, bool cancel)
{
    lock_acquire(&save->shared.lock);
    save->shared.must_stop = cancel && !save->shared.may_run;
    save->shared.may_run = true;
    lock_wake_all(&save->shared.changed);
    lock_release(&save->shared.lock);
}

bool turn_has_ended(struct sidestep_save *save)
{
    lock_acquire(&save->shared.lock);
    bool ended = !save->has_runner || save->shared.runner_ended;
    lock_release(&save->shared.lock);
    return ended;
}

void turn_await(struct sidestep_save *save)
{
    lock_acquire(&save->shared.lock);
    while (save->has_runner && !save->shared.runner_ended)
        lock_wait(&save->shared.lock, &save->shared.changed);
    lock_release(&save->shared.lock);
}

void sidestep_save_hurry(struct sidestep_save *save)
{
    if (save == NULL || engine_check(save->engine, NULL) != SIDESTEP_OK)
        return;
    throttle_wait_begin(&save->engine->throttle);
    lock_acquire(&save->shared.lock);
    bool first = !save->shared.is_urgent && !save->shared.runner_ended;
    save->shared.is_urgent = save->shared.is_urgent || first;
    lock_release(&save->shared.lock);
    if (!first) /* otherwise the runner ends the wait */
        throttle_wait_end(&save->engine->throttle);
}

void turn_join(struct sidestep_save *save)
{
    if (!turn_has_ended(save)) /* only then, because hurry lets paused saves go on */
        sidestep_save_hurry(save);
    turn_await(save);
    lock_acquire(&save->shared.lock);
    bool joins = save->has_runner;
    save->has_runner = false;
    lock_release(&save->shared.lock);
    if (joins)
        pthread_join(save->runner, NULL);
}

/* ---- the list ---- */

struct sidestep_save *turn_newest(const struct turns *turns)
{
    return turns->count != 0 ? turns->saves[0] : NULL;
}

bool turn_contains(const struct turns *turns, const struct sidestep_save *save)
{
    for (unsigned i = 0; i < turns->count; i++)
        if (turns->saves[i] == save)
            return true;
    return false;
}

unsigned turn_count(const struct turns *turns)
{
    unsigned count = 0;

    while (count < turns->count && !turn_has_ended(turns->saves[count]))
        count++;
    return count;
}

void turn_wait_idle(const struct turns *turns)
{
    for (unsigned i = turns->count; i > 0; i--)
        turn_join(turns->saves[i - 1]);
}

enum sidestep_status turn_wait(struct sidestep_save *save, unsigned limit, const char *path,
                               struct sidestep_error *err)
{
    const struct turns *turns = &save->saver->turns;
    uint64_t from = clock_now(save->engine->clock);

    for (unsigned i = turn_count(turns); i > 0; i--) {
        struct sidestep_save *earlier = turns->saves[i - 1];
        if (i <= limit && (path == NULL || strcmp(earlier->commit.path, path) != 0))
            continue;
        if ((save->options.flags & SIDESTEP_SAVE_NOWAIT) != 0)
            return FAIL(err, SIDESTEP_EBUSY, "the save of '%s' is still being written",
                        earlier->commit.path);
        turn_join(earlier);
    }
    lock_acquire(&save->shared.lock);
    save->shared.info.wait_ns += clock_now(save->engine->clock) - from;
    lock_release(&save->shared.lock);
    return SIDESTEP_OK;
}

/* Has the save at ${i} ended, by ${verdicts}?  Sets ${*state}. */
static bool is_decided(uint64_t verdicts, unsigned i, enum sidestep_save_state *state)
{
    assert(i < TURN_MAX_SAVES);
    uint64_t verdict = verdicts >> (i * VERDICT_BITS) & ((1u << VERDICT_BITS) - 1);

    *state = verdict != 0 ? (enum sidestep_save_state)(verdict - 1) : SIDESTEP_SAVE_STAGING;
    return save_state_is_final(*state);
}

void turn_take(struct sidestep_save *save, const struct turn_news *news)
{
    struct turns *turns = &save->saver->turns;
    enum sidestep_save_state state;
    unsigned count = 1;

    assert(save->previous == NULL && !turn_contains(turns, save));
    if (turn_count(turns) != 0) {
        save->previous = turns->saves[0];
        save_retain(save->previous);
        lock_acquire(&save->shared.lock);
        save->shared.info.flags |= SIDESTEP_SAVE_QUEUED;
        lock_release(&save->shared.lock);
    }
    struct turns before = *turns;

    save_retain(save);
    turns->saves[0] = save;
    for (unsigned i = 0; i < before.count; i++) {
        if (!is_decided(news->verdicts, i, &state)) {
            assert(count < TURN_MAX_SAVES);
            turns->saves[count++] = before.saves[i];
            continue;
        }
        if (commit_is_coordinator(&save->commit))
            commit_remove_outcome(&before.saves[i]->commit);
        save_release(before.saves[i]);
    }
    turns->count = count;
}

void turn_release(struct turns *turns)
{
    for (unsigned i = turns->count; i > 0; i--)
        save_release(turns->saves[i - 1]);
    turns->count = 0;
}

/* ---- verdicts ---- */

static uint64_t pack_verdicts(const struct turns *turns) ON_THREAD(CALLER)
{
    uint64_t verdicts = 0;

    for (unsigned i = 0; i < turns->count; i++)
        verdicts |= (uint64_t)(save_get_state(turns->saves[i]) + 1) << (i * VERDICT_BITS);
    return verdicts;
}

enum sidestep_status turn_agree_parts_all(struct sidestep_engine *engine, struct turn_news *news,
                                          struct sidestep_error *err)
{
    const struct turns *turns = &engine->saver->turns;
    struct {
        uint64_t most, least; /* state + 1, and ~state; 0: this rank coordinates nothing */
    } ends[TURN_MAX_SAVES] = {0};

    if (!engine->saver->has_parts)
        return SIDESTEP_OK;
    for (unsigned i = 0; i < turns->count; i++) {
        if (!commit_is_coordinator(&turns->saves[i]->commit))
            continue;
        ends[i].most = (uint64_t)save_get_state(turns->saves[i]) + 1;
        ends[i].least = ~(ends[i].most - 1);
    }
    TRY(comm_reduce_max_all(&engine->comm, &ends[0].most, ARRAY_LENGTH(ends) * 2, err));
    news->verdicts = 0;
    for (unsigned i = 0; i < turns->count; i++)
        if (~ends[i].least >= SIDESTEP_SAVE_COMMITTED) /* all have ended */
            news->verdicts |= ends[i].most << (i * VERDICT_BITS);
    return SIDESTEP_OK;
}

/* Fail with the first error that was not reported yet.  Sets ${*place}. */
static enum sidestep_status report(const struct turns *turns, uint64_t *place,
                                   struct sidestep_error *err) ON_THREAD(CALLER)
{
    enum sidestep_status status = SIDESTEP_OK;

    for (*place = turns->count; *place > 0; --*place)
        if ((status = save_take_unreported_error(turns->saves[*place - 1], err)) != SIDESTEP_OK)
            break;
    return status;
}

enum sidestep_status turn_look(struct turns *turns, struct turn_news *news,
                               struct sidestep_error *err)
{
    for (unsigned i = turns->count; i > 0; i--)
        if (turn_has_ended(turns->saves[i - 1]))
            save_teach(turns->saves[i - 1]);
    news->verdicts = pack_verdicts(turns);
    return report(turns, &news->reported, err);
}

/* Record the coordinator's verdict on ${save}, if it is still undecided here. */
static void decide(struct sidestep_save *save, enum sidestep_save_state verdict,
                   const struct sidestep_error *why)
{
    if (save_state_is_final(verdict) && save_get_state(save) == SIDESTEP_SAVE_WRITTEN)
        save_advance(save, verdict, verdict == SIDESTEP_SAVE_COMMITTED ? NULL : why);
}

/* All parts of ${save} have ended. If there is no memory to note it, its parts stay. */
static void note_parts(struct sidestep_save *save, enum sidestep_save_state state) ON_THREAD(CALLER)
{
    struct saver *saver = save->saver;

    if (save->commit.group.count == 0 || save->is_noted || state == SIDESTEP_SAVE_UNKNOWN)
        return;
    save->is_noted = true;
    (void)name_list_add(state == SIDESTEP_SAVE_COMMITTED ? &saver->whole : &saver->torn,
                        save->commit.save_id, NULL);
}

static void learn_verdicts(const struct turns *turns, uint64_t verdicts) ON_THREAD(CALLER)
{
    enum sidestep_save_state state;

    for (unsigned i = turns->count; i > 0; i--) {
        struct sidestep_save *save = turns->saves[i - 1];
        struct sidestep_error why = {0};
        if (!is_decided(verdicts, i - 1, &state))
            continue;
        note_parts(save, state);
        if (state == SIDESTEP_SAVE_ABORTED)
            (void)FAIL(&why, SIDESTEP_EABORTED, "%s",
                       save->commit.group.count != 0
                           ? "the part of another node was given up, so it is not whole"
                           : "rank 0 aborted it");
        else
            (void)FAIL(&why, SIDESTEP_EUNKNOWN,
                       "rank 0 does not know the outcome, and its own error says why; verify that "
                       "path to see whether it holds save %s, or save again",
                       save->commit.save_id);
        turn_join(save); /* it ends soon */
        decide(save, state, &why);
    }
}

void turn_learn(struct turns *turns, const struct turn_news *news)
{
    learn_verdicts(turns, news->verdicts);
    if (news->reported != 0 && news->reported <= turns->count)
        save_mark_reported(turns->saves[news->reported - 1]);
}

enum sidestep_status turn_drain_all(struct sidestep_engine *engine, struct sidestep_error *err)
{
    struct turns *turns = &engine->saver->turns;
    struct turn_news news = {0};
    uint64_t place;

    turn_wait_idle(turns);
    if (engine->comm.rank == 0)
        news.verdicts = pack_verdicts(turns);
    enum sidestep_status status = engine->saver->has_parts
                                      ? turn_agree_parts_all(engine, &news, err)
                                      : comm_reduce_max_all(&engine->comm, &news.verdicts, 1, err);
    if (status == SIDESTEP_OK)
        learn_verdicts(turns, news.verdicts);
    for (unsigned i = 0; i < turns->count; i++)
        if (commit_is_coordinator(&turns->saves[i]->commit))
            commit_remove_outcome(&turns->saves[i]->commit);
    enum sidestep_status unreported = report(turns, &place, status == SIDESTEP_OK ? err : NULL);
    return status != SIDESTEP_OK ? status : unreported;
}

/* Each rank learns of its part, from storage, and then of the others. */
static enum sidestep_status finish_parts_all(struct sidestep_save **out,
                                             struct sidestep_save_info *info,
                                             struct sidestep_error *err)
{
    struct sidestep_engine *engine = (*out)->engine;
    struct turn_news news = {0};

    THREAD_IS(CALLER);
    TRY(comm_agree_all(&engine->comm, sidestep_save_finish(out, info, err), err));
    TRY(turn_agree_parts_all(engine, &news, err));
    learn_verdicts(&engine->saver->turns, news.verdicts);
    return SIDESTEP_OK;
}

enum sidestep_status turn_finish_all(struct sidestep_save **out, struct sidestep_save_info *info,
                                     struct sidestep_error *err)
{
    struct sidestep_save *save = *out;
    struct comm *comm = &save->engine->comm;
    struct {
        uint32_t state;
        uint32_t reserved;
        struct sidestep_error err;
    } verdict = {0};

    turn_join(save);
    if (save->commit.group.count != 0)
        return finish_parts_all(out, info, err);
    if (comm->rank == 0) {
        verdict.state = save_get_state(save);
        lock_acquire(&save->shared.lock);
        verdict.err = save->shared.err;
        lock_release(&save->shared.lock);
    }
    enum sidestep_status status = comm_broadcast_all(comm, &verdict, sizeof(verdict), 0, NULL);
    if (verdict.err.rank < 0)
        verdict.err.rank = 0;
    if (status == SIDESTEP_OK)
        decide(save, (enum sidestep_save_state)verdict.state, &verdict.err);
    return sidestep_save_finish(out, info, err);
}
