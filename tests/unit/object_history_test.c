/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * object_history_test.c -- random histories of saves to one name of a simulated bucket.
 *
 * Saves begin in the middle of other saves. Requests are refused, lose their answers, or arrive
 * late; clients die; hours pass. After each save the name must hold a whole checkpoint, or none if
 * no save was ever committed; and:
 *   - a save replaces only what was there when it looked at the name;
 *   - a save that said it was aborted never appears;
 *   - at the end, a save after an hour leaves nothing but its own three objects.
 * Broken commits (fault points) must be noticed.
 */
#include "support/object_rig.h"
#include "support/prng.h"
#include "support/unit.h"

#define HISTORIES 25u
#define LONG_HISTORIES 4000u
#define NOTICED_WITHIN 1000u /* histories */
#define SAVES 8u
#define MAX_SAVES 64u

enum verdict { NOT_BEGUN, RUNNING, COMMITTED, ABORTED, UNKNOWN };

struct history {
    struct rig rig;
    struct prng prng;
    enum verdict verdicts[MAX_SAVES]; /* by seed */
    uint64_t begun;                   /* saves so far; their seeds are 1, 2, ... */
    unsigned commits;                 /* saves so far that said OK */
    /* By client: 1 + ${commits} when its save looked at .metadata, and when it put it. */
    unsigned looked_at[64], put_at[64];
    unsigned depth;
    unsigned fault_percent;
    const char *problem; /* NULL: none */
};

static enum sidestep_status history_load(struct history *h, uint64_t *seed)
{
    struct sidestep_engine *engine = rig_engine(&h->rig, NULL, 60);
    struct sidestep_error err;
    struct world world;

    *seed = 0;
    world_make(&world, 0, 1, WORLD_BY_ROWS, 1, true);
    enum sidestep_status status = sidestep_load(engine, PATH, world.state, NULL, NULL, &err);
    for (uint64_t s = 1; status == SIDESTEP_OK && s <= h->begun && *seed == 0; s++)
        if (world_check(&world, s) == 0)
            *seed = s;
    (void)sidestep_engine_close(&engine, NULL);
    world_free(&world);
    return status;
}

/* Look from outside, with no faults. */
static void check_name(struct history *h)
{
    object_hook *none = NULL;
    bool any = false;
    uint64_t seed;

    object_sim_set_hook(h->rig.bucket, none, NULL);
    enum sidestep_status status = history_load(h, &seed);
    for (uint64_t s = 1; s <= h->begun; s++)
        any = any || h->verdicts[s] == COMMITTED;
    if (status == SIDESTEP_OK && seed == 0)
        h->problem = "a mixture was loaded";
    else if (status == SIDESTEP_OK && h->verdicts[seed] == ABORTED)
        h->problem = "a save that was aborted is there";
    else if (status != SIDESTEP_OK && status != SIDESTEP_EUNCOMMITTED &&
             status != SIDESTEP_ENOTFOUND)
        h->problem = "what is there cannot be loaded";
    else if (status != SIDESTEP_OK && any)
        h->problem = "a checkpoint that was committed is gone";
}

static object_hook meddle;

static void save_next(struct history *h)
{
    struct sidestep_error err = {0};
    uint64_t seed = ++h->begun;

    h->verdicts[seed] = RUNNING;
    int client = (int)(seed % 50);
    h->rig.client = client;
    h->looked_at[client] = h->put_at[client] = 0;
    h->depth++;
    enum sidestep_status status = save_once(&h->rig, seed, false, &err);
    h->depth--;
    h->verdicts[seed] = status == SIDESTEP_OK         ? COMMITTED
                        : status == SIDESTEP_EUNKNOWN ? UNKNOWN
                                                      : ABORTED;
    if (status == SIDESTEP_OK && h->looked_at[client] != h->put_at[client])
        h->problem = "a save replaced what came after it had begun";
    h->commits += status == SIDESTEP_OK;
}

static bool chance(struct history *h, unsigned percent)
{
    return prng_next(&h->prng) % 100 < percent;
}

/* What happens to a request, and around it. */
static enum object_fate meddle(void *context, int client, const char *request, const char *key)
{
    struct history *h = context;

    if (client == 60)
        return OBJECT_DONE;
    if (h->depth < 2 && h->begun + 1 < SAVES && chance(h, 2))
        save_next(h);
    if (object_sim_late_count(h->rig.bucket) != 0 && chance(h, 20))
        object_sim_land(h->rig.bucket, prng_next(&h->prng) % object_sim_late_count(h->rig.bucket));
    if (h->looked_at[client] == 0 && strcmp(request, "get") == 0 &&
        strcmp(key, PREFIX ".metadata") == 0)
        h->looked_at[client] = h->commits + 1;
    if (strcmp(request, "put") == 0 && strcmp(key, PREFIX ".metadata") == 0)
        h->put_at[client] = h->commits + 1;
    if (!chance(h, h->fault_percent))
        return OBJECT_DONE;
    if (chance(h, 30))
        object_sim_die(h->rig.bucket, client);
    return (enum object_fate)(OBJECT_REFUSED + prng_next(&h->prng) % 3);
}

/* NULL: the history is fine. */
static const char *live_through(uint64_t seed, unsigned fault_percent)
{
    struct history h = {.fault_percent = fault_percent};
    struct sidestep_error err;

    rig_make(&h.rig, 0);
    h.prng = prng_new(seed);
    while (h.begun < SAVES && h.problem == NULL) {
        object_sim_set_hook(h.rig.bucket, meddle, &h);
        save_next(&h);
        check_name(&h);
        if (chance(&h, 30))
            object_sim_advance(h.rig.bucket, (int64_t)(prng_next(&h.prng) % 5000));
    }
    while (h.problem == NULL && object_sim_late_count(h.rig.bucket) != 0) {
        object_sim_land(h.rig.bucket, 0);
        check_name(&h);
    }
    object_sim_set_hook(h.rig.bucket, NULL, NULL);
    object_sim_advance(h.rig.bucket, OBJECT_DEAD_SECONDS + 1);
    h.rig.client = 61;
    if (h.problem == NULL && save_once(&h.rig, 99, false, &err) != SIDESTEP_OK)
        h.problem = "the last save failed";
    if (h.problem == NULL &&
        (object_sim_count(h.rig.bucket) != 3 || object_sim_upload_count(h.rig.bucket) != 0))
        h.problem = "something is left";
    object_sim_free(&h.rig.bucket);
    return h.problem;
}

TEST(histories_are_fine)
{
    unsigned count = getenv("SIDESTEP_LONG") != NULL ? LONG_HISTORIES : HISTORIES;

    for (uint64_t seed = 1; seed <= count; seed++) {
        const char *problem = live_through(seed, 4);
        if (problem != NULL)
            fail_msg("history %llu: %s", (unsigned long long)seed, problem);
    }
    print_message("# %u histories\n", count);
}

TEST(broken_commits_are_noticed)
{
    static const char *const points[] = {"object.condition", "object.silence", "object.dead",
                                         "object.named"};

    if (getenv("SIDESTEP_EMULATED") != NULL) {
        print_message("# SKIP qemu-user keeps memory of each thread that has ended, and many do\n");
        skip();
    }
    for (size_t i = 0; i < ARRAY_LENGTH(points); i++) {
        const char *problem = NULL;
        fault_arm(points[i], 1, true, EIO);
        for (uint64_t seed = 1; problem == NULL && seed <= NOTICED_WITHIN; seed++)
            problem = live_through(seed, 1 + seed % 12);
        fault_arm("", 0, false, 0);
        print_message("# %s: %s\n", points[i], problem != NULL ? problem : "not noticed");
        assert_non_null(problem);
    }
}
