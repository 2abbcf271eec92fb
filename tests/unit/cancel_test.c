/* SPDX-License-Identifier: BSD-3-Clause */
/* cancel_test.c -- saves that the program cancels: nothing of them stays, what was at their path
 * does, and the next save works. */
#include <dirent.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/owned.h"
#include "engine/engine.h"
#include "format/file_name.h"
#include "store/store_ring.h"
#include "support/comm_threads.h"
#include "support/one_rank.h"
#include "support/prng.h"
#include "support/unit.h"

#define SCALE 40 /* 7 MB */

static int teardown(void **state)
{
    (void)state;
    fault_delay("", 0);
    return one_rank_end();
}

static const char *path_of(const char *name)
{
    static char path[256];

    snprintf(path, sizeof(path), "%s/%s", scratch.path, name);
    return path;
}

static void expect(const char *name, uint64_t seed)
{
    struct world loaded;

    world_make(&loaded, 0, 1, WORLD_BY_COLUMNS, SCALE, true);
    ASSERT_OK(sidestep_load(engine, path_of(name), loaded.state, NULL, NULL, &err));
    assert_int_equal(world_check(&loaded, seed), 0);
    world_free(&loaded);
}

/* Without the file in which rank 0 leaves the reason, until the next save. */
static size_t count_names(const char *dir)
{
    DIR *names = opendir(dir);
    size_t count = 0;

    assert_non_null(names);
    for (struct dirent *entry; (entry = readdir(names)) != NULL;)
        count += strstr(entry->d_name, ".outcome") == NULL && entry->d_name[0] != '.';
    closedir(names);
    return count;
}

static struct sidestep_save *start(struct sidestep_engine *own, struct world *of, uint64_t seed,
                                   const struct sidestep_save_options *options)
{
    struct sidestep_save *save = NULL;

    world_fill(of, seed);
    ASSERT_OK(sidestep_save_async(own, path_of("it"), of->state, options, &save, &err));
    return save;
}

/* Cancel a save in each state, with one kind of engine: paused, so that nothing is written before.
 */
static void give_up(const struct sidestep_engine_options *engine_options,
                    const struct sidestep_save_options *options)
{
    struct sidestep_engine *own = NULL;
    struct world part;

    ASSERT_OK(sidestep_engine_open(&own, engine_options, &err));
    world_make(&part, 0, 1, WORLD_BY_ROWS, SCALE, false);
    struct sidestep_save *save = start(own, &part, 1, options);
    ASSERT_OK(sidestep_save_finish(&save, NULL, &err));
    size_t files = count_names(path_of("it"));
    for (int i = 0; i < 2; i++) {
        sidestep_engine_pause(own);
        save = start(own, &part, 2, options);
        sidestep_save_cancel(save);
        sidestep_save_cancel(save);
        assert_int_equal(sidestep_save_wait(save, SIDESTEP_SAVE_COMMITTED, -1, &err),
                         SIDESTEP_EABORTED);
        assert_non_null(strstr(err.message, "the program gave it up"));
        sidestep_save_cancel(save);
        world_fill(&part, 9); /* the save must neither see nor wait for this */
        assert_int_equal(sidestep_save_finish(&save, NULL, NULL), SIDESTEP_EABORTED);
        sidestep_engine_resume(own);
        expect("it", 1);
        assert_int_equal(count_names(path_of("it")), files);
        assert_int_equal(count_names(scratch.path), 1);
    }
    save = start(own, &part, 3, options); /* the error is not reported again */
    ASSERT_OK(sidestep_save_finish(&save, NULL, &err));
    expect("it", 3);
    world_free(&part);
    ASSERT_OK(sidestep_engine_close(&own, &err));
}

TEST(a_cancelled_save_leaves_nothing)
{
    for (int snapshot = SIDESTEP_SNAPSHOT_AUTO; snapshot <= SIDESTEP_SNAPSHOT_COW; snapshot++)
        for (int io = SIDESTEP_IO_AUTO; io <= SIDESTEP_IO_BUFFERED; io++) {
            if (io == SIDESTEP_IO_URING && store_ring_probe() != 0)
                continue;
            struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
            options.snapshot = (enum sidestep_snapshot)snapshot;
            options.io = (enum sidestep_io)io;
            give_up(&options, NULL);
        }
}

TEST(compressed_still_and_spread_saves_are_cancelled)
{
    struct sidestep_save_options options = SIDESTEP_SAVE_OPTIONS_INIT;

    options.compress = SIDESTEP_COMPRESS_PLANES;
    give_up(NULL, &options);
    options.compress = SIDESTEP_COMPRESS_NONE;
    options.flags = SIDESTEP_SAVE_STILL;
    give_up(NULL, &options);
    options.flags = 0;
    options.spread_ms = 3600000;
    give_up(NULL, &options);
}

/* At any moment of a save: the old or the new checkpoint is there, as the answer says. */
TEST(cancel_at_any_moment)
{
    struct prng prng = prng_new(11);
    uint64_t there = 1;
    unsigned given_up = 0;
    struct world part;

    world_make(&part, 0, 1, WORLD_BY_ROWS, SCALE, false);
    struct sidestep_save *save = start(engine, &part, there, NULL);
    ASSERT_OK(sidestep_save_finish(&save, NULL, &err));
    for (uint64_t seed = 2; seed < 40; seed++) {
        save = start(engine, &part, seed, NULL);
        struct timespec while_ns = {.tv_nsec = (long)prng_below(&prng, 12000000)};
        (void)nanosleep(&while_ns, NULL);
        sidestep_save_cancel(save);
        enum sidestep_status status = sidestep_save_finish(&save, NULL, &err);
        assert_true(status == SIDESTEP_OK || status == SIDESTEP_EABORTED);
        given_up += status == SIDESTEP_EABORTED;
        there = status == SIDESTEP_OK ? seed : there;
        expect("it", there);
        assert_int_equal(count_names(scratch.path), 1);
    }
    world_free(&part);
    assert_true(given_up != 0);
}

TEST(a_cancel_after_the_end_does_nothing)
{
    struct world part;

    sidestep_save_cancel(NULL);
    world_make(&part, 0, 1, WORLD_BY_ROWS, SCALE, false);
    struct sidestep_save *save = start(engine, &part, 1, NULL);
    ASSERT_OK(sidestep_save_wait(save, SIDESTEP_SAVE_COMMITTED, -1, &err));
    sidestep_save_cancel(save);
    ASSERT_OK(sidestep_save_finish(&save, NULL, &err));
    expect("it", 1);
    world_free(&part);
}

/* ---- ranks */

static int one_gives_up(struct sidestep_comm *comm, void *context)
{
    const int *who = context;
    struct sidestep_engine *own = NULL;
    struct sidestep_save *save = NULL;
    struct sidestep_error why = {0};
    struct world part;
    char path[256];

    snprintf(path, sizeof(path), "%s/it", scratch.path);
    int bad = comm_threads_open(comm, &own, NULL) != SIDESTEP_OK;
    world_make(&part, comm->rank, comm->size, WORLD_BY_ROWS, SCALE, false);
    for (uint64_t seed = 1; bad == 0 && seed <= 3; seed++) {
        world_fill(&part, seed);
        if (seed == 2 && comm->rank != 2) /* rank 2 writes, and waits for the outcome */
            sidestep_engine_pause(own);
        bad |= sidestep_save_async(own, path, part.state, NULL, &save, &why) != SIDESTEP_OK;
        if (seed == 2 && comm->rank == *who)
            sidestep_save_cancel(save);
        enum sidestep_status status = bad == 0 && seed == 2
                                          ? sidestep_save_watch(save, SIDESTEP_SAVE_COMMITTED,
                                                                comm->rank == *who ? -1 : 100, &why)
                                          : SIDESTEP_OK;
        bad |= seed == 2 && comm->rank == *who && status != SIDESTEP_EABORTED;
        sidestep_engine_resume(own);
        status = sidestep_save_finish(&save, NULL, &why);
        bad |= (status == SIDESTEP_OK) != (seed != 2);
        bad |= seed == 2 && strstr(why.message, "the program gave it up") == NULL;
        if (bad != 0)
            print_message("# rank %d, save %d: %s\n", comm->rank, (int)seed, why.message);
    }
    world_free(&part);
    return bad | (sidestep_engine_close(&own, NULL) != SIDESTEP_OK);
}

TEST(one_rank_can_cancel)
{
    for (int who = 0; who < 3; who++) {
        assert_int_equal(comm_threads_run(3, one_gives_up, &who), 0);
        expect("it", 3);
        assert_int_equal(count_names(scratch.path), 1);
    }
}

/* ---- a rank that learns late */

/* A store in which files of one kind appear only after rank 0 has given up the save, and has
 * removed what it found. */
struct late_store {
    struct store base;
    struct store_ops ops;
    enum file_name_kind late;
    atomic_int *has_come; /* up to this point; rank 0 gives up then */
};

static bool has_marker(struct store_dir *dir, const char *save_id)
{
    char marker[FILE_NAME_BYTES];
    struct store_stat stat;

    file_name_format(FILE_NAME_PENDING, save_id, 0, 0, marker);
    return store_stat(dir, marker, &stat, NULL) == SIDESTEP_OK;
}

static void nap(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void wait_until_rank_0_gave_up(struct store_dir *at, const char *name)
{
    struct late_store *late = (struct late_store *)(void *)at->store;
    struct file_name parsed = file_name_parse(name);

    if (parsed.kind != late->late)
        return;
    atomic_store(late->has_come, 1);
    while (has_marker(at, parsed.save_id))
        nap();
}

static enum sidestep_status create_late(struct store_dir *at, const char *name, uint32_t flags,
                                        struct store_file **out, struct sidestep_error *why)
{
    wait_until_rank_0_gave_up(at, name);
    return store_posix()->ops->file_create(at, name, flags, out, why);
}

/* The "no" of a rank is renamed to its name. */
static enum sidestep_status rename_late(struct store_dir *from_dir, const char *from,
                                        struct store_dir *to_dir, const char *to,
                                        enum store_rename_mode mode, struct sidestep_error *why)
{
    wait_until_rank_0_gave_up(to_dir, to);
    return store_posix()->ops->rename(from_dir, from, to_dir, to, mode, why);
}

struct lateness {
    enum file_name_kind kind;
    atomic_int has_come;
};

static int hears_of_it_late(struct sidestep_comm *comm, void *context)
{
    struct lateness *lateness = context;
    struct late_store late = {
        .ops = *store_posix()->ops, .late = lateness->kind, .has_come = &lateness->has_come};
    struct sidestep_engine *own = NULL;
    struct sidestep_save *save = NULL;
    struct sidestep_error why = {0};
    struct world part;
    char path[256];

    snprintf(path, sizeof(path), "%s/it", scratch.path);
    late.base.ops = &late.ops;
    late.ops.file_create = create_late;
    late.ops.rename = rename_late;
    int bad = comm_threads_open(comm, &own, NULL) != SIDESTEP_OK;
    if (comm->rank == 1)
        own->store = &late.base;
    world_make(&part, comm->rank, comm->size, WORLD_BY_ROWS, 1, false);
    world_fill(&part, 1);
    bad |= sidestep_save_async(own, path, part.state, NULL, &save, &why) != SIDESTEP_OK;
    if (comm->rank == 1 && lateness->kind == FILE_NAME_FAILED)
        sidestep_save_cancel(save);
    while (comm->rank == 0 && atomic_load(&lateness->has_come) == 0)
        nap();
    if (comm->rank == 0)
        sidestep_save_cancel(save);
    bad |= sidestep_save_finish(&save, NULL, &why) != SIDESTEP_EABORTED;
    bad |= strstr(why.message, "the program gave it up") == NULL;
    if (bad != 0)
        print_message("# rank %d: %s\n", comm->rank, why.message);
    world_free(&part);
    return bad | (sidestep_engine_close(&own, NULL) != SIDESTEP_OK);
}

/* In place, where the directory stays, files that appear after rank 0 has swept are removed, too.
 */
TEST(late_files_of_a_cancelled_save_are_removed)
{
    static const enum file_name_kind kinds[] = {FILE_NAME_PART, FILE_NAME_VOTE, FILE_NAME_FAILED};
    char names[512];

    snprintf(names, sizeof(names), "ls -A %s/it; rmdir %s/it", scratch.path, scratch.path);
    for (size_t i = 0; i < ARRAY_LENGTH(kinds); i++) {
        struct lateness lateness = {.kind = kinds[i]};
        assert_int_equal(mkdir(path_of("it"), 0777), 0);
        assert_int_equal(comm_threads_run(2, hears_of_it_late, &lateness), 0);
        if (rmdir(path_of("it")) != 0)
            fail_msg("kind %d is left (%d)", (int)kinds[i], system(names));
    }
}

EACH_TEST(one_rank_setup, teardown);
