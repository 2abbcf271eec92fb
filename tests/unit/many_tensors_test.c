/* SPDX-License-Identifier: BSD-3-Clause */
/* many_tensors_test.c -- what needs to be done once in a call is done once, however many tensors
 * there are: asking the system, above all. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/fault.h"
#include "support/one_rank.h"

static int setup(void **state)
{
    (void)state;
    return one_rank_begin(NULL);
}

static int teardown(void **state)
{
    (void)state;
    return one_rank_end();
}

static void count_looks(void)
{
    fault_arm("cuda.look", 1000000, false, ENOENT);
}

static void a_driver_is_looked_for_once_a_call(void **state)
{
    char path[256];

    (void)state;
    assert_true(world.count > 4);
    snprintf(path, sizeof(path), "%s/it", scratch.path);
    count_looks();
    ASSERT_OK(sidestep_engine_prepare(engine, world.state, &err));
    assert_int_equal(fault_hits(), 1);
    for (int i = 0; i < 2; i++) {
        world_fill(&world, 1);
        count_looks();
        ASSERT_OK(sidestep_save(engine, path, world.state, NULL, NULL, &err));
        assert_int_equal(fault_hits(), 1);
    }
    count_looks();
    ASSERT_OK(sidestep_load(engine, path, world.state, NULL, NULL, &err));
    assert_int_equal(fault_hits(), 1);
    fault_arm("", 0, false, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_driver_is_looked_for_once_a_call),
    };

    return cmocka_run_group_tests_name("many_tensors", tests, setup, teardown);
}
