/* SPDX-License-Identifier: BSD-3-Clause */
/* kept_test.c -- a listing says why retention keeps each checkpoint, as the prune of the run
 * decides it. */
#include <stdlib.h>
#include <unistd.h>

#include "base/owned.h"
#include "selection/kept.h"
#include "support/flip.h"
#include "support/one_series.h"
#include "support/prng.h"
#include "support/unit.h"

#define STEPS 9u

static int setup(void **state)
{
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;

    (void)state;
    return one_rank_begin(&options);
}

static struct sidestep_series *open_keeping(const struct sidestep_retention *keep)
{
    struct sidestep_series_options options = SIDESTEP_SERIES_OPTIONS_INIT;

    options.retention = keep;
    return open_with(&options);
}

/* Let a run say what it keeps.  It commits nothing, and so deletes nothing. */
static void record(const struct sidestep_retention *keep)
{
    struct sidestep_series *series = open_keeping(keep);

    close_series(&series);
}

static void save_steps(const char *metric)
{
    struct sidestep_series *series = open_with(NULL);

    for (uint64_t n = 1; n <= STEPS; n++) {
        struct sidestep_metric value = {metric, (double)((n * 5) % STEPS)};
        ASSERT_OK(sidestep_series_note(series, n, &value, 1, NULL, 0, &err));
        save_step(series, n);
    }
    close_series(&series);
}

/* "1:pinned 2:- 3:newest": the reasons of what has a step. */
static const char *reasons(void)
{
    static char text[512];
    struct sidestep_list list;
    size_t used = 0;

    text[0] = '\0';
    ASSERT_OK(sidestep_list_root(scratch.path, &list, &err));
    for (size_t i = 0; i < list.count; i++) {
        const struct sidestep_listed *entry = sidestep_list_entry(&list, i);
        assert_int_equal(entry->kept == NULL, entry->kept_because == NULL);
        if (entry->step >= 0)
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%lld:%s",
                                     used != 0 ? " " : "", (long long)entry->step,
                                     entry->kept != NULL ? entry->kept : "-");
    }
    sidestep_list_release(&list);
    return text;
}

static const char *path_of(uint64_t step)
{
    static char path[256];

    snprintf(path, sizeof(path), "%s/step-%llu", scratch.path, (unsigned long long)step);
    return path;
}

TEST(a_listing_says_why_each_stays)
{
    struct sidestep_retention keep = {.struct_size = sizeof(keep),
                                      .keep_last = 2,
                                      .keep_every = 4,
                                      .keep_best = 1,
                                      .metric = "loss"};
    struct sidestep_latest_report latest;

    save_steps("loss"); /* 5 1 6 2 7 3 8 4 0: the best is 9, which is the newest anyway */
    assert_string_equal(reasons(), "1:all 2:all 3:all 4:all 5:all 6:all 7:all 8:all 9:all");
    ASSERT_OK(sidestep_pin(path_of(1), true, &err));
    record(&keep);
    assert_string_equal(reasons(), "1:pinned 2:- 3:- 4:every 5:- 6:- 7:- 8:last 9:newest");
    keep.keep_best = 2;
    record(&keep);
    assert_string_equal(reasons(), "1:pinned 2:best 3:- 4:every 5:- 6:- 7:- 8:last 9:newest");
    ASSERT_OK(sidestep_find_latest(scratch.path, SIDESTEP_VERIFY_STRUCTURE, NULL, &latest, &err));
    assert_string_equal(latest.kept, "newest");
    assert_string_equal(latest.kept_because, "it is the newest valid checkpoint");
    sidestep_latest_report_release(&latest);
    /* Without its newest, the one before is. A listing sees that a file is too short. */
    char file[300];
    snprintf(file, sizeof(file), "%s/__0_0.distcp", path_of(9));
    assert_int_equal(truncate(file, 100), 0);
    assert_string_equal(reasons(), "1:pinned 2:best 3:- 4:every 5:- 6:- 7:last 8:newest 9:damaged");
    ASSERT_OK(sidestep_find_latest(scratch.path, SIDESTEP_VERIFY_STRUCTURE, NULL, &latest, &err));
    assert_int_equal(latest.step, 8);
    assert_string_equal(latest.kept, "newest");
    sidestep_latest_report_release(&latest);
}

TEST(without_a_record_nobody_knows)
{
    save_steps("loss");
    char path[300];
    snprintf(path, sizeof(path), "%s/.sidestep/state", scratch.path);
    FILE *file = fopen(path, "r+");
    char line[200] = "", rest[512] = "";
    assert_non_null(fgets(line, sizeof(line), file));
    rest[fread(rest, 1, sizeof(rest) - 1, file)] = '\0';
    assert_string_equal(rest, "keeps all\nnamed step-{step}\n");
    static const char *const texts[] = {"", "keeps\n", "keeps last x\nnamed step-{step}\n",
                                        "keeps all\n", "keeps all\nnamed step\n"};
    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++) {
        rewind(file);
        assert_int_equal(ftruncate(fileno(file), 0), 0);
        fprintf(file, "%s%s", line, texts[i]);
        fflush(file);
        assert_non_null(strstr(reasons(), "1:unknown 2:unknown"));
    }
    fclose(file);
    expect_latest(STEPS);
}

static size_t deletable(const struct sidestep_list *list, char *names, size_t bytes)
{
    size_t used = 0, count = 0;

    for (size_t i = 0; i < list->count; i++) {
        const struct sidestep_listed *entry = sidestep_list_entry(list, i);
        if (entry->state != SIDESTEP_COMMITTED || entry->kept != NULL)
            continue;
        used += (size_t)snprintf(names + used, bytes - used, "%s ", entry->path);
        count++;
    }
    return count;
}

/* Whatever the policy, the pins and the damage: what a listing calls kept by nobody is what a prune
 * with that policy deletes. */
TEST(a_listing_and_a_prune_never_differ)
{
    size_t total = 0;

    save_steps("loss");
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct prng prng = prng_new(seed);
        struct sidestep_retention keep = {
            .struct_size = sizeof(keep),
            .keep_last = (uint32_t)prng_below(&prng, 4),
            .keep_every = prng_below(&prng, 5),
            .keep_best = (uint32_t)prng_below(&prng, 3),
            .flags = prng_below(&prng, 2) != 0 ? SIDESTEP_RETENTION_MAX : 0,
            .metric = "loss"};
        struct sidestep_gc_report report;
        struct sidestep_list list;
        char listed[4096] = "", removed[4096] = "";
        size_t used = 0;

        ASSERT_OK(
            sidestep_pin(path_of(1 + prng_below(&prng, STEPS)), prng_below(&prng, 2) != 0, &err));
        record(&keep);
        ASSERT_OK(sidestep_list_root(scratch.path, &list, &err));
        total += deletable(&list, listed, sizeof(listed));
        sidestep_list_release(&list);
        ASSERT_OK(sidestep_prune(scratch.path, &keep, SIDESTEP_GC_DRY_RUN, &report, &err));
        for (size_t i = 0; i < report.removed_count; i++)
            used +=
                (size_t)snprintf(removed + used, sizeof(removed) - used, "%s ", report.removed[i]);
        sidestep_gc_report_release(&report);
        assert_string_equal(listed, removed);
    }
    assert_true(total > 100);
}

/* A prune by hand is an incarnation of its own, and keeps the record of the run. */
TEST(a_prune_by_hand_changes_no_record)
{
    struct sidestep_retention keep = {.struct_size = sizeof(keep), .keep_last = 8};
    struct sidestep_retention by_hand = {.struct_size = sizeof(by_hand), .keep_last = 3};
    struct sidestep_gc_report report;

    save_steps("loss");
    record(&keep);
    ASSERT_OK(sidestep_prune(scratch.path, &by_hand, 0, &report, &err));
    sidestep_gc_report_release(&report);
    assert_string_equal(reasons(), "7:last 8:last 9:newest");
}

EACH_TEST(setup, one_rank_teardown);
