/* SPDX-License-Identifier: BSD-3-Clause */
/* comm_test.c -- collectives of one process and of several, in which ranks fail or die. */
#include <stdatomic.h>

#include "base/fault.h"
#include "base/owned.h"
#include "comm/comm.h"
#include "support/comm_threads.h"
#include "support/unit.h"

#define assert_ok(call) assert_int_equal((call), SIDESTEP_OK)
/* cmocka's assertions belong to the main thread: ranks return the line instead. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "rank %d: %s\n", comm.rank, #condition);                               \
            return __LINE__;                                                                       \
        }                                                                                          \
    } while (0)

static const int sizes[] = {1, 2, 3, 5};

static int no_values(void *context, uint64_t *values, size_t count)
{
    (void)context, (void)values, (void)count;
    return 0;
}
static int no_broadcast(void *context, void *buffer, size_t bytes, int32_t root)
{
    (void)context, (void)buffer, (void)bytes, (void)root;
    return 0;
}
static int no_gather(void *context, const void *send, size_t bytes, void *recv,
                     const size_t *sizes_)
{
    (void)context, (void)send, (void)bytes, (void)recv, (void)sizes_;
    return 0;
}
static int no_scatter(void *context, const void *send, const size_t *sizes_, void *recv,
                      size_t bytes)
{
    (void)context, (void)send, (void)bytes, (void)recv, (void)sizes_;
    return 0;
}

TEST(the_hosts_communicator_is_checked)
{
    static const struct {
        int32_t rank, size;
        size_t struct_size;
        bool has_callbacks;
        enum sidestep_status status;
        const char *words;
    } cases[] = {
        {0, 1, sizeof(struct sidestep_comm), false, SIDESTEP_OK, NULL},
        {1, 2, sizeof(struct sidestep_comm), true, SIDESTEP_OK, NULL},
        {0, SIDESTEP_MAX_RANKS, sizeof(struct sidestep_comm), true, SIDESTEP_OK, NULL},
        {0, SIDESTEP_MAX_RANKS + 1, sizeof(struct sidestep_comm), true, SIDESTEP_EINVAL,
         "comm.size is 1048577"},
        {0, 0, sizeof(struct sidestep_comm), true, SIDESTEP_EINVAL, "comm.size is 0"},
        {0, -3, sizeof(struct sidestep_comm), true, SIDESTEP_EINVAL, "comm.size is -3"},
        {2, 2, sizeof(struct sidestep_comm), true, SIDESTEP_EINVAL, "comm.rank is 2, not 0 to 1"},
        {-1, 2, sizeof(struct sidestep_comm), true, SIDESTEP_EINVAL, "comm.rank is -1"},
        {0, 2, sizeof(struct sidestep_comm), false, SIDESTEP_EINVAL, "lacks a callback"},
        {0, 1, 0, true, SIDESTEP_EINVAL, "comm.struct_size is 0"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct sidestep_error err = {0};
        struct comm comm;
        struct sidestep_comm host = {
            .struct_size = cases[i].struct_size, .rank = cases[i].rank, .size = cases[i].size};
        if (cases[i].has_callbacks) {
            host.all_reduce_max = no_values;
            host.broadcast = no_broadcast;
            host.gather = no_gather;
            host.scatter = no_scatter;
        }
        assert_int_equal(comm_init(&comm, &host, &err), cases[i].status);
        if (cases[i].words != NULL)
            assert_non_null(strstr(err.message, cases[i].words));
    }
}

TEST(a_single_process_needs_no_callbacks)
{
    struct sidestep_error err = {0};
    OWNED_BY(comm_parts_release) struct comm_parts parts = {0};
    uint64_t value = 7;
    OWNED void *received = NULL;
    size_t bytes = 0;
    struct comm comm;

    assert_ok(comm_init(&comm, NULL, &err));
    assert_int_equal(comm.size, 1);
    assert_ok(comm_reduce_max_all(&comm, &value, 1, &err));
    assert_int_equal(value, 7);
    assert_ok(comm_broadcast_all(&comm, &value, sizeof(value), 0, &err));
    assert_ok(comm_gather_all(&comm, "hello", 5, &parts, &err));
    assert_int_equal(parts.sizes[0], 5);
    assert_memory_equal(parts.bytes, "hello", 5);
    assert_ok(comm_scatter_all(&comm, &parts, &received, &bytes, &err));
    assert_int_equal(bytes, 5);
    assert_memory_equal(received, "hello", 5);
    assert_ok(comm_agree_all(&comm, SIDESTEP_OK, &err));
    (void)FAIL(&err, SIDESTEP_EIO, "disk gone");
    assert_int_equal(comm_agree_all(&comm, SIDESTEP_EIO, &err), SIDESTEP_EIO);
    assert_string_equal(err.message, "disk gone");
    assert_int_equal(err.rank, -1);
}

/* ---- several ranks */

/* Rank r sends 3 r bytes of value r. */
static int move_bytes(struct sidestep_comm *host, void *context)
{
    OWNED_BY(comm_parts_release) struct comm_parts parts = {0};
    unsigned char mine[64];
    OWNED void *received = NULL;
    struct sidestep_error err = {0};
    size_t bytes = 0;
    struct comm comm;

    (void)context;
    CHECK(comm_init(&comm, host, &err) == SIDESTEP_OK);
    memset(mine, comm.rank, sizeof(mine));
    size_t size = (size_t)comm.rank * 3;
    CHECK(comm_gather_all(&comm, mine, size, &parts, &err) == SIDESTEP_OK);
    CHECK((parts.bytes != NULL) == (comm.rank == 0));
    for (int r = 0; comm.rank == 0 && r < comm.size; r++) {
        CHECK(parts.sizes[r] == (size_t)r * 3);
        for (size_t i = 0; i < parts.sizes[r]; i++)
            CHECK(parts.bytes[parts.offsets[r] + i] == r);
    }
    CHECK(comm_scatter_all(&comm, &parts, &received, &bytes, &err) == SIDESTEP_OK);
    CHECK(bytes == size && received != NULL && memcmp(received, mine, size) == 0);
    uint64_t values[] = {(uint64_t)comm.rank, (uint64_t)(comm.size - comm.rank), UINT64_MAX};
    CHECK(comm_reduce_max_all(&comm, values, 3, &err) == SIDESTEP_OK);
    CHECK(values[0] == (uint64_t)comm.size - 1 && values[1] == (uint64_t)comm.size);
    CHECK(values[2] == UINT64_MAX);
    for (int32_t root = 0; root < comm.size; root++) {
        int32_t said = comm.rank * 100;
        CHECK(comm_broadcast_all(&comm, &said, sizeof(said), root, &err) == SIDESTEP_OK);
        CHECK(said == root * 100);
    }
    return 0;
}

TEST(bytes_go_where_they_belong)
{
    for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++)
        assert_int_equal(comm_threads_run(sizes[i], move_bytes, NULL), 0);
}

/* Ranks whose bit is set in ${*context} failed. */
static int vote(struct sidestep_comm *host, void *context)
{
    unsigned failing = *(unsigned *)context;
    struct sidestep_error err = {0};
    enum sidestep_status mine = SIDESTEP_OK;
    char words[64];
    struct comm comm;

    CHECK(comm_init(&comm, host, &err) == SIDESTEP_OK);
    int lowest = failing != 0 ? __builtin_ctz(failing) : -1;
    if (failing >> comm.rank & 1)
        mine = error_set(&err, SIDESTEP_ENOSPC, ENOSPC, HERE, "write on %d", comm.rank);
    enum sidestep_status got = comm_agree_all(&comm, mine, &err);
    if (failing == 0)
        CHECK(got == SIDESTEP_OK && err.status == SIDESTEP_OK);
    else if (comm.rank == lowest)
        CHECK(got == SIDESTEP_ENOSPC && err.rank == -1 && strncmp(err.message, "write", 5) == 0);
    else {
        snprintf(words, sizeof(words), "rank %d: write on %d: No space left on device", lowest,
                 lowest);
        CHECK(got == SIDESTEP_ENOSPC && err.status == SIDESTEP_ENOSPC);
        CHECK(err.rank == lowest && err.sys_errno == ENOSPC && strcmp(err.message, words) == 0);
    }
    /* Callers may pass NULL for the error, on the failing rank and on the others. */
    got = comm_agree_all(&comm, mine, NULL);
    CHECK(got == (failing != 0 ? SIDESTEP_ENOSPC : SIDESTEP_OK));
    return 0;
}

TEST(a_vote_tells_the_lowest_failure_to_all)
{
    for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++)
        for (unsigned failing = 0; failing < 1u << sizes[i]; failing++)
            assert_int_equal(comm_threads_run(sizes[i], vote, &failing), 0);
}

/* Rank 2 reports an error that it got from rank 1: the error names rank 1, once. */
static int relay(struct sidestep_comm *host, void *context)
{
    struct sidestep_error err = {0};
    enum sidestep_status mine = SIDESTEP_OK;
    struct comm comm;

    (void)context;
    CHECK(comm_init(&comm, host, &err) == SIDESTEP_OK);
    if (comm.rank == 2) {
        mine = FAIL(&err, SIDESTEP_EPEER, "rank 1: disk gone");
        err.rank = 1;
    }
    CHECK(comm_agree_all(&comm, mine, &err) == SIDESTEP_EPEER);
    CHECK(err.rank == 1 && strcmp(err.message, "rank 1: disk gone") == 0);
    /* If a rank has no error, the others get the text of its status. */
    CHECK(comm_agree_all(&comm, comm.rank == 0 ? SIDESTEP_EBUSY : SIDESTEP_OK, &err) ==
          SIDESTEP_EBUSY);
    CHECK(comm.rank == 0 || strcmp(err.message, "rank 0: another save is in flight") == 0);
    return 0;
}

TEST(a_relayed_failure_keeps_its_rank)
{
    assert_int_equal(comm_threads_run(3, relay, NULL), 0);
}

/* Gather, scatter and vote; the statuses as bits: 1 success, 2 ENOMEM, 4 EPEER, 8 other. */
struct outcome {
    atomic_uint bits;
    atomic_ulong calls;
};

static int talk(struct sidestep_comm *host, void *context)
{
    OWNED_BY(comm_parts_release) struct comm_parts parts = {0};
    struct outcome *outcome = context;
    OWNED void *received = NULL;
    struct sidestep_error err = {0};
    uint64_t value = 1;
    size_t bytes;
    struct comm comm;

    CHECK(comm_init(&comm, host, &err) == SIDESTEP_OK);
    enum sidestep_status status = comm_gather_all(&comm, "abc", 3, &parts, &err);
    if (status == SIDESTEP_OK)
        status = comm_scatter_all(&comm, &parts, &received, &bytes, &err);
    if (status == SIDESTEP_OK)
        status = comm_reduce_max_all(&comm, &value, 1, &err);
    if (status == SIDESTEP_OK)
        status = comm_broadcast_all(&comm, &value, sizeof(value), 0, &err);
    CHECK(status == SIDESTEP_OK || err.message[0] != '\0');
    outcome->bits |= status == SIDESTEP_OK       ? 1u
                     : status == SIDESTEP_ENOMEM ? 2u
                     : status == SIDESTEP_EPEER  ? 4u
                                                 : 8u;
    if (comm.rank == 0)
        outcome->calls = comm_threads_calls(host);
    return 0;
}

TEST(short_memory_on_one_rank_fails_all)
{
    unsigned long fired = 0;

    for (unsigned long n = 1;; n++) {
        struct outcome outcome = {0};
        fault_arm("memory", n, false, ENOMEM);
        assert_int_equal(comm_threads_run(3, talk, &outcome), 0);
        bool has_fired = fault_fired() != NULL;
        fault_arm("", 0, false, 0);
        assert_int_equal(outcome.bits, has_fired ? 2u : 1u);
        if (!has_fired)
            break;
        fired++;
    }
    assert_true(fired >= 10);
}

TEST(a_dying_rank_fails_all)
{
    struct outcome whole = {0};

    assert_int_equal(comm_threads_run(3, talk, &whole), 0);
    assert_int_equal(whole.bits, 1);
    assert_int_equal(whole.calls, 10);
    for (int rank = 0; rank < 3; rank++)
        for (unsigned long nth = 1; nth <= whole.calls; nth++) {
            struct outcome outcome = {0};
            assert_int_equal(comm_threads_run_dying(3, rank, nth, talk, &outcome), 0);
            assert_int_equal(outcome.bits, 4);
        }
}

/* The control of the rig: ranks that make different calls are noticed, and do not hang. */
static int disagree(struct sidestep_comm *host, void *context)
{
    struct sidestep_error err = {0};
    uint64_t value = 0;
    struct comm comm;

    (void)context;
    CHECK(comm_init(&comm, host, &err) == SIDESTEP_OK);
    enum sidestep_status status = comm.rank == 1
                                      ? comm_broadcast_all(&comm, &value, sizeof(value), 0, &err)
                                      : comm_reduce_max_all(&comm, &value, 1, &err);
    CHECK(status == SIDESTEP_EPEER);
    CHECK(strcmp(err.message, comm.rank == 1 ? "collective 'broadcast' failed"
                                             : "collective 'all_reduce_max' failed") == 0);
    return 0;
}

TEST(ranks_with_different_calls_are_detected)
{
    assert_int_equal(comm_threads_run(3, disagree, NULL), 0);
}
