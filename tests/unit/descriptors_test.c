/* SPDX-License-Identifier: BSD-3-Clause */
/* descriptors_test.c -- an engine keeps nothing open after a save, so the storage can be unmounted
 * while the engine is open. */
#include <dirent.h>
#include <stdatomic.h>
#include <unistd.h>

#include "support/comm_threads.h"
#include "support/one_rank.h"
#include "support/unit.h"

#define RANKS 4

/* Count descriptors of this process that lead into the directory of the test. */
static int count_open(void)
{
    const char *name = strrchr(scratch.path, '/');
    DIR *all = opendir("/proc/self/fd");
    char target[4096];
    int count = 0;

    for (struct dirent *entry; (entry = readdir(all)) != NULL;) {
        ssize_t length = readlinkat(dirfd(all), entry->d_name, target, sizeof(target) - 1);
        target[length > 0 ? length : 0] = '\0';
        count += strstr(target, name) != NULL;
    }
    closedir(all);
    return count;
}

TEST(one_rank_releases_its_descriptors)
{
    struct sidestep_save *save = NULL;
    struct sidestep_series *series = open_with(NULL);

    assert_true(count_open() > 0); /* the control: the series holds its lock */
    ASSERT_OK(sidestep_series_save_async(series, 1, world.state, NULL, &save, &err));
    ASSERT_OK(sidestep_save_wait(save, SIDESTEP_SAVE_COMMITTED, -1, &err));
    ASSERT_OK(sidestep_series_close(&series, &err));
    assert_int_equal(count_open(), 0); /* although the handle still exists */
    ASSERT_OK(sidestep_save_finish(&save, NULL, &err));
    ASSERT_OK(sidestep_save(engine, step_path(2), world.state, NULL, NULL, &err));
    ASSERT_OK(sidestep_load(engine, step_path(2), world.state, NULL, NULL, &err));
    assert_int_equal(count_open(), 0);
}

static atomic_int done;

static int start(struct sidestep_engine *own, uint64_t step, struct world *part,
                 struct sidestep_save **save)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/step-%llu", scratch.path, (unsigned long long)step);
    return sidestep_save_async(own, path, part->state, NULL, save, NULL) != SIDESTEP_OK;
}

static void meet(int times)
{
    atomic_fetch_add(&done, 1);
    while (atomic_load(&done) < times * RANKS)
        usleep(1000);
}

/* First save: each rank asks for the outcome. Second save: rank 0 tells, when all close. */
static int run(struct sidestep_comm *comm, void *context)
{
    struct sidestep_engine *own = NULL;
    struct sidestep_save *save = NULL;
    struct world part;
    int bad = 0;

    (void)context;
    bad |= comm_threads_open(comm, &own, NULL) != SIDESTEP_OK;
    world_make(&part, comm->rank, comm->size, WORLD_BY_ROWS, 1, false);
    bad |= start(own, 1, &part, &save);
    bad |= sidestep_save_wait(save, SIDESTEP_SAVE_COMMITTED, -1, NULL) != SIDESTEP_OK;
    meet(1);
    bad |= (count_open() != 0) << 1;
    meet(2);
    bad |= sidestep_save_finish(&save, NULL, NULL) != SIDESTEP_OK;
    bad |= start(own, 2, &part, &save);
    bad |= sidestep_engine_close(&own, NULL) != SIDESTEP_OK; /* the save's handle stays */
    meet(3);
    bad |= (count_open() != 0) << 2;
    meet(4);
    bad |= sidestep_save_finish(&save, NULL, NULL) != SIDESTEP_OK;
    world_free(&part);
    return bad;
}

TEST(all_ranks_release_their_descriptors)
{
    atomic_store(&done, 0);
    assert_int_equal(comm_threads_run(RANKS, run, NULL), 0);
    assert_true(step_exists(1) && step_exists(2));
}

EACH_TEST(one_rank_setup, one_rank_teardown);
