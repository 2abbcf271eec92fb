/* SPDX-License-Identifier: BSD-3-Clause */
/* store_bench.h -- for tests: makes each kind of store, with a root directory. */
#ifndef SUPPORT_STORE_BENCH_H
#define SUPPORT_STORE_BENCH_H

#include <stdint.h>
#include <stdlib.h>

#include "base/fault.h"
#include "support/scratch.h"
#include "support/store_fault.h"
#include "support/store_sim.h"

enum backend_kind { ON_DISK, ON_TMPFS, FAULT, SIM };

/* A root directory of the store under test. */
struct bench {
    enum backend_kind kind;
    struct scratch scratch;
    struct sim *sim;
    struct store *fault;
    struct store *store;
    struct store_dir *root;
    struct sidestep_error err;
};

static inline int bench_open(struct bench *b, enum backend_kind kind)
{
    *b = (struct bench){.kind = kind};
    if (kind == SIM) {
        b->sim = sim_new(0);
        b->store = sim_store(b->sim, 0);
        return (int)store_dir_open(b->store, NULL, "/", &b->root, NULL);
    }
    if (!scratch_make(&b->scratch, kind == ON_TMPFS ? "/dev/shm" : NULL))
        return -1;
    b->store = store_posix();
    if (kind == FAULT)
        b->store = b->fault = store_fault_new(store_posix());
    return (int)store_dir_open(b->store, NULL, b->scratch.path, &b->root, NULL);
}

static inline void bench_close(struct bench *b)
{
    fault_arm("", 0, false, 0);
    store_dir_close(b->root);
    if (b->fault != NULL)
        store_fault_free(&b->fault);
    sim_free(&b->sim);
    scratch_remove(&b->scratch);
}

#endif
