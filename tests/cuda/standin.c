/* SPDX-License-Identifier: BSD-3-Clause */
/* standin.c -- the streams of the stand-in driver, and the functions for tests: see standin.h. */
#include "standin_inside.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct state the = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

bool is_forked(void)
{
    return the.process != 0 && the.process != getpid();
}

void blame(const char *what)
{
    if (the.problem == NULL)
        the.problem = what;
}

struct memory *memory_at(const void *address, size_t bytes)
{
    const uint8_t *at = address;

    for (size_t i = 0; i < MAX_THINGS; i++) {
        struct memory *m = &the.memory[i];
        if (m->address != NULL && at >= m->address && at + bytes <= m->address + m->bytes)
            return m;
    }
    return NULL;
}

bool is_pinned(const void *begin, size_t bytes, bool *partly)
{
    const uint8_t *at = begin;

    *partly = false;
    for (size_t i = 0; i < MAX_THINGS; i++) {
        const struct range *r = &the.pinned[i];
        if (r->begin == NULL || at + bytes <= r->begin || at >= r->begin + r->bytes)
            continue;
        if (at >= r->begin && at + bytes <= r->begin + r->bytes)
            return true;
        *partly = true;
    }
    return false;
}

void **slot_of(void *table, const void *thing)
{
    void **slots = table;

    for (size_t i = 0; i < MAX_THINGS; i++)
        if (slots[i] == thing)
            return &slots[i];
    return NULL;
}

void end_event(struct event *event)
{
    if (!event->destroyed || event->uses != 0)
        return;
    *slot_of(the.events, event) = NULL;
    free(event);
}

/* ---- functions for tests */

static void release_all(void)
{
    for (int i = 0; i < STANDIN_DEVICES; i++)
        end_stream(&the.defaults[i]);
    for (size_t i = 0; i < MAX_THINGS; i++) {
        if (the.streams[i] != NULL)
            end_stream(the.streams[i]);
        free(the.streams[i]);
        free(the.events[i]);
        struct memory *m = &the.memory[i];
        if (m->address != NULL) {
            (void)munmap(m->address, m->bytes);
            (void)munmap(m->alias, m->bytes);
        }
    }
}

static void describe(int version, const char *name)
{
    the.version = version;
    the.name = name;
}

static void reset(int devices)
{
    release_all();
    pthread_mutex_lock(&the.lock);
    memset((char *)&the + offsetof(struct state, devices), 0,
           sizeof(the) - offsetof(struct state, devices));
    the.resets++;
    the.devices = devices;
    the.process = getpid();
    the.pinned_limit = SIZE_MAX;
    the.seed = 7;
    describe(13000, "Stand-in");
    for (int i = 0; i < devices; i++) {
        the.active[i] = true;
        the.defaults[i].device = i;
        start_stream(&the.defaults[i]);
    }
    pthread_mutex_unlock(&the.lock);
}

static void set_active(int device, bool active)
{
    the.active[device] = active;
}

static void *map(int device, size_t bytes, size_t mapped_bytes, bool managed)
{
    pthread_mutex_lock(&the.lock);
    void *address = map_memory(device, bytes, mapped_bytes, managed);
    pthread_mutex_unlock(&the.lock);
    return address;
}

static void *reserve(int device, size_t bytes, size_t mapped_bytes)
{
    return map(device, bytes, mapped_bytes, false);
}

static void *allocate(int device, size_t bytes)
{
    pthread_mutex_lock(&the.lock);
    void *address = map_memory(device, bytes, SIZE_MAX, false);
    memory_at(address, 1)->plain = true;
    pthread_mutex_unlock(&the.lock);
    return address;
}

static void *allocate_managed(int device, size_t bytes)
{
    return map(device, bytes, SIZE_MAX, true);
}

static void free_memory(void *memory)
{
    pthread_mutex_lock(&the.lock);
    struct memory *m = memory_at(memory, 1);
    assert(m != NULL && m->address == memory);
    unmap_memory(m);
    pthread_mutex_unlock(&the.lock);
}

static void *allocate_on(int device, void *stream, size_t bytes)
{
    pthread_mutex_lock(&the.lock);
    void *memory = map_memory(device, bytes, SIZE_MAX, false);
    memory_at(memory, 1)->to_come = true;
    submit(stream_of(device, stream),
           &(struct operation){.kind = ALLOCATE, .device_address = memory});
    pthread_mutex_unlock(&the.lock);
    return memory;
}

static void free_on(int device, void *stream, void *memory)
{
    pthread_mutex_lock(&the.lock);
    submit(stream_of(device, stream), &(struct operation){.kind = FREE, .device_address = memory});
    pthread_mutex_unlock(&the.lock);
}

static void *new_stream_of(int device, enum standin_stream kind)
{
    pthread_mutex_lock(&the.lock);
    struct stream *stream = new_program_stream(device, kind);
    pthread_mutex_unlock(&the.lock);
    return stream;
}

static void *new_stream(int device)
{
    return new_stream_of(device, STANDIN_NON_BLOCKING);
}

static void free_stream(void *handle)
{
    struct stream *stream = handle;

    end_stream(stream);
    pthread_mutex_lock(&the.lock);
    *slot_of(the.streams, stream) = NULL;
    pthread_mutex_unlock(&the.lock);
    free(stream);
}

static void launch(int device, void *stream,
                   void (*kernel)(void *memory, size_t bytes, void *context), void *memory,
                   size_t bytes, void *context)
{
    pthread_mutex_lock(&the.lock);
    submit(stream_of(device, stream), &(struct operation){.kind = KERNEL,
                                                          .device_address = memory,
                                                          .bytes = bytes,
                                                          .rows = 1,
                                                          .kernel = kernel,
                                                          .context = context});
    pthread_mutex_unlock(&the.lock);
}

static void synchronize(int device, void *stream)
{
    pthread_mutex_lock(&the.lock);
    drain(stream_of(device, stream));
    pthread_mutex_unlock(&the.lock);
}

static void read_memory(const void *memory, void *to, size_t bytes)
{
    pthread_mutex_lock(&the.lock);
    const struct memory *m = memory_at(memory, bytes);
    assert(m != NULL);
    memcpy(to, m->alias + ((const uint8_t *)memory - m->address), bytes);
    pthread_mutex_unlock(&the.lock);
}

static void *view(const void *memory)
{
    pthread_mutex_lock(&the.lock);
    const struct memory *m = memory_at(memory, 1);
    assert(m != NULL);
    uint8_t *there = m->alias + ((const uint8_t *)memory - m->address);
    pthread_mutex_unlock(&the.lock);
    return there;
}

static void write_memory(void *memory, const void *from, size_t bytes)
{
    pthread_mutex_lock(&the.lock);
    const struct memory *m = memory_at(memory, bytes);
    assert(m != NULL);
    memcpy(m->alias + ((uint8_t *)memory - m->address), from, bytes);
    pthread_mutex_unlock(&the.lock);
}

static void capture(int device, void *stream, bool on)
{
    pthread_mutex_lock(&the.lock);
    stream_of(device, stream)->capturing = on;
    the.captures += on ? 1 : -1;
    pthread_mutex_unlock(&the.lock);
}

static bool capture_is_spoiled(void)
{
    return the.spoiled;
}

/* Cancel what a lost device had still to do, and make it work again. Locked. */
static void find_again(void)
{
    bool any = is_any_lost();

    for (int i = 0; i < the.devices && any; i++)
        drain(&the.defaults[i]);
    for (size_t i = 0; i < MAX_THINGS && any; i++)
        if (the.streams[i] != NULL)
            drain(the.streams[i]);
    memset(the.lost, 0, sizeof(the.lost));
}

static void fail_calls(const char *name, unsigned long nth, int code, bool sticky)
{
    pthread_mutex_lock(&the.lock);
    find_again();
    the.fail_name = name;
    the.fail_nth = nth;
    the.fail_code = code;
    the.fail_sticky = sticky;
    the.fail_hits = the.fail_fired = 0;
    pthread_mutex_unlock(&the.lock);
}

static unsigned long failed_calls(void)
{
    return the.fail_fired;
}

static void lose(unsigned long nth)
{
    pthread_mutex_lock(&the.lock);
    find_again();
    the.lose_at = nth;
    the.operations = 0;
    pthread_mutex_unlock(&the.lock);
}

static void slow(unsigned us)
{
    pthread_mutex_lock(&the.lock);
    the.slow_us = us;
    pthread_mutex_unlock(&the.lock);
}

static void limit_pinned(size_t bytes)
{
    the.pinned_limit = bytes;
}

static unsigned long forked_calls(void)
{
    return the.forked_calls;
}

static uint64_t copied_bytes(void)
{
    pthread_mutex_lock(&the.lock);
    uint64_t bytes = the.copied_bytes;
    pthread_mutex_unlock(&the.lock);
    return bytes;
}

static unsigned long copy_calls(void)
{
    pthread_mutex_lock(&the.lock);
    unsigned long calls = the.copy_calls;
    pthread_mutex_unlock(&the.lock);
    return calls;
}

static void hold_copies(uint64_t bytes)
{
    pthread_mutex_lock(&the.lock);
    the.hold_bytes = bytes;
    pthread_cond_broadcast(&the.changed);
    pthread_mutex_unlock(&the.lock);
}

static const char *problem(void)
{
    return the.problem;
}

static void forgive(void)
{
    pthread_mutex_lock(&the.lock);
    the.problem = NULL;
    pthread_mutex_unlock(&the.lock);
}

static struct standin_left left(void)
{
    struct standin_left left = {0};

    pthread_mutex_lock(&the.lock);
    for (int i = 0; i < STANDIN_DEVICES; i++) {
        left.contexts += the.retained[i];
        left.pending += the.defaults[i].first != NULL;
    }
    for (size_t i = 0; i < MAX_THINGS; i++) {
        left.streams += the.streams[i] != NULL && !the.streams[i]->of_program;
        left.pending += the.streams[i] != NULL && the.streams[i]->first != NULL;
        left.events += the.events[i] != NULL && !the.events[i]->destroyed;
        left.pinned += the.pinned[i].begin != NULL;
    }
    pthread_mutex_unlock(&the.lock);
    return left;
}

EXPORT const struct standin *standin_get(void)
{
    static const struct standin hooks = {
        .reset = reset,
        .set_active = set_active,
        .describe = describe,
        .allocate = allocate,
        .allocate_managed = allocate_managed,
        .free = free_memory,
        .reserve = reserve,
        .allocate_on = allocate_on,
        .free_on = free_on,
        .new_stream = new_stream,
        .new_stream_of = new_stream_of,
        .free_stream = free_stream,
        .launch = launch,
        .synchronize = synchronize,
        .read = read_memory,
        .write = write_memory,
        .view = view,
        .copied_bytes = copied_bytes,
        .forked_calls = forked_calls,
        .capture = capture,
        .capture_is_spoiled = capture_is_spoiled,
        .fail_calls = fail_calls,
        .failed_calls = failed_calls,
        .lose = lose,
        .slow = slow,
        .limit_pinned = limit_pinned,
        .copy_calls = copy_calls,
        .hold_copies = hold_copies,
        .problem = problem,
        .forgive = forgive,
        .left = left,
    };

    return &hooks;
}
