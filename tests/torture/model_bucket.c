/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * model_bucket.c -- explores crashes in a bucket. Each request is a step: it is carried out or
 * refused, its response is lost, or it arrives late, when its sender may be dead but before its
 * signature expires. After a request all processes are killed. Then, in one of several orders, late
 * requests arrive, hours pass, a process sweeps, and a process saves again. After each of these the
 * checkpoints are compared with the reports. See model.h.
 */
#include "model.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/fault.h"
#include "base/owned.h"
#include "checkpoint/reader.h"

/* ---- requests */

static bool is_mutant(const char *request, const char *key)
{
    const struct mutant *m = model.mutant;
    size_t length = m != NULL && m->kind == MUTANT_REQUEST ? strcspn(m->request, " ") : 0;

    return length != 0 && strlen(request) == length && strncmp(request, m->request, length) == 0 &&
           strstr(key, m->request + length + 1) != NULL &&
           (m->phase == PHASE_OTHER || m->phase == model.actor->phase) &&
           (m->rank < 0 || (uint32_t)m->rank == model.actor->rank);
}

static void tell_time(struct world *world)
{
    object_sim_advance(world->bucket, (int64_t)(world->now_ms / 1000 - world->bucket_ms / 1000));
    world->bucket_ms = world->now_ms;
}

/* A request of a dying process may be refused, carried out, or late. */
static enum object_fate choose_fate(struct world *world, const char *request)
{
    if (world->current->actor.is_dead)
        return (enum object_fate)(OBJECT_REFUSED + prng_below(&world->prng, 3));
    static const enum object_fate fates[][3] = {
        [FAULT_NONE] = {OBJECT_DONE, OBJECT_DONE, OBJECT_DONE},
        [FAULT_BEFORE] = {OBJECT_REFUSED, OBJECT_REFUSED, OBJECT_FORBIDDEN},
        [FAULT_AFTER] = {OBJECT_LOST, OBJECT_LOST_THEN_REFUSED, OBJECT_LOST_THEN_REFUSED},
        [FAULT_LOST] = {OBJECT_LATE, OBJECT_RESET, OBJECT_LATE_THEN_REFUSED},
    };
    enum fault_kind fault = world_take_fault(NULL, request);

    return fates[fault][fault != FAULT_NONE ? prng_below(&world->prng, 3) : 0];
}

enum object_fate bucket_before_request(void *context, int client, const char *request,
                                       const char *key)
{
    struct world *world = context;
    bool was_dead = world->current->actor.is_dead;

    world_before_op(world, client, request, key);
    tell_time(world);
    size_t late = object_sim_late_count(world->bucket);
    if (late != 0 && prng_below(&world->prng, 4) == 0)
        object_sim_land(world->bucket, prng_below(&world->prng, late));
    if (was_dead)
        return OBJECT_REFUSED;
    return is_mutant(request, key) ? OBJECT_SKIPPED : choose_fate(world, request);
}

static struct store *open_store(struct object_bucket *bucket, int client)
{
    struct store *store = NULL;
    enum sidestep_status status =
        object_store_new(MODEL_BUCKET, object_sim_client(bucket, client), &store, NULL);

    assert(status == SIDESTEP_OK);
    (void)status;
    return store;
}

struct store *bucket_store(struct world *world, int client)
{
    if (world->stores[client] == NULL)
        world->stores[client] = open_store(world->bucket, client);
    return world->stores[client];
}

/* ---- checks */

static bool fails(struct explore *x, struct object_bucket *bucket, const struct ledger *ledger,
                  const char *when)
{
    if (x->failed)
        return false;
    x->failed = true;
    if (x->quiet)
        return false;
    printf("# VIOLATION %s: %s\n# the bucket:\n", when, x->problem.text);
    for (size_t i = 0; object_sim_key(bucket, i) != NULL; i++)
        printf("#   %s\n", object_sim_key(bucket, i));
    for (uint32_t i = 0; i < ledger->save_count; i++) {
        const struct model_save *s = &ledger->saves[i];
        printf("#   save %u of '%s' (id %02x...):%s%s%s%s\n", i, s->name, s->id[0],
               s->committed ? " committed" : "", s->aborted ? " aborted" : "",
               s->doomed ? " doomed" : "", s->gone ? " gone" : "");
    }
    printf("# requests:\n");
    for (size_t i = 0; i < model.trace_count; i++)
        printf("#   %zu client %d %s %s\n", i, model.trace[i].client, model.trace[i].op,
               model.trace[i].name);
    return false;
}

static bool judge(const struct workload *workload, struct store *store, const struct ledger *ledger,
                  struct problem *problem)
{
    int found;

    if ((workload->traits & WORKLOAD_TORN) != 0)
        return ledger_look(store, ledger, MODEL_TARGET, &found, problem);
    return ledger_judge_store(store, ledger, true, true, problem);
}

/* Does ${key} belong to the checkpoint under its name, or to the series? */
static bool belongs(struct store *store, const struct ledger *ledger, const char *key)
{
    static struct problem ignored;
    char name[FILE_NAME_BYTES], hex[SAVE_ID_HEX];
    int found = MODEL_NOTHING;

    key += strlen("p/");
    size_t length = strcspn(key, "/");
    snprintf(name, sizeof(name), "%.*s", (int)length, key);
    if (strcmp(name, FILE_NAME_SERIES_DIR) == 0)
        return true;
    if (!ledger_look(store, ledger, name, &found, &ignored) || found == MODEL_NOTHING)
        return false;
    const char *rest = key + length + 1;
    hash_to_hex(ledger->saves[found].id, SAVE_ID_BYTES, hex);
    return strcmp(rest, FILE_NAME_METADATA) == 0 || strcmp(file_name_parse(rest).save_id, hex) == 0;
}

static bool judge_leftovers(struct store *store, struct object_bucket *bucket,
                            const struct ledger *ledger, struct problem *problem)
{
    for (size_t i = 0; object_sim_key(bucket, i) != NULL; i++)
        if (!belongs(store, ledger, object_sim_key(bucket, i))) {
            snprintf(problem->text, sizeof(problem->text), "'%s' is left behind",
                     object_sim_key(bucket, i));
            return false;
        }
    if (object_sim_upload_count(bucket) == 0)
        return true;
    snprintf(problem->text, sizeof(problem->text), "an upload is left behind");
    return false;
}

/* ---- after all processes were killed */

/* Orders of events, one letter each: late requests arrive (l), an hour passes (h), a process sweeps
 * (s), a process saves or resumes (r). */
static const char *const afterwards[] = {"lhr", "rl", "slhr", "hr", "srl", "hslr"};

struct after {
    struct explore *x;
    const struct workload *workload;
    struct object_bucket *bucket;
    struct store *store;
    struct ledger ledger;
    struct world outside; /* its clock */
};

static void land_all(struct object_bucket *bucket)
{
    while (object_sim_late_count(bucket) != 0)
        object_sim_land(bucket, 0);
}

static bool take_step(struct after *a, char step)
{
    struct sidestep_error err = {0};

    model_trace(-1, "THEN",
                step == 'l'   ? "late requests arrive"
                : step == 'h' ? "an hour passes"
                : step == 's' ? "a process sweeps"
                              : "a process saves");
    switch (step) {
    case 'l':
        land_all(a->bucket);
        return true;
    case 'h':
        object_sim_advance(a->bucket, 3601);
        return true;
    case 's':
        return program_collect(a->store, &err);
    default:
        return explore_recover(a->workload, &a->ledger, a->store, &a->outside.clock,
                               &a->x->problem);
    }
}

static bool recover(struct after *a, const char *steps)
{
    bool good = true;

    for (; *steps != '\0' && good; steps++)
        good = take_step(a, *steps) && judge(a->workload, a->store, &a->ledger, &a->x->problem);
    if (!good)
        return fails(a->x, a->bucket, &a->ledger, "after a crash");
    land_all(a->bucket);
    object_sim_advance(a->bucket, 3601);
    return (program_collect(a->store, NULL) &&
            judge(a->workload, a->store, &a->ledger, &a->x->problem) &&
            judge_leftovers(a->store, a->bucket, &a->ledger, &a->x->problem)) ||
           fails(a->x, a->bucket, &a->ledger, "at the end");
}

/* Kill all processes, and then let ${afterwards[which]} happen. */
static bool crash(struct explore *x, const struct world *world, size_t which)
{
    uint64_t parts[] = {object_sim_hash(world->bucket), ledger_hash(&world->ledger), which};
    struct actor recoverer = {.recovers = true}, *before = model.actor;
    size_t traced = model.trace_count;
    const char *name = world->workload->name;

    x->images++;
    if (x->states >= x->limit ||
        !explore_is_new(
            x, XXH3_64bits_withSeed(parts, sizeof(parts), XXH3_64bits(name, strlen(name)))))
        return true;
    x->states++;
    struct after a = {.x = x,
                      .workload = world->workload,
                      .bucket = object_sim_clone(world->bucket),
                      .ledger = world->ledger,
                      .outside = {.now_ms = world->now_ms}};
    assert(a.bucket != NULL);
    for (int i = 0; i < MODEL_MAX_TASKS; i++)
        object_sim_die(a.bucket, i);
    a.store = open_store(a.bucket, MODEL_RECOVERY);
    world_start_clock(&a.outside);
    model.actor = &recoverer;
    model_trace(-1, "ALL KILLED", "");
    bool good = recover(&a, afterwards[which]);
    model.actor = before;
    model.trace_count = traced;
    object_store_free(&a.store);
    object_sim_free(&a.bucket);
    return good;
}

/* ---- runs */

static bool look(struct explore *x, struct world *world)
{
    struct prng prng = prng_new(world->prng.seed << 16 | world->step);

    if (world->broken != NULL) {
        x->problem = *world->broken;
        return fails(x, world->bucket, &world->ledger, "while it runs");
    }
    if (!judge(world->workload, bucket_store(world, MODEL_SETUP), &world->ledger, &x->problem))
        return fails(x, world->bucket, &world->ledger, "while it runs");
    if (!x->is_thorough && world->prng.seed != 0 && world->task_count != 1 && !world->told &&
        prng_below(&prng, 4) != 0)
        return true;
    bool all = x->is_thorough || world->prng.seed == 0;
    size_t first = prng_below(&prng, ARRAY_LENGTH(afterwards));
    for (size_t i = 0; i < (all ? ARRAY_LENGTH(afterwards) : 2); i++)
        if (!crash(x, world, (first + i) % ARRAY_LENGTH(afterwards)))
            return false;
    return true;
}

static bool after_change(struct world *world)
{
    struct explore *x = world->context;
    struct actor looking = {.phase = PHASE_OTHER}, *before = model.actor;

    if (x->failed)
        return false;
    x->steps++;
    model.actor = &looking;
    object_sim_set_hook(world->bucket, NULL, NULL);
    bool good = look(x, world);
    object_sim_set_hook(world->bucket, bucket_before_request, world);
    model.actor = before;
    return good;
}

static void set_up(struct world *world)
{
    world->bucket = object_sim_new(world->workload->flags, 1);
    assert(world->bucket != NULL);
    world->ledger.commits_late = true;
    world_start_clock(world);
    if (world->workload->setup != NULL)
        world->workload->setup(world);
    for (uint32_t i = 0; i < world->ledger.save_count; i++) {
        ledger_end(&world->ledger, &world->ledger.saves[i]);
        world->ledger.saves[i].incarnation = 0;
    }
    object_sim_advance(world->bucket, 7200); /* what is there is old */
}

static bool check_outcome(struct explore *x, const struct world *world)
{
    for (size_t i = 0; i < world->saving_count; i++)
        if ((world->workload->traits & WORKLOAD_COMMITS) != 0 &&
            world->savings[i].outcome != COMMIT_COMMITTED) {
            snprintf(x->problem.text, sizeof(x->problem.text),
                     "an undisturbed save does not commit");
            return fails(x, world->bucket, &world->ledger, "at the end");
        }
    return true;
}

static void clean_up(struct world *world)
{
    for (size_t i = 0; i < ARRAY_LENGTH(world->stores); i++)
        object_store_free(&world->stores[i]);
    object_sim_free(&world->bucket);
}

bool bucket_run(struct explore *x, const struct workload *workload, uint64_t run)
{
    static struct world world;
    struct actor outside = {.phase = PHASE_OTHER};
    const struct mutant *mutant = TAKE(model.mutant);

    world = (struct world){
        .workload = workload, .prng = prng_new(run), .after_change = after_change, .context = x};
    model.parent = MODEL_PARENT_URL;
    model.has_files = (workload->traits & WORKLOAD_FILES) != 0;
    model.has_parts = false;
    model.is_sent = (workload->traits & WORKLOAD_SENT) != 0;
    model.actor = &outside;
    model.random = run;
    set_up(&world);
    workload->start(&world);
    model.mutant = mutant;
    explore_plan(x, &world, run);
    world.plan.kills_after_rename = false;
    model.trace_count = 0;
    if (mutant != NULL && mutant->kind == MUTANT_POINT)
        fault_arm(mutant->request, 1, true, EIO);
    world_run(&world);
    if (!x->failed && run == 0)
        (void)check_outcome(x, &world);
    fault_arm("", 0, false, 0);
    if (run == 0)
        x->plain = world.counts;
    x->runs++;
    if (x->failed && !x->quiet)
        printf("# again: crash_model --workload %s --seed %llu\n", workload->name,
               (unsigned long long)run);
    clean_up(&world);
    return !x->failed;
}
