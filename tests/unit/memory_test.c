/* SPDX-License-Identifier: BSD-3-Clause */
/* memory_test.c -- arenas give zeroed, aligned memory that does not overlap. */
#include "base/fault.h"
#include "base/memory.h"
#include "support/unit.h"

#define SMALL 48u
#define COUNT 300000u /* 14 MB: blocks of all sizes */
#define LARGE ((size_t)5 << 20)

static void expect_fresh(const unsigned char *memory, size_t bytes)
{
    assert_non_null(memory);
    assert_int_equal((uintptr_t)memory % 16, 0);
    for (size_t i = 0; i < bytes; i++)
        assert_true(memory[i] == 0);
}

TEST(blocks_grow_with_the_arena)
{
    OWNED_ARENA arena = {0};
    unsigned char *before = NULL, *large = NULL;

    for (unsigned n = 0; n < COUNT; n++) {
        unsigned char *memory = arena_new(&arena, 1, SMALL);
        expect_fresh(memory, SMALL);
        memset(memory, (int)(n % 255 + 1), SMALL);
        if (before != NULL)
            assert_int_equal(before[SMALL - 1], (n - 1) % 255 + 1);
        before = memory;
        if (n == COUNT / 2) {
            large = arena_new(&arena, 1, LARGE);
            expect_fresh(large, LARGE);
            memset(large, 7, LARGE);
        }
    }
    for (size_t i = 0; i < LARGE; i++)
        assert_int_equal(large[i], 7);
    assert_true(arena.used_bytes == (size_t)COUNT * SMALL + LARGE);
}

TEST(an_arena_adopts_what_another_has)
{
    OWNED_ARENA arena = {0};
    struct arena from = {0};
    unsigned char *own = arena_new(&arena, 1, SMALL), *small = arena_new(&from, 1, SMALL),
                  *large = arena_new(&from, 1, LARGE);

    memset(own, 1, SMALL);
    memset(small, 2, SMALL);
    memset(large, 3, LARGE);
    arena_adopt(&arena, &from);
    assert_true(from.blocks == NULL && from.used_bytes == 0);
    assert_true(arena.used_bytes == 2 * SMALL + LARGE);
    arena_release(&from);
    expect_fresh(arena_new(&arena, 1, SMALL), SMALL);
    assert_true(own[SMALL - 1] == 1 && small[SMALL - 1] == 2 && large[LARGE - 1] == 3);
    arena_adopt(&from, &arena); /* into one that is empty */
    assert_true(from.used_bytes == 3 * SMALL + LARGE && small[0] == 2);
    arena_release(&from);
}

TEST(a_limit_holds_for_large_blocks)
{
    OWNED_ARENA arena = {.limit_bytes = LARGE};

    assert_null(arena_new(&arena, 2, LARGE));
    assert_null(arena_new(&arena, SIZE_MAX / 2, 4));
    assert_non_null(arena_new(&arena, 1, LARGE));
    assert_null(arena_new(&arena, 1, 1));
}

TEST(mappings_fail_as_allocations_do)
{
    OWNED_ARENA arena = {0};

    fault_arm("memory", 1, false, 12);
    assert_null(arena_new(&arena, 1, LARGE));
    fault_arm("memory", 1, false, 12);
    assert_null(arena_new(&arena, 1, SMALL));
    fault_arm("", 0, false, 0);
    assert_non_null(arena_new(&arena, 1, LARGE));
    assert_non_null(arena_new(&arena, 1, SMALL));
}
