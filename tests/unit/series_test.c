/* SPDX-License-Identifier: BSD-3-Clause */
/* series_test.c -- checkpoints of a run: resume from the newest valid one, set aside, delete,
 * lock. */
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/comm_threads.h"
#include "support/flip.h"
#include "series/series.h"
#include "support/one_rank.h"
#include "support/reader.h"
#include "support/unit.h"

/* Load the newest; the state must be that of ${want}. */
static void expect_resume(struct sidestep_series *series, uint64_t want, const char *rejected_word)
{
    struct world loaded;
    uint64_t step = 0;
    char rejected[2048];

    world_make(&loaded, 0, 1, WORLD_BY_ROWS, 1, true);
    ASSERT_OK(sidestep_series_load(series, loaded.state, NULL, &step, NULL, rejected, &err));
    assert_int_equal(step, want);
    assert_int_equal(world_check(&loaded, want), 0);
    if (rejected_word == NULL)
        assert_string_equal(rejected, "");
    else
        assert_non_null(strstr(rejected, rejected_word));
    world_free(&loaded);
}

static void damage(const char *name, long offset)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/%s", scratch.path, name);
    flip(path, offset);
}

static enum sidestep_presence presence_of(const char *name)
{
    struct sidestep_list list;
    enum sidestep_presence state = SIDESTEP_FOREIGN;

    ASSERT_OK(sidestep_list_root(scratch.path, &list, &err));
    for (size_t i = 0; i < list.count; i++)
        if (strcmp(sidestep_list_entry(&list, i)->name, name) == 0)
            state = sidestep_list_entry(&list, i)->state;
    sidestep_list_release(&list);
    return state;
}

static size_t count_in(enum sidestep_presence state)
{
    struct sidestep_list list;
    size_t count = 0;

    ASSERT_OK(sidestep_list_root(scratch.path, &list, &err));
    for (size_t i = 0; i < list.count; i++)
        count += sidestep_list_entry(&list, i)->state == state;
    sidestep_list_release(&list);
    return count;
}

TEST(the_newest_is_resumed)
{
    struct sidestep_series *series = open_with(NULL);
    uint64_t step;

    assert_int_equal(sidestep_series_load(series, world.state, NULL, &step, NULL, NULL, &err),
                     SIDESTEP_ENOTFOUND);
    assert_non_null(strstr(err.message, "there is no checkpoint yet"));
    save_step(series, 9);
    save_step(series, 10); /* by number, not by letter */
    expect_resume(series, 10, NULL);
    world_fill(&world, 10);
    assert_int_equal(sidestep_series_save(series, 10, world.state, NULL, NULL, &err),
                     SIDESTEP_EEXISTS);
    ASSERT_OK(sidestep_series_close(&series, &err));
    series = open_with(NULL);
    expect_resume(series, 10, NULL);
    ASSERT_OK(sidestep_series_close(&series, &err));
}

static void expect_exists(struct sidestep_series *series, uint64_t step, const char *words)
{
    world_fill(&world, 77);
    assert_int_equal(sidestep_series_save(series, step, world.state, NULL, NULL, &err),
                     SIDESTEP_EEXISTS);
    if (strstr(err.message, words) == NULL)
        fail_msg("%s", err.message);
    assert_non_null(strstr(err.message, scratch.path));
}

/* A run that forgets to resume gets an error for a step that exists, and nothing is harmed. */
TEST(a_run_that_forgot_to_resume_gets_an_error)
{
    struct sidestep_series *series = open_with(NULL);

    save_step(series, 1);
    save_step(series, 2);
    expect_exists(series, 2, "a save replaces only what was left behind by going back");
    ASSERT_OK(sidestep_series_close(&series, &err));
    series = open_with(NULL);
    expect_exists(series, 1, "has to resume before its first save (sidestep_series_load())");
    expect_resume(series, 2, NULL);
    expect_exists(series, 2, "this run has resumed from it, and has done no step since");
    expect_exists(series, 1, "a save replaces only what was left behind by going back");
    save_step(series, 3);
    ASSERT_OK(sidestep_series_close(&series, &err));
    series = open_with(NULL);
    expect_resume(series, 3, NULL);
    ASSERT_OK(sidestep_series_close(&series, &err));
}

TEST(damaged_ones_are_set_aside)
{
    struct sidestep_series *series = open_with(NULL);
    uint64_t step;

    for (uint64_t n = 1; n <= 4; n++)
        save_step(series, n);
    damage("step-4/.metadata", 100);      /* structure */
    damage("step-3/__0_0.distcp", 30000); /* data: found by the load itself */
    expect_resume(series, 2, "step-4");
    assert_int_equal(count_in(SIDESTEP_BAD), 2);
    assert_int_equal(presence_of("step-2"), SIDESTEP_COMMITTED);
    damage("step-2/__0_0.distcp", 30000);
    damage("step-1/__0_0.distcp", 30000);
    assert_int_equal(sidestep_series_load(series, world.state, NULL, &step, NULL, NULL, &err),
                     SIDESTEP_ECORRUPT);
    assert_non_null(strstr(err.message, "is valid"));
    /* Nor does the next restart find that there is nothing yet, and train from the beginning. */
    assert_int_equal(sidestep_series_load(series, world.state, NULL, &step, NULL, NULL, &err),
                     SIDESTEP_ECORRUPT);
    assert_non_null(strstr(err.message, "there is no checkpoint left: 4 are damaged"));
    ASSERT_OK(sidestep_series_close(&series, &err));
}

TEST(delete_refuses_the_newest_valid_checkpoint)
{
    struct sidestep_series *series = open_with(NULL);

    save_step(series, 1);
    save_step(series, 2);
    save_step(series, 3);
    ASSERT_OK(sidestep_series_delete(series, 1, &err));
    assert_int_equal(sidestep_series_delete(series, 1, &err), SIDESTEP_ENOTFOUND);
    assert_int_equal(sidestep_series_delete(series, 3, &err), SIDESTEP_ELOCKED);
    assert_non_null(strstr(err.message, "newest"));
    damage("step-3/.metadata", 100);
    assert_int_equal(sidestep_series_delete(series, 2, &err), SIDESTEP_ELOCKED);
    expect_resume(series, 2, NULL);
    ASSERT_OK(sidestep_series_close(&series, &err));
    series = open_with(NULL);
    assert_int_equal(sidestep_series_delete(series, 2, &err), SIDESTEP_ELOCKED);
    assert_non_null(strstr(err.message, "committed nothing yet"));
    ASSERT_OK(sidestep_series_close(&series, &err));
}

TEST(a_series_has_one_owner)
{
    struct sidestep_series *series = open_with(NULL), *second = NULL;
    char text[32];

    assert_int_equal(sidestep_series_open(engine, scratch.path, NULL, &second, &err),
                     SIDESTEP_ELOCKED);
    snprintf(text, sizeof(text), "process %ld on", (long)getpid());
    assert_non_null(strstr(err.message, text));
    ASSERT_OK(sidestep_series_close(&series, &err));
}

/* The root is moved away, and another made in its place: nothing is saved into a root that is not
 * ours. */
TEST(a_root_that_was_replaced_is_left_alone)
{
    struct sidestep_series *series = open_with(NULL);
    char moved[256], command[512];

    save_step(series, 1);
    snprintf(moved, sizeof(moved), "%s-moved", scratch.path);
    assert_int_equal(rename(scratch.path, moved), 0);
    assert_int_equal(mkdir(scratch.path, 0755), 0);
    assert_int_equal(try_save_step(series, 2), SIDESTEP_EABORTED);
    assert_non_null(strstr(err.message, "replaced"));
    snprintf(command, sizeof(command), "test ! -e %s/step-2 && rm -r %s", scratch.path,
             scratch.path);
    assert_int_equal(system(command), 0);
    assert_int_equal(rename(moved, scratch.path), 0);
    save_step(series, 3);
    expect_resume(series, 3, NULL);
    ASSERT_OK(sidestep_series_close(&series, &err));
}

/* The next incarnation removes a killed save of an earlier one. */
TEST(leftovers_of_a_killed_run_are_cleared)
{
#ifdef __SANITIZE_THREAD__
    print_message("skipped: ThreadSanitizer cannot follow threads that a forked child starts\n");
    skip();
#endif
    need_reader_beside_devices();
    struct sidestep_series *series = open_with(NULL);
    char command[1200];

    save_step(series, 1);
    ASSERT_OK(sidestep_series_close(&series, &err));
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) { /* its own engine: handles do not survive fork() */
        struct sidestep_engine *own = NULL;
        struct sidestep_series *killed = NULL;
        struct sidestep_save *save = NULL;
        struct world mine; /* a child cannot use the parent's devices */
        world_make(&mine, 0, 1, WORLD_BY_ROWS, 1, false);
        world_fill(&mine, 2);
        if (sidestep_engine_open(&own, NULL, NULL) == SIDESTEP_OK &&
            sidestep_series_open(own, scratch.path, NULL, &killed, NULL) == SIDESTEP_OK &&
            sidestep_series_save_async(killed, 2, mine.state, NULL, &save, NULL) == SIDESTEP_OK)
            kill(getpid(), SIGKILL);
        _exit(1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    /* Whatever the kill left: as if it had come in the middle. */
    snprintf(
        command, sizeof(command),
        "mkdir -p %s/.sidestep.%032d.saving && touch %s/.sidestep.%032d.saving/__0_0.distcp.part",
        scratch.path, 7, scratch.path, 7);
    assert_int_equal(system(command), 0);
    series = open_with(NULL);
    assert_int_equal(count_in(SIDESTEP_SAVING) + count_in(SIDESTEP_TRASH), 0);
    assert_int_equal(presence_of("step-1"), SIDESTEP_COMMITTED);
    save_step(series, 5);
    expect_resume(series, 5, NULL);
    ASSERT_OK(sidestep_series_close(&series, &err));
}

/* Another run takes the series over in the middle of a save, as without working locks: the save is
 * removed, and its run is told why, by whom, and what is safe. */
TEST(a_run_that_is_taken_over_gets_an_error)
{
    struct sidestep_series *series = open_with(NULL), *other = NULL;
    struct sidestep_engine *others = NULL;
    struct sidestep_save *save = NULL;
    char path[300], who[32];

    save_step(series, 1);
    sidestep_engine_pause(engine);
    world_fill(&world, 2);
    ASSERT_OK(sidestep_series_save_async(series, 2, world.state, NULL, &save, &err));
    snprintf(path, sizeof(path), "%s/" FILE_NAME_SERIES_DIR "/lock", scratch.path);
    assert_int_equal(unlink(path), 0); /* now the lock is on another file */
    ASSERT_OK(sidestep_engine_open(&others, NULL, &err));
    ASSERT_OK(sidestep_series_open(others, scratch.path, NULL, &other, &err));
    assert_int_equal(count_in(SIDESTEP_SAVING), 0);
    sidestep_engine_resume(engine);
    snprintf(who, sizeof(who), "process %ld on", (long)getpid());
    for (int attempt = 0; attempt < 2; attempt++) { /* this one, and a new one */
        if (attempt == 0)
            assert_int_equal(sidestep_save_finish(&save, NULL, &err), SIDESTEP_EABORTED);
        else
            assert_int_equal(try_save_step(series, 3), SIDESTEP_EABORTED);
        assert_non_null(
            strstr(err.message, "incarnation 1 of this series has ended: it was taken"));
        assert_non_null(strstr(err.message, who));
        assert_non_null(strstr(err.message, "checkpoints that were committed are safe"));
        assert_null(strstr(err.message, "No such file"));
    }
    assert_int_equal(presence_of("step-1"), SIDESTEP_COMMITTED);
    world_fill(&world, 4);
    ASSERT_OK(sidestep_series_save(other, 4, world.state, NULL, NULL, &err));
    ASSERT_OK(sidestep_series_close(&other, &err));
    ASSERT_OK(sidestep_engine_close(&others, &err));
    ASSERT_OK(sidestep_series_close(&series, &err));
    assert_int_equal(presence_of("step-4"), SIDESTEP_COMMITTED);
}

TEST(a_child_of_fork_is_refused)
{
    struct sidestep_series *series = open_with(NULL);
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        bool refused =
            sidestep_series_save(series, 1, world.state, NULL, NULL, &err) == SIDESTEP_EFORKED &&
            sidestep_series_close(&series, &err) == SIDESTEP_EFORKED;
        _exit(refused ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    save_step(series, 1); /* the parent is not affected */
    ASSERT_OK(sidestep_series_close(&series, &err));
}

/* A worker that the trainer forked and that outlives it does not keep the series locked. */
TEST(a_forked_worker_does_not_hold_the_lock)
{
    struct sidestep_series *series = open_with(NULL);
    int pipe_fds[2], ready_fds[2];
    char byte = 0;

    assert_int_equal(pipe(pipe_fds), 0);
    assert_int_equal(pipe(ready_fds), 0);
    pid_t worker = fork();
    assert_true(worker >= 0);
    if (worker == 0) { /* lives until the parent closes its end */
        close(pipe_fds[1]);
        _exit(write(ready_fds[1], &byte, 1) == 1 && read(pipe_fds[0], &byte, 1) == 0 ? 0 : 1);
    }
    assert_int_equal(read(ready_fds[0], &byte, 1), 1);
    ASSERT_OK(sidestep_series_close(&series, &err));
    series = open_with(NULL);
    close(pipe_fds[1]);
    int status;
    assert_int_equal(waitpid(worker, &status, 0), worker);
    assert_int_equal(status, 0);
    ASSERT_OK(sidestep_series_close(&series, &err));
}

static int run_series(struct sidestep_comm *comm, void *context)
{
    struct sidestep_engine *own = NULL;
    struct sidestep_series *series = NULL;
    struct sidestep_save *save = NULL;
    struct world mine, loaded;
    uint64_t step = 0;
    int bad = 0;

    (void)context;
    if (comm_threads_open(comm, &own, NULL) != SIDESTEP_OK)
        return 1;
    bad |= sidestep_series_open(own, scratch.path, NULL, &series, NULL) != SIDESTEP_OK;
    world_make(&mine, comm->rank, comm->size, WORLD_BY_ROWS, 2, false);
    for (uint64_t n = 1; n <= 3 && bad == 0; n++) {
        world_fill(&mine, n);
        bad |= sidestep_series_save_async(series, n, mine.state, NULL, &save, NULL) != SIDESTEP_OK;
        world_fill(&mine, 77);
        bad |= sidestep_save_finish(&save, NULL, NULL) != SIDESTEP_OK;
    }
    bad |= sidestep_series_delete(series, 1, NULL) != SIDESTEP_OK;
    world_make(&loaded, comm->rank, comm->size, WORLD_BY_COLUMNS, 2, true);
    bad |= sidestep_series_load(series, loaded.state, NULL, &step, NULL, NULL, NULL) != SIDESTEP_OK;
    bad |= step != 3 || world_check(&loaded, 3) != 0;
    world_free(&mine);
    world_free(&loaded);
    bad |= sidestep_series_close(&series, NULL) != SIDESTEP_OK;
    bad |= sidestep_engine_close(&own, NULL) != SIDESTEP_OK;
    return bad;
}

TEST(several_ranks_share_a_series)
{
    assert_int_equal(comm_threads_run(4, run_series, NULL), 0);
    assert_int_equal(count_in(SIDESTEP_COMMITTED), 2);
}

/* A prefix whose names could not be read back, or would be ambiguous, is refused. */
TEST(an_invalid_prefix_is_refused)
{
    static const char *const refused[] = {"iter_%07d", "step_%d", "{step}", "step-{step:07d}",
                                          "a}",        "100%",    "a/b-",   "/",
                                          "",          ".x-",     "v2"};
    struct sidestep_series_options options = SIDESTEP_SERIES_OPTIONS_INIT;
    struct sidestep_series *series = NULL;

    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        options.prefix = refused[i];
        assert_int_equal(sidestep_series_open(engine, scratch.path, &options, &series, &err),
                         SIDESTEP_EINVAL);
        assert_null(series);
        assert_non_null(strstr(err.message, refused[i]));
        assert_true((strstr(err.message, "template") != NULL) == (i < 6));
    }
    options.prefix = "run7_iter_";
    ASSERT_OK(sidestep_series_open(engine, scratch.path, &options, &series, &err));
    ASSERT_OK(sidestep_series_close(&series, &err));
}

TEST(a_prefix_has_its_length)
{
    struct sidestep_series_options options = SIDESTEP_SERIES_OPTIONS_INIT;
    struct sidestep_series *series = NULL;
    char prefix[NAME_TEMPLATE_MAX_PREFIX + 2];

    memset(prefix, 'p', sizeof(prefix));
    prefix[NAME_TEMPLATE_MAX_PREFIX + 1] = '\0';
    options.prefix = prefix;
    assert_int_equal(sidestep_series_open(engine, scratch.path, &options, &series, &err),
                     SIDESTEP_EINVAL);
    assert_non_null(strstr(err.message, "1 to 63 bytes"));
    prefix[NAME_TEMPLATE_MAX_PREFIX] = '\0';
    series = open_with(&options);
    save_step(series, 1);
    ASSERT_OK(sidestep_series_close(&series, &err));
}

EACH_TEST(one_rank_setup, one_rank_teardown);
