/* SPDX-License-Identifier: BSD-3-Clause */
/* box_range_test.c -- compares box_range() with counting elements. */
#include "model/box_range.h"
#include "support/prng.h"
#include "support/unit.h"

#define DIMS 3u
#define ITEM 3u /* bytes of an element; more than one, so that a stretch may cut an element */

static bool contains(const struct box *box, const int64_t at[DIMS])
{
    for (uint32_t d = 0; d < DIMS; d++)
        if (at[d] < box->offsets[d] || at[d] >= box->offsets[d] + box->lengths[d])
            return false;
    return true;
}

/* The number of an element in a box that contains it. */
static uint64_t place(const struct box *box, const int64_t at[DIMS])
{
    uint64_t n = 0;

    for (uint32_t d = 0; d < DIMS; d++)
        n = n * (uint64_t)box->lengths[d] + (uint64_t)(at[d] - box->offsets[d]);
    return n;
}

/* As box_range(), but looks at each byte. */
static bool count_range(const struct box *box, uint64_t begin, uint64_t end,
                        const struct box *chunk, uint64_t *first, uint64_t *last)
{
    bool found = false;

    for (uint64_t n = begin; n < end; n++) {
        int64_t at[DIMS];
        uint64_t rest = n / ITEM;

        for (uint32_t d = DIMS; d-- > 0;) {
            at[d] = box->offsets[d] + (int64_t)(rest % (uint64_t)box->lengths[d]);
            rest /= (uint64_t)box->lengths[d];
        }
        if (!contains(chunk, at))
            continue;
        uint64_t byte = place(chunk, at) * ITEM + n % ITEM;
        if (!found)
            *first = byte;
        assert_true(!found || byte >= *last); /* the order is the same */
        *last = byte + 1;
        found = true;
    }
    return found;
}

static void random_box(struct prng *random, int64_t offsets[DIMS], int64_t lengths[DIMS])
{
    for (uint32_t d = 0; d < DIMS; d++) {
        offsets[d] = (int64_t)prng_below(random, 4);
        lengths[d] = (int64_t)prng_below(random, 4) + (prng_below(random, 8) != 0);
    }
}

TEST(agrees_with_counting)
{
    struct prng random = prng_new(7);
    unsigned found = 0;

    for (unsigned i = 0; i < 20000; i++) {
        int64_t numbers[4][DIMS];
        random_box(&random, numbers[0], numbers[1]);
        random_box(&random, numbers[2], numbers[3]);
        struct box box = {DIMS, numbers[0], numbers[1]}, chunk = {DIMS, numbers[2], numbers[3]};
        uint64_t bytes = box_volume(&box) * ITEM;
        uint64_t begin = bytes != 0 ? prng_below(&random, bytes) : 0;
        uint64_t end = begin + (bytes != 0 ? prng_below(&random, bytes - begin + 1) : 0);
        uint64_t first = 0, last = 0, wanted_first = 0, wanted_last = 0;

        bool wanted = count_range(&box, begin, end, &chunk, &wanted_first, &wanted_last);
        assert_int_equal(box_range(&box, begin, end, ITEM, &chunk, &first, &last), wanted);
        if (!wanted)
            continue;
        assert_int_equal(first, wanted_first);
        assert_int_equal(last, wanted_last);
        found++;
    }
    assert_true(found > 2000);
}

TEST(scalars_are_themselves)
{
    const struct box scalar = {0};
    uint64_t first, last;

    assert_true(box_range(&scalar, 1, 3, 4, &scalar, &first, &last));
    assert_int_equal(first, 1);
    assert_int_equal(last, 3);
    assert_false(box_range(&scalar, 2, 2, 4, &scalar, &first, &last));
}
