/* SPDX-License-Identifier: BSD-3-Clause */
/* load_target_test.c -- a load into read-only memory names the tensor, reads nothing, and the
 * program goes on. */
#include <errno.h>
#include <sys/mman.h>

#include "support/held.h"

/* Tensors 0 and 1 of so many bytes; the last page of tensor 1 is read-only. */
static void expect_refused(size_t bytes, int protection)
{
    unsigned char *memory = map(2 * bytes), *loaded = map(2 * bytes);
    uint64_t *targets[] = {(uint64_t *)(void *)loaded, (uint64_t *)(void *)(loaded + bytes)};

    begin(SIDESTEP_SNAPSHOT_COPY);
    add(memory, bytes, 1, 0);
    add(memory + bytes, bytes, 1, 0);
    fill(1);
    expect_ok(start());
    expect_ok(finish());
    struct sidestep_state_dict *state = new_state(targets);
    assert_int_equal(mprotect(loaded + 2 * bytes - 4096, 4096, protection), 0);
    assert_int_equal(sidestep_load(job.engine, job.path, state, NULL, NULL, &job.err),
                     SIDESTEP_EINVAL);
    print_message("# %s\n", job.err.message);
    assert_non_null(strstr(job.err.message, "tensor 't1'"));
    assert_non_null(strstr(job.err.message, "may not be written"));
    assert_null(strstr(job.err.message, ".distcp"));
    for (size_t n = 0; n < WORDS(bytes); n++)
        assert_int_equal(targets[0][n], 0);
    assert_int_equal(mprotect(loaded + 2 * bytes - 4096, 4096, PROT_READ | PROT_WRITE), 0);
    expect_ok(sidestep_load(job.engine, job.path, state, NULL, NULL, &job.err));
    assert_int_equal(targets[1][1], job.tensors[1].words[1]);
    sidestep_state_dict_free(&state);
    end();
    munmap(memory, 2 * bytes);
    munmap(loaded, 2 * bytes);
}

TEST(small_tensors)
{
    expect_refused(8192, PROT_READ);
    expect_refused(8192, PROT_NONE);
}

TEST(large_tensors)
{
    expect_refused(8 * MIB, PROT_READ);
    expect_refused(8 * MIB, PROT_NONE);
}

/* If the kernel does not say, it is loaded. */
TEST(without_a_memory_map_the_load_goes_on)
{
    unsigned char *memory = map(MIB);

    begin(SIDESTEP_SNAPSHOT_COPY);
    add(memory, MIB, 1, 0);
    fill(1);
    expect_ok(start());
    expect_ok(finish());
    fault_arm("maps.open", 1, true, EACCES);
    expect_epoch(1);
    assert_non_null(fault_fired());
    fault_arm("", 0, false, 0);
    end();
    munmap(memory, MIB);
}

ALL_TESTS(setup, teardown);
