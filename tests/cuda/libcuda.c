/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libcuda.c -- the driver's calls that the library makes, implemented over host memory: see
 * standin.h. Those that copy are in libcuda_copy.c. Results and requirements (a current context,
 * handles of that context, pinned host memory for a copy that does not wait) follow the driver's
 * manual.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin_inside.h"

static __thread int stack[MAX_DEPTH]; /* 1 + the device of each context */
static __thread int depth;
static __thread int capture_mode; /* 0: global */

#define RELAXED 2

int begin_call(const char *name)
{
    int device = depth != 0 ? stack[depth - 1] - 1 : -1;

    bool asks = strncmp(name, "cuPointer", 9) == 0; /* answered in a lost context, too */

    if (!asks && (device >= 0 ? the.lost[device] : is_any_lost()))
        return LAUNCH_FAILED;
    if (the.fail_nth == 0 || strncmp(name, the.fail_name, strlen(the.fail_name)) != 0)
        return OK;
    the.fail_hits++;
    if (the.fail_hits != the.fail_nth && !(the.fail_sticky && the.fail_hits > the.fail_nth))
        return OK;
    the.fail_fired++;
    for (int i = 0; i < STANDIN_DEVICES && the.fail_sticky; i++) /* they destroy a context */
        the.lost[i] = the.lost[i] || device < 0 || i == device;
    return the.fail_code;
}

int begin_forked_call(const char *name)
{
    if (strncmp(name, "cuPointer", 9) != 0)
        the.forked_calls++;
    return NOT_INITIALIZED;
}

int current(void)
{
    if (depth == 0) {
        blame("a call needs a context, and none is current");
        return -1;
    }
    return stack[depth - 1] - 1;
}

/* Does a capture allow this thread to do it? */
static int check_capture(void)
{
    if (the.captures == 0 || capture_mode == RELAXED)
        return OK;
    the.spoiled = true;
    return CAPTURE_UNSUPPORTED;
}

/* What is submitted to a stream that captures is not done: it becomes a part of the graph. */
int check_stream_capture(const struct stream *stream)
{
    bool implicit = is_legacy_captured(stream->device, stream);

    the.spoiled = the.spoiled || implicit || stream->capturing;
    return implicit ? CAPTURE_IMPLICIT : stream->capturing ? CAPTURE_ISOLATION : OK;
}

/* ---- the driver and its devices */

EXPORT int cuGetErrorName(int error, const char **name);
int cuGetErrorName(int error, const char **name)
{
    static __thread char text[32];

    snprintf(text, sizeof(text), "CUDA_ERROR_%d", error);
    *name = text;
    return OK;
}

EXPORT int cuGetErrorString(int error, const char **text);
int cuGetErrorString(int error, const char **text)
{
    *text = error == LAUNCH_FAILED ? "unspecified launch failure" : "as the stand-in was told";
    return OK;
}

CALL(cuInit, (unsigned flags), { result = flags == 0 ? OK : INVALID_VALUE; })
/* Works without cuInit(). */
EXPORT int cuDriverGetVersion(int *version);
int cuDriverGetVersion(int *version)
{
    *version = the.version;
    if (is_forked())
        return OK;
    pthread_mutex_lock(&the.lock);
    int result = begin_call("cuDriverGetVersion");
    pthread_mutex_unlock(&the.lock);
    return result;
}

CALL(cuDeviceGetCount, (int *count), { *count = the.devices; })
CALL(cuDeviceGetName, (char *name, int length, int device),
     { snprintf(name, (size_t)length, "%s %d", the.name, device); })
CALL(cuDeviceGetPCIBusId, (char *id, int length, int device),
     { snprintf(id, (size_t)length, "FFFF:%02X:00.0", device); })

CALL(cuDevicePrimaryCtxGetState, (int device, unsigned *flags, int *active), {
    *flags = 0;
    if (device < 0 || device >= the.devices)
        result = INVALID_DEVICE;
    else
        *active = the.active[device];
})

CALL(cuDevicePrimaryCtxRetain, (void **context, int device), {
    if (!the.active[device])
        blame("a context was made");
    the.retained[device]++;
    *context = &the.retained[device];
})

/* Counting goes on after the driver has ended. */
EXPORT int cuDevicePrimaryCtxRelease_v2(int device);
int cuDevicePrimaryCtxRelease_v2(int device)
{
    if (is_forked())
        return begin_forked_call("cuDevicePrimaryCtxRelease_v2");
    pthread_mutex_lock(&the.lock);
    if (--the.retained[device] < 0)
        blame("a context was released that was not retained");
    pthread_mutex_unlock(&the.lock);
    return OK;
}

CALL(cuCtxPushCurrent_v2, (void *context), {
    assert(depth < MAX_DEPTH);
    stack[depth++] = 1 + (int)((int *)context - the.retained);
})

EXPORT int cuCtxPopCurrent_v2(void **context);
int cuCtxPopCurrent_v2(void **context)
{
    if (is_forked())
        return begin_forked_call("cuCtxPopCurrent_v2");
    pthread_mutex_lock(&the.lock);
    if (depth == 0)
        blame("a context was popped that was not pushed");
    else
        *context = &the.retained[stack[--depth] - 1];
    pthread_mutex_unlock(&the.lock);
    return OK;
}

EXPORT int cuThreadExchangeStreamCaptureMode(int *mode);
int cuThreadExchangeStreamCaptureMode(int *mode)
{
    int before = capture_mode;

    capture_mode = *mode;
    *mode = before;
    return OK;
}

CALL(cuCtxGetStreamPriorityRange, (int *least, int *greatest), {
    *least = 0;
    *greatest = -5;
    result = current() < 0 ? INVALID_CONTEXT : OK;
})

/* ---- memory */

static void tell(const struct memory *m, bool pinned, const uint8_t *address, int attribute,
                 void *data)
{
    bool mapped = m != NULL && (size_t)(address - m->address) < m->mapped_bytes;

    if (attribute == 2) {
        *(unsigned *)data = m != NULL ? MEMORY_DEVICE : pinned ? MEMORY_HOST : 0;
    } else if (attribute == 8) {
        *(unsigned char *)data = m != NULL && m->managed;
    } else if (attribute == 9) {
        *(int *)data = m != NULL ? m->device : -2;
    } else if (attribute == 10) {
        *(unsigned char *)data = m != NULL && m->plain;
    } else if (attribute == 11) {
        *(uint64_t *)data = m != NULL ? (uint64_t)(uintptr_t)m->address : 0;
    } else if (attribute == 12) {
        *(size_t *)data = m != NULL ? m->bytes : 0;
    } else if (attribute == 13) {
        *(unsigned char *)data = mapped || pinned;
    } else {
        blame("an attribute that the stand-in does not know");
    }
}

CALL(cuPointerGetAttributes, (unsigned count, int *attributes, void **data, uint64_t pointer), {
    const void *address = (const void *)(uintptr_t)pointer;
    bool partly;
    for (unsigned i = 0; i < count; i++)
        tell(memory_at(address, 1), is_pinned(address, 1, &partly), address, attributes[i],
             data[i]);
})

CALL(cuPointerGetAttribute, (void *data, int attribute, uint64_t pointer), {
    const void *address = (const void *)(uintptr_t)pointer;
    bool partly, pinned = is_pinned(address, 1, &partly);
    if (memory_at(address, 1) == NULL && !pinned)
        result = INVALID_VALUE;
    else
        tell(memory_at(address, 1), pinned, address, attribute, data);
})

static int pin(void *memory, size_t bytes)
{
    bool partly;
    size_t i = 0;

    if (current() < 0)
        return INVALID_CONTEXT;
    if (check_capture() != OK)
        return CAPTURE_UNSUPPORTED;
    if (is_pinned(memory, bytes, &partly) || partly) {
        blame("memory was pinned twice");
        return ALREADY_REGISTERED;
    }
    if (the.pinned_bytes + bytes > the.pinned_limit)
        return OUT_OF_MEMORY;
    while (i < MAX_THINGS && the.pinned[i].begin != NULL)
        i++;
    assert(i < MAX_THINGS);
    for (size_t at = 0; at < bytes; at += PAGE_BYTES) { /* touch the pages, as a driver does */
        volatile uint8_t *page = (uint8_t *)memory + at;
        *page = *page;
    }
    the.pinned[i] = (struct range){memory, bytes};
    the.pinned_bytes += bytes;
    return OK;
}

CALL(cuMemHostRegister_v2, (void *memory, size_t bytes, unsigned flags), {
    if (flags != 1)
        blame("memory was pinned for one context only");
    result = pin(memory, bytes);
})

EXPORT int cuMemHostUnregister(void *memory);
int cuMemHostUnregister(void *memory)
{
    int result = NOT_REGISTERED;

    if (is_forked())
        return begin_forked_call("cuMemHostUnregister");
    pthread_mutex_lock(&the.lock);
    for (size_t i = 0; i < MAX_THINGS; i++) {
        struct range *r = &the.pinned[i];
        if (r->begin != memory || memory == NULL)
            continue;
        if (is_in_use(r->begin, r->bytes, false) && !is_any_lost())
            blame("memory was unpinned while a copy was pending");
        the.pinned_bytes -= r->bytes;
        *r = (struct range){0};
        result = OK;
    }
    if (result != OK)
        blame("memory was unpinned that was not pinned");
    pthread_mutex_unlock(&the.lock);
    return result;
}

/* ---- streams */

CALL(cuStreamCreateWithPriority, (void **out, unsigned flags, int priority), {
    struct stream *stream = calloc(1, sizeof(*stream));
    void **slot = slot_of(the.streams, NULL);
    assert(stream != NULL && slot != NULL);
    if (flags != 1 || priority != 0)
        blame("a stream that is not at the lowest priority, or waits for the default one");
    stream->device = current();
    assert(stream->device >= 0);
    start_stream(stream);
    *slot = stream;
    *out = stream;
})

EXPORT int cuStreamDestroy_v2(void *stream);
int cuStreamDestroy_v2(void *stream)
{
    if (is_forked())
        return begin_forked_call("cuStreamDestroy_v2");
    standin_get()->free_stream(stream);
    return OK;
}

static bool is_event(const struct event *event)
{
    return slot_of(the.events, event) != NULL && !event->destroyed;
}

CALL(cuStreamWaitEvent, (void *handle, struct event *event, unsigned flags), {
    int device = current();
    struct stream *stream = device >= 0 ? stream_of(device, handle) : NULL;
    if (device < 0) {
        result = INVALID_CONTEXT;
    } else if (stream == NULL || flags != 0 || !is_event(event)) {
        result = INVALID_HANDLE;
    } else if ((result = check_stream_capture(stream)) == OK) {
        if (event->recorded == 0)
            blame("a stream waits for an event that was never recorded");
        submit(stream, &(struct operation){.kind = WAIT, .event = event, .turn = event->recorded});
    }
})

CALL(cuStreamIsCapturing, (void *handle, int *status), {
    struct stream *stream = current() >= 0 ? stream_of(current(), handle) : NULL;
    if (stream == NULL)
        result = INVALID_HANDLE;
    else if (is_legacy_captured(stream->device, stream))
        result = CAPTURE_IMPLICIT;
    else
        *status = stream->capturing;
})

CALL(cuStreamSynchronize, (void *handle), {
    struct stream *stream = current() >= 0 ? stream_of(current(), handle) : NULL;
    result = stream == NULL ? INVALID_HANDLE : check_capture();
    if (result == OK)
        result = check_stream_capture(stream);
    if (result == OK)
        drain(stream);
    if (result == OK && the.lost[stream->device])
        result = LAUNCH_FAILED;
})

/* ---- events */

CALL(cuEventCreate, (struct event * *out, unsigned flags), {
    if (current() < 0) {
        result = INVALID_CONTEXT;
    } else {
        struct event *event = calloc(1, sizeof(*event));
        void **slot = slot_of(the.events, NULL);
        assert(event != NULL && slot != NULL);
        if (flags != 3)
            blame("an event that spins, or measures time");
        event->device = current();
        *slot = event;
        *out = event;
    }
})

EXPORT int cuEventDestroy_v2(struct event *event);
int cuEventDestroy_v2(struct event *event)
{
    if (is_forked())
        return begin_forked_call("cuEventDestroy_v2");
    pthread_mutex_lock(&the.lock);
    if (slot_of(the.events, event) == NULL || event->destroyed) {
        blame("an event was destroyed twice");
    } else {
        event->destroyed = true; /* what already waits for it still does */
        end_event(event);
    }
    pthread_mutex_unlock(&the.lock);
    return OK;
}

CALL(cuEventRecord, (struct event * event, void *handle), {
    int device = current();
    struct stream *stream = device >= 0 ? stream_of(device, handle) : NULL;
    if (device < 0) {
        result = INVALID_CONTEXT;
    } else if (stream == NULL || !is_event(event) || stream->device != event->device ||
               stream->foreign) { /* our events are of the primary context */
        result = INVALID_HANDLE;
    } else if ((result = check_stream_capture(stream)) == OK) {
        event->recorded++;
        submit(stream,
               &(struct operation){.kind = RECORD, .event = event, .turn = event->recorded});
    }
})

CALL(cuEventSynchronize, (struct event * event), {
    bool lost = false;
    result = is_event(event) ? check_capture() : INVALID_HANDLE;
    if (result == OK) {
        uint64_t turn = event->recorded;
        event->uses++;
        while (event->reached < turn && !the.lost[event->device])
            pthread_cond_wait(&the.changed, &the.lock);
        event->uses--;
        lost = the.lost[event->device];
        end_event(event);
    }
    if (result == OK && lost)
        result = LAUNCH_FAILED;
})
