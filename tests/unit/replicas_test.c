/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * replicas_test.c -- tensors that all ranks have under one name: where they are equal, each rank
 * writes a part; where they differ, and from whichever save on, what is saved is the value of the
 * lowest rank, and never a mixture.
 *
 * The ranks are threads.
 */
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "save/save.h"
#include "support/comm_threads.h"
#include "support/object_rig.h"
#include "support/one_scratch.h"

#define RANKS 4
#define TENSORS 16
#define ELEMENTS ((size_t)16384) /* 64 KiB */
#define TENSOR_BYTES (ELEMENTS * sizeof(uint32_t))
#define STATE_BYTES (TENSORS * TENSOR_BYTES)

/* What one rank has. */
struct trainer {
    struct sidestep_comm *comm;
    struct sidestep_engine *engine;
    struct sidestep_state_dict *state;
    uint32_t memory[TENSORS][ELEMENTS];
    uint32_t counters[4]; /* too small to be shared */
    struct sidestep_save_info info;
};

/* How the engines of a test are opened. */
struct how {
    enum sidestep_replicas replicas;
    enum sidestep_snapshot snapshot;
    unsigned hosts; /* as if the ranks were on so many hosts; 0: those that the engine has found */
    bool in_bucket;
};

static struct rig rig; /* a simulated bucket */

static uint32_t value_of(uint32_t seed, size_t t, size_t i)
{
    return seed * 2654435761u + (uint32_t)t * 40503u + (uint32_t)i;
}

static void fill(struct trainer *trainer, uint32_t seed)
{
    for (size_t t = 0; t < TENSORS; t++)
        for (size_t i = 0; i < ELEMENTS; i++)
            trainer->memory[t][i] = value_of(seed, t, i);
    for (uint32_t i = 0; i < 4; i++)
        trainer->counters[i] = seed + i + 100 * (uint32_t)trainer->comm->rank;
}

/* Give this rank another value in the middle of tensor ${t}. */
static void differ(struct trainer *trainer, size_t t)
{
    trainer->memory[t][ELEMENTS / 2] += 1 + (uint32_t)trainer->comm->rank;
}

static void add(struct trainer *trainer, const char *name, uint32_t *data, int64_t length,
                const int64_t *strides)
{
    struct sidestep_tensor tensor = SIDESTEP_TENSOR_INIT;

    tensor.name = name;
    tensor.dtype = SIDESTEP_UINT32;
    tensor.ndim = 1;
    tensor.shape = &length;
    tensor.strides = strides;
    tensor.data = data;
    if (sidestep_state_dict_add_tensor(trainer->state, &tensor, NULL) != SIDESTEP_OK)
        abort();
}

static void add_all(struct trainer *trainer)
{
    char name[16];

    for (size_t t = 0; t < TENSORS; t++) {
        snprintf(name, sizeof(name), "t%zu", t);
        add(trainer, name, trainer->memory[t], ELEMENTS, NULL);
    }
    add(trainer, "counters", trainer->counters, 4, NULL);
}

static struct sidestep_engine *open_engine(struct sidestep_comm *comm, const struct how *how)
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_engine *engine = NULL;

    if (how->in_bucket)
        return rig_engine(&rig, comm, comm != NULL ? comm->rank : 60);
    options.comm = comm;
    options.threads = 2;
    options.snapshot = how->snapshot;
    return sidestep_engine_open(&engine, &options, NULL) == SIDESTEP_OK ? engine : NULL;
}

static bool open_trainer(struct trainer *trainer, struct sidestep_comm *comm, const struct how *how)
{
    *trainer = (struct trainer){.comm = comm, .engine = open_engine(comm, how)};
    trainer->info.struct_size = sizeof(trainer->info);
    if (trainer->engine == NULL || sidestep_state_dict_new(&trainer->state, NULL) != SIDESTEP_OK)
        return false;
    THREAD_IS(CALLER);
    trainer->engine->saver->replicas.wanted = how->replicas;
    trainer->engine->saver->replicas.min_bytes = 4 * TENSOR_BYTES;
    if (how->hosts != 0)
        trainer->engine->hosts.count = how->hosts;
    for (int r = 0; how->hosts != 0 && comm->rank == 0 && r < RANKS; r++)
        trainer->engine->hosts.of_rank[r] = (uint32_t)r % how->hosts;
    add_all(trainer);
    return true;
}

static int close_trainer(struct trainer *trainer)
{
    sidestep_state_dict_free(&trainer->state);
    return sidestep_engine_close(&trainer->engine, NULL) != SIDESTEP_OK;
}

static bool is_url(const char *name)
{
    return strstr(name, "://") != NULL;
}

static const char *place(char path[256], const char *name)
{
    return is_url(name) ? name : at(path, name);
}

static enum sidestep_status save(struct trainer *trainer, const char *name,
                                 struct sidestep_error *err)
{
    char path[256];

    return sidestep_save(trainer->engine, place(path, name), trainer->state, NULL, &trainer->info,
                         err);
}

static enum sidestep_status save_async(struct trainer *trainer, const char *name,
                                       struct sidestep_error *err)
{
    struct sidestep_save *handle = NULL;
    char path[256];

    TRY(sidestep_save_async(trainer->engine, at(path, name), trainer->state, NULL, &handle, err));
    return sidestep_save_finish(&handle, &trainer->info, err);
}

/* Did this rank write about a ${part}th of the state? */
static bool wrote(const struct trainer *trainer, uint64_t bytes)
{
    uint64_t total = trainer->info.bytes_total; /* with heads and the footer */

    return total >= bytes && total < bytes + TENSOR_BYTES;
}

static bool wrote_part(const struct trainer *trainer)
{
    return wrote(trainer, STATE_BYTES / RANKS);
}

static bool wrote_as_lowest(const struct trainer *trainer)
{
    return wrote(trainer, trainer->comm->rank == 0 ? STATE_BYTES : 0);
}

/* The number of tensors in the checkpoint ${name} that are not those of rank 0 after fill(seed) and
 * differ(each of ${differing}, a set of bits).  Not collective. */
static int count_wrong(const char *name, uint32_t seed, unsigned differing)
{
    struct trainer *loaded = calloc(1, sizeof(*loaded));
    struct sidestep_comm alone = {.rank = 0, .size = 1};
    struct sidestep_error err = {0};
    char path[256];
    int wrong = 0;

    if (loaded == NULL || sidestep_state_dict_new(&loaded->state, NULL) != SIDESTEP_OK)
        return -1;
    loaded->engine = open_engine(NULL, &(struct how){.in_bucket = is_url(name)});
    loaded->comm = &alone;
    add_all(loaded);
    if (sidestep_load(loaded->engine, place(path, name), loaded->state, NULL, NULL, &err) !=
        SIDESTEP_OK) {
        fprintf(stderr, "# %s\n", err.message);
        wrong = 1000;
    }
    for (size_t t = 0; t < TENSORS; t++) {
        bool good = true;
        for (size_t i = 0; i < ELEMENTS; i++)
            good = good &&
                   loaded->memory[t][i] ==
                       value_of(seed, t, i) + (i == ELEMENTS / 2 && (differing & 1u << t) != 0);
        wrong += !good;
    }
    wrong += loaded->counters[0] != seed;
    (void)close_trainer(loaded);
    free(loaded);
    return wrong;
}

/* Run ${main} on all ranks, each with a trainer. */
struct job {
    struct how how;
    int (*main)(struct trainer *trainer, struct sidestep_comm *comm, void *context);
    void *context;
};

static int run_rank(struct sidestep_comm *comm, void *context)
{
    const struct job *job = context;
    struct trainer *trainer = calloc(1, sizeof(*trainer));
    int bad = 1;

    if (trainer != NULL && open_trainer(trainer, comm, &job->how)) {
        bad = job->main(trainer, comm, job->context);
        bad += close_trainer(trainer);
    }
    free(trainer);
    return bad;
}

static void run(struct how how,
                int (*main)(struct trainer *trainer, struct sidestep_comm *comm, void *context),
                void *context)
{
    struct job job = {.how = how, .main = main, .context = context};

    assert_int_equal(comm_threads_run(RANKS, run_rank, &job), 0);
}

/* ---- equal values */

static int save_equal(struct trainer *trainer, struct sidestep_comm *comm, void *context)
{
    unsigned long *calls = context; /* of rank 0, in the second and third save */
    struct sidestep_error err = {0};
    int bad = 0;

    for (uint32_t n = 1; n <= 3; n++) {
        unsigned long before = comm_threads_calls(comm);
        fill(trainer, n);
        EXPECT(save(trainer, n == 2 ? "2" : "1", &err) == SIDESTEP_OK);
        if (comm->rank == 0 && n > 1)
            calls[n - 2] = comm_threads_calls(comm) - before;
        EXPECT(((trainer->info.flags & SIDESTEP_SAVE_PLAN_REUSED) != 0) == (n > 1));
        EXPECT(trainer->info.differs[0] == '\0');
        bool shares = trainer->engine->saver->replicas.wanted == SIDESTEP_REPLICAS_SHARE;
        EXPECT(shares ? wrote_part(trainer) : wrote_as_lowest(trainer));
        EXPECT(trainer->info.compared_bytes == (shares ? STATE_BYTES : 0));
    }
    return bad;
}

TEST(equal_tensors_are_written_by_all_ranks)
{
    unsigned long shared[2], lowest[2];

    run((struct how){.replicas = SIDESTEP_REPLICAS_SHARE}, save_equal, shared);
    assert_int_equal(count_wrong("1", 3, 0), 0);
    assert_int_equal(count_wrong("2", 2, 0), 0);
    scratch_remove(&scratch);
    assert_true(scratch_make(&scratch, NULL));
    run((struct how){.replicas = SIDESTEP_REPLICAS_LOWEST}, save_equal, lowest);
    assert_int_equal(count_wrong("1", 3, 0), 0);
    assert_memory_equal(shared, lowest, sizeof(shared)); /* no collective more */
}

static int save_twice(struct trainer *trainer, struct sidestep_comm *comm, void *context)
{
    const char *name = context;
    struct sidestep_error err = {0};
    int bad = 0;

    for (uint32_t n = 1; n <= 2; n++) {
        fill(trainer, n);
        if (n == 2 && comm->rank == 3)
            differ(trainer, 2); /* which this rank has written in the first save */
        EXPECT(save(trainer, name, &err) == SIDESTEP_OK);
        EXPECT(trainer->info.bytes_total < STATE_BYTES / 2);
    }
    return bad;
}

TEST(a_bucket_gets_parts_of_all_ranks)
{
    char name[] = PATH;

    rig_make(&rig, 0);
    run((struct how){.replicas = SIDESTEP_REPLICAS_SHARE, .in_bucket = true}, save_twice, name);
    assert_int_equal(count_wrong(PATH, 2, 0), 0);
    object_sim_free(&rig.bucket);
}

/* The negative control: as if nobody compared the values. */
TEST(a_mixture_would_be_noticed)
{
    char name[] = "1";

    fault_arm("trust.replicas", 1, true, 0);
    run((struct how){.replicas = SIDESTEP_REPLICAS_SHARE}, save_twice, name);
    fault_arm("", 0, false, 0);
    assert_int_equal(count_wrong("1", 2, 0), 1);
}

/* ---- values that differ */

/* Which ranks differ, in which save, and in which tensors. */
struct difference {
    int rank;
    uint32_t save;
    size_t tensor;
};
static const struct difference differences[] = {
    {2, 1, 5}, {0, 2, 3}, {3, 2, 4}, {1, 4, 0}, {0, 4, 15}, {RANKS - 1, 5, 9},
};
#define SAVES 6u

static int save_different(struct trainer *trainer, struct sidestep_comm *comm, void *context UNUSED)
{
    struct sidestep_error err = {0};
    unsigned found = 0; /* tensors that were ever found to differ */
    int bad = 0;

    for (uint32_t n = 1; n <= SAVES; n++) {
        unsigned now = 0, before = found;
        char name[8], quoted[8];

        fill(trainer, n);
        for (size_t i = 0; i < ARRAY_LENGTH(differences); i++) {
            const struct difference *d = &differences[i];
            if (d->save == n)
                now |= 1u << d->tensor;
            if (d->save == n && d->rank == comm->rank)
                differ(trainer, d->tensor);
        }
        found |= now;
        snprintf(name, sizeof(name), "%u", n);
        EXPECT(save(trainer, name, &err) == SIDESTEP_OK);
        for (size_t t = 0; t < TENSORS; t++) {
            snprintf(quoted, sizeof(quoted), "'t%zu'", t);
            bool is_told = strstr(trainer->info.differs, quoted) != NULL;
            EXPECT(is_told == ((now & ~before & 1u << t) != 0));
        }
        uint64_t left = TENSOR_BYTES * (uint64_t)__builtin_popcount(found);
        EXPECT(comm->rank != 0 || trainer->info.bytes_total >= left);
        EXPECT(trainer->info.bytes_total < STATE_BYTES / 2);
        EXPECT(comm->rank == 0 || trainer->info.bytes_total > TENSOR_BYTES);
        EXPECT(((trainer->info.flags & SIDESTEP_SAVE_PLAN_REUSED) != 0) == (n != 1 && now == 0));
    }
    return bad;
}

/* What rank 0 has in save ${n}, in bits for count_wrong(). */
static unsigned of_rank_0(uint32_t n)
{
    unsigned tensors = 0;

    for (size_t i = 0; i < ARRAY_LENGTH(differences); i++)
        if (differences[i].rank == 0 && differences[i].save == n)
            tensors |= 1u << differences[i].tensor;
    return tensors;
}

TEST(where_values_differ_the_lowest_rank_is_saved)
{
    char name[8];

    run((struct how){.replicas = SIDESTEP_REPLICAS_SHARE}, save_different, NULL);
    for (uint32_t n = 1; n <= SAVES; n++) {
        snprintf(name, sizeof(name), "%u", n);
        assert_int_equal(count_wrong(name, n, of_rank_0(n)), 0);
    }
    assert_true(count_wrong("2", 2, 0) == 1); /* the negative control */
}

/* ---- tensors that a rank cannot read as they are in the file */

static int save_with_gaps(struct trainer *trainer, struct sidestep_comm *comm, void *context UNUSED)
{
    static const int64_t two[] = {2};
    struct sidestep_error err = {0};
    int bad = 0;

    fill(trainer, 1);
    uint32_t *gaps = calloc(2 * ELEMENTS, sizeof(*gaps));
    if (gaps == NULL)
        return 1;
    for (size_t i = 0; i < ELEMENTS; i++)
        gaps[2 * i] = 7;
    add(trainer, "gaps", gaps, ELEMENTS, comm->rank == 1 ? two : NULL);
    for (int n = 0; n < 2; n++) {
        EXPECT(save(trainer, "1", &err) == SIDESTEP_OK);
        EXPECT(trainer->info.differs[0] == '\0');
        EXPECT(((trainer->info.flags & SIDESTEP_SAVE_PLAN_REUSED) != 0) == (n != 0));
        EXPECT(comm->rank == 0 || trainer->info.bytes_total < STATE_BYTES / 2);
    }
    sidestep_state_dict_free(&trainer->state);
    free(gaps);
    return bad;
}

TEST(tensors_with_gaps_are_left_to_the_lowest_rank)
{
    run((struct how){.replicas = SIDESTEP_REPLICAS_SHARE}, save_with_gaps, NULL);
    assert_int_equal(count_wrong("1", 1, 0), 0);
}

/* ---- which saves share */

static int save_each_way(struct trainer *trainer, struct sidestep_comm *comm, void *context)
{
    const bool *shares = context; /* blocking, asynchronous */
    struct sidestep_error err = {0};
    bool by_cow = trainer->engine->saver->snapshot_policy.requested != SIDESTEP_SNAPSHOT_COPY;
    int bad = 0;

    THREAD_IS(CALLER);
    if (by_cow && !snapshot_policy_can_use_cow(&trainer->engine->saver->snapshot_policy))
        return 0; /* then it copies */
    for (uint32_t n = 1; n <= 6; n++) {
        bool is_async = n % 3 == 0;
        char name[8];

        fill(trainer, n);
        if (n == 4 && comm->rank == 2) /* after a save of another kind */
            differ(trainer, 1);
        snprintf(name, sizeof(name), "%u", n);
        enum sidestep_status status =
            is_async ? save_async(trainer, name, &err) : save(trainer, name, &err);
        EXPECT(status == SIDESTEP_OK);
        EXPECT(shares[is_async] ? wrote_part(trainer) : wrote_as_lowest(trainer));
    }
    return bad;
}

TEST(only_calm_saves_of_several_hosts_share)
{
    static const struct {
        struct how how;
        bool shares[2];
    } cases[] = {
        {{.snapshot = SIDESTEP_SNAPSHOT_COPY}, {false, false}},
        {{.snapshot = SIDESTEP_SNAPSHOT_COPY, .hosts = 2}, {true, true}},
        {{.snapshot = SIDESTEP_SNAPSHOT_COW, .hosts = 2}, {true, false}},
        {{SIDESTEP_REPLICAS_LOWEST, .snapshot = SIDESTEP_SNAPSHOT_COPY, .hosts = 2},
         {false, false}},
        {{SIDESTEP_REPLICAS_SHARE, .snapshot = SIDESTEP_SNAPSHOT_COW}, {true, true}},
    };
    char name[8], path[256];

    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        run(cases[i].how, save_each_way, (void *)(uintptr_t)cases[i].shares);
        for (uint32_t n = 1; n <= 6 && access(at(path, "1"), F_OK) == 0; n++) {
            snprintf(name, sizeof(name), "%u", n);
            assert_int_equal(count_wrong(name, n, 0), 0);
        }
        scratch_remove(&scratch);
        assert_true(scratch_make(&scratch, NULL));
    }
}

static int save_without_one(struct trainer *trainer, struct sidestep_comm *comm,
                            void *context UNUSED)
{
    struct sidestep_error err = {0};
    int bad = 0;

    THREAD_IS(CALLER);
    if (comm->rank == 1)
        trainer->engine->saver->replicas.wanted = SIDESTEP_REPLICAS_LOWEST;
    for (uint32_t n = 1; n <= 6; n++) {
        fill(trainer, n);
        EXPECT((n % 2 == 0 ? save_async : save)(trainer, "1", &err) == SIDESTEP_OK);
        EXPECT(wrote_as_lowest(trainer));
        EXPECT(((trainer->info.flags & SIDESTEP_SAVE_PLAN_REUSED) != 0) == (n > 2));
    }
    return bad;
}

/* It takes all ranks, and those that would have shared do not ask again and again. */
TEST(one_rank_can_refuse)
{
    run((struct how){.replicas = SIDESTEP_REPLICAS_SHARE, .snapshot = SIDESTEP_SNAPSHOT_COPY},
        save_without_one, NULL);
    assert_int_equal(count_wrong("1", 6, 0), 0);
}

/* ---- parts and write protection */

#define BIG ((int64_t)8 << 20) /* elements: each rank writes 8 MiB */

static int save_big(struct trainer *trainer, struct sidestep_comm *comm, void *context)
{
    bool *has_cow = context; /* of rank 0 */
    struct sidestep_save *handle = NULL;
    struct sidestep_error err = {0};
    uint32_t *memory = calloc((size_t)BIG, sizeof(*memory));
    char path[256];
    int bad = 0;

    THREAD_IS(CALLER);
    if (memory == NULL || !snapshot_policy_can_use_cow(&trainer->engine->saver->snapshot_policy)) {
        free(memory);
        return memory == NULL;
    }
    if (comm->rank == 0)
        *has_cow = true;
    for (int64_t i = 0; i < BIG; i++)
        memory[i] = (uint32_t)i;
    add(trainer, "big", memory, BIG, NULL);
    EXPECT(sidestep_save_async(trainer->engine, at(path, "big"), trainer->state, NULL, &handle,
                               &err) == SIDESTEP_OK);
    memset(memory, 0xff, (size_t)BIG * sizeof(*memory));
    EXPECT(sidestep_save_finish(&handle, &trainer->info, &err) == SIDESTEP_OK);
    EXPECT(trainer->info.cow_bytes > (7 << 20));
    EXPECT(trainer->info.copy_reason[0] == '\0');
    if (comm->rank == 0) {
        struct sidestep_engine *alone = open_engine(NULL, &(struct how){0});
        EXPECT(sidestep_load(alone, at(path, "big"), trainer->state, NULL, NULL, &err) ==
               SIDESTEP_OK);
        for (int64_t i = 0; i < BIG && bad == 0; i++)
            EXPECT(memory[i] == (uint32_t)i);
        (void)sidestep_engine_close(&alone, NULL);
    }
    sidestep_state_dict_free(&trainer->state);
    free(memory);
    return bad;
}

/* A part by rows is contiguous, too: it is protected in the call, and not copied. */
TEST(parts_are_protected)
{
    bool has_cow = false;

    run((struct how){SIDESTEP_REPLICAS_SHARE, .snapshot = SIDESTEP_SNAPSHOT_COW}, save_big,
        &has_cow);
    if (!has_cow) {
        print_message("skipped: memory cannot be write-protected here\n");
        skip();
    }
}

/* ---- a rank dies in the middle */

static int save_until_death(struct trainer *trainer, struct sidestep_comm *comm,
                            void *context UNUSED)
{
    struct sidestep_error err = {0};

    for (uint32_t n = 1; n <= 2; n++) {
        fill(trainer, n);
        if (n == 2 && comm->rank == 2)
            differ(trainer, 5);
        if (save(trainer, "1", &err) != SIDESTEP_OK)
            break;
    }
    return 0;
}

static int run_dying_rank(struct sidestep_comm *comm, void *context)
{
    (void)run_rank(comm, context);
    return 0;
}

/* Wherever a rank dies, what is there is whole, and of one of the two saves. */
TEST(a_rank_that_dies_leaves_no_mixture)
{
    struct job job = {.how = {.replicas = SIDESTEP_REPLICAS_SHARE}, .main = save_until_death};
    unsigned first = 0, second = 0, none = 0;
    char path[256];

    for (unsigned long nth = 1; nth < 60 && second < 2; nth++) {
        assert_int_equal(comm_threads_run_dying(RANKS, 1, nth, run_dying_rank, &job), 0);
        if (access(at(path, "1"), F_OK) != 0)
            none++;
        else if (count_wrong("1", 1, 0) == 0)
            first++;
        else {
            assert_int_equal(count_wrong("1", 2, 0), 0);
            second++;
        }
        scratch_remove(&scratch);
        assert_true(scratch_make(&scratch, NULL));
    }
    assert_true(none != 0 && first != 0 && second != 0);
}

EACH_TEST(scratch_setup, scratch_teardown);
