/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * standin.h -- what tests tell the stand-in for NVIDIA's driver (libcuda.c), and what it tells
 * them.
 *
 * The memory of its devices cannot be touched by the processor: who tries dies of SIGSEGV.  Streams
 * are threads, and do what was submitted to them, in order, whenever they like.  It watches for
 * what a real driver would let pass, or answer with a wrong checkpoint: see problem().
 */
#ifndef CUDA_STANDIN_H
#define CUDA_STANDIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STANDIN_DEVICES 4

/* What stands in the way of "nothing is left": all zero at the end of a test. */
struct standin_left {
    int contexts; /* retained */
    int streams;  /* made by calls of the driver */
    int events;
    int pinned;  /* ranges */
    int pending; /* operations */
};

struct standin {
    /* Everything as at the beginning, with ${devices} devices, whose primary contexts are active,
     * as if the program had used each. */
    void (*reset)(int devices);
    void (*set_active)(int device, bool active);
    /* A driver of CUDA ${version} / 1000, of devices called ${name}. */
    void (*describe)(int version, const char *name);
    /* A program's memory, streams and kernels; a stream NULL is the default one of ${device}. */
    void *(*allocate)(int device, size_t bytes);
    void *(*allocate_managed)(int device, size_t bytes);
    void (*free)(void *memory);
    /* Addresses behind which the second half is not there yet (expandable segments). */
    void *(*reserve)(int device, size_t bytes, size_t mapped_bytes);
    void *(*new_stream)(int device);
    void (*free_stream)(void *stream);
    /* ${kernel} runs on the stream's thread, over ${bytes} that it writes to. */
    void (*launch)(int device, void *stream,
                   void (*kernel)(void *memory, size_t bytes, void *context), void *memory,
                   size_t bytes, void *context);
    void (*synchronize)(int device, void *stream);
    /* The test's own look at device memory; waits for nothing. */
    void (*read)(const void *memory, void *to, size_t bytes);
    void (*write)(void *memory, const void *from, size_t bytes);
    /* Where the test's processor finds the same bytes. */
    void *(*view)(const void *memory);
    /* By copies of the driver, between devices and the host. */
    uint64_t (*copied_bytes)(void);
    /* In a child of fork(), where each fails: calls of the driver that ask for more than what an
     * address is, or which version this is. */
    unsigned long (*forked_calls)(void);
    /* A capture of the whole process's kind. */
    void (*capture)(int device, void *stream, bool on);
    bool (*capture_is_spoiled)(void);
    /* The ${nth} call (from 1; 0: none) of functions whose name starts with ${name} returns
     * ${code}; with ${sticky}, all later ones too. */
    void (*fail_calls)(const char *name, unsigned long nth, int code, bool sticky);
    unsigned long (*failed_calls)(void); /* how many calls did */
    /* From the ${nth} operation of any stream on, the device is lost: nothing is done any more, and
     * every call says so.  0: never. */
    void (*lose)(unsigned long nth);
    /* Before each operation streams sleep for up to ${us}, at random. */
    void (*slow)(unsigned us);
    void (*limit_pinned)(size_t bytes);
    /* Calls of the driver that copy; one of a batch counts once. */
    unsigned long (*copy_calls)(void);
    /* From when so many bytes were copied on, copies stand still; 0: never, and those that do go
     * on. */
    void (*hold_copies)(uint64_t bytes);
    /* The first misuse, as a sentence, or NULL. */
    const char *(*problem)(void);
    void (*forgive)(void); /* and look for the next */
    struct standin_left (*left)(void);
};

const struct standin *standin_get(void);

#endif
