/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * devices.h -- the devices that an engine uses: their contexts, one stream of sidestep for each
 * direction, reusable events, and staging memory that the drivers can access directly (pinned).
 *
 * Only the thread that calls collective functions changes these structs.  Other threads may enter
 * an open device and call its driver.
 */
#ifndef SNAPSHOT_DEVICES_H
#define SNAPSHOT_DEVICES_H

#include "snapshot/device.h"
#include "snapshot/pool.h"

/* Memory is pinned in parts of this size: drivers are slow with very large ones, or refuse them.  A
 * copy must not cross the end of a part. */
#define DEVICES_MAX_PIN_BYTES ((uint64_t)16 << 30)

#define DEVICES_KNOWN 64u

struct device {
    void *context; /* retained; NULL: not opened */
    void *out;     /* sidestep's stream for copies from the device */
    void *in;      /* its stream for copies to the device */
    void **events;
    size_t event_count;
};

struct devices {
    struct device_driver *driver;  /* NULL: the process has no driver, or none was detected yet */
    struct sidestep_error refused; /* why a driver that was found cannot be used */
    struct device devices[DEVICE_MAX];
    /* The pinned memory: all of the pool, or nothing. */
    uint8_t *pinned;
    uint64_t pinned_bytes;
    const uint8_t *unpinnable; /* memory that could not be pinned; not tried again */
    uint64_t unpinnable_bytes;
    struct sidestep_error pin_refused; /* why it could not be pinned */
    /* What devices_locate() has found in this call, each at a place that its address chooses:
     * asking the driver for every tensor takes longer than to submit its copy. */
    struct device_allocation known[DEVICES_KNOWN];
};

/* Detect whether the program has loaded a driver, and forget what is known of memory, which may
 * have been freed.  False with devices->refused.status set: the driver cannot be used.  Call it at
 * the beginning of a call of the program, and seldom more than once, because the loader searches
 * all of its folders. */
bool devices_detect_driver(struct devices *devices);
void devices_close(struct devices *devices);

/* The device that has ${bytes} at ${address}, or -1 for host memory, as far as
 * devices_detect_driver() has found a driver.  EINVAL: a part is not allocated or is on another
 * device; or the driver does not know the address and the CPU cannot read it. */
enum sidestep_status devices_locate(struct devices *devices, uint64_t address, uint64_t bytes,
                                    int32_t *device, struct sidestep_error *err);
/* Retain the context of ${device} and create streams, for the life of the engine. */
enum sidestep_status devices_open(struct devices *devices, int32_t device,
                                  struct sidestep_error *err);
/* Create events until there are ${count}, on a device that is open and entered. */
enum sidestep_status devices_reserve_events(struct devices *devices, int32_t device, size_t count,
                                            struct sidestep_error *err);

/* See device.h: enter() and leave(), for an open device.  Driver functions may be called between
 * them. */
enum sidestep_status devices_enter(struct devices *devices, int32_t device, int *before,
                                   struct sidestep_error *err);
void devices_leave(struct devices *devices, int before);
/* For a stream of the program on an open device: is a graph being captured on it? */
enum sidestep_status devices_is_capturing(struct devices *devices, int32_t device, void *stream,
                                          bool *capturing, struct sidestep_error *err);
/* Record the current work of a stream of the program, so that sidestep's streams can wait for it. A
 * stream of another context may refuse the event; then the caller waits for the stream. */
enum sidestep_status devices_record(struct devices *devices, int32_t device, void *event,
                                    void *stream, struct sidestep_error *err);
/* Wait for all work of one of sidestep's streams, even if an earlier call failed. */
enum sidestep_status devices_synchronize(struct devices *devices, int32_t device, void *stream,
                                         struct sidestep_error *err);

/* Mark, on sidestep's stream to ${device}, the end of the copies that were submitted so far.
 * ${*event}: NULL, or an event of that device, which is used again.  NULL afterwards: the driver
 * refused it. */
void devices_mark_copies(struct devices *devices, int32_t device, void **event);
/* Wait for the copies before a mark; ${event} NULL: for all copies.  Also if the driver refuses the
 * event. */
enum sidestep_status devices_wait_copies(struct devices *devices, int32_t device, void *event,
                                         struct sidestep_error *err);
/* Free the event of a mark, if there is one, and set it to NULL. */
void devices_free_event(struct devices *devices, int32_t device, void **event);

/* The NUMA node nearest to all open devices; -1: they have none in common. */
int devices_numa_node(struct devices *devices);
/* Pin the pool if it is not pinned.  False: it stays pageable, and pin_refused has the reason.  The
 * pool must be unpinned before it is freed. */
bool devices_pin_pool(struct devices *devices, const struct pool *pool);
void devices_unpin_pool(struct devices *devices);
/* The same for a short-lived buffer of at most DEVICES_MAX_PIN_BYTES. */
bool devices_pin_buffer(struct devices *devices, const struct pool *buffer);
void devices_unpin_buffer(struct devices *devices, const struct pool *buffer);
/* The most bytes from ${memory} on that one copy may span. */
uint64_t devices_max_copy_bytes(const struct devices *devices, const uint8_t *memory);

#endif
