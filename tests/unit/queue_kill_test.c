/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * queue_kill_test.c -- a process is killed while saves are queued. What it leaves agrees with what
 * it reported: a step that is missing before a later one was reported aborted, or deleted by
 * retention; one that was reported committed exists; a resume takes the newest.
 */
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fault.h"
#include "support/one_rank.h"
#include "support/unit.h"

#define SCALE 16
#define STEPS 6u
#define KILLS 7u /* before any commit, after the first, ... after the last */

/* What the process should do. */
struct training {
    bool prunes;         /* only the newest stays */
    unsigned long fails; /* number of the fsync that fails; 0: none */
};

/* What it reports, as it happens. Smaller than PIPE_BUF, so reports do not mix. */
struct word {
    char what; /* committed, aborted, deleted; broken: it failed before */
    uint64_t step;
};

static int to_parent;

/* ---- the process. A failed check here must not run the parent's clean-up. */

static void tell(char what, uint64_t step)
{
    struct word word = {.what = what, .step = step};

    if (write(to_parent, &word, sizeof(word)) != (ssize_t)sizeof(word))
        _exit(2);
}

static void need(enum sidestep_status status, uint64_t step)
{
    if (status == SIDESTEP_OK)
        return;
    fprintf(stderr, "# step %llu: %s\n", (unsigned long long)step, err.message);
    tell('b', step);
    _exit(1);
}

static void on_event(void *context, const char *line)
{
    static const struct {
        const char *event;
        char what;
    } told[] = {{"\"event\":\"committed\"", 'c'},
                {"\"event\":\"aborted\"", 'a'},
                {"\"event\":\"unknown\"", 'b'},
                {"\"event\":\"deleted\"", 'd'}};
    const char *step = strstr(line, "\"step\":");

    (void)context;
    for (size_t i = 0; step != NULL && i < sizeof(told) / sizeof(told[0]); i++)
        if (strstr(line, told[i].event) != NULL)
            tell(told[i].what, strtoull(step + strlen("\"step\":"), NULL, 10));
}

static void train(const char *root, const struct training *training)
{
    struct sidestep_engine_options engine_options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_retention keep = SIDESTEP_RETENTION_INIT;
    struct sidestep_series_options options = SIDESTEP_SERIES_OPTIONS_INIT;
    struct sidestep_save_options how = SIDESTEP_SAVE_OPTIONS_INIT;
    struct sidestep_save *saves[STEPS + 1] = {NULL};
    struct sidestep_engine *own = NULL;
    struct sidestep_series *series = NULL;

    engine_options.on_event = on_event;
    engine_options.threads = 2;
    engine_options.snapshot = SIDESTEP_SNAPSHOT_COPY;
    options.retention = training->prunes ? &keep : NULL;
    how.queue = SIDESTEP_MAX_QUEUE;
    need(sidestep_engine_open(&own, &engine_options, &err), 0);
    need(sidestep_series_open(own, root, &options, &series, &err), 0);
    sidestep_engine_pause(own);
    for (uint64_t n = 1; n <= STEPS; n++) {
        world_fill(&world, n);
        need(sidestep_series_save_async(series, n, world.state, &how, &saves[n], &err), n);
    }
    fault_arm("posix.fsync", training->fails, false, EIO);
    sidestep_engine_resume(own);
    for (;;)
        pause();
}

/* ---- what it left */

struct left {
    bool committed[STEPS + 1]; /* reported */
    bool excused[STEPS + 1];   /* reported aborted, or deleted */
    uint64_t newest;           /* reported committed */
    unsigned count;            /* outcomes */
};

static bool listen(int from, struct left *left)
{
    struct word word;

    if (read(from, &word, sizeof(word)) != (ssize_t)sizeof(word))
        return false;
    assert_true(word.what == 'c' || word.what == 'a' || word.what == 'd');
    assert_in_range(word.step, 1, STEPS);
    if (word.what == 'c') {
        assert_true(word.step > left->newest); /* in order, whatever fails */
        left->committed[word.step] = true;
        left->newest = word.step;
    } else {
        assert_true(word.what == 'a' || left->newest > word.step);
        left->excused[word.step] = true;
    }
    left->count += word.what != 'd';
    return true;
}

static void look(const char *root, const struct left *left, bool prunes)
{
    uint64_t newest = 0;
    char path[128];
    struct stat st;

    for (uint64_t n = STEPS; n >= 1; n--) {
        snprintf(path, sizeof(path), "%s/step-%llu", root, (unsigned long long)n);
        bool exists = stat(path, &st) == 0;
        if (exists && newest == 0)
            newest = n;
        if (!exists && newest != 0 && !left->excused[n] && !prunes)
            fail_msg("step %llu is there, and step %llu is not, and nobody said why",
                     (unsigned long long)newest, (unsigned long long)n);
        if (!exists)
            continue;
        world_fill(&world, 1000);
        ASSERT_OK(sidestep_load(engine, path, world.state, NULL, NULL, &err));
        assert_int_equal(world_check(&world, n), 0);
    }
    assert_true(newest >= left->newest);
    if (newest == 0)
        return;
    struct sidestep_series *series = NULL;
    uint64_t step = 0;
    ASSERT_OK(sidestep_series_open(engine, root, NULL, &series, &err));
    ASSERT_OK(sidestep_series_load(series, world.state, NULL, &step, NULL, NULL, &err));
    assert_int_equal(step, newest);
    ASSERT_OK(sidestep_series_close(&series, &err));
}

/* Kill it when ${outcomes} saves have ended, and a little later. */
static void kill_after(unsigned outcomes, const struct training *training)
{
    struct timespec some = {.tv_nsec = (long)(outcomes * 700000)};
    struct left left = {.newest = 0};
    char root[128];
    int told[2], status;

    snprintf(root, sizeof(root), "%s/%u", scratch.path, outcomes);
    assert_int_equal(pipe(told), 0);
    pid_t child = fork();
    if (child == 0) {
        to_parent = told[1];
        train(root, training);
    }
    assert_true(child > 0);
    close(told[1]);
    while (left.count < outcomes)
        assert_true(listen(told[0], &left));
    (void)nanosleep(&some, NULL);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    while (listen(told[0], &left)) {
    }
    close(told[0]);
    assert_true(left.count >= outcomes);
    look(root, &left, training->prunes);
}

static void kill_often(const struct training *training)
{
#ifdef __SANITIZE_THREAD__
    print_message("skipped: ThreadSanitizer follows no threads that a forked child starts\n");
    skip();
#endif
    for (unsigned i = 0; i < KILLS; i++)
        kill_after(i, training);
}

static int setup(void **state)
{
    (void)state;
    world_make(&world, 0, 1, WORLD_BY_ROWS, SCALE, false);
    return scratch_make(&scratch, NULL) && sidestep_engine_open(&engine, NULL, NULL) == 0 ? 0 : -1;
}

TEST(saves_commit_in_order_before_a_kill)
{
    kill_often(&(struct training){.fails = 0});
}

TEST(a_failed_save_is_reported_before_later_ones)
{
    kill_often(&(struct training){.fails = 1});
}

TEST(with_retention_the_newest_is_there)
{
    kill_often(&(struct training){.prunes = true});
}

EACH_TEST(setup, one_rank_teardown);
