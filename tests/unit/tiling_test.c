/* SPDX-License-Identifier: BSD-3-Clause */
/* tiling_test.c -- compares tilings, and boxes that nearly tile, with counting each cell. */
#include <errno.h>

#include "base/fault.h"
#include "base/owned.h"
#include "plan/tiling.h"
#include "support/prng.h"
#include "support/tilings.h"
#include "support/unit.h"

#define SIDE 6

/* Count how many boxes cover each cell of a grid of SIDE^4. */
static enum tiling_result reference(const struct random_tiling *t)
{
    uint8_t covered[SIDE * SIDE * SIDE * SIDE] = {0};
    bool gap = false, overlap = false;
    int64_t volume = 1;

    for (uint32_t d = 0; d < t->ndim; d++)
        volume *= t->shape[d];
    for (int64_t cell = 0; cell < volume; cell++) {
        int64_t at[TILING_NDIM], rest = cell;

        for (uint32_t d = t->ndim; d-- > 0; rest /= t->shape[d])
            at[d] = rest % t->shape[d];
        for (size_t i = 0; i < t->count; i++) {
            bool inside = true;

            for (uint32_t d = 0; d < t->ndim; d++)
                inside = inside && at[d] >= t->offsets[i][d] &&
                         at[d] < t->offsets[i][d] + t->lengths[i][d];
            covered[cell] += inside;
        }
        gap = gap || covered[cell] == 0;
        overlap = overlap || covered[cell] > 1;
    }
    return overlap ? TILING_OVERLAP : gap ? TILING_GAP : TILING_EXACT;
}

/* Move, grow, shrink, drop or repeat a box. */
static void mutate(struct prng *p, struct random_tiling *t)
{
    size_t i = prng_below(p, t->count), k = prng_below(p, t->count);
    uint32_t d = t->ndim != 0 ? (uint32_t)prng_below(p, t->ndim) : 0;

    switch (prng_below(p, 6)) {
    case 0:
        t->count--;
        memcpy(t->offsets[i], t->offsets[t->count], sizeof(t->offsets[i]));
        memcpy(t->lengths[i], t->lengths[t->count], sizeof(t->lengths[i]));
        break;
    case 1:
        if (t->count == TILING_BOXES)
            break;
        memcpy(t->offsets[t->count], t->offsets[i], sizeof(t->offsets[i]));
        memcpy(t->lengths[t->count], t->lengths[k], sizeof(t->lengths[i]));
        t->count++;
        for (d = 0; d < t->ndim; d++) /* may leave the shape: move it back */
            if (t->offsets[t->count - 1][d] + t->lengths[t->count - 1][d] > t->shape[d])
                t->lengths[t->count - 1][d] = t->shape[d] - t->offsets[t->count - 1][d];
        break;
    case 2:
    case 3: /* elsewhere, of the same volume */
        if (t->ndim != 0)
            t->offsets[i][d] = prng_between(p, 0, t->shape[d] - t->lengths[i][d]);
        break;
    default:
        if (t->ndim == 0)
            break;
        t->offsets[i][d] = prng_between(p, 0, t->shape[d]);
        t->lengths[i][d] = prng_between(p, 0, t->shape[d] - t->offsets[i][d]);
    }
}

static void check_case(struct prng *p, const struct random_tiling *t)
{
    int64_t offsets[TILING_NDIM], lengths[TILING_NDIM];
    struct box boxes[TILING_BOXES];
    enum tiling_result result, wanted = reference(t);
    size_t culprit = 0;

    for (size_t i = 0; i < t->count; i++) {
        boxes[i] = tiling_box(t, i);
        PRNG_ASSERT(p, box_check(&boxes[i], t->shape, 16, NULL) == SIDESTEP_OK);
    }
    PRNG_ASSERT(p, tiling_check(t->ndim, t->shape, boxes, t->count, &result, &culprit, NULL) == 0);
    PRNG_ASSERT(p, result == wanted);
    PRNG_ASSERT(p, (culprit != SIZE_MAX) == (result == TILING_OVERLAP));
    bool overlaps = false;
    for (size_t i = 0; culprit != SIZE_MAX && i < culprit; i++)
        overlaps = overlaps || box_intersect(&boxes[i], &boxes[culprit], offsets, lengths);
    PRNG_ASSERT(p, overlaps == (culprit != SIZE_MAX));
    PRNG_ASSERT(p, tiling_check(t->ndim, t->shape, boxes, t->count, &result, NULL, NULL) == 0);
    PRNG_ASSERT(p, result == wanted);
}

TEST(tiling_agrees_with_counting)
{
    unsigned seen[3] = {0};

    for (uint64_t seed = 0; seed < 6000; seed++) {
        struct prng p = prng_new(seed);
        struct random_tiling t = {0};

        tiling_random_shape(&p, &t, (uint32_t)prng_below(&p, TILING_NDIM + 1), SIDE);
        tiling_random_cuts(&p, &t, prng_below(&p, TILING_BOXES));
        PRNG_ASSERT(&p, reference(&t) == TILING_EXACT);
        check_case(&p, &t);
        for (uint64_t i = prng_below(&p, 3); i > 0 && t.count > 0; i--) {
            mutate(&p, &t);
            if (t.count == 0)
                break;
            check_case(&p, &t);
            seen[reference(&t)]++;
        }
    }
    assert_true(seen[TILING_EXACT] > 100 && seen[TILING_GAP] > 500 && seen[TILING_OVERLAP] > 500);
}

/* A gap and an overlap of the same size: the volumes are equal, so the corners must show it. */
TEST(equal_volumes_do_not_hide_a_gap)
{
    const struct box boxes[] = {
        {2, (int64_t[]){0, 0}, (int64_t[]){2, 2}},
        {2, (int64_t[]){0, 1}, (int64_t[]){2, 2}},
        {2, (int64_t[]){2, 0}, (int64_t[]){2, 4}},
        {2, (int64_t[]){0, 2}, (int64_t[]){2, 2}},
    };
    const struct box pair[] = {{1, (int64_t[]){0}, (int64_t[]){2}},
                               {1, (int64_t[]){1}, (int64_t[]){2}}};
    enum tiling_result result;
    size_t culprit;

    assert_int_equal(tiling_check(2, (int64_t[]){4, 4}, boxes, 3, &result, &culprit, NULL), 0);
    assert_int_equal(result, TILING_OVERLAP);
    assert_int_equal(culprit, 1);
    assert_int_equal(tiling_check(2, (int64_t[]){4, 4}, boxes, 4, &result, &culprit, NULL), 0);
    assert_int_equal(result, TILING_OVERLAP);
    assert_int_equal(tiling_check(1, (int64_t[]){4}, pair, 2, &result, &culprit, NULL), 0);
    assert_int_equal(result, TILING_OVERLAP);
    assert_int_equal(culprit, 1);
}

TEST(scalars_empty_and_huge_boxes)
{
    const struct box scalar[] = {{0, NULL, NULL}, {0, NULL, NULL}};
    const struct box empty = {2, (int64_t[]){1, 0}, (int64_t[]){0, 3}};
    int64_t big = (int64_t)1 << 61;
    const struct box halves[] = {{1, (int64_t[]){0}, (int64_t[]){big / 2}},
                                 {1, (int64_t[]){big / 2}, (int64_t[]){big / 2}}};
    static const enum tiling_result scalars[] = {TILING_GAP, TILING_EXACT, TILING_OVERLAP};
    enum tiling_result result;
    size_t culprit;

    for (size_t n = 0; n < 3; n++) {
        assert_int_equal(tiling_check(0, NULL, scalar, n, &result, &culprit, NULL), SIDESTEP_OK);
        assert_int_equal(result, scalars[n]);
        assert_int_equal(culprit, n == 2 ? 1 : SIZE_MAX);
    }
    assert_int_equal(tiling_check(2, (int64_t[]){2, 3}, &empty, 1, &result, NULL, NULL), 0);
    assert_int_equal(result, TILING_GAP);
    assert_int_equal(tiling_check(2, (int64_t[]){2, 0}, NULL, 0, &result, NULL, NULL), 0);
    assert_int_equal(result, TILING_EXACT);
    assert_int_equal(tiling_check(1, &big, halves, 2, &result, NULL, NULL), 0);
    assert_int_equal(result, TILING_EXACT);
    assert_int_equal(tiling_check(1, &big, halves, 1, &result, NULL, NULL), 0);
    assert_int_equal(result, TILING_GAP);
}

/* All 2^${ndim} cells of a tensor of 2 x 2 x ... With many dimensions, the sweep is used. */
static void check_many_dimensions(uint32_t ndim)
{
    size_t count = (size_t)1 << ndim;
    OWNED int64_t *numbers = calloc(count * ndim, sizeof(*numbers));
    OWNED struct box *boxes = calloc(count + 1, sizeof(*boxes));
    int64_t ones[SIDESTEP_MAX_NDIM], twos[SIDESTEP_MAX_NDIM];
    enum tiling_result result;
    size_t culprit;

    assert_true(numbers != NULL && boxes != NULL);
    for (uint32_t d = 0; d < ndim; d++)
        ones[d] = 1, twos[d] = 2;
    for (size_t i = 0; i < count; i++) {
        for (uint32_t d = 0; d < ndim; d++)
            numbers[i * ndim + d] = (int64_t)(i >> d & 1);
        boxes[i] = (struct box){ndim, numbers + i * ndim, ones};
    }
    assert_int_equal(tiling_check(ndim, twos, boxes, count, &result, &culprit, NULL), 0);
    assert_int_equal(result, TILING_EXACT);
    assert_int_equal(tiling_check(ndim, twos, boxes, count - 1, &result, &culprit, NULL), 0);
    assert_int_equal(result, TILING_GAP);
    boxes[count] = boxes[5];
    assert_int_equal(tiling_check(ndim, twos, boxes, count + 1, &result, &culprit, NULL), 0);
    assert_int_equal(result, TILING_OVERLAP);
    assert_int_equal(culprit, count);
    boxes[count - 1] = boxes[5];
    assert_int_equal(tiling_check(ndim, twos, boxes, count, &result, &culprit, NULL), 0);
    assert_int_equal(result, TILING_OVERLAP);
    assert_int_equal(culprit, count - 1);
}

TEST(many_dimensions)
{
    check_many_dimensions(7);
    check_many_dimensions(10);
    check_many_dimensions(11);
}

/* Two cells in each of 61 dimensions: the most for a volume of 62 bits. */
TEST(the_most_dimensions)
{
    enum { NDIM = 61 };
    static int64_t offsets[NDIM + 1][NDIM], lengths[NDIM + 1][NDIM], shape[NDIM];
    struct box boxes[NDIM + 1];
    enum tiling_result result;

    for (size_t d = 0; d < NDIM; d++)
        shape[d] = 2;
    for (size_t i = 0; i <= NDIM; i++) { /* the second half along i of what is left */
        for (size_t d = 0; d < NDIM; d++) {
            lengths[i][d] = d < i || (d == i) ? 1 : 2;
            offsets[i][d] = d == i ? 1 : 0;
        }
        boxes[i] = (struct box){NDIM, offsets[i], lengths[i]};
        assert_int_equal(box_check(&boxes[i], shape, 1, NULL), SIDESTEP_OK);
    }
    assert_int_equal(tiling_check(NDIM, shape, boxes, NDIM + 1, &result, NULL, NULL), 0);
    assert_int_equal(result, TILING_EXACT);
    assert_int_equal(tiling_check(NDIM, shape, boxes, NDIM, &result, NULL, NULL), 0);
    assert_int_equal(result, TILING_GAP);
}

static enum sidestep_status check_grid(int64_t side, size_t leave_out, enum tiling_result *result,
                                       struct sidestep_error *err)
{
    size_t count = (size_t)(side * side);
    OWNED int64_t *offsets = calloc(count, 2 * sizeof(*offsets));
    OWNED struct box *boxes = calloc(count, sizeof(*boxes));
    static const int64_t ones[] = {1, 1};

    assert_true(offsets != NULL && boxes != NULL);
    for (size_t i = 0; i < count; i++) {
        offsets[2 * i] = (int64_t)i % side;
        offsets[2 * i + 1] = (int64_t)i / side;
        boxes[i] = (struct box){2, offsets + 2 * i, ones};
    }
    return tiling_check(2, (int64_t[]){side, side}, boxes, count - leave_out, result, NULL, err);
}

/* 90,000 boxes have 4,000 million pairs. */
TEST(large_grids)
{
    enum tiling_result result;

    assert_int_equal(check_grid(300, 0, &result, NULL), SIDESTEP_OK);
    assert_int_equal(result, TILING_EXACT);
    assert_int_equal(check_grid(300, 1, &result, NULL), SIDESTEP_OK);
    assert_int_equal(result, TILING_GAP);
}

TEST(every_allocation_may_fail)
{
    for (size_t leave_out = 0; leave_out < 2; leave_out++)
        for (unsigned long n = 1;; n++) {
            enum tiling_result result;

            fault_arm("memory", n, false, ENOMEM);
            enum sidestep_status status = check_grid(4, leave_out, &result, NULL);
            bool fired = fault_fired() != NULL;
            fault_arm("", 0, false, 0);
            assert_int_equal(status, fired ? SIDESTEP_ENOMEM : SIDESTEP_OK);
            if (!fired)
                break;
        }
}
