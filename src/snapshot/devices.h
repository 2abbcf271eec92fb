/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * devices.h -- the devices that an engine has to do with: their contexts, a stream of ours on each
 * for either direction, events that are used again, and the staging memory that their drivers may
 * write to by themselves (pinned).
 *
 * One thread at a time changes what is here: the one that calls collective functions.  Others may
 * enter a device that was opened, and call its driver.
 */
#ifndef SNAPSHOT_DEVICES_H
#define SNAPSHOT_DEVICES_H

#include "snapshot/device.h"
#include "snapshot/pool.h"

/* Registered in pieces: drivers take long, or refuse, what is very large.  No copy crosses the end
 * of one. */
#define DEVICES_MAX_PIN_BYTES ((uint64_t)16 << 30)

struct device {
    void *context; /* retained; NULL: not opened */
    void *out;     /* streams of ours: from the device ... */
    void *in;      /* ... and to it */
    void **events;
    size_t event_count;
};

struct devices {
    struct device_driver *driver;  /* NULL: there is none in the process, or not yet */
    struct sidestep_error refused; /* it was found, and cannot be used */
    struct device devices[DEVICE_MAX];
    /* What is pinned: all of it, or nothing. */
    uint8_t *pinned;
    uint64_t pinned_bytes;
    const uint8_t *unpinnable; /* memory that was refused, which is not tried again, ... */
    uint64_t unpinnable_bytes;
    struct sidestep_error pin_refused; /* ... and why */
};

/* Has the program a driver (by now)?  False, with devices->refused.status set: one that we cannot
 * use.  Once per call of the program's: the loader looks through all of its folders. */
bool devices_detect_driver(struct devices *devices);
void devices_close(struct devices *devices);

/* Where ${bytes} at ${address} lie, as far as devices_detect_driver() knew: a device, or -1: in
 * host memory. EINVAL: part of it is not there, or on another device; or the driver does not know
 * it, and nobody can read it. */
enum sidestep_status devices_locate(struct devices *devices, uint64_t address, uint64_t bytes,
                                    int32_t *device, struct sidestep_error *err);
/* Context and streams of ${device}, for the engine's life. */
enum sidestep_status devices_open(struct devices *devices, int32_t device,
                                  struct sidestep_error *err);
/* At least ${count} events of a device that is open and entered. */
enum sidestep_status devices_reserve_events(struct devices *devices, int32_t device, size_t count,
                                            struct sidestep_error *err);

/* See device.h; of a device that is open.  The driver's functions follow. */
enum sidestep_status devices_enter(struct devices *devices, int32_t device, int *before,
                                   struct sidestep_error *err);
void devices_leave(struct devices *devices, int before);
/* Wait for all that was submitted to one of our streams, whatever happened before. */
enum sidestep_status devices_synchronize(struct devices *devices, int32_t device, void *stream,
                                         struct sidestep_error *err);

/* The node of the machine's memory that all open devices are next to; -1: there is none such. */
int devices_numa_node(struct devices *devices);
/* Pin the pool if it is not; false: it is pageable, and pin_refused says why.  Before the pool goes
 * away it must be unpinned. */
bool devices_pin_pool(struct devices *devices, const struct pool *pool);
void devices_unpin_pool(struct devices *devices);
/* The same for a buffer of less than DEVICES_MAX_PIN_BYTES that lives shortly. */
bool devices_pin_buffer(struct devices *devices, const struct pool *buffer);
void devices_unpin_buffer(struct devices *devices, const struct pool *buffer);
/* Bytes from ${memory} on that one copy may reach. */
uint64_t devices_max_copy_bytes(const struct devices *devices, const uint8_t *memory);

#endif
