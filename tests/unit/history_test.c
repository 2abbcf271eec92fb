/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * history_test.c -- random histories of a series, with the real code on the simulated disk: saves,
 * kills at any moment, power losses, resumes, going back, pins, damage of structure and data, all
 * kinds of retention; in some histories checkpoints share files.
 *
 * After each event: a checkpoint that was reported committed and that nothing may have deleted
 * exists; a resume takes the newest that is valid and not left behind, and the next resume takes
 * it again; its contents are those of its step. SIDESTEP_LONG=1: a million histories;
 * SIDESTEP_HISTORIES: their number; SIDESTEP_SEED: only this one.
 */
#include <sys/wait.h>
#include <unistd.h>
#include <malloc.h>

#include "base/owned.h"
#include "engine/engine.h"
#include "series/series.h"
#include "support/history.h"
#include "support/unit.h"

#define MAX_ACTIONS 9u
#define SHORT_ACTIONS 4u
#define LONG_ONE_IN 16u /* so that many are tried and some are long */
#define ENOUGH 8000u    /* for everything to happen */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HISTORIES 500u
#else
#define HISTORIES ENOUGH
#endif
#define LONG_HISTORIES 1000000u
#define PROCESSES 2u

static void before_op(void *context, int client, const char *op, const char *name)
{
    struct history *h = context;
    long left = atomic_load(&h->ops_left);

    (void)op, (void)name;
    /* Threads of the process come here at the same time. Never go below 0, which means something
     * else. */
    while (left > 0 && !atomic_compare_exchange_weak(&h->ops_left, &left, left - 1)) {
    }
    if (left == 1)
        sim_client_die(h->sim, client);
}

/* ---- the process */

/* One engine for all processes of the history, because threads and pools cost more than the tests.
 */
static void open_engine(struct history *h)
{
    static struct sidestep_engine *engine;
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_error err = {0};

    h->engine = engine;
    if (engine != NULL && !h->knows_files) {
        incremental_reset(&engine->saver->incremental);
        commit_shared_release(&engine->saver->incremental.shared);
    }
    if (engine != NULL) {
        engine->store = sim_store(h->sim, 0);
        return;
    }

    options.threads = 1;
    options.io = SIDESTEP_IO_BUFFERED;
    options.snapshot = SIDESTEP_SNAPSHOT_COPY;
    options.flags = SIDESTEP_ENGINE_KEEP_PACE;
    CHECK(sidestep_engine_open(&h->engine, &options, &err) == SIDESTEP_OK);
    h->engine->store = sim_store(h->sim, 0);
    h->engine->saver->incremental.min_bytes = 1; /* tensors are small */
    engine = h->engine;
}

static bool open_series(struct history *h)
{
    struct sidestep_series_options options = SIDESTEP_SERIES_OPTIONS_INIT;
    struct sidestep_retention keep = {.struct_size = sizeof(keep),
                                      .keep_last = h->keep_last,
                                      .keep_every = h->keep_every,
                                      .keep_best = h->keep_best,
                                      .metric = h->keep_best != 0 ? "loss" : NULL};
    struct sidestep_error err = {0};

    options.retention = h->has_retention ? &keep : NULL;
    options.flags = h->is_incremental ? SIDESTEP_SERIES_INCREMENTAL : 0;
    open_engine(h);
    enum sidestep_status status =
        sidestep_series_open(h->engine, HISTORY_ROOT, &options, &h->series, &err);
    if (status != SIDESTEP_OK && !is_dead(h))
        fail_msg("%s, in the case with seed %llu", err.message, (unsigned long long)h->prng.seed);
    return status == SIDESTEP_OK && !is_dead(h);
}

static void close_process(struct history *h)
{
    struct sidestep_error err = {0};

    (void)sidestep_series_close(&h->series, &err);
    h->knows_files = !is_dead(h);
    if (h->engine != NULL)
        turn_release(&h->engine->saver->turns); /* they refer to a disk that may be gone */
    h->engine = NULL;
    h->went_on = false;
}

/* The machine loses power: any choice of what was not synced stays. */
static void lose_power(struct history *h, bool all_stays)
{
    uint64_t ops = all_stays ? UINT64_MAX : prng_next(&h->prng);
    uint64_t files = prng_next(&h->prng);

    if (all_stays) /* a kill: nothing is lost */
        files = 0xaaaaaaaaaaaaaaaa;
    struct sim *after = sim_crash_bits(h->sim, ops, files);
    CHECK(after != NULL);
    sim_set_hook(h->sim, NULL, NULL);
    sim_free(&h->sim);
    h->knows_files = false;
    h->sim = after;
    atomic_store(&h->ops_left, -1);
    sim_set_hook(h->sim, before_op, h);
}

/* ---- events */

static bool resume(struct history *h, int64_t expected)
{
    struct sidestep_error err = {0};
    char rejected[2048] = "";
    uint64_t step = 0;

    memset(h->values, 0, sizeof(h->values));
    memset(h->base, 0, sizeof(h->base));
    enum sidestep_status status =
        sidestep_series_load(h->series, h->state, NULL, &step, NULL, rejected, &err);
    if (is_dead(h))
        return false;
    if (expected < 0) {
        CHECK(status == SIDESTEP_ENOTFOUND || status == SIDESTEP_ECORRUPT ||
              status == SIDESTEP_EMISMATCH);
        step = 0;
    } else {
        if (status != SIDESTEP_OK || step != (uint64_t)expected)
            fail_msg("resumed %llu, not %lld: %s (%s), in the case with seed %llu",
                     (unsigned long long)step, (long long)expected, err.message, rejected,
                     (unsigned long long)h->prng.seed);
        const struct known_save *known = history_find(h, step);
        CHECK(h->values[0] == (float)step && h->values[FLOATS - 1] == (float)step);
        CHECK(h->base[0] == known->base || h->base[0] == known->base_before);
        CHECK(h->base[FLOATS - 1] == h->base[0]);
    }
    h->step = step;
    h->went_on = true;
    seen.resumes += expected >= 0;
    history_pass_damaged(h);
    return true;
}

static void save(struct history *h)
{
    struct sidestep_error err = {0};
    struct sidestep_save_info info = SIDESTEP_SAVE_INFO_INIT;
    uint64_t step = h->step + 1 + prng_below(&h->prng, 2);
    struct known_save *known = history_find(h, step);
    bool is_replaced = known->is_there || known->is_replaced || known->is_open;
    bool may = !known->is_damaged && !known->is_rotten &&
               !(known->is_there && (known->is_pinned || known->may_be_gone));

    if (!may) { /* pinned is refused; one that may be gone may be being deleted */
        h->step = step;
        return;
    }
    float base = prng_below(&h->prng, 6) == 0 ? h->base[0] + 1 : h->base[0];
    for (int i = 0; i < FLOATS; i++) {
        h->values[i] = (float)step;
        h->base[i] = base;
    }
    struct sidestep_metric metric = {"loss", (double)prng_below(&h->prng, 1000)};
    if (h->keep_best != 0 &&
        sidestep_series_note(h->series, step, &metric, 1, NULL, 0, &err) != SIDESTEP_OK) {
        CHECK(is_dead(h));
        return;
    }
    enum sidestep_status status =
        sidestep_series_save(h->series, step, h->state, NULL, &info, &err);
    known->base_before = known->is_there || known->is_open ? known->base : base;
    known->base = base;
    if (status == SIDESTEP_OK) {
        *known = (struct known_save){.step = step,
                                     .base = base,
                                     .base_before = base,
                                     .is_there = true,
                                     .has_metric = h->keep_best != 0,
                                     .metric = metric.value,
                                     .is_replaced = is_replaced};
        seen.linked += info.linked_bytes != 0;
        h->step = step;
        seen.saves++;
        history_allow_prune(h);
        return;
    }
    if (!is_dead(h))
        fail_msg("%s, in the case with seed %llu", err.message, (unsigned long long)h->prng.seed);
    known->is_open = known->is_replaced = true;
    known->may_be_gone = true;
}

/* The thread that prunes may not have run yet: let it, before the listing changes. */
static void settle_pruner(struct history *h)
{
    struct sidestep_gc_report report = {0};

    history_allow_prune(h);
    if (sidestep_series_prune(h->series, &report, NULL) == SIDESTEP_OK)
        sidestep_gc_report_release(&report);
}

static void go_back(struct history *h)
{
    struct sidestep_error err = {0};
    const struct known_save *to = h->count != 0 ? &h->saves[prng_below(&h->prng, h->count)] : NULL;

    if (to == NULL || !to->is_there || to->is_left || to->is_damaged || to->is_rotten ||
        to->may_be_gone || to->step > h->step)
        return;
    uint64_t step = to->step;
    settle_pruner(h);
    if (!to->is_there || to->may_be_gone || is_dead(h))
        return;
    enum sidestep_status status =
        sidestep_series_load_step(h->series, to->step, h->state, NULL, NULL, &err);
    if (status != SIDESTEP_OK && !is_dead(h))
        fail_msg("%s, in the case with seed %llu", err.message, (unsigned long long)h->prng.seed);
    for (size_t i = 0; i < h->count; i++)
        if (h->saves[i].step > step && h->saves[i].is_there) {
            h->saves[i].is_left = true;
            h->saves[i].is_open |= is_dead(h); /* marked, or not */
        }
    h->step = step;
    history_allow_prune(h);
}

static void pin(struct history *h)
{
    OWNED_BY(sidestep_list_release) struct sidestep_list list = {0};
    struct known_save *to = h->count != 0 ? &h->saves[prng_below(&h->prng, h->count)] : NULL;
    char name[32];

    if (to == NULL || !to->is_there || to->may_be_gone || to->is_damaged)
        return;
    settle_pruner(h);
    if (to->may_be_gone || is_dead(h) ||
        list_root(h->engine->store, HISTORY_ROOT, 0, &list, NULL) != SIDESTEP_OK)
        return;
    const struct sidestep_listed *entry = history_listed(&list, to->step);
    if (is_dead(h)) /* what could not be read looks like a missing one */
        return;
    CHECK(entry != NULL && entry->save_id != NULL);
    snprintf(name, sizeof(name), "step-%llu", (unsigned long long)to->step);
    if (to->is_pinned &&
        annotations_remove(h->series->lease.dir, ANNOTATION_PIN, NULL, name, NULL) == 0)
        to->is_pinned = false;
    else if (!to->is_pinned && annotations_set(h->series->lease.dir, ANNOTATION_PIN, NULL, name,
                                               entry->save_id, NULL, NULL) == 0)
        to->is_pinned = true;
    to->is_open |= is_dead(h); /* it exists, or not */
    history_allow_prune(h);    /* the thread runs again when the series is closed */
}

/* One process: it resumes, does things, and ends in one way or another. */
static void live(struct history *h)
{
    uint64_t actions = 1 + prng_below(&h->prng, h->is_long ? MAX_ACTIONS : SHORT_ACTIONS);
    bool is_killed = prng_below(&h->prng, 3) == 0;

    int64_t expected = history_compare(h);
    if (is_killed)
        atomic_store(&h->ops_left, (long)(1 + prng_below(&h->prng, 400)));
    if (open_series(h) && resume(h, expected) && !is_killed && prng_below(&h->prng, 4) == 0 &&
        !is_dead(h)) {
        close_process(h); /* again: the same answer */
        CHECK(history_compare(h) == expected && open_series(h));
        (void)resume(h, expected);
    }
    for (uint64_t i = 0; i < actions && h->went_on && !is_dead(h); i++) {
        uint64_t what = prng_below(&h->prng, 10);
        if (what < 7 && h->count < MAX_SAVES - 2)
            save(h);
        else if (what == 7)
            go_back(h);
        else
            pin(h);
    }
    close_process(h);
    seen.killed += is_dead(h);
    bool loses_power = is_dead(h) || prng_below(&h->prng, 2) == 0;
    atomic_store(&h->ops_left, -1);
    if (loses_power)
        lose_power(h, prng_below(&h->prng, 2) == 0);
    if (prng_below(&h->prng, 3) == 0) {
        (void)history_compare(h);
        history_damage(h);
    }
}

static void make_history(uint64_t seed)
{
    struct history *h = calloc(1, sizeof(*h));
    const int64_t shape[] = {FLOATS};
    struct sidestep_tensor tensor = SIDESTEP_TENSOR_INIT;
    OWNED_DIR *top = NULL;

    assert_non_null(h);
    h->prng = prng_new(seed);
    h->has_retention = prng_below(&h->prng, 4) != 0;
    h->keep_last = (uint32_t)prng_below(&h->prng, 4);
    h->keep_every = prng_below(&h->prng, 3) == 0 ? 2 + prng_below(&h->prng, 3) : 0;
    h->keep_best = prng_below(&h->prng, 3) == 0 ? 1 + (uint32_t)prng_below(&h->prng, 2) : 0;
    h->sim = sim_new(prng_below(&h->prng, 8) == 0 ? SIM_NO_EXCHANGE : 0);
    CHECK(h->sim != NULL);
    atomic_store(&h->ops_left, -1);
    sim_set_hook(h->sim, before_op, h);
    tensor.name = "w";
    tensor.dtype = SIDESTEP_FLOAT32;
    tensor.ndim = 1;
    tensor.shape = shape;
    tensor.data = h->values;
    CHECK(sidestep_state_dict_new(&h->state, NULL) == SIDESTEP_OK);
    CHECK(sidestep_state_dict_add_tensor(h->state, &tensor, NULL) == SIDESTEP_OK);
    tensor.name = "base";
    tensor.data = h->base;
    CHECK(sidestep_state_dict_add_tensor(h->state, &tensor, NULL) == SIDESTEP_OK);
    h->is_incremental = prng_below(&h->prng, 2) == 0;
    h->is_long = prng_below(&h->prng, LONG_ONE_IN) == 0;
    uint64_t lives = h->is_long ? 3 + prng_below(&h->prng, 4) : 1 + prng_below(&h->prng, 2);
    for (uint64_t i = 0; i < lives; i++)
        live(h);
    int64_t expected = history_compare(h);
    CHECK(open_series(h) && resume(h, expected));
    close_process(h);
    sidestep_state_dict_free(&h->state);
    sim_free(&h->sim);
    free(h);
}

/* Check a number of histories, half of which this process ran. */
static void check_seen(uint64_t count)
{
    bool enough = seen.saves > count && seen.resumes > count / 4 && seen.killed > count / 20 &&
                  seen.set_aside > 10 && seen.left > 10 && seen.deleted > 10 && seen.linked > 10 &&
                  seen.shared_damage > 10 && seen.rotten > 10 && seen.by_step > 10 &&
                  seen.by_metric > 10;

    if (count >= LONG_HISTORIES || !enough)
        print_message("# %llu histories: %lu saves, %lu resumes, %lu kills, %lu set aside, %lu "
                      "left, %lu deleted, %lu linked, %lu damaged with another, %lu rotten, %lu "
                      "and %lu kept by step and metric\n",
                      (unsigned long long)count / PROCESSES, seen.saves, seen.resumes, seen.killed,
                      seen.set_aside, seen.left, seen.deleted, seen.linked, seen.shared_damage,
                      seen.rotten, seen.by_step, seen.by_metric);
    assert_true(enough);
}

TEST(histories_end_well)
{
    const char *one = getenv("SIDESTEP_SEED"), *some = getenv("SIDESTEP_HISTORIES");
    uint64_t count = getenv("SIDESTEP_LONG") != NULL ? LONG_HISTORIES : HISTORIES;

    if (some != NULL)
        count = strtoull(some, NULL, 10);
    if (one != NULL) {
        make_history(strtoull(one, NULL, 10));
        return;
    }
    /* Memory that each thread allocates and frees would cost more than all else. */
    (void)mallopt(M_ARENA_MAX, 1);
    (void)mallopt(M_TRIM_THRESHOLD, 1 << 30);
    (void)mallopt(M_TOP_PAD, 16 << 20);
    pid_t children[PROCESSES];
    (void)fflush(stdout);
    for (unsigned p = 0; p < PROCESSES; p++) {
        children[p] = fork();
        assert_true(children[p] >= 0);
        if (children[p] != 0)
            continue;
        for (uint64_t seed = p; seed < count; seed += PROCESSES)
            make_history(seed); /* a failed check ends this process with a message */
        if (count >= ENOUGH)
            check_seen(count);
        (void)fflush(stdout);
        _exit(0);
    }
    for (unsigned p = 0; p < PROCESSES; p++) {
        int status;
        assert_int_equal(waitpid(children[p], &status, 0), children[p]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}
