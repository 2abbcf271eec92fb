/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lock.h -- mutexes whose use is checked: which fields they guard, which functions need them, and
 * in which order they are acquired.  Also: which thread owns a field without a lock.
 *
 * The compiler checks the annotations: tools/check-source runs clang's thread-safety analysis
 * (https://clang.llvm.org/docs/ThreadSafetyAnalysis.html).  Other compilers see no annotations.
 * The analysis looks at one function at a time, and cannot tell two locks of one kind apart in
 * GUARDED_BY.  So the builds for tests also assert the order when they acquire a lock.
 */
#ifndef BASE_LOCK_H
#define BASE_LOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef SIDESTEP_LOCK_ANALYSIS
#define LOCK_ATTRIBUTE(...) __attribute__((__VA_ARGS__))
#else
#define LOCK_ATTRIBUTE(...)
#endif

#define CAPABILITY(kind) LOCK_ATTRIBUTE(capability(kind))
/* A field: may be read and written only by a thread that holds the lock. */
#define GUARDED_BY(...) LOCK_ATTRIBUTE(guarded_by(__VA_ARGS__))
/* A function: the caller holds the lock before and after the call.  The function may release it in
 * the meantime. */
#define REQUIRES(...) LOCK_ATTRIBUTE(requires_capability(__VA_ARGS__))
/* A function that returns with the lock held, and one that releases it. */
#define ACQUIRE(...) LOCK_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define RELEASE(...) LOCK_ATTRIBUTE(release_capability(__VA_ARGS__))
/* A function: the caller does not hold the lock, because the function acquires it. */
#define EXCLUDES(...) LOCK_ATTRIBUTE(locks_excluded(__VA_ARGS__))
/* A function that is not checked.  A comment says why. */
#define LOCK_UNCHECKED LOCK_ATTRIBUTE(no_thread_safety_analysis)

/*
 * All locks, the innermost first: X(kind, next kind inside it).  A thread that holds one acquires
 * only locks that stand above it, and never two of one kind.
 */
#define LOCK_KINDS(X)                                                                              \
    X(FAULT, NONE)             /* base/fault.c: fault points of tests */                           \
    X(EVENTS, FAULT)           /* engine/events.h: logs of open series */                          \
    X(STORE, EVENTS)           /* store/store_posix_lock.c: descriptors that carry file locks */   \
    X(TRANSPORT, STORE)        /* object/transport.c: calls of the driver thread */                \
    X(CREDENTIALS, TRANSPORT)  /* object/credentials.c */                                          \
    X(CLIENT, CREDENTIALS)     /* object/client_internal.h: requests in flight */                  \
    X(OBJECT_WRITER, CLIENT)   /* object/object_writer.c: parts of one object */                   \
    X(KEEPER, OBJECT_WRITER)   /* commit/object_keeper.c */                                        \
    X(BUCKETS, KEEPER)         /* engine/buckets.h */                                              \
    X(RANKS, BUCKETS)          /* comm/local_ranks.c */                                            \
    X(WORKERS, RANKS)          /* base/workers.c: jobs and copies of them */                       \
    X(BUDGET, WORKERS)         /* base/budget.h */                                                 \
    X(POOL_SLOTS, BUDGET)      /* snapshot/pool_slots.c */                                         \
    X(COW, POOL_SLOTS)         /* snapshot/cow_internal.h */                                       \
    X(OFFLOAD, COW)            /* snapshot/offload.h */                                            \
    X(THROTTLE, OFFLOAD)       /* engine/throttle.h */                                             \
    X(PIPELINE, THROTTLE)      /* save/pipeline.h: the windows of a save */                        \
    X(INCREMENTAL, PIPELINE)   /* save/incremental.c: which file is linked */                      \
    X(SAVE, INCREMENTAL)       /* save/save.h: the state of a save */                              \
    X(DECODERS, SAVE)          /* load/compressed_item.h */                                        \
    X(TENSOR_READER, DECODERS) /* load/tensor_reader.c */                                          \
    X(FETCH, TENSOR_READER)    /* load/fetch.c */                                                  \
    X(STATS, FETCH)            /* inspect/checkpoint_stats.c, diff_data.c */                       \
    X(VERIFY, STATS)           /* verify/verify.c */                                               \
    X(CONVERT_WRITE, VERIFY)   /* convert/convert_write.c */                                       \
    X(CONVERT, CONVERT_WRITE)  /* convert/convert.h */                                             \
    X(COPY, CONVERT)           /* copy/copy.h */                                                   \
    X(SERIES, COPY)            /* series/series.h */                                               \
    X(PRUNE, SERIES)           /* series/series.h: held while checkpoints are deleted */

enum lock_kind {
#define LOCK_KIND_ENUM(kind, next) LOCK_##kind,
    LOCK_KINDS(LOCK_KIND_ENUM)
#undef LOCK_KIND_ENUM
};

/*
 * Threads that own fields, so that these need no lock: X(owner).  A field is OWNED_BY_THREAD, and a
 * function that uses it runs ON_THREAD.  The chain of callers begins where THREAD_IS says which
 * thread this is, or that no other thread can reach what it owns.
 */
#define THREAD_OWNERS(X)                                                                           \
    X(CALLER)   /* the thread of the program that calls collective functions */                    \
    X(RUNNER)   /* save/save_runner.c: the runner of the save that is written now */               \
    X(APPENDER) /* save/compressor.c: the thread that appends to the shard now */

#define OWNED_BY_THREAD(owner) GUARDED_BY(thread_##owner)
#define ON_THREAD(owner) REQUIRES(thread_##owner)
#ifdef SIDESTEP_LOCK_ANALYSIS
struct CAPABILITY("thread") thread_owner;
#define THREAD_OWNER_DECLARE(owner)                                                                \
    extern struct thread_owner thread_##owner;                                                     \
    void thread_is_##owner(void) LOCK_ATTRIBUTE(assert_capability(thread_##owner));
THREAD_OWNERS(THREAD_OWNER_DECLARE)
#undef THREAD_OWNER_DECLARE
#define THREAD_IS(owner) thread_is_##owner()
#else
#define THREAD_IS(owner) ((void)0)
#endif

struct CAPABILITY("lock") lock {
    pthread_mutex_t mutex;
    enum lock_kind kind;
};
/* Tells the analysis the kind of a lock in a struct: "struct lock lock LOCK_KIND(SAVE);". */
#define LOCK_KIND(kind)                                                                            \
    LOCK_ATTRIBUTE(acquired_after(&lock_before_##kind))                                            \
    LOCK_ATTRIBUTE(acquired_before(&lock_after_##kind))
/* Initializes a static lock. */
#define LOCK_INITIALIZER(its_kind)                                                                 \
    {                                                                                              \
        .mutex = PTHREAD_MUTEX_INITIALIZER, .kind = LOCK_##its_kind                                \
    }

#ifdef SIDESTEP_LOCK_ANALYSIS
extern struct lock lock_before_NONE;
#define LOCK_KIND_DECLARE(kind, next)                                                              \
    extern struct lock lock_after_##kind LOCK_ATTRIBUTE(acquired_before(&lock_before_##next));     \
    extern struct lock lock_before_##kind LOCK_ATTRIBUTE(acquired_before(&lock_after_##kind));
LOCK_KINDS(LOCK_KIND_DECLARE)
#undef LOCK_KIND_DECLARE
#endif

void lock_init(struct lock *lock, enum lock_kind kind);
void lock_destroy(struct lock *lock);
void lock_acquire(struct lock *lock) ACQUIRE(lock);
void lock_release(struct lock *lock) RELEASE(lock);
/* Tells the analysis that only the calling thread can reach what the lock guards, until that
 * thread leaves the function that calls this: the object is new, or about to be freed, or all other
 * threads have ended. */
static inline void lock_alone(const struct lock *lock) LOCK_ATTRIBUTE(assert_capability(lock));
static inline void lock_alone(const struct lock *lock)
{
    (void)lock;
}

/* What a thread that holds a lock waits for, until another thread changes what the lock guards. */
struct lock_condition {
    pthread_cond_t condition;
};
void lock_condition_init(struct lock_condition *condition);
void lock_condition_destroy(struct lock_condition *condition);
/* Release the lock, wait, acquire it again.  May return although nothing has changed. */
void lock_wait(struct lock *lock, struct lock_condition *condition) REQUIRES(lock);
/* The same, until ${until_ns} of CLOCK_MONOTONIC at most.  False: that time has come. */
bool lock_wait_until(struct lock *lock, struct lock_condition *condition, uint64_t until_ns)
    REQUIRES(lock);
/* Wake all threads that wait. */
void lock_wake_all(struct lock_condition *condition);

#endif
