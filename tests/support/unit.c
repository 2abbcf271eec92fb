/* SPDX-License-Identifier: BSD-3-Clause */
/* unit.c -- the main() of unit tests: runs what TEST() of unit.h added. */
#include "support/unit.h"

#include <errno.h>

#define MAX_TESTS 100

__attribute__((weak)) const struct unit_hooks unit_each, unit_all;

static struct unit_test *first; /* the tests, by line */

void unit_add(struct unit_test *test)
{
    struct unit_test **place = &first;

    while (*place != NULL && (*place)->line < test->line)
        place = &(*place)->next;
    test->next = *place;
    *place = test;
}

int main(void)
{
    struct CMUnitTest tests[MAX_TESTS];
    size_t count = 0;

    for (const struct unit_test *each = first; each != NULL; each = each->next) {
        if (count == MAX_TESTS) {
            fprintf(stderr, "%s has more than %d tests\n", program_invocation_name, MAX_TESTS);
            return 1;
        }
        tests[count] = each->test;
        if (each->test.setup_func == NULL && each->test.teardown_func == NULL) {
            tests[count].setup_func = unit_each.setup;
            tests[count].teardown_func = unit_each.teardown;
        }
        count++;
    }
    if (count == 0)
        fprintf(stderr, "%s has no test\n", program_invocation_name);
    cmocka_set_test_filter(getenv("SIDESTEP_ONLY"));
    return count == 0 || _cmocka_run_group_tests(program_invocation_short_name, tests, count,
                                                 unit_all.setup, unit_all.teardown);
}
