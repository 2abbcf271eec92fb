/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device.h -- the interface to an accelerator's driver, as a vtable.  device_cuda.c implements it
 * for CUDA; another vendor's driver would be another file.  Tests load a stand-in (tests/cuda).
 *
 * A driver is used only if the program has loaded it already: otherwise there is no device memory.
 * sidestep never creates a context.  It retains the context of a device if the program has one, and
 * makes it current on a thread only between enter() and leave(), which nest.
 *
 * Device numbers are the driver's ordinals.  Streams and events are the driver's handles.
 */
#ifndef SNAPSHOT_DEVICE_H
#define SNAPSHOT_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

#define DEVICE_MAX 64              /* ordinals, and MIG instances, of a process */
#define DEVICE_MAX_PITCH INT32_MAX /* CU_DEVICE_ATTRIBUTE_MAX_PITCH of all devices so far */
#define DEVICE_MAX_COPIES 128u     /* in one call of copy() */

/* The allocation that contains an address, and its device.  If an allocator maps memory in pieces,
 * a tensor may span several consecutive allocations. */
struct device_allocation {
    int32_t device;
    bool is_whole; /* there is memory at each of its addresses */
    uint64_t begin;
    uint64_t end;
};

/* A copy of ${rows} rows of ${bytes} between host memory and a device. */
struct device_copy {
    uint8_t *host;
    uint64_t address; /* on the device */
    uint64_t bytes;
    uint64_t rows;       /* if 1, the pitches are ignored */
    uint64_t host_pitch; /* bytes from row to row, at least ${bytes} */
    uint64_t device_pitch;
    bool to_device;
    bool pinned; /* the host memory is pinned */
};

struct device_driver {
    const struct device_ops *ops;
};

struct device_ops {
    const char *name; /* "CUDA" */
    void (*close)(struct device_driver *driver);
    /* Find the allocation that contains ${address}.  Needs no context.  range->device is -1 for
     * host memory and for unknown addresses.  Fails if the driver was not started or has shut
     * down. */
    enum sidestep_status (*find)(struct device_driver *driver, uint64_t address,
                                 struct device_allocation *range, struct sidestep_error *err);
    /* Retain the context that the program has on ${device}.  EUNSUPPORTED: it has none. */
    enum sidestep_status (*retain)(struct device_driver *driver, int32_t device, void **context,
                                   struct sidestep_error *err);
    void (*release)(struct device_driver *driver, int32_t device);
    /* Make the context current.  Between enter() and leave() the thread may call the driver even
     * while another thread captures a graph.  ${*before} is for leave(). */
    enum sidestep_status (*enter)(struct device_driver *driver, void *context, int *before,
                                  struct sidestep_error *err);
    void (*leave)(struct device_driver *driver, int before);
    /* Create a stream of the current context with the lowest priority.  It does not wait for other
     * streams implicitly. */
    enum sidestep_status (*stream_new)(struct device_driver *driver, void **stream,
                                       struct sidestep_error *err);
    void (*stream_free)(struct device_driver *driver, void *stream);
    /* Later work of ${stream} waits for ${event}, if the event was recorded. */
    enum sidestep_status (*stream_wait)(struct device_driver *driver, void *stream, void *event,
                                        struct sidestep_error *err);
    enum sidestep_status (*stream_is_capturing)(struct device_driver *driver, void *stream,
                                                bool *capturing, struct sidestep_error *err);
    /* The calling thread waits for all work of the stream. */
    enum sidestep_status (*stream_synchronize)(struct device_driver *driver, void *stream,
                                               struct sidestep_error *err);
    enum sidestep_status (*event_new)(struct device_driver *driver, void **event,
                                      struct sidestep_error *err);
    void (*event_free)(struct device_driver *driver, void *event);
    enum sidestep_status (*event_record)(struct device_driver *driver, void *event, void *stream,
                                         struct sidestep_error *err);
    /* The calling thread sleeps until the work before the event's latest record is done. */
    enum sidestep_status (*event_synchronize)(struct device_driver *driver, void *event,
                                              struct sidestep_error *err);
    /* Submit at most DEVICE_MAX_COPIES copies, which may run in any order.  Does not wait if the
     * host memory is pinned.  No two copies may have the same destination, and no copy may read
     * what another one writes.  *failed: the first copy that the driver refused; some of the others
     * may have been submitted. */
    enum sidestep_status (*copy)(struct device_driver *driver, const struct device_copy *copies,
                                 size_t count, void *stream, size_t *failed,
                                 struct sidestep_error *err);
    /* Pin page-aligned host memory for all contexts. */
    enum sidestep_status (*pin)(struct device_driver *driver, void *memory, uint64_t bytes,
                                struct sidestep_error *err);
    void (*unpin)(struct device_driver *driver, void *memory);
    /* The NUMA node nearest to ${device}; -1: unknown. */
    int (*numa_node)(struct device_driver *driver, int32_t device);
};

/* The stream that a program uses if it names none. */
extern void *const device_default_stream;

/* Open the driver that the program has loaded (device_cuda.c).  *driver == NULL and no error: it
 * has loaded none.  EUNSUPPORTED: the driver is too old, or SIDESTEP_CUDA=0 disables it. */
enum sidestep_status device_cuda_open(struct device_driver **driver, struct sidestep_error *err);

/* For doctor: loads the driver if the program has not, but creates no context. */
struct device_cuda_report {
    bool off;    /* disabled by SIDESTEP_CUDA=0 */
    bool hidden; /* the kernel has NVIDIA's module, but this process cannot find the library */
    int version; /* 1000 * major + 10 * minor; 0: no driver, or an unusable one */
    int devices;
    char first[128];   /* name of the first device */
    char problem[256]; /* why it cannot be used, or "" */
};
void device_cuda_probe(struct device_cuda_report *report);

#endif
