/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * model_explore.c -- explores crashes on a disk: after every step of a run, it kills all processes
 * or cuts the power. It checks each new state, recovers it as a user would, and checks it again.
 * The power may also fail during a recovery. See model.h.
 */
#include "model.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/owned.h"
#include "root/lease.h"
#include "checkpoint/reader.h"
#include "commit/sweep.h"
#include "support/store_sim_disk.h"

#define MAX_DEPTH 3
#define EXHAUSTIVE_BITS 6 /* up to this number of choices, all 2 ^ n states are tried */

/* A disk that a run or a recovery uses, and the reports about it. */
struct scene {
    struct explore *x;
    const struct workload *workload;
    struct sim *sim;
    struct ledger *ledger;
    struct prng prng; /* depends on run and step only, not on the states seen before */
    unsigned depth;
    unsigned samples;  /* random power losses per step, if there are too many to try all */
    unsigned most_new; /* maximum of new states per step; later runs find the others */
    uint64_t enough;   /* ${x->states} at which the exploration of this step ends */
    const char *op;    /* the last operation */
};

static bool visit(struct scene *scene, struct sim **image, bool powered);

/* ---- states that were seen */

void explore_init(struct explore *x)
{
    *x = (struct explore){.seen_capacity = (size_t)1 << 12};
    x->seen = calloc(x->seen_capacity, sizeof(*x->seen));
    assert(x->seen != NULL);
}

void explore_release(struct explore *x)
{
    free(TAKE(x->seen));
}

static bool put(uint64_t *seen, size_t capacity, uint64_t key)
{
    size_t at = key & (capacity - 1);

    while (seen[at] != 0 && seen[at] != key)
        at = (at + 1) & (capacity - 1);
    bool is_new = seen[at] == 0;
    seen[at] = key;
    return is_new;
}

bool explore_is_new(struct explore *x, uint64_t key)
{
    key |= key == 0;
    if (!put(x->seen, x->seen_capacity, key))
        return false;
    if (++x->seen_count * 2 < x->seen_capacity)
        return true;
    uint64_t *grown = calloc(2 * x->seen_capacity, sizeof(*grown));
    assert(grown != NULL);
    for (size_t i = 0; i < x->seen_capacity; i++)
        if (x->seen[i] != 0)
            (void)put(grown, 2 * x->seen_capacity, x->seen[i]);
    free(x->seen);
    x->seen = grown;
    x->seen_capacity *= 2;
    return true;
}

/* ---- failing */

static bool fails(struct scene *scene, const char *when)
{
    struct explore *x = scene->x;

    if (x->failed)
        return false;
    x->failed = true;
    if (x->quiet)
        return false;
    printf("# VIOLATION %s: %s\n# the disk:\n", when, x->problem.text);
    sim_print(scene->sim, stdout);
    printf("# what was promised:\n");
    for (uint32_t i = 0; i < scene->ledger->save_count; i++) {
        const struct model_save *s = &scene->ledger->saves[i];
        printf("#   save %u of '%s' (id %02x...), %u to %u:%s%s%s%s%s\n", i, s->name, s->id[0],
               s->began, s->ended, s->committed ? " committed" : "", s->aborted ? " aborted" : "",
               s->doomed ? " doomed" : "", s->gone ? " gone" : "", s->fenced ? " fenced" : "");
    }
    printf("# operations:\n");
    for (size_t i = 0; i < model.trace_count; i++)
        printf("#   %zu client %d %s %s\n", i, model.trace[i].client, model.trace[i].op,
               model.trace[i].name);
    return false;
}

static bool judge(struct scene *scene, bool powered, const char *when)
{
    return ledger_judge(scene->sim, scene->ledger, powered, &scene->x->problem) ||
           fails(scene, when);
}

/* ---- power loss */

static uint64_t random_bits(struct prng *prng, uint64_t mask)
{
    uint64_t bits = prng_next(prng);

    switch (prng_below(prng, 4)) {
    case 0:
        return bits & mask;
    case 1: /* few bits are 0 */
        return (bits | prng_next(prng) | prng_next(prng)) & mask;
    case 2: /* few bits are 1 */
        return bits & prng_next(prng) & prng_next(prng) & mask;
    default: /* the low bits are 1 */
        return mask & ((UINT64_C(1) << prng_below(prng, 63)) - 1);
    }
}

static bool cut_power(struct scene *scene, uint64_t ops, uint64_t files)
{
    char text[64];

    if (scene->x->states >= scene->enough)
        return !scene->x->failed;
    size_t traced = model.trace_count;
    struct sim *image = sim_crash_bits(scene->sim, ops, files);

    assert(image != NULL);
    snprintf(text, sizeof(text), "ops %#llx, contents %#llx", (unsigned long long)ops,
             (unsigned long long)files);
    model_trace(-1, "POWER LOSS", text);
    bool good = visit(scene, &image, false);
    sim_free(&image);
    model.trace_count = traced;
    return good;
}

/* The same choice for all files. */
static uint64_t all_files(enum sim_contents contents)
{
    return UINT64_C(0x5555555555555555) * (uint64_t)contents;
}

static bool cut_power_at_corners(struct scene *scene, uint64_t mask, size_t pending)
{
    static const enum sim_contents contents[] = {SIM_OLD, SIM_EMPTY, SIM_NEW, SIM_TORN};

    for (size_t i = 0; i < ARRAY_LENGTH(contents); i++)
        if (!cut_power(scene, mask, all_files(contents[i])))
            return false;
    if (!cut_power(scene, 0, all_files(SIM_OLD)))
        return false;
    size_t bits = pending < 64 ? pending : 64;
    size_t first = bits != 0 ? prng_below(&scene->prng, bits) : 0;
    for (size_t i = 0; i < bits; i++) {
        uint64_t bit = UINT64_C(1) << (first + i) % bits;
        if (!cut_power(scene, mask & ~bit, all_files(SIM_NEW)) ||
            !cut_power(scene, bit, all_files(SIM_EMPTY)))
            return false;
    }
    return true;
}

static bool explore_power(struct scene *scene)
{
    size_t pending = sim_pending_count(scene->sim), dirty = sim_dirty_count(scene->sim);
    uint64_t mask = pending >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << pending) - 1;
    unsigned samples = scene->samples;

    if (pending + 2 * dirty <= EXHAUSTIVE_BITS) {
        for (uint64_t files = 0; files < UINT64_C(1) << 2 * dirty; files++)
            for (uint64_t ops = 0; ops <= mask; ops++)
                if (!cut_power(scene, ops, files))
                    return false;
        return true;
    }
    if (!cut_power_at_corners(scene, mask, pending))
        return false;
    while (samples-- != 0)
        if (!cut_power(scene, random_bits(&scene->prng, mask), prng_next(&scene->prng)))
            return false;
    return true;
}

/* ---- kill */

static bool explore_kill(struct scene *scene)
{
    size_t traced = model.trace_count;
    struct sim *left = sim_clone(scene->sim);

    assert(left != NULL);
    for (int i = 0; i < SIM_MAX_CLIENTS; i++)
        sim_client_die(left, i);
    for (int i = 0; i < SIM_MAX_CLIENTS; i++)
        left->clients[i].is_dead = i < MODEL_MAX_TASKS;
    sim_fail_sync(left, 0, false); /* cancel a fault that was about to happen */
    model_trace(-1, "ALL KILLED", "");
    bool good = visit(scene, &left, true);
    sim_free(&left);
    model.trace_count = traced;
    return good;
}

static bool is_over(const struct explore *x)
{
    return x->failed || x->states >= x->limit;
}

/* After a sync of names has failed silently, what depends on it may be lost. Older checkpoints must
 * stay until something depends on it. */
static bool is_beyond_hope(const struct ledger *ledger)
{
    bool builds = false;

    for (uint32_t i = 0; i < ledger->save_count; i++)
        builds |= ledger->saves[i].began > ledger->tainted_at;
    return ledger->is_tainted && builds;
}

/* Called after each change. */
static bool explore_here(struct scene *scene, bool kills)
{
    if (is_over(scene->x) || is_beyond_hope(scene->ledger))
        return !scene->x->failed;
    scene->x->steps++;
    scene->enough = scene->x->is_thorough ? UINT64_MAX : scene->x->states + scene->most_new;
    return explore_power(scene) && (!kills || explore_kill(scene));
}

/* ---- recovery */

static void before_recovery_op(void *context, int client, const char *op, const char *name)
{
    struct scene *scene = context;
    const char *last = scene->op;
    struct actor *actor = model.actor;
    struct actor looking = {.phase = PHASE_OTHER};

    scene->op = NULL; /* ignore operations of the exploration itself */
    if (last != NULL && model_store_is_change(last) && scene->samples != 0) {
        model.actor = &looking;
        (void)explore_here(scene, false);
        model.actor = actor;
    }
    scene->op = op;
    model_trace(client, op, name);
}

static struct clock_of_recovery {
    struct clock clock;
    uint64_t now_ms;
} recovery_clock;

static uint64_t recovery_now_ns(struct clock *clock)
{
    return ((struct clock_of_recovery *)(void *)clock)->now_ms * 1000000;
}

static void recovery_sleep_ms(struct clock *clock, uint64_t ms)
{
    ((struct clock_of_recovery *)(void *)clock)->now_ms += ms;
}

static struct clock *recovery_time(void)
{
    recovery_clock.clock = (struct clock){.now_ns = recovery_now_ns, .sleep_ms = recovery_sleep_ms};
    return &recovery_clock.clock;
}

static void end_all(struct ledger *ledger)
{
    for (uint32_t i = 0; i < ledger->save_count; i++) {
        ledger_end(ledger, &ledger->saves[i]);
        ledger->saves[i].incarnation = 0;
    }
}

/* Another save under the same name must work, and leave nothing behind. A part, and what is
 * sent, replaces nothing, so it gets a name that no save had. */
static bool recover_one_off(const struct workload *workload, struct ledger *ledger,
                            struct store *store, struct clock *clock, struct problem *problem)
{
    struct sidestep_error err = {0};
    struct saving saving = {.ledger = ledger, .votes_no = -1, .cheats = -1, .strays = -1};
    char name[16];

    snprintf(name, sizeof(name), "part-%u", ledger->save_count);
    bool is_new = model.has_parts || model.is_sent;
    saving.save = ledger_new_save(ledger, is_new ? name : workload->target, 1);
    if (program_save(&saving, 0, store, clock) != COMMIT_COMMITTED) {
        snprintf(problem->text, sizeof(problem->text), "the next save does not commit");
        return false;
    }
    if (!program_collect(store, &err)) {
        snprintf(problem->text, sizeof(problem->text), "gc fails: %s", err.message);
        return false;
    }
    return true;
}

static bool recover_series(struct ledger *ledger, struct store *store, struct clock *clock,
                           struct problem *problem)
{
    struct sidestep_error err = {0};
    int chosen[2] = {MODEL_NOTHING, MODEL_NOTHING};
    struct lease lease = {0};
    char name[16];
    bool good = true;

    snprintf(name, sizeof(name), "step-%u", 10 + ledger->save_count);
    for (int i = 0; i < 2 && good; i++) {
        lease_release(&lease);
        good = program_open_series(&lease, store, ledger, &chosen[i], &err);
    }
    if (good && chosen[0] != chosen[1]) {
        snprintf(err.message, sizeof(err.message), "it chose %d, and then %d", chosen[0],
                 chosen[1]);
        good = false;
    }
    if (good &&
        program_series_save(NULL, ledger, &lease, store, clock, name, NULL) != COMMIT_COMMITTED) {
        snprintf(err.message, sizeof(err.message), "the next save does not commit");
        good = false;
    }
    lease_release(&lease);
    good = good && program_collect(store, &err);
    if (!good)
        snprintf(problem->text, sizeof(problem->text), "resume fails: %s", err.message);
    return good;
}

bool explore_recover(const struct workload *workload, struct ledger *ledger, struct store *store,
                     struct clock *clock, struct problem *problem)
{
    end_all(ledger);
    ledger->chosen_by = 0; /* no incarnation is left */
    return (workload->traits & WORKLOAD_SERIES) != 0
               ? recover_series(ledger, store, clock, problem)
               : recover_one_off(workload, ledger, store, clock, problem);
}

static bool recover(struct scene *scene, bool powered)
{
    struct actor recoverer = {.recovers = true};
    struct actor *before = model.actor;
    int client = MODEL_RECOVERY - (int)scene->depth;
    bool good;

    model.actor = &recoverer;
    sim_set_hook(scene->sim, before_recovery_op, scene);
    struct store *store = sim_store(scene->sim, client);
    good =
        explore_recover(scene->workload, scene->ledger, store, recovery_time(), &scene->x->problem);
    sim_set_hook(scene->sim, NULL, NULL);
    if (good && !scene->x->failed) {
        good = judge(scene, powered, "after recovery") &&
               (ledger_judge_leftovers(scene->sim, scene->ledger, &scene->x->problem) ||
                fails(scene, "after recovery"));
        if (good && scene->samples != 0)
            good = explore_here(scene, false);
    } else if (!scene->x->failed) {
        good = fails(scene, "in recovery");
    }
    model.actor = before;
    return good;
}

/* Visit a state after a crash: check it, recover, and check again. */
static bool visit(struct scene *scene, struct sim **image, bool powered)
{
    struct explore *x = scene->x;
    struct ledger ledger = *scene->ledger;
    uint64_t parts[3] = {sim_hash(*image), ledger_hash(&ledger), powered};

    x->images++;
    if (is_over(x))
        return !x->failed;
    if (powered) { /* the durable contents may differ from what processes see */
        struct sim *durable = sim_crash_bits(*image, 0, all_files(SIM_OLD));
        parts[2] = sim_hash(durable) | 1;
        sim_free(&durable);
    }
    uint64_t key = XXH3_64bits_withSeed(
        parts, sizeof(parts), XXH3_64bits(scene->workload->name, strlen(scene->workload->name)));
    if (!explore_is_new(x, key))
        return true;
    x->states++;
    model_store_attach(*image);
    struct scene next = {
        .x = x,
        .workload = scene->workload,
        .sim = *image,
        .ledger = &ledger,
        .prng = prng_new(key),
        .depth = scene->depth + 1,
        /* Explore all recoveries from a kill, and some of those from a power loss. */
        .samples = scene->depth + 1 < MAX_DEPTH && !ledger.is_tainted && (powered || key % 16 == 0)
                       ? 2
                       : 0,
        .most_new = powered ? 3 : 1,
    };
    if (!judge(&next, powered, "after the crash"))
        return false;
    if ((scene->workload->traits & WORKLOAD_NO_RECOVERY_SAVE) != 0)
        return true;
    return recover(&next, powered);
}

/* ---- runs */

static bool after_change(struct world *world)
{
    struct scene *scene = world->context;
    struct actor looking = {.phase = PHASE_OTHER};
    struct actor *before = model.actor;

    if (scene->x->failed)
        return false; /* even beyond the limit of states, the run is checked up to its end */
    model.actor = &looking;
    scene->prng = prng_new(world->prng.seed << 16 | world->step);
    bool kills =
        scene->x->is_thorough || prng_below(&scene->prng, world->task_count == 1 ? 4 : 8) == 0;
    if (world->broken != NULL) {
        scene->x->problem = *world->broken;
        return fails(scene, "while it runs");
    }
    /* A few states of many runs find more than many states of a few runs. */
    bool looks = scene->x->is_thorough || world->prng.seed == 0 || world->task_count == 1 ||
                 world->told || prng_below(&scene->prng, 8) == 0;
    looks &= (world->workload->traits & WORKLOAD_NO_CRASHES) == 0;
    bool good = judge(scene, true, "while it runs") && (!looks || explore_here(scene, kills));
    model.actor = before;
    return good;
}

/* Make a disk on which everything is durable. */
static void settle(struct world *world)
{
    struct sim *settled = sim_crash_bits(world->sim, ~UINT64_C(0), all_files(SIM_NEW));

    assert(settled != NULL);
    sim_free(&world->sim);
    world->sim = settled;
    model_store_attach(world->sim);
    end_all(&world->ledger);
    for (uint32_t i = 0; i < world->ledger.file_count; i++)
        world->ledger.files[i].durable = true;
}

static void make_parent(struct sim *sim)
{
    OWNED_DIR *root = NULL;
    enum sidestep_status status =
        store_dir_open(sim_store(sim, MODEL_SETUP), NULL, "/", &root, NULL);

    if (status == SIDESTEP_OK)
        status = store_dir_make(root, MODEL_PARENT + 1, NULL);
    assert(status == SIDESTEP_OK);
}

static void set_up(struct world *world)
{
    world->sim = sim_new(world->workload->flags);
    world->clock = *recovery_time();
    assert(world->sim != NULL);
    model_store_attach(world->sim);
    if ((world->workload->traits & WORKLOAD_MAKES_PARENT) == 0)
        make_parent(world->sim);
    if (world->workload->setup != NULL)
        world->workload->setup(world);
    settle(world);
}

static bool check_outcome(struct scene *scene, const struct world *world)
{
    for (size_t i = 0; i < world->saving_count; i++)
        if ((world->workload->traits & WORKLOAD_COMMITS) != 0 &&
            world->savings[i].outcome != COMMIT_COMMITTED) {
            snprintf(scene->x->problem.text, sizeof(scene->x->problem.text),
                     "an undisturbed save does not commit");
            return fails(scene, "at the end");
        }
    return true;
}

bool explore_run(struct explore *x, const struct workload *workload, uint64_t run)
{
    static struct world world;
    struct actor outside = {.phase = PHASE_OTHER};

    if ((workload->traits & WORKLOAD_BUCKET) != 0)
        return bucket_run(x, workload, run);
    model.parent = MODEL_PARENT;
    model.has_files = (workload->traits & WORKLOAD_FILES) != 0;
    model.has_parts = (workload->traits & WORKLOAD_PARTS) != 0;
    model.is_sent = (workload->traits & WORKLOAD_SENT) != 0;
    world =
        (struct world){.workload = workload, .prng = prng_new(run), .after_change = after_change};
    struct scene scene = {.x = x, .workload = workload, .ledger = &world.ledger};
    const struct mutant *mutant = TAKE(model.mutant);
    model.actor = &outside;
    model.trace_count = 0;
    model.random = run;
    set_up(&world);
    workload->start(&world);
    model.mutant = mutant;
    explore_plan(x, &world, run);
    scene.sim = world.sim;
    scene.samples = world.task_count == 1 ? 16 : 4;
    scene.most_new = run == 0 ? 3 : 2;
    world.context = &scene;
    model.trace_count = 0;
    world_run(&world);
    if (run == 0)
        x->plain = world.counts;
    x->runs++;
    x->states += (workload->traits & WORKLOAD_NO_CRASHES) != 0;
    if (!x->failed && world.broken != NULL) {
        x->problem = *world.broken;
        (void)fails(&scene, "while it ran");
    }
    if (!x->failed && run == 0 && model.mutant == NULL)
        (void)check_outcome(&scene, &world);
    sim_free(&world.sim);
    if (x->failed && !x->quiet)
        printf("# again: crash_model --workload %s --seed %llu%s%s\n", workload->name,
               (unsigned long long)run, model.mutant != NULL ? " --mutant " : "",
               model.mutant != NULL ? model.mutant->name : "");
    return !x->failed;
}
