/* SPDX-License-Identifier: BSD-3-Clause */
/* stream_test.c -- base/nontemporal_copy.h: every length around its limits, every alignment, and no
 * byte outside. */
#include "base/nontemporal_copy.h"
#include "support/unit.h"

#define MOST_BYTES ((size_t)320 << 10)
#define MARGIN_BYTES ((size_t)128)
#define CANARY 0xa5

static void check_copy(size_t to_shift, size_t from_shift, size_t bytes)
{
    size_t room = MOST_BYTES + 2 * MARGIN_BYTES;
    unsigned char *to = malloc(room), *from = malloc(room);

    assert_non_null(to);
    assert_non_null(from);
    memset(to, CANARY, room);
    for (size_t i = 0; i < room; i++)
        from[i] = (unsigned char)(i * 2654435761u >> 7);
    nontemporal_copy(to + MARGIN_BYTES + to_shift, from + from_shift, bytes);
    assert_memory_equal(to + MARGIN_BYTES + to_shift, from + from_shift, bytes);
    for (size_t i = 0; i < MARGIN_BYTES + to_shift; i++)
        assert_int_equal(to[i], CANARY);
    for (size_t i = MARGIN_BYTES + to_shift + bytes; i < room; i++)
        assert_int_equal(to[i], CANARY);
    free(to);
    free(from);
}

TEST(copies_like_memcpy)
{
    static const size_t lengths[] = {0,      1,      4096,   262143,       262144,    262145,
                                     270336, 278527, 278528, 278528 + 100, MOST_BYTES};
    static const size_t shifts[] = {0, 1, 8, 16, 63, 64};

    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
        for (size_t t = 0; t < sizeof(shifts) / sizeof(shifts[0]); t++)
            for (size_t f = 0; f < sizeof(shifts) / sizeof(shifts[0]); f++)
                check_copy(shifts[t], shifts[f], lengths[i]);
}
