/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * series_mirror_history_test.c -- random histories of a run whose nodes have a directory each, with
 * a mirror: all nodes die, a rank dies, a call of storage fails, nodes are lost with their disks
 * and may return late, the mirror is away, another run has left its directory on a node. Each start
 * goes on from what was saved, and loses nothing that was acknowledged: a job that was closed
 * without an error has its last step at the mirror. Or it fails, and changes no checkpoint.
 * SIDESTEP_LONG: many.
 */
#include <errno.h>
#include <stdlib.h>

#include "support/node_mirror.h"
#include "support/prng.h"

#define HISTORIES 100
#define LONG_HISTORIES 1000
#define ROUNDS 4
#define LONG_ROUNDS 10

/* What was saved by a job, and in which step. A later job goes back to nothing older. */
struct point {
    unsigned attempt;
    uint64_t step;
};

struct history {
    struct prng prng;
    bool is_careless;   /* a negative control: the mirror loses what was acknowledged */
    struct point acked; /* at the mirror */
    unsigned attempt;
    unsigned lost;        /* nodes, so far */
    char complaint[1024]; /* what was lost; or "" */
};

static bool is_before(struct point a, struct point b)
{
    return a.attempt != b.attempt ? a.attempt < b.attempt : a.step < b.step;
}

static void complain(struct history *h, const struct job *job, const char *what)
{
    if (h->complaint[0] == '\0')
        snprintf(
            h->complaint, sizeof(h->complaint),
            "history %llu, attempt %u: %s; step %llu of attempt %u was acknowledged; it resumed "
            "step %llu of attempt %u (%d %d %d %d); %.400s",
            (unsigned long long)h->prng.seed, h->attempt, what, (unsigned long long)h->acked.step,
            h->acked.attempt, (unsigned long long)job->step, job->resumed_of, (int)job->opened,
            (int)job->resumed, (int)job->saved, (int)job->closed, job->message);
}

/* Something may happen to the job: all nodes die, a call of storage fails, a rank dies. */
static void disturb(struct history *h, struct job *job)
{
    unsigned long at = 1 + (unsigned long)prng_below(&h->prng, 400);
    uint64_t what = prng_below(&h->prng, 6);

    if (what < 2)
        fault_arm("posix.", at, what == 0, EIO);
    if (what == 2) {
        job->dying_rank = (int)prng_below(&h->prng, 3);
        job->dies_at = 1 + at % 40;
    }
    job->may_fail_save = what <= 2;
}

/* Nothing that could be resumed is left, and nothing was acknowledged: the program begins anew. */
static void begin_anew(void)
{
    shell("rm -rf %1$s/a %1$s/b %1$s/f %1$s/old-*%2$s", scratch.path, "");
}

/* A directory of another run is refused, of one that was never mirrored. Somebody removes it. */
static bool is_of_another_run(const struct job *job)
{
    return job->opened == SIDESTEP_EMISMATCH;
}

static void judge_start(struct history *h, const struct job *job)
{
    struct point resumed = {job->resumed_of, job->step};

    if (job->resumed == SIDESTEP_OK && job->resumes && is_before(resumed, h->acked))
        complain(h, job, "it lost what was acknowledged");
    if (job->resumed == SIDESTEP_OK || job->may_fail_save)
        return;
    if (is_of_another_run(job))
        shell("rm -rf %1$s/a %1$s/b%2$s", scratch.path, "");
    else if (h->acked.step != 0)
        complain(h, job, "it did not start");
    else
        begin_anew();
}

static void judge_end(struct history *h, const struct job *job)
{
    struct point resumed = {job->resumed_of, job->step}, last = {h->attempt, job->last};

    if (job->resumed != SIDESTEP_OK || job->saved != SIDESTEP_OK)
        return;
    if (job->closed != SIDESTEP_OK && !job->may_fail_save)
        complain(h, job, "closing failed");
    if (job->closed == SIDESTEP_OK && job->last != 0)
        h->acked = last;
    else if (job->closed == SIDESTEP_OK && job->resumes)
        h->acked = resumed;
}

static void run_job(struct history *h)
{
    struct job job = {.ranks = 3,
                      .nodes = "abb",
                      .keep_last = 2,
                      .resumes = access(far, F_OK) == 0 || has('a', "") || has('b', ""),
                      .from_resumed = true,
                      .mirror = far,
                      .to_mirror = &to_mirror,
                      .attempt = ++h->attempt};
    uint64_t first = 1 + prng_below(&h->prng, 2), count = prng_below(&h->prng, 4);

    for (uint64_t i = 0; i < count; i++)
        job.saves[i] = first + i;
    disturb(h, &job);
    run(&job);
    fault_arm("", 0, false, 0);
    judge_start(h, &job);
    judge_end(h, &job);
}

/* ---- the nodes */

static void lose_node(struct history *h, char node, bool returns)
{
    char to[64];

    snprintf(to, sizeof(to), "old-%c%u", node, h->lost++);
    if (has(node, "") && returns)
        shell("mv %s %s", node_path(node, ""), scratch_path(&scratch, to));
    else
        shell("rm -rf %s%s", node_path(node, ""), "");
}

/* A node that was away comes back with its old files, in the place of what it has now. */
static void return_late(char node)
{
    char command[512];

    snprintf(command, sizeof(command),
             "old=$(ls -d %s/old-%c* 2>/dev/null | head -1); "
             "[ -z \"$old\" ] || { rm -rf %s && mv $old %s; }",
             scratch.path, node, node_path(node, ""), node_path(node, ""));
    assert_int_equal(system(command), 0);
}

static void change_nodes(struct history *h)
{
    for (uint64_t i = prng_below(&h->prng, 3); i > 0; i--) {
        char node = prng_below(&h->prng, 2) == 0 ? 'a' : 'b';
        if (prng_below(&h->prng, 3) == 0)
            return_late(node);
        else
            lose_node(h, node, prng_below(&h->prng, 2) == 0);
    }
    if (h->is_careless && h->acked.step != 0)
        shell("rm -rf %1$s/f/step-* %1$s/a%2$s", scratch.path, "");
}

/* ---- starts that must fail */

/* The hashes of all files of checkpoints at the nodes. */
static void list_files(const char *to)
{
    shell("cd %s && find [ab] -path '*/step-*' -type f -print0 2>/dev/null | sort -z | "
          "xargs -0 -r sha256sum >%s",
          scratch.path, to);
}

static void expect_refused(struct history *h, const char *why)
{
    struct job job = {.ranks = 3,
                      .nodes = "abb",
                      .resumes = true,
                      .may_fail_save = true,
                      .mirror = far,
                      .to_mirror = &to_mirror};

    bool was_there = access(far, F_OK) == 0;
    list_files("before");
    run(&job);
    list_files("after");
    assert_int_equal(access(far, F_OK) == 0, was_there);
    if (job.opened == SIDESTEP_OK || job.opened == SIDESTEP_ENOTFOUND)
        complain(h, &job, why);
    shell("cd %s && cmp before after%s", scratch.path, "");
}

/* Another run has left its directory in the place of that of node a; or the mirror is away. */
static void start_wrongly(struct history *h)
{
    uint64_t what = prng_below(&h->prng, 6);

    if (what == 0 && h->acked.step != 0) {
        shell("cd %s && { [ ! -e a ] || mv a mine; } && cp -a x a%s", scratch.path, "");
        expect_refused(h, "it took the directory of another run");
        shell("cd %s && rm -r a && { [ ! -e mine ] || mv mine a; }%s", scratch.path, "");
    }
    if (what == 1 && h->acked.step != 0 && has('a', ".sidestep/mirror-at")) {
        shell("mv %s/f %s/away", scratch.path, scratch.path);
        expect_refused(h, "it took a mirror that is away for an empty one");
        shell("mv %s/away %s/f", scratch.path, scratch.path);
    }
}

/* ---- the mirror */

static bool is_whole(const struct sidestep_listed *entry)
{
    struct sidestep_verify_report report = {0};
    struct sidestep_error err = {0};

    if (entry->state == SIDESTEP_DAMAGED)
        return false;
    if (entry->state != SIDESTEP_COMMITTED)
        return true;
    bool is_ok = sidestep_verify(entry->path, NULL, &report, &err) == SIDESTEP_OK && report.is_ok;
    sidestep_verify_report_release(&report);
    return is_ok;
}

static void verify_mirror(struct history *h)
{
    struct sidestep_list list = {0};
    struct sidestep_error err = {0};
    const struct job none = {0};

    if (access(far, F_OK) != 0)
        return;
    assert_int_equal(sidestep_list_root(far, &list, &err), SIDESTEP_OK);
    for (size_t i = 0; i < list.count; i++)
        if (!is_whole(sidestep_list_entry(&list, i)))
            complain(h, &none, "what is at the mirror is not whole");
    sidestep_list_release(&list);
}

static void play(struct history *h)
{
    int rounds = getenv("SIDESTEP_LONG") != NULL ? LONG_ROUNDS : ROUNDS;

    scratch_remove(&scratch);
    assert_int_equal(set_up(NULL), 0);
    save_steps(3, "xyy", false, 1, 1); /* another run */
    for (int round = 0; round < rounds && h->complaint[0] == '\0'; round++) {
        run_job(h);
        verify_mirror(h);
        change_nodes(h);
        start_wrongly(h);
    }
}

TEST(nothing_that_was_acknowledged_is_lost)
{
    uint64_t count = getenv("SIDESTEP_LONG") != NULL ? LONG_HISTORIES : HISTORIES;

    for (uint64_t seed = 1; seed <= count; seed++) {
        struct history h = {.prng = prng_new(seed)};
        play(&h);
        if (h.complaint[0] != '\0')
            fail_msg("%s", h.complaint);
    }
}

/* The negative control. */
TEST(what_is_lost_is_noticed)
{
    for (uint64_t seed = 1; seed <= HISTORIES; seed++) {
        struct history h = {.prng = prng_new(seed), .is_careless = true};
        play(&h);
        if (h.complaint[0] != '\0')
            return;
    }
    fail_msg("%s", "nothing was noticed");
}
