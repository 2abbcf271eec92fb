/* SPDX-License-Identifier: BSD-3-Clause */
/* standin_inside.h -- the stand-in's devices, memory, streams and events, all under one lock. */
#ifndef CUDA_STANDIN_INSIDE_H
#define CUDA_STANDIN_INSIDE_H

#include <pthread.h>
#include <sys/types.h>

#include "standin.h"

#define EXPORT __attribute__((visibility("default")))

enum {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400,
    LAUNCH_FAILED = 719,
    CAPTURE_UNSUPPORTED = 900,
    ALREADY_REGISTERED = 712,
    NOT_REGISTERED = 713,
    CAPTURE_ISOLATION = 905,
    CAPTURE_IMPLICIT = 906,
};

enum { MAX_THINGS = 4096, MAX_DEPTH = 16 };

struct memory {
    uint8_t *address; /* the address that the program has: no access */
    uint8_t *alias;   /* the same pages, for streams */
    size_t bytes;
    size_t mapped_bytes;
    int device;
    bool managed; /* the host may use it, too */
    bool plain;   /* of cuMemAlloc() */
    bool to_come; /* allocated in stream order, and the stream is not there yet */
};

struct event {
    int device;
    bool destroyed;
    unsigned uses;     /* queued operations that reference it keep it alive */
    uint64_t recorded; /* how often it was recorded */
    uint64_t reached;
};

enum kind { COPY, WAIT, RECORD, KERNEL, ALLOCATE, FREE };

struct operation {
    enum kind kind;
    struct operation *next;
    /* COPY */
    uint8_t *host;
    uint8_t *device_address;
    size_t bytes, rows, host_pitch, device_pitch;
    bool to_device;
    bool staged; /* ${host} is the operation's own copy */
    /* WAIT, RECORD */
    struct event *event;
    uint64_t turn;
    /* KERNEL */
    void (*kernel)(void *memory, size_t bytes, void *context);
    void *context;
};

struct stream {
    int device;
    bool of_program;
    bool blocking; /* the legacy default stream waits for it, and it for that one */
    bool foreign;  /* of another context, which has events of its own */
    bool capturing;
    bool ending;
    bool started;
    pthread_t thread;
    struct operation *first, **last; /* the first one is being done */
};

struct range {
    uint8_t *begin;
    size_t bytes;
};

struct state {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned resets;
    /* reset() clears this and what follows. */
    int devices;
    pid_t process;
    unsigned long forked_calls; /* of a child: all except queries */
    bool active[STANDIN_DEVICES];
    int retained[STANDIN_DEVICES];
    struct stream defaults[STANDIN_DEVICES];
    struct stream *streams[MAX_THINGS];
    struct event *events[MAX_THINGS];
    struct memory memory[MAX_THINGS];
    struct range pinned[MAX_THINGS];
    size_t pinned_limit, pinned_bytes;
    const char *problem;
    const char *fail_name;
    unsigned long fail_nth, fail_hits, fail_fired;
    int fail_code;
    bool fail_sticky;
    unsigned long lose_at, operations;
    bool lost[STANDIN_DEVICES];
    unsigned slow_us;
    int version;
    const char *name;
    uint64_t copied_bytes, hold_bytes;
    unsigned long copy_calls;
    uint32_t seed;
    int captures;
    bool spoiled;
};

extern struct state the;

/* Is this a child of the process that started the driver? There it does nothing. */
bool is_forked(void);
void blame(const char *what); /* locked */
struct memory *memory_at(const void *address, size_t bytes);
bool is_pinned(const void *begin, size_t bytes, bool *partly);
struct stream *stream_of(int device, void *handle);
/* Locked. The slot of ${thing} (NULL: a free one) in a table of MAX_THINGS; NULL: there is none. */
void **slot_of(void *table, const void *thing);
void end_event(struct event *event); /* locked; free it unless it is still needed */
/* Locked. Is the legacy default stream unusable, because a stream that it waits for captures? */
bool is_legacy_captured(int device, const struct stream *stream);
bool is_any_lost(void); /* locked */
/* Locked. Append to the queue; the caller's operation is copied. If ${stream} is the legacy default
 * one, it first waits for all blocking streams of its device; they wait for it. */
void submit(struct stream *stream, const struct operation *operation);
void drain(struct stream *stream); /* locked; wait until its queue is empty */
void start_stream(struct stream *stream);
void end_stream(struct stream *stream); /* not locked; waits until its queue is empty */
/* Locked. A stream that the program has. */
struct stream *new_program_stream(int device, enum standin_stream kind);
/* Is there a pending copy of this memory, of a device or of the host? ${startable}: only copies
 * that do not wait for an event. */
bool is_in_use(const uint8_t *begin, size_t bytes, bool startable);
/* Locked. */
void *map_memory(int device, size_t bytes, size_t mapped_bytes, bool managed);
void unmap_memory(struct memory *m);

#define PAGE_BYTES 4096
#define MEMORY_HOST 1
#define MEMORY_DEVICE 2

/* Locked. The result that this call must return at once, or OK. */
int begin_call(const char *name);
/* Not locked, because another thread may have held the lock at the fork. */
int begin_forked_call(const char *name);
int check_stream_capture(const struct stream *stream); /* may it be used? spoils the capture */
/* The device of the current context; -1, and recorded as misuse: there is none. */
int current(void);

/* A function of the driver: takes the lock, fails if a test wants that, and returns ${result}. */
#define CALL(name, parameters, ...)                                                                \
    EXPORT int name parameters;                                                                    \
    int name parameters                                                                            \
    {                                                                                              \
        if (is_forked())                                                                           \
            return begin_forked_call(#name);                                                       \
        pthread_mutex_lock(&the.lock);                                                             \
        int result = begin_call(#name);                                                            \
        if (result == OK)                                                                          \
            __VA_ARGS__                                                                            \
        pthread_mutex_unlock(&the.lock);                                                           \
        return result;                                                                             \
    }

#endif
