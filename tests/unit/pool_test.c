/* SPDX-License-Identifier: BSD-3-Clause */
/* pool_test.c -- staging memory: how it grows, and on which node it is. */
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fault.h"
#include "snapshot/pool.h"
#include "support/unit.h"

TEST(the_pool_grows)
{
    struct pool pool = {0};

    assert_int_equal(pool_reserve(&pool, 1000, NULL, NULL), SIDESTEP_OK);
    assert_true(pool.length >= 1000 && (uintptr_t)pool.bytes % 4096 == 0);
    unsigned char *before = pool.bytes;
    assert_int_equal(pool_reserve(&pool, 10, NULL, NULL), SIDESTEP_OK);
    assert_ptr_equal(pool.bytes, before);
    assert_int_equal(pool_reserve(&pool, 5 << 20, NULL, NULL), SIDESTEP_OK);
    assert_true(pool.length >= 5 << 20);
    pool.bytes[pool.length - 1] = 1;
    fault_arm("pool.map", 1, false, 12);
    struct sidestep_error err = {0};
    assert_int_equal(pool_reserve(&pool, 50 << 20, NULL, &err), SIDESTEP_ENOMEM);
    fault_arm("", 0, false, 0);
    pool_release(&pool);
    assert_null(pool.bytes);
}

TEST(all_of_the_pool_is_touched_in_steps)
{
    struct pool pool = {0};
    unsigned char resident[(5 << 20) / 4096 + 512] = {0};
    uint64_t at = 0, steps = 0, page = (uint64_t)sysconf(_SC_PAGESIZE);

    assert_int_equal(pool_reserve(&pool, 5 << 20, NULL, NULL), SIDESTEP_OK);
    while (pool_touch_next(&pool, &at))
        steps++;
    assert_int_equal(at, pool.length);
    assert_int_equal(steps, 2);
    assert_int_equal(mincore(pool.bytes, pool.length, resident), 0);
    for (uint64_t i = 0; i < pool.length / page; i++)
        assert_int_equal(resident[i] & 1, 1);
    pool_release(&pool);
}

/* The memory policy of the pool; -1: the kernel does not say. */
static int policy_of(const struct pool *pool, unsigned long *nodes)
{
    int policy = -1;
    unsigned long mask[16] = {0};

    if (syscall(SYS_get_mempolicy, &policy, mask, 1024ul, pool->bytes, MPOL_F_ADDR) != 0)
        return -1;
    *nodes = mask[0];
    return policy;
}

TEST(the_pool_is_near_its_device)
{
    struct pool pool = {0};
    unsigned long nodes = 0;

    for (int node = -1; node <= 2048; node += 2049) { /* none, and an impossible one */
        assert_int_equal(pool_reserve_on_node(&pool, 1 << 20, node, NULL, NULL), SIDESTEP_OK);
        assert_true(policy_of(&pool, &nodes) <= 0);
        pool_release(&pool);
    }
    assert_int_equal(pool_reserve_on_node(&pool, 1 << 20, 0, NULL, NULL), SIDESTEP_OK);
    pool.bytes[0] = 1;
    int policy = policy_of(&pool, &nodes);
    pool_release(&pool);
    if (policy <= 0) {
        print_message("skipped: memory policies are not allowed here\n");
        skip();
    }
    assert_int_equal(policy, MPOL_PREFERRED);
    assert_int_equal(nodes, 1);
}
