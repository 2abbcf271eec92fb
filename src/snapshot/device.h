/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device.h -- what we need of the driver of an accelerator, as a vtable: CUDA's is device_cuda.c,
 * another vendor's would be another file, and tests load a stand-in (tests/cuda).
 *
 * A driver is used only if the program has loaded it already: without that there is no memory of a
 * device.  No context is ever made by us: that of a device is retained if the program has one, and
 * is current on a thread only between enter() and leave(), which nest.
 *
 * Devices are counted as the driver counts them.  Streams and events are the driver's handles.
 */
#ifndef SNAPSHOT_DEVICE_H
#define SNAPSHOT_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

#define DEVICE_MAX 64              /* ordinals, and MIG instances, that a process may use */
#define DEVICE_MAX_PITCH INT32_MAX /* CU_DEVICE_ATTRIBUTE_MAX_PITCH of all devices so far */

#define DEVICE_MAX_COPIES 128u /* at most, in one call of copy() */

/* What an address is: the device, and the memory around it that was allocated as one.  A tensor may
 * lie in several such pieces, one behind the other, where an allocator maps memory by and by. */
struct device_allocation {
    int32_t device;
    uint64_t begin;
    uint64_t end;
};

/* ${rows} rows of ${bytes} between host memory and a device. */
struct device_copy {
    uint8_t *host;
    uint64_t address; /* on the device */
    uint64_t bytes;
    uint64_t rows;       /* with 1, the pitches do not matter */
    uint64_t host_pitch; /* from row to row, at least ${bytes} */
    uint64_t device_pitch;
    bool to_device;
    bool pinned; /* the host memory is */
};

struct device_driver {
    const struct device_ops *ops;
};

struct device_ops {
    const char *name; /* "CUDA" */
    void (*close)(struct device_driver *driver);
    /* Needs no context.  range->device is -1 for host memory, and for what is nobody's.  Fails
     * where the driver was not started, or has ended. */
    enum sidestep_status (*find)(struct device_driver *driver, uint64_t address,
                                 struct device_allocation *range, struct sidestep_error *err);
    /* The context that the program has on ${device}; EUNSUPPORTED: it has none. */
    enum sidestep_status (*retain)(struct device_driver *driver, int32_t device, void **context,
                                   struct sidestep_error *err);
    void (*release)(struct device_driver *driver, int32_t device);
    /* Between the two the thread may also call while another one captures a graph.  ${*before} is
     * for leave(). */
    enum sidestep_status (*enter)(struct device_driver *driver, void *context, int *before,
                                  struct sidestep_error *err);
    void (*leave)(struct device_driver *driver, int before);
    /* Of the current context, at its lowest priority; it waits for no other stream by itself. */
    enum sidestep_status (*stream_new)(struct device_driver *driver, void **stream,
                                       struct sidestep_error *err);
    void (*stream_free)(struct device_driver *driver, void *stream);
    /* What is submitted to ${stream} from now on waits for ${event}, if that was recorded. */
    enum sidestep_status (*stream_wait)(struct device_driver *driver, void *stream, void *event,
                                        struct sidestep_error *err);
    enum sidestep_status (*stream_is_capturing)(struct device_driver *driver, void *stream,
                                                bool *capturing, struct sidestep_error *err);
    /* The host waits for all of it. */
    enum sidestep_status (*stream_settle)(struct device_driver *driver, void *stream,
                                          struct sidestep_error *err);
    enum sidestep_status (*event_new)(struct device_driver *driver, void **event,
                                      struct sidestep_error *err);
    void (*event_free)(struct device_driver *driver, void *event);
    enum sidestep_status (*event_record)(struct device_driver *driver, void *event, void *stream,
                                         struct sidestep_error *err);
    /* The host waits, asleep, for what came before the event's latest record. */
    enum sidestep_status (*event_await)(struct device_driver *driver, void *event,
                                        struct sidestep_error *err);
    /* Submit, in any order, at most DEVICE_MAX_COPIES; with pinned memory it does not wait.  Copies
     * to one place, or from where another one goes, are never together.  *failed: the first that is
     * refused; some of the others may have been submitted. */
    enum sidestep_status (*copy)(struct device_driver *driver, const struct device_copy *copies,
                                 size_t count, void *stream, size_t *failed,
                                 struct sidestep_error *err);
    /* Host memory for all contexts.  Page-aligned. */
    enum sidestep_status (*pin)(struct device_driver *driver, void *memory, uint64_t bytes,
                                struct sidestep_error *err);
    void (*unpin)(struct device_driver *driver, void *memory);
    /* The node of the machine's memory next to ${device}; -1: unknown. */
    int (*numa_node)(struct device_driver *driver, int32_t device);
};

/* The stream that a program uses which names none. */
extern void *const device_default_stream;

/* device_cuda.c: the driver that the program has loaded.  NULL, and no error: it has none.
 * EUNSUPPORTED: it is too old for us, or SIDESTEP_CUDA=0 says not to use it. */
enum sidestep_status device_cuda_open(struct device_driver **driver, struct sidestep_error *err);

/* For doctor, which loads the driver if nobody has: no context is made. */
struct device_cuda_report {
    bool off;    /* SIDESTEP_CUDA=0 */
    bool hidden; /* the kernel has NVIDIA's module, but this process does not see the library */
    int version; /* 1000 * major + 10 * minor; 0: there is no driver, or none for us */
    int devices;
    char first[128];
    char problem[256]; /* why it cannot be used, or "" */
};
void device_cuda_probe(struct device_cuda_report *report);

#endif
