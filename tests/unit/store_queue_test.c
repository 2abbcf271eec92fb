/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store_queue_test.c -- requests in flight, with a ring and without, on every store. Each comes
 * back once and complete, even if the kernel does it in parts, out of order, or not at all.
 */
#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/fault.h"
#include "store/store_queue.h"
#include "store/store_ring.h"
#include "support/prng.h"
#include "support/store_bench.h"
#include "support/unit.h"

#define PIECE ((size_t)256 << 10)
#define PIECES 24u
#define BYTES (PIECE * PIECES)

struct rig {
    struct bench bench;
    struct store_file *file;
    unsigned char *memory, *seen;
};

static unsigned char *map(void)
{
    unsigned char *memory =
        mmap(NULL, BYTES + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(memory != MAP_FAILED);
    return memory;
}

static int setup(void **state)
{
    struct rig *r = calloc(1, sizeof(*r));
    enum backend_kind kind = (enum backend_kind)(uintptr_t)*state;

    *state = r;
    r->memory = map();
    r->seen = map();
    for (size_t i = 0; i < BYTES / 8; i++)
        ((uint64_t *)(void *)r->memory)[i] = i * 0x9e3779b97f4a7c15u;
    return bench_open(&r->bench, kind);
}

static int teardown(void **state)
{
    struct rig *r = *state;

    fault_arm("", 0, false, 0);
    store_file_discard(r->file);
    bench_close(&r->bench);
    munmap(r->memory, BYTES + 4096);
    munmap(r->seen, BYTES + 4096);
    free(r);
    return 0;
}

static void create(struct rig *r)
{
    assert_int_equal(store_file_create(r->bench.root, "f", STORE_DIRECT, &r->file, &r->bench.err),
                     SIDESTEP_OK);
    if (r->bench.kind != SIM)
        assert_int_equal(store_file_truncate(r->file, BYTES, &r->bench.err), SIDESTEP_OK);
}

struct moved {
    unsigned ok, failed, ring;
    struct sidestep_error err; /* of one that failed */
};

static void count(struct moved *m, const struct store_request *request, bool *back)
{
    assert_non_null(request);
    assert_false(back[request->tag]);
    back[request->tag] = true;
    if (request->status == SIDESTEP_OK) {
        m->ok++;
        return;
    }
    m->failed++;
    m->err = request->err;
    assert_int_equal(request->err.status, request->status);
}

/* Read or write all pieces in random order, with as many in flight as the queue takes; polls for
 * some. ${skew}: misaligns memory or file by so many bytes. */
static struct moved move(struct rig *r, bool is_write, unsigned depth, bool ring, size_t skew)
{
    const struct store_queue_config kind = {.ring = ring, .depth = depth};
    struct store_request requests[PIECES];
    bool back[PIECES] = {false};
    unsigned order[PIECES];
    struct store_queue queue;
    struct moved m = {0};

    for (unsigned i = 0; i < PIECES; i++)
        order[i] = (i * 7) % PIECES;
    store_queue_open(&queue, &kind, 1);
    for (unsigned i = 0; i < PIECES; i++) {
        if (!store_queue_has_room(&queue))
            count(&m, store_queue_wait(&queue), back);
        size_t at = order[i] * PIECE;
        requests[i] = (struct store_request){
            .file = r->file,
            .memory = (is_write ? r->memory : r->seen) + at + skew,
            .bytes = PIECE - (skew != 0 && order[i] == PIECES - 1 ? skew : 0),
            .offset = at + skew,
            .is_write = is_write,
            .tag = order[i]};
        store_queue_submit(&queue, &requests[i]);
        struct store_request *done = i % 3 == 0 ? store_queue_poll(&queue) : NULL;
        if (done != NULL)
            count(&m, done, back);
    }
    while (queue.in_flight != 0)
        count(&m, store_queue_wait(&queue), back);
    assert_null(store_queue_poll(&queue));
    assert_null(store_queue_wait(&queue));
    m.ring = queue.ring_count;
    store_queue_close(&queue);
    assert_int_equal(m.ok + m.failed, PIECES);
    return m;
}

static bool has_ring(void)
{
    return store_ring_probe() == 0;
}

static void expect_equal(struct rig *r, size_t skew)
{
    assert_memory_equal(r->memory + skew, r->seen + skew, BYTES - skew);
    memset(r->seen, 0, BYTES);
}

static void requests_move_every_byte(void **state)
{
    static const unsigned depths[] = {1, 2, 8, STORE_QUEUE_MAX_DEPTH};
    struct rig *r = *state;

    create(r);
    bool direct = store_file_alignment(r->file) != 0 && r->bench.kind != SIM;
    for (size_t skew = 0; skew <= 24; skew += 24)
        for (size_t i = 0; i < 4; i++)
            for (int ring = 0; ring <= 1; ring++) {
                struct moved w = move(r, true, depths[i], ring != 0, skew);
                assert_int_equal(w.ok, PIECES);
                struct moved m = move(r, false, depths[i], ring != 0, skew);
                assert_int_equal(m.ok, PIECES);
                /* The ring is used if possible, and only then: the control of all tests below. */
                unsigned expected = ring != 0 && skew == 0 && direct && has_ring() ? PIECES : 0;
                assert_int_equal(w.ring, expected);
                assert_true(m.ring == expected || r->bench.kind == ON_TMPFS);
                expect_equal(r, skew);
            }
}

/* The n-th result is halved: calls do the rest. */
static void short_results_are_completed(void **state)
{
    struct rig *r = *state;

    create(r);
    for (unsigned nth = 1; nth <= PIECES; nth += 5) {
        bool hit = has_ring() && store_file_alignment(r->file) != 0 && r->bench.kind != SIM;
        memset(r->memory + nth, (int)nth, PIECE);
        fault_arm("ring.short", nth, true, 0);
        assert_int_equal(move(r, true, 8, true, 0).ok, PIECES);
        assert_true((fault_fired() != NULL) == hit);
        assert_int_equal(move(r, false, 8, true, 0).ok, PIECES);
        fault_arm("", 0, false, 0);
        expect_equal(r, 0);
    }
}

/* A full disk or a bad sector fails one request, and its error says where. Errors of the ring
 * itself are avoided with calls. */
static void failed_results_are_reported(void **state)
{
    static const struct {
        int sys_errno;
        enum sidestep_status status; /* OK: it is retried */
    } cases[] = {{EIO, SIDESTEP_EIO},   {ENOSPC, SIDESTEP_ENOSPC}, {EAGAIN, SIDESTEP_OK},
                 {EINTR, SIDESTEP_OK},  {ECANCELED, SIDESTEP_OK},  {EOPNOTSUPP, SIDESTEP_OK},
                 {EINVAL, SIDESTEP_OK}, {EDQUOT, SIDESTEP_ENOSPC}};
    struct rig *r = *state;

    create(r);
    if (!has_ring() || store_file_alignment(r->file) == 0 || r->bench.kind == SIM)
        return;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fault_arm("ring.result", 1 + i, false, cases[i].sys_errno);
        struct moved m = move(r, true, 8, true, 0);
        assert_non_null(fault_fired());
        assert_int_equal(m.failed, cases[i].status != SIDESTEP_OK);
        if (m.failed != 0) {
            assert_int_equal(m.err.status, cases[i].status);
            assert_int_equal(m.err.sys_errno, cases[i].sys_errno);
            assert_non_null(strstr(m.err.message, "write 262144 bytes at "));
            assert_non_null(strstr(m.err.message, "'f'"));
        }
        fault_arm("", 0, false, 0);
    }
}

/* If the kernel refuses the ring at any moment, the queue goes on without it. */
static void rings_may_be_refused(void **state)
{
    static const char *const points[] = {"ring.setup", "ring.start", "memory"};
    struct rig *r = *state;

    create(r);
    for (size_t i = 0; i < 3; i++)
        for (unsigned nth = 1; nth <= 3; nth++) {
            fault_arm(points[i], nth, true, EPERM);
            struct moved m = move(r, true, 8, true, 0);
            fault_arm("", 0, false, 0);
            if (r->bench.kind == SIM && i == 2)
                continue; /* it allocates in each write */
            assert_int_equal(m.ok, PIECES);
            if (i != 1 && nth == 1)
                assert_int_equal(m.ring, 0);
        }
}

/* A queue is closed with requests in flight: the memory is free when it returns. */
static void closing_waits(void **state)
{
    const struct store_queue_config kind = {.ring = true, .depth = 8};
    struct store_request requests[8];
    struct store_queue queue;
    struct rig *r = *state;

    create(r);
    for (unsigned started = 0; started <= 8; started++) {
        store_queue_open(&queue, &kind, 1);
        for (unsigned i = 0; i < started && store_queue_has_room(&queue); i++) {
            requests[i] = (struct store_request){.file = r->file,
                                                 .memory = r->memory + i * PIECE,
                                                 .bytes = PIECE,
                                                 .offset = i * PIECE,
                                                 .is_write = true};
            store_queue_submit(&queue, &requests[i]);
        }
        store_queue_close(&queue);
        assert_int_equal(queue.in_flight, 0);
        assert_null(queue.ring);
    }
}

/* No SIGXFSZ, also with a ring; the file does not exceed the limit. */
static void size_limits_are_errors(void **state)
{
    struct rig *r = *state;
    struct rlimit before, limit;

    if (r->bench.kind == SIM)
        return;
    create(r);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 4 * PIECE;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    struct moved m = move(r, true, 8, true, 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(m.ok, 4);
    assert_int_equal(m.err.status, SIDESTEP_ENOSPC);
    assert_int_equal(m.err.sys_errno, EFBIG);
}

static void reads_past_the_end_are_corrupt(void **state)
{
    struct rig *r = *state;

    create(r);
    assert_int_equal(move(r, true, 8, true, 0).ok, PIECES);
    assert_int_equal(store_file_truncate(r->file, BYTES - PIECE - 4096, &r->bench.err),
                     SIDESTEP_OK);
    struct moved m = move(r, false, 8, true, 0);
    assert_int_equal(m.failed, 2);
    assert_int_equal(m.err.status, SIDESTEP_ECORRUPT);
}

#define ON(test, kind)                                                                             \
    {                                                                                              \
#test " (" #kind ")", test, setup, teardown, (void *)(uintptr_t)(kind)                     \
    }
#define ON_ALL(test) ON(test, ON_DISK), ON(test, ON_TMPFS), ON(test, FAULT), ON(test, SIM)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_ALL(requests_move_every_byte),
        ON_ALL(short_results_are_completed),
        ON_ALL(failed_results_are_reported),
        ON_ALL(rings_may_be_refused),
        ON_ALL(closing_waits),
        ON_ALL(size_limits_are_errors),
        ON_ALL(reads_past_the_end_are_corrupt),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
