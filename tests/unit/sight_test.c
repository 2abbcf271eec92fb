/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sight_test.c -- ranks that do not see the same storage under a path are told so at the first save
 * and when a series is opened; a host that sees a new name late is not taken for one of them.
 *
 * The ranks are threads. Each has mounts of its own, as on a host of its own, and some have a file
 * system of their own under the path of the others.
 */
#include <dirent.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "commit/commit.h"
#include "engine/engine.h"
#include "sidestep/sidestep_series.h"
#include "support/comm_threads.h"
#include "support/one_scratch.h"
#include "support/world.h"

#define RANKS 4

static int count_names(const char *directory)
{
    DIR *dir = opendir(directory);
    int count = -2; /* "." and ".." */

    assert_non_null(dir);
    while (readdir(dir) != NULL)
        count++;
    closedir(dir);
    return count;
}

/* ---- hosts */

enum place { NEW, IN_PLACE, SERIES, NEW_SERIES };

struct job {
    enum place place;
    int first_alone; /* ranks from this one on have a file system of their own */
    char path[300];  /* of the checkpoint, or the root of the series */
    bool cannot;     /* mounts need privileges */
    struct sidestep_error said[RANKS];
};

/* Does what a thread does from now on, and the threads that it starts, happen on another host? */
static bool move_to_host(const struct job *job, int rank)
{
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        return false;
    if (rank < job->first_alone)
        return true;
    if (mount("none", scratch.path, "tmpfs", 0, NULL) != 0)
        return false;
    return job->place == NEW || job->place == NEW_SERIES || mkdir(job->path, 0777) == 0;
}

/* Time that runs 20 times as fast, for those who wait. */
static uint64_t fast_now(struct clock *clock UNUSED)
{
    return 20 * clock_now(clock_system());
}

static void nap(struct clock *clock UNUSED, uint64_t ms UNUSED)
{
    clock_system()->sleep_ms(clock_system(), 1);
}

static enum sidestep_status use_path(struct sidestep_engine *engine, const struct job *job,
                                     struct sidestep_error *err)
{
    struct sidestep_series *series = NULL;
    struct world world;

    if (job->place == SERIES || job->place == NEW_SERIES) {
        enum sidestep_status status = sidestep_series_open(engine, job->path, NULL, &series, err);
        if (status == SIDESTEP_OK)
            status = sidestep_series_close(&series, err);
        return status;
    }
    world_make(&world, engine->comm.rank, engine->comm.size, WORLD_BY_ROWS, 1, false);
    world_fill(&world, 1);
    enum sidestep_status status = sidestep_save(engine, job->path, world.state, NULL, NULL, err);
    world_free(&world);
    return status;
}

static int run_rank(struct sidestep_comm *comm, void *context)
{
    struct job *job = context;
    struct sidestep_engine *engine = NULL;
    struct clock fast = {.now_ns = fast_now, .sleep_ms = nap};
    uint64_t cannot = !move_to_host(job, comm->rank);

    if (comm->all_reduce_max(comm->context, &cannot, 1) != 0)
        return 1;
    if (cannot) {
        job->cannot = true;
        return 0;
    }
    if (comm_threads_open(comm, &engine, NULL) != SIDESTEP_OK)
        return 1;
    engine->clock = &fast;
    (void)use_path(engine, job, &job->said[comm->rank]);
    return sidestep_engine_close(&engine, NULL) != SIDESTEP_OK;
}

static void run_job(struct job *job, enum place place, int first_alone)
{
    *job = (struct job){.place = place, .first_alone = first_alone};
    snprintf(job->path, sizeof(job->path), "%s/it", scratch.path);
    if (place == IN_PLACE || place == SERIES)
        assert_int_equal(mkdir(job->path, 0777), 0);
    assert_int_equal(comm_threads_run(RANKS, run_rank, job), 0);
    if (job->cannot) {
        print_message("skipped: a mount of one rank alone needs privileges\n");
        skip();
    }
}

/* ---- tests */

TEST(each_rank_is_told)
{
    struct job job;
    char host[64] = "", seen[160], blind[160];

    assert_int_equal(gethostname(host, sizeof(host) - 1), 0);
    snprintf(seen, sizeof(seen), "is seen by ranks 0-1 on %s, but not by ranks 2-3 on %s;", host,
             host);
    snprintf(blind, sizeof(blind), "a file system that all hosts mount");
    for (enum place place = NEW; place <= NEW_SERIES; place++) {
        run_job(&job, place, 2);
        for (int rank = 0; rank < RANKS; rank++) {
            assert_int_equal(job.said[rank].status, SIDESTEP_EDISAGREE);
            assert_int_equal(job.said[rank].rank, 2);
            assert_non_null(strstr(job.said[rank].message, job.path));
            assert_non_null(strstr(job.said[rank].message, seen));
            assert_non_null(strstr(job.said[rank].message, blind));
        }
        assert_int_equal(place == IN_PLACE || place == SERIES || place == NEW_SERIES,
                         access(job.path, F_OK) == 0);
        if (place == IN_PLACE)
            assert_int_equal(count_names(job.path), 0);
        scratch_remove(&scratch);
        assert_true(scratch_make(&scratch, NULL));
    }
}

/* The negative control: hosts that mount the same file system are not refused. */
TEST(hosts_that_share_are_not_refused)
{
    struct job job;

    for (enum place place = NEW; place <= NEW_SERIES; place++) {
        run_job(&job, place, RANKS);
        for (int rank = 0; rank < RANKS; rank++)
            assert_int_equal(job.said[rank].status, SIDESTEP_OK);
        scratch_remove(&scratch);
        assert_true(scratch_make(&scratch, NULL));
    }
}

/* ---- which ranks are on one host */

struct host_job {
    bool cannot;
    uint32_t here[RANKS], count[RANKS], of_rank[RANKS];
};

static int find_hosts(struct sidestep_comm *comm, void *context)
{
    static const char *const names[RANKS] = {"b", "a", "b", "b"};
    struct host_job *job = context;
    struct sidestep_engine *engine = NULL;
    const char *name = names[comm->rank];
    uint64_t cannot = unshare(CLONE_NEWUTS) != 0 || sethostname(name, strlen(name)) != 0;

    if (comm->all_reduce_max(comm->context, &cannot, 1) != 0)
        return 1;
    if (cannot) {
        job->cannot = true;
        return 0;
    }
    if (comm_threads_open(comm, &engine, NULL) != SIDESTEP_OK)
        return 1;
    job->here[comm->rank] = engine->hosts.ranks_here;
    job->count[comm->rank] = engine->hosts.count;
    if (comm->rank == 0)
        memcpy(job->of_rank, engine->hosts.of_rank, sizeof(job->of_rank));
    return sidestep_engine_close(&engine, NULL) != SIDESTEP_OK;
}

TEST(ranks_know_their_hosts)
{
    struct host_job job = {0};

    assert_int_equal(comm_threads_run(RANKS, find_hosts, &job), 0);
    if (job.cannot) {
        print_message("skipped: a host name of one rank alone needs privileges\n");
        skip();
    }
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(job.here[rank], rank == 1 ? 1 : 3);
        assert_int_equal(job.count[rank], 2);
        assert_true(job.of_rank[rank] < 2);
        assert_int_equal(job.of_rank[rank] == job.of_rank[0], rank != 1);
    }
}

/* ---- once */

static int count_calls(struct sidestep_comm *comm, void *context)
{
    unsigned long *calls = context; /* of rank 0: of the saves one after the other */
    static const char *const names[] = {"a/1", "a/2", "a/3", "b/4", "a/5"};
    struct sidestep_engine *engine = NULL;
    struct world world;
    int bad = 0;

    if (comm_threads_open(comm, &engine, NULL) != SIDESTEP_OK)
        return 1;
    world_make(&world, comm->rank, comm->size, WORLD_BY_ROWS, 1, false);
    world_fill(&world, 1);
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        char path[300];
        unsigned long before = comm_threads_calls(comm);
        snprintf(path, sizeof(path), "%s/%s", scratch.path, names[i]);
        bad |= sidestep_save(engine, path, world.state, NULL, NULL, NULL) != SIDESTEP_OK;
        if (comm->rank == 0)
            calls[i] = comm_threads_calls(comm) - before;
    }
    world_free(&world);
    return bad | (sidestep_engine_close(&engine, NULL) != SIDESTEP_OK);
}

TEST(a_place_is_looked_at_once)
{
    unsigned long calls[5] = {0};
    char path[300];

    for (const char *const *name = (const char *const[]){"a", "b", NULL}; *name != NULL; name++) {
        snprintf(path, sizeof(path), "%s/%s", scratch.path, *name);
        assert_int_equal(mkdir(path, 0777), 0);
    }
    assert_int_equal(comm_threads_run(2, count_calls, calls), 0);
    assert_int_equal(calls[1], calls[2]);
    assert_true(calls[3] > calls[2]);
    assert_int_equal(calls[4], calls[2]);
}

/* ---- a host that keeps in its cache that a name is not there */

/* Directories that others made appear only once this host has changed the parent: at all, or
 * never. */
struct caching_store {
    struct store base;
    struct store_ops ops;
    bool forgets, has_changed;
    unsigned looks;
};

static struct caching_store *caching_store_of(struct store *store)
{
    return (struct caching_store *)(void *)store;
}

static enum sidestep_status open_cached(struct store *store, struct store_dir *at, const char *name,
                                        struct store_dir **out, struct sidestep_error *err)
{
    struct caching_store *cache = caching_store_of(store);

    if (file_name_parse(name).kind == FILE_NAME_SAVING) {
        cache->looks++;
        if (!cache->forgets || !cache->has_changed)
            return FAIL(err, SIDESTEP_ENOTFOUND, "'%s' is not in the cache", name);
    }
    TRY(store_posix()->ops->dir_open(store_posix(), at, name, out, err));
    (*out)->store = store;
    return SIDESTEP_OK;
}

static enum sidestep_status create_cached(struct store_dir *at, const char *name, uint32_t flags,
                                          struct store_file **out, struct sidestep_error *err)
{
    caching_store_of(at->store)->has_changed = true;
    return store_posix()->ops->file_create(at, name, flags, out, err);
}

/* Time that passes only in sleep. */
static uint64_t simulated_ns;

static uint64_t simulated_now(struct clock *clock UNUSED)
{
    return simulated_ns;
}

static void simulated_sleep(struct clock *clock UNUSED, uint64_t ms)
{
    simulated_ns += ms * 1000000;
}

static bool second_rank_sees(bool forgets, unsigned *looks)
{
    static const uint8_t id[SAVE_ID_BYTES] = {7};
    struct clock clock = {.now_ns = simulated_now, .sleep_ms = simulated_sleep};
    struct caching_store cache = {.ops = *store_posix()->ops, .forgets = forgets};
    struct commit first = {
        .store = store_posix(), .clock = &clock, .world_size = 2, .request.step = -1};
    struct commit second = first;
    char path[300];
    bool sees = false;

    cache.base.ops = &cache.ops;
    cache.ops.dir_open = open_cached;
    cache.ops.file_create = create_cached;
    second.store = &cache.base;
    second.rank = 1;
    snprintf(path, sizeof(path), "%s/ckpt", scratch.path);
    assert_int_equal(commit_open(&first, path, NULL), SIDESTEP_OK);
    assert_int_equal(commit_open(&second, path, NULL), SIDESTEP_OK);
    assert_int_equal(commit_begin(&first, id, NULL), SIDESTEP_OK);
    commit_set_save_id(&second, id);
    assert_int_equal(commit_check_visible(&second, SIGHT_WAIT_NS, &sees, NULL), SIDESTEP_OK);
    assert_int_equal(sees, second.dir != NULL);
    *looks = cache.looks;
    commit_close(&second);
    commit_abort(&first, &(struct sidestep_error){.status = SIDESTEP_EABORTED});
    commit_remove_outcome(&first);
    commit_close(&first);
    assert_int_equal(count_names(scratch.path), 0);
    return sees;
}

TEST(a_cache_is_not_taken_for_another_storage)
{
    unsigned looks;

    assert_true(second_rank_sees(true, &looks));
    assert_int_equal(looks, 2);
    simulated_ns = 0;
    assert_false(second_rank_sees(false, &looks)); /* the negative control */
    assert_in_range(simulated_ns, SIGHT_WAIT_NS, 2 * SIGHT_WAIT_NS);
    assert_true(looks > 3);
}

/* ---- ranks that are never seen later on */

static void make_part(struct commit *commit, uint32_t rank)
{
    char name[FILE_NAME_BYTES];
    struct store_file *file = NULL;

    file_name_format(FILE_NAME_PART, "", rank, 0, name);
    assert_int_equal(store_file_create(commit->dir, name, 0, &file, NULL), SIDESTEP_OK);
    store_file_discard(file);
}

static void expect_silence(struct commit *commit, const char *said)
{
    struct commit_contents contents = {0};
    struct sidestep_error err = {0};

    assert_int_equal(commit_collect_votes(commit, &contents, &err), SIDESTEP_ETIMEDOUT);
    assert_int_equal(err.rank, 1);
    if (strstr(err.message, said) == NULL)
        fail_msg("%s", err.message);
    commit_contents_release(&contents);
}

TEST(ranks_that_never_came_are_named)
{
    static const uint8_t id[SAVE_ID_BYTES] = {8};
    struct clock clock = {.now_ns = simulated_now, .sleep_ms = simulated_sleep};
    struct commit commit = {.store = store_posix(),
                            .clock = &clock,
                            .world_size = 5,
                            .request.step = -1,
                            .request.timeout_ns = UINT64_C(1000000000)};
    char path[300];

    snprintf(path, sizeof(path), "%s/ckpt", scratch.path);
    assert_int_equal(commit_open(&commit, path, NULL), SIDESTEP_OK);
    assert_int_equal(commit_begin(&commit, id, NULL), SIDESTEP_OK);
    make_part(&commit, 0);
    assert_int_equal(commit_vote_yes(&commit, NULL), SIDESTEP_OK);
    expect_silence(&commit, "no word from rank 1-4 for 1.0 s (1 of 5 ranks have written their "
                            "shards); nothing was ever seen of rank 1-4: is '");
    make_part(&commit, 2);
    expect_silence(&commit, "nothing was ever seen of rank 1, 3-4: is '");
    make_part(&commit, 1);
    make_part(&commit, 3);
    make_part(&commit, 4);
    expect_silence(&commit, "all of them had begun to write");
    commit_abort(&commit, &(struct sidestep_error){.status = SIDESTEP_EABORTED});
    commit_remove_outcome(&commit);
    commit_close(&commit);
}

static bool is_even(const void *context, uint32_t rank)
{
    return context == NULL && rank % 2 == 0;
}

TEST(a_long_list_of_ranks_is_cut)
{
    struct rank_list_text list = rank_list_format(is_even, NULL, 100000);
    unsigned more, last, named = 1;

    assert_string_equal(rank_list_format(is_even, NULL, 4).text, "0, 2");
    assert_string_equal(rank_list_format(is_even, &list, 4).text, "");
    const char *rest = strstr(list.text, " and ");
    assert_non_null(rest);
    assert_int_equal(sscanf(rest, " and %u more", &more), 1);
    for (const char *at = list.text; at < rest; at++)
        named += *at == ',';
    assert_int_equal(sscanf(list.text, "0, 2, 4, %u", &last), 1);
    assert_int_equal(last, 6);
    assert_int_equal(named + more, 50000);
}

EACH_TEST(scratch_setup, scratch_teardown);
