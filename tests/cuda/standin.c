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

/* ---- streams */

static bool touches(const uint8_t *a, size_t a_bytes, const uint8_t *b, size_t b_bytes)
{
    return a < b + b_bytes && b < a + a_bytes;
}

static bool copy_touches(const struct stream *stream, const uint8_t *begin, size_t bytes,
                         bool startable)
{
    for (const struct operation *o = stream->first; o != NULL; o = o->next) {
        if (startable && o->kind == WAIT && o->event->reached < o->turn)
            return false;
        if (o->kind == COPY &&
            (touches(begin, bytes, o->device_address, (o->rows - 1) * o->device_pitch + o->bytes) ||
             touches(begin, bytes, o->host, (o->rows - 1) * o->host_pitch + o->bytes)))
            return true;
    }
    return false;
}

bool is_in_use(const uint8_t *begin, size_t bytes, bool startable)
{
    for (int i = 0; i < STANDIN_DEVICES; i++)
        if (copy_touches(&the.defaults[i], begin, bytes, startable))
            return true;
    for (size_t i = 0; i < MAX_THINGS; i++)
        if (the.streams[i] != NULL && copy_touches(the.streams[i], begin, bytes, startable))
            return true;
    return false;
}

static uint8_t *alias_of(uint8_t *address, size_t bytes)
{
    struct memory *m = memory_at(address, bytes);

    if (m == NULL || (size_t)(address - m->address) + bytes > m->mapped_bytes) {
        blame("a copy of memory that is not there");
        return NULL;
    }
    return m->alias + (address - m->address);
}

static void do_copy(const struct operation *o)
{
    for (size_t row = 0; row < o->rows; row++) {
        pthread_mutex_lock(&the.lock);
        uint8_t *device = alias_of(o->device_address + row * o->device_pitch, o->bytes);
        the.copied_bytes += o->bytes;
        pthread_mutex_unlock(&the.lock);
        uint8_t *host = o->host + row * o->host_pitch;
        if (device != NULL)
            memcpy(o->to_device ? device : host, o->to_device ? host : device, o->bytes);
    }
}

/* On a lost device, kernels have no memory. */
static void do_kernel(const struct operation *o, bool lost)
{
    pthread_mutex_lock(&the.lock);
    uint8_t *device = o->bytes != 0 && !lost ? alias_of(o->device_address, o->bytes) : NULL;
    if (device != NULL && !the.lost && is_in_use(o->device_address, o->bytes, true))
        blame("memory was written while a copy of it was pending");
    pthread_mutex_unlock(&the.lock);
    o->kernel(device, o->bytes, o->context);
}

/* Not locked. */
static void do_operation(const struct operation *o)
{
    pthread_mutex_lock(&the.lock);
    the.seed = the.seed * 1103515245u + 12345u;
    unsigned us = the.slow_us != 0 ? (the.seed >> 8) % the.slow_us : 0;
    the.lost = the.lost || (the.lose_at != 0 && ++the.operations >= the.lose_at);
    bool lost = the.lost;
    while (o->kind == WAIT && !the.lost && o->event->reached < o->turn)
        pthread_cond_wait(&the.changed, &the.lock);
    while (o->kind == COPY && !the.lost && the.hold_bytes != 0 &&
           the.copied_bytes >= the.hold_bytes)
        pthread_cond_wait(&the.changed, &the.lock);
    pthread_mutex_unlock(&the.lock);
    if (us != 0)
        (void)nanosleep(&(struct timespec){.tv_nsec = (long)us * 1000}, NULL);
    if (o->kind == COPY && !lost)
        do_copy(o);
    else if (o->kind == KERNEL)
        do_kernel(o, lost);
}

static void *stream_main(void *argument)
{
    struct stream *stream = argument;

    pthread_mutex_lock(&the.lock);
    for (;;) {
        while (stream->first == NULL && !stream->ending)
            pthread_cond_wait(&the.changed, &the.lock);
        struct operation *o = stream->first;
        if (o == NULL)
            break;
        pthread_mutex_unlock(&the.lock);
        do_operation(o);
        pthread_mutex_lock(&the.lock);
        if (o->kind == RECORD && o->event->reached < o->turn)
            o->event->reached = o->turn;
        if (o->event != NULL) {
            o->event->uses--;
            end_event(o->event);
        }
        stream->first = o->next;
        if (stream->first == NULL)
            stream->last = &stream->first;
        free(o);
        pthread_cond_broadcast(&the.changed);
    }
    pthread_mutex_unlock(&the.lock);
    return NULL;
}

void start_stream(struct stream *stream)
{
    stream->last = &stream->first;
    stream->started = pthread_create(&stream->thread, NULL, stream_main, stream) == 0;
    assert(stream->started);
}

/* Not locked. */
static void end_stream(struct stream *stream)
{
    if (!stream->started)
        return;
    pthread_mutex_lock(&the.lock);
    stream->ending = true;
    pthread_cond_broadcast(&the.changed);
    pthread_mutex_unlock(&the.lock);
    pthread_join(stream->thread, NULL);
    stream->started = false;
}

void submit(struct stream *stream, const struct operation *operation)
{
    struct operation *o = malloc(sizeof(*o));

    assert(o != NULL);
    *o = *operation;
    o->next = NULL;
    if (o->event != NULL)
        o->event->uses++;
    *stream->last = o;
    stream->last = &o->next;
    pthread_cond_broadcast(&the.changed);
}

void drain(struct stream *stream)
{
    while (stream->first != NULL)
        pthread_cond_wait(&the.changed, &the.lock);
}

struct stream *stream_of(int device, void *handle)
{
    if (handle == NULL || (uintptr_t)handle == 1)
        return &the.defaults[device];
    return slot_of(the.streams, handle) != NULL ? handle : NULL;
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
    int fd = memfd_create("device", MFD_CLOEXEC);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    bytes = (bytes + page - 1) / page * page;
    mapped_bytes = mapped_bytes < bytes ? mapped_bytes : bytes;
    assert(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    int access = managed ? PROT_READ | PROT_WRITE : PROT_NONE;
    void *address = mmap(NULL, bytes, access, MAP_SHARED, fd, 0);
    void *alias = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert(address != MAP_FAILED && alias != MAP_FAILED);
    (void)close(fd);
    pthread_mutex_lock(&the.lock);
    size_t i = 0;
    while (i < MAX_THINGS && the.memory[i].address != NULL)
        i++;
    assert(i < MAX_THINGS);
    the.memory[i] = (struct memory){address, alias, bytes, mapped_bytes, device, managed};
    pthread_mutex_unlock(&the.lock);
    return address;
}

static void *reserve(int device, size_t bytes, size_t mapped_bytes)
{
    return map(device, bytes, mapped_bytes, false);
}

static void *allocate(int device, size_t bytes)
{
    return map(device, bytes, SIZE_MAX, false);
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
    if (is_in_use(m->address, m->bytes, false))
        blame("memory was freed while a copy of it was pending");
    (void)munmap(m->address, m->bytes);
    (void)munmap(m->alias, m->bytes);
    *m = (struct memory){0};
    pthread_mutex_unlock(&the.lock);
}

static void *new_stream(int device)
{
    struct stream *stream = calloc(1, sizeof(*stream));

    assert(stream != NULL);
    stream->device = device;
    stream->of_program = true;
    start_stream(stream);
    pthread_mutex_lock(&the.lock);
    void **slot = slot_of(the.streams, NULL);
    assert(slot != NULL);
    *slot = stream;
    pthread_mutex_unlock(&the.lock);
    return stream;
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
    for (int i = 0; i < the.devices && the.lost; i++)
        drain(&the.defaults[i]);
    for (size_t i = 0; i < MAX_THINGS && the.lost; i++)
        if (the.streams[i] != NULL)
            drain(the.streams[i]);
    the.lost = false;
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
        .new_stream = new_stream,
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
