/* SPDX-License-Identifier: BSD-3-Clause */
/* retention_test.c -- which checkpoints may be deleted: by table, and over random histories. */
#include <math.h>

#include "base/owned.h"
#include "selection/retention.h"
#include "support/prng.h"
#include "support/unit.h"

/* One letter each, oldest first, of steps 10, 20, 30 ...: 'o' ours, 'p' pinned, 'a' abandoned, 'P'
 * both, 'd' damaged, 'f' foreign. ${metrics} are assigned in order. */
struct row {
    const char *what;
    struct retention retention;
    double metrics[8];
    const char *kept;   /* '+' stays, '-' is deleted */
    const char *shared; /* those with the same letter share a file, '.' none; NULL: all '.' */
};

static const struct row rows[] = {
    {"ooooo", {.wanted = false}, {0}, "+++++", NULL},
    {"ooooo", {.wanted = true, .keep_last = 3}, {0}, "--+++", NULL},
    {"ooooo", {.wanted = true, .keep_last = 1}, {0}, "----+", NULL},
    {"ooooo", {.wanted = true, .keep_last = 0}, {0}, "----+", NULL},
    {"ooooo", {.wanted = true, .keep_last = 9}, {0}, "+++++", NULL},
    {"ooooo", {.wanted = true, .keep_last = UINT32_MAX}, {0}, "+++++", NULL},
    {"", {.wanted = true}, {0}, "", NULL},
    {"o", {.wanted = true}, {0}, "+", NULL},
    {"poooo", {.wanted = true, .keep_last = 1}, {0}, "+---+", NULL},
    /* a pinned one counts as one of the last */
    {"ooopo", {.wanted = true, .keep_last = 2}, {0}, "---++", NULL},
    /* a damaged one neither counts nor is deleted */
    {"ooood", {.wanted = true, .keep_last = 1}, {0}, "---++", NULL},
    {"oodod", {.wanted = true, .keep_last = 2}, {0}, "-++++", NULL},
    {"ddddd", {.wanted = true}, {0}, "+++++", NULL},
    {"faddd", {.wanted = true}, {0}, "+++++", NULL}, /* nothing valid: nothing is deleted */
    /* left behind: deleted, however new, unless it is pinned */
    {"oooaa", {.wanted = true, .keep_last = 2}, {0}, "-++--", NULL},
    {"ooaPa", {.wanted = true, .keep_last = 2}, {0}, "++-+-", NULL},
    {"fofof", {.wanted = true, .keep_last = 1}, {0}, "+-+++", NULL},
    {"oooooo", {.wanted = true, .keep_last = 1, .keep_every = 30}, {0}, "--+--+", NULL},
    {"oooooo", {.wanted = true, .keep_last = 1, .keep_every = 7}, {0}, "-----+", NULL},
    {"oooo",
     {.wanted = true, .keep_last = 1, .keep_best = 1, .metric = "loss"},
     {3, 1, 2, 4},
     "-+-+",
     NULL},
    {"oooo",
     {.wanted = true, .keep_last = 1, .keep_best = 2, .metric = "loss", .best_is_max = true},
     {3, 1, 2, 4},
     "+--+",
     NULL},
    /* of equals the newer; without a metric, and NaN, never */
    {"oooo",
     {.wanted = true, .keep_last = 1, .keep_best = 1, .metric = "loss"},
     {1, 1, 2, 2},
     "-+-+",
     NULL},
    {"oooo",
     {.wanted = true, .keep_last = 1, .keep_best = 3, .metric = "loss"},
     {NAN, 5, 0, INFINITY},
     "-+-+",
     NULL},
    {"aooo",
     {.wanted = true, .keep_last = 1, .keep_best = 1, .metric = "loss"},
     {1, 3, 2, 4},
     "--++",
     NULL},
    /* those that share a file are not two */
    {"ooooo", {.wanted = true, .keep_last = 2}, {0}, "-+-++", "..aaa"},
    {"ooooo", {.wanted = true, .keep_last = 2}, {0}, "--+++", "aaabb"},
    {"ooooo", {.wanted = true, .keep_last = 1}, {0}, "----+", "..aaa"},
    {"ooooo", {.wanted = true, .keep_last = 2, .keep_every = 10}, {0}, "+++++", "..aaa"},
    {"ooooo", {.wanted = true, .keep_last = 2, .keep_every = 40}, {0}, "-+-++", "..aaa"},
    {"poooo", {.wanted = true, .keep_last = 2}, {0}, "+--++", "..aaa"}, /* one shares nothing */
    {"oadoo", {.wanted = true, .keep_last = 2}, {0}, "+-+++", "...aa"},
    {"ooo", {.wanted = true, .keep_last = 2}, {0}, "-++", "aaa"},
    {"oooo", {.wanted = false}, {0}, "++++", "..aa"},
};

static const struct retention_reason not_ours = {"not-ours", "another run wrote it"};

static void decide(const struct row *row, struct retention_item *items, size_t count)
{
    static const char *const letters[] = {"a", "b"}, *const * origins;

    for (size_t i = 0; i < count; i++) {
        char c = row->what[i];
        char shared = row->shared != NULL ? row->shared[i] : '.';
        origins = &letters[shared == 'b'];
        items[i] = (struct retention_item){.step = 10 * (int64_t)(i + 1),
                                           .not_ours = c == 'f' ? &not_ours : NULL,
                                           .is_pinned = c == 'p' || c == 'P',
                                           .is_abandoned = c == 'a' || c == 'P',
                                           .flaw = c == 'd' ? &RETENTION_DAMAGED : NULL,
                                           .save_id = "another",
                                           .origins = origins,
                                           .origin_count = shared != '.',
                                           .has_metric = row->metrics[i] != 0,
                                           .metric = row->metrics[i]};
    }
    retention_plan(&row->retention, items, count);
}

TEST(every_row_of_the_table)
{
    for (size_t r = 0; r < ARRAY_LENGTH(rows); r++) {
        struct retention_item items[8];
        char got[9] = "";
        size_t count = strlen(rows[r].what);
        decide(&rows[r], items, count);
        for (size_t i = 0; i < count; i++)
            got[i] = items[i].keep != NULL ? '+' : '-';
        if (strcmp(got, rows[r].kept) != 0)
            fail_msg("row %zu '%s': kept %s, not %s", r, rows[r].what, got, rows[r].kept);
    }
}

/* Whatever exists and is selected: the minimum stays, and a second decision agrees. */
TEST(the_minimum_stays_in_any_state)
{
    static const char kinds[] = "ooooopaPdf";
    size_t deleted = 0;

    for (uint64_t seed = 0; seed < 20000; seed++) {
        struct prng prng = prng_new(seed);
        struct row row = {.retention = {.wanted = true,
                                        .keep_last = (uint32_t)prng_below(&prng, 5),
                                        .keep_every = prng_below(&prng, 4) * 10,
                                        .keep_best = (uint32_t)prng_below(&prng, 3)}};
        struct retention_item items[8], again[8];
        char what[9] = "";
        size_t count = prng_below(&prng, 9), valid = 0, kept_valid = 0, left = 0;
        for (size_t i = 0; i < count; i++) {
            what[i] = kinds[prng_below(&prng, sizeof(kinds) - 1)];
            row.metrics[i] = (double)prng_below(&prng, 4);
        }
        row.what = what;
        decide(&row, items, count);
        for (size_t i = 0; i < count; i++) {
            bool good = strchr("op", what[i]) != NULL;
            valid += good;
            kept_valid += good && items[i].keep != NULL;
            if (items[i].keep == NULL)
                assert_non_null(strchr("oa", what[i]));
            else
                again[left++] = items[i];
            deleted += items[i].keep == NULL;
        }
        uint64_t floor = row.retention.keep_last != 0 ? row.retention.keep_last : 1;
        assert_true(kept_valid >= (valid < floor ? valid : floor));
        for (size_t i = count; i-- > 0;)
            if (strchr("op", what[i]) != NULL) {
                assert_non_null(items[i].keep); /* the newest valid one */
                break;
            }
        for (size_t i = 0; i < left; i++)
            again[i].is_best = false;
        retention_plan(&row.retention, again, left);
        for (size_t i = 0; i < left; i++)
            assert_non_null(again[i].keep);
    }
    assert_true(deleted > 10000);
}

TEST(policies_are_checked)
{
    struct sidestep_retention theirs = SIDESTEP_RETENTION_INIT;
    struct retention retention;

    assert_int_equal(retention_copy(&retention, NULL, NULL), SIDESTEP_OK);
    assert_false(retention.wanted);
    assert_int_equal(retention_copy(&retention, &theirs, NULL), SIDESTEP_OK);
    assert_true(retention.wanted);
    theirs.keep_best = 1;
    assert_int_equal(retention_copy(&retention, &theirs, NULL), SIDESTEP_EINVAL);
    theirs.metric = "../loss";
    assert_int_equal(retention_copy(&retention, &theirs, NULL), SIDESTEP_EINVAL);
    theirs.metric = "eval-loss_2";
    assert_int_equal(retention_copy(&retention, &theirs, NULL), SIDESTEP_OK);
    theirs.flags = 2;
    assert_int_equal(retention_copy(&retention, &theirs, NULL), SIDESTEP_EUNSUPPORTED);
}
