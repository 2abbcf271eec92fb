/* SPDX-License-Identifier: BSD-3-Clause */
/* standin_streams.c -- the streams of the stand-in: threads that do what was submitted to them. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "standin_inside.h"

#define QUEUE_COPIES 8

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
    if (m->to_come)
        blame("memory was used before its allocation");
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
    if (device != NULL && is_in_use(o->device_address, o->bytes, true))
        blame("memory was written while a copy of it was pending");
    pthread_mutex_unlock(&the.lock);
    o->kernel(device, o->bytes, o->context);
}

static void do_memory(const struct operation *o)
{
    pthread_mutex_lock(&the.lock);
    struct memory *m = memory_at(o->device_address, 1);
    assert(m != NULL);
    if (o->kind == ALLOCATE)
        m->to_come = false;
    else
        unmap_memory(m);
    pthread_mutex_unlock(&the.lock);
}

/* Not locked. */
static void do_operation(const struct operation *o, int on_device)
{
    bool *device_lost = &the.lost[on_device];

    pthread_mutex_lock(&the.lock);
    the.seed = the.seed * 1103515245u + 12345u;
    unsigned us = the.slow_us != 0 ? (the.seed >> 8) % the.slow_us : 0;
    *device_lost = *device_lost || (the.lose_at != 0 && ++the.operations == the.lose_at);
    bool lost = *device_lost;
    while (o->kind == WAIT && !*device_lost && o->event->reached < o->turn)
        pthread_cond_wait(&the.changed, &the.lock);
    while (o->kind == COPY && !*device_lost && the.hold_bytes != 0 &&
           the.copied_bytes >= the.hold_bytes)
        pthread_cond_wait(&the.changed, &the.lock);
    pthread_mutex_unlock(&the.lock);
    if (us != 0)
        (void)nanosleep(&(struct timespec){.tv_nsec = (long)us * 1000}, NULL);
    if (o->kind == COPY && !lost)
        do_copy(o);
    else if (o->kind == KERNEL)
        do_kernel(o, lost);
    else if (o->kind == ALLOCATE || o->kind == FREE)
        do_memory(o);
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
        do_operation(o, stream->device);
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
        if (o->staged)
            free(o->host);
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

void end_stream(struct stream *stream)
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

static void push(struct stream *stream, const struct operation *operation)
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

/* Let ${later} wait for what ${earlier} has now. */
static void wait_for(struct stream *later, struct stream *earlier)
{
    if (earlier->first == NULL)
        return;
    struct event *event = calloc(1, sizeof(*event));
    void **slot = slot_of(the.events, NULL);
    assert(event != NULL && slot != NULL);
    *event = (struct event){.device = earlier->device, .destroyed = true, .recorded = 1};
    *slot = event;
    push(earlier, &(struct operation){.kind = RECORD, .event = event, .turn = 1});
    push(later, &(struct operation){.kind = WAIT, .event = event, .turn = 1});
}

static void wait_for_others(struct stream *stream)
{
    struct stream *legacy = &the.defaults[stream->device];

    if (stream->blocking)
        wait_for(stream, legacy);
    for (size_t i = 0; stream == legacy && i < MAX_THINGS; i++)
        if (the.streams[i] != NULL && the.streams[i]->blocking &&
            the.streams[i]->device == stream->device)
            wait_for(legacy, the.streams[i]);
}

/* A driver's queue is short: who submits to a full one waits. */
static void wait_for_room(const struct stream *stream)
{
    for (size_t copies = QUEUE_COPIES; copies >= QUEUE_COPIES && !the.lost[stream->device];) {
        copies = 0;
        for (const struct operation *o = stream->first; o != NULL; o = o->next)
            copies += o->kind == COPY;
        if (copies >= QUEUE_COPIES)
            pthread_cond_wait(&the.changed, &the.lock);
    }
}

void submit(struct stream *stream, const struct operation *operation)
{
    wait_for_others(stream);
    if (operation->kind == COPY)
        wait_for_room(stream);
    push(stream, operation);
}

bool is_legacy_captured(int device, const struct stream *stream)
{
    for (size_t i = 0; stream == &the.defaults[device] && i < MAX_THINGS; i++)
        if (the.streams[i] != NULL && the.streams[i]->blocking && the.streams[i]->capturing &&
            the.streams[i]->device == device)
            return true;
    return false;
}

bool is_any_lost(void)
{
    for (int i = 0; i < STANDIN_DEVICES; i++)
        if (the.lost[i])
            return true;
    return false;
}

void drain(struct stream *stream)
{
    wait_for_others(stream);
    while (stream->first != NULL)
        pthread_cond_wait(&the.changed, &the.lock);
}

struct stream *new_program_stream(int device, enum standin_stream kind)
{
    struct stream *stream = calloc(1, sizeof(*stream));
    void **slot = slot_of(the.streams, NULL);

    assert(stream != NULL && slot != NULL);
    stream->device = device;
    stream->of_program = true;
    stream->blocking = kind == STANDIN_BLOCKING;
    stream->foreign = kind == STANDIN_FOREIGN;
    start_stream(stream);
    *slot = stream;
    return stream;
}

/* The calling thread's default stream: made with its first use. */
static struct stream *thread_stream(int device)
{
    static __thread struct stream *own[STANDIN_DEVICES];
    static __thread unsigned resets;

    if (resets != the.resets)
        memset(own, 0, sizeof(own));
    resets = the.resets;
    if (own[device] == NULL)
        own[device] = new_program_stream(device, STANDIN_BLOCKING);
    return own[device];
}

struct stream *stream_of(int device, void *handle)
{
    if ((uintptr_t)handle == 2)
        return thread_stream(device);
    if (handle == NULL || (uintptr_t)handle == 1)
        return &the.defaults[device];
    return slot_of(the.streams, handle) != NULL ? handle : NULL;
}
