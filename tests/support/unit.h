/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * unit.h -- cmocka, the headers that it needs before it, and those that nearly every test uses.
 *
 * A test is written as TEST(what_it_shows) { ... }.  Nothing else lists it: the main() of unit.c
 * runs all tests of the program, in the order of its file.  SIDESTEP_ONLY=PATTERN runs some.
 */
#ifndef SUPPORT_UNIT_H
#define SUPPORT_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* cmocka 2 has it by another name, and warns of this one. */
#ifdef assert_uint_in_range
#undef assert_in_range
#define assert_in_range assert_uint_in_range
#endif

struct unit_test {
    struct CMUnitTest test;
    int line;
    struct unit_test *next; /* the next test of the file */
};

struct unit_hooks {
    CMFixtureFunction setup, teardown; /* either may be NULL */
};

/* Hooks around each test that has none of its own (EACH_TEST), and around all tests (ALL_TESTS). */
extern const struct unit_hooks unit_each, unit_all;

/* Add ${test}, which stays where it is, to those that main() runs. */
void unit_add(struct unit_test *test);

/* ${*fixture} is what the test's setup put there. */
#define TEST_WITH(name, setup, teardown)                                                           \
    static void name(void **fixture);                                                              \
    __attribute__((constructor)) static void name##_is_a_test(void)                                \
    {                                                                                              \
        static struct unit_test test = {{#name, name, setup, teardown, NULL}, __LINE__, NULL};     \
        unit_add(&test);                                                                           \
    }                                                                                              \
    static void name(void **fixture __attribute__((unused)))

#define TEST(name) TEST_WITH(name, NULL, NULL)
#define EACH_TEST(setup, teardown) const struct unit_hooks unit_each = {setup, teardown}
#define ALL_TESTS(setup, teardown) const struct unit_hooks unit_all = {setup, teardown}

#endif
