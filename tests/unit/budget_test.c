/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * budget_test.c -- counts the calls by which a save changes and looks at names and files, for two
 * numbers of ranks. The counts are exactly those of docs/FORMAT.md, so nobody adds a call for each
 * rank unnoticed.
 *
 * Rank 0 begins to write when all others have voted, so that no count depends on time: it looks at
 * the votes once, and each other rank at the outcome once.
 */
#include <pthread.h>
#include <sys/stat.h>

#include "base/base.h"
#include "base/fault.h"
#include "engine/engine.h"
#include "support/comm_threads.h"
#include "support/scratch.h"
#include "support/store_fault.h"
#include "support/unit.h"

#define FEW 4
#define MANY 12
#define NEVER 1000000000ul

/* Calls of a save: for each rank, and once. */
struct row {
    const char *call;
    bool has_reply;  /* store_fault.h passes a second point if it takes effect */
    int calls[4][2]; /* by enum kind */
};

enum kind { SWAP, IN_PLACE, SWAP_FILES, IN_PLACE_FILES };
static const char *const kinds[] = {"swap", "in place", "swap with a small file of each rank",
                                    "in place with a small file of each rank"};

/* The table in docs/FORMAT.md, section 6.6. */
static const struct row budgets[] = {
    {"dir_make", true, {{0, 1}, {0, 0}, {0, 1}, {0, 0}}},
    {"dir_open", false, {{4, 1}, {4, 1}, {4, 1}, {4, 1}}},
    {"dir_list", false, {{0, 2}, {0, 3}, {0, 2}, {0, 3}}},
    {"dir_sync", false, {{1, 3}, {1, 3}, {1, 4}, {1, 3}}},
    {"dir_remove", true, {{0, 0}, {0, 0}, {0, 0}, {0, 0}}},
    {"file_create", true, {{2, 3}, {2, 4}, {3, 3}, {3, 4}}},
    {"file_open", false, {{4, -2}, {5, 0}, {4, -2}, {5, 0}}},
    {"file_sync", false, {{1, 2}, {1, 2}, {2, 2}, {2, 2}}},
    {"rename", true, {{1, 2}, {1, 1}, {2, 2}, {1, 1}}},
    {"link", true, {{0, 0}, {0, 0}, {0, 0}, {1, 0}}},
    {"unlink", true, {{1, 1}, {1, 2}, {1, 1}, {1, 2}}},
    {"stat", false, {{3, 0}, {2, 4}, {4, 0}, {3, 4}}},
    {"file_lock", false, {{0, 1}, {0, 2}, {0, 1}, {0, 2}}},
};

static struct store *counting;
static struct scratch scratch;

struct job {
    const char *point;
    bool has_files;
    char first[128], path[128]; /* the first save of an engine asks more, and is not counted */
    pthread_barrier_t turn;
};

static enum sidestep_status add_row(struct sidestep_state_dict *state,
                                    const struct sidestep_comm *comm, float data[2])
{
    const struct sidestep_tensor tensor = {
        .struct_size = sizeof(tensor),
        .name = "weight",
        .dtype = SIDESTEP_FLOAT32,
        .ndim = 2,
        .shape = (int64_t[]){comm->size, 2},
        .offsets = (int64_t[]){comm->rank, 0},
        .lengths = (int64_t[]){1, 2},
        .data = data,
    };

    return sidestep_state_dict_add_tensor(state, &tensor, NULL);
}

static enum sidestep_status add_file(struct sidestep_state_dict *state, int rank)
{
    char name[32];

    snprintf(name, sizeof(name), "rng_state_%d.json", rank);
    return sidestep_state_dict_add_file(state, name, "{}", 2, 0, NULL);
}

/* Rank 0 begins to write when the others have voted, and they ask when it has committed. */
static bool save_to(struct job *job, struct sidestep_engine *engine, const char *path,
                    const struct sidestep_state_dict *state)
{
    struct sidestep_save *save = NULL;
    int rank = engine->comm.rank;

    if (rank == 0)
        sidestep_engine_pause(engine);
    bool ok =
        sidestep_save_async(engine, path, state, NULL, &save, NULL) == SIDESTEP_OK &&
        (rank == 0 || sidestep_save_watch(save, SIDESTEP_SAVE_WRITTEN, -1, NULL) == SIDESTEP_OK);
    pthread_barrier_wait(&job->turn);
    if (rank == 0) {
        sidestep_engine_resume(engine);
        ok = ok && sidestep_save_wait(save, SIDESTEP_SAVE_COMMITTED, -1, NULL) == SIDESTEP_OK;
    }
    pthread_barrier_wait(&job->turn);
    return sidestep_save_finish(&save, NULL, NULL) == SIDESTEP_OK && ok;
}

static int save_rank(struct sidestep_comm *comm, void *context)
{
    struct job *job = context;
    struct sidestep_engine *engine = NULL;
    struct sidestep_state_dict *state = NULL;
    float data[2] = {1, 2};

    bool ok = comm_threads_open(comm, &engine, NULL) == SIDESTEP_OK &&
              sidestep_state_dict_new(&state, NULL) == SIDESTEP_OK &&
              add_row(state, comm, data) == SIDESTEP_OK &&
              (!job->has_files || add_file(state, comm->rank) == SIDESTEP_OK);
    engine->store = counting;
    ok = save_to(job, engine, job->first, state) && ok;
    pthread_barrier_wait(&job->turn);
    if (comm->rank == 0)
        fault_arm(job->point, NEVER, false, 0);
    pthread_barrier_wait(&job->turn);
    ok = save_to(job, engine, job->path, state) && ok;
    sidestep_state_dict_free(&state);
    return sidestep_engine_close(&engine, NULL) != SIDESTEP_OK || !ok;
}

/* How often ${point} is passed by a save of so many ranks. */
static int hits(const char *point, int ranks, enum kind kind)
{
    struct job job = {.point = point, .has_files = kind >= SWAP_FILES};

    snprintf(job.first, sizeof(job.first), "%s/first", scratch.path);
    snprintf(job.path, sizeof(job.path), "%s/ckpt", scratch.path);
    if (kind == IN_PLACE || kind == IN_PLACE_FILES)
        assert_int_equal(mkdir(job.path, 0777), 0);
    assert_int_equal(pthread_barrier_init(&job.turn, NULL, (unsigned)ranks), 0);
    assert_int_equal(comm_threads_run(ranks, save_rank, &job), 0);
    unsigned long counted = fault_hits();
    fault_arm("", 0, false, 0);
    assert_int_equal(pthread_barrier_destroy(&job.turn), 0);
    assert_int_equal(nftw(job.first, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
    assert_int_equal(nftw(job.path, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
    return (int)counted;
}

static int calls(const struct row *budget, int ranks, enum kind kind)
{
    char point[64];

    snprintf(point, sizeof(point), "store.%s", budget->call);
    int all = hits(point, ranks, kind);
    if (!budget->has_reply)
        return all;
    snprintf(point, sizeof(point), "store.%s.reply", budget->call);
    return all - hits(point, ranks, kind);
}

static void expect_budget(enum kind kind)
{
    bool differs = false;

    for (size_t i = 0; i < sizeof(budgets) / sizeof(budgets[0]); i++) {
        const struct row *b = &budgets[i];
        const int *allowed = b->calls[kind];
        int few = calls(b, FEW, kind), many = calls(b, MANY, kind);
        int each = (many - few) / (MANY - FEW), once = few - FEW * each;
        if (each == allowed[0] && once == allowed[1] && many == MANY * each + once)
            continue;
        print_message("# %s, %s: %d for %d ranks and %d for %d: %d a rank and %d, not %d and %d\n",
                      kinds[kind], b->call, few, FEW, many, MANY, each, once, allowed[0],
                      allowed[1]);
        differs = true;
    }
    assert_false(differs);
}

TEST(a_new_name_keeps_to_the_budget)
{
    expect_budget(SWAP);
}

TEST(a_name_that_is_there_keeps_to_the_budget)
{
    expect_budget(IN_PLACE);
}

TEST(small_files_keep_to_the_budget)
{
    expect_budget(SWAP_FILES);
    expect_budget(IN_PLACE_FILES);
}

static int setup(void **state)
{
    (void)state;
    counting = store_fault_new(store_posix());
    return counting != NULL && scratch_make(&scratch, "/dev/shm") ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    store_fault_free(&counting);
    scratch_remove(&scratch);
    return 0;
}

ALL_TESTS(setup, teardown);
