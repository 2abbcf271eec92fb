/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * standin.h -- a stand-in for NVIDIA's driver (libcuda.c): how tests control and observe it.
 *
 * The processor cannot touch the memory of its devices: an access is a SIGSEGV. Streams are
 * threads; they do what was submitted to them in order, at any time. The stand-in detects misuse
 * that a real driver would allow, or answer with a wrong checkpoint: see problem().
 */
#ifndef CUDA_STANDIN_H
#define CUDA_STANDIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STANDIN_DEVICES 4

/* What a program has not released: all zero at the end of a test. */
struct standin_left {
    int contexts; /* retained */
    int streams;  /* made by calls of the driver */
    int events;
    int pinned;  /* ranges */
    int pending; /* operations */
};

/* How a stream of a program stands to the legacy default one and to the primary context.  That of a
 * green context accepts events of the primary one, as NVIDIA's driver does. */
enum standin_stream { STANDIN_NON_BLOCKING, STANDIN_BLOCKING, STANDIN_GREEN, STANDIN_FOREIGN };

struct standin {
    /* Restore the initial state, with ${devices} devices, whose primary contexts are active, as if
     * the program had used each. */
    void (*reset)(int devices);
    void (*set_active)(int device, bool active);
    /* Set the version: CUDA ${version} / 1000; and the name of the devices. */
    void (*describe)(int version, const char *name);
    /* A program's memory, streams and kernels; stream 0 or 1 is the legacy default one of
     * ${device}, 2 that of the calling thread. */
    void *(*allocate)(int device, size_t bytes);
    void *(*allocate_managed)(int device, size_t bytes);
    void (*free)(void *memory);
    /* Reserve addresses of which only the first ${mapped_bytes} have memory (expandable segments).
     */
    void *(*reserve)(int device, size_t bytes, size_t mapped_bytes);
    /* Memory of a pool: it is there from the operation on ${stream} on, until another one. */
    void *(*allocate_on)(int device, void *stream, size_t bytes);
    void (*free_on)(int device, void *stream, void *memory);
    void *(*new_stream)(int device); /* STANDIN_NON_BLOCKING, as torch's */
    void *(*new_stream_of)(int device, enum standin_stream kind);
    void (*free_stream)(void *stream);
    /* Run ${kernel} on the stream's thread; it writes to ${bytes}. */
    void (*launch)(int device, void *stream,
                   void (*kernel)(void *memory, size_t bytes, void *context), void *memory,
                   size_t bytes, void *context);
    void (*synchronize)(int device, void *stream);
    /* Read device memory for the test; waits for nothing. */
    void (*read)(const void *memory, void *to, size_t bytes);
    void (*write)(void *memory, const void *from, size_t bytes);
    /* The address at which the test's processor finds the same bytes. */
    void *(*view)(const void *memory);
    /* Bytes that the driver has copied between devices and the host. */
    uint64_t (*copied_bytes)(void);
    /* In a child of fork(), where every call fails: the number of calls that do more than query an
     * address or the version. */
    unsigned long (*forked_calls)(void);
    /* Begin or end a capture of the global mode. */
    void (*capture)(int device, void *stream, bool on);
    bool (*capture_is_spoiled)(void);
    /* Make the ${nth} call (from 1; 0: none) of functions whose name starts with ${name} return
     * ${code}; with ${sticky}, all later ones too. */
    void (*fail_calls)(const char *name, unsigned long nth, int code, bool sticky);
    unsigned long (*failed_calls)(void); /* how many calls failed so */
    /* At the ${nth} operation of any stream its device is lost: it does nothing any more, and every
     * call in its context, or without a context, reports that. 0: never. */
    void (*lose)(unsigned long nth);
    /* Make streams sleep up to ${us} before each operation, at random. */
    void (*slow)(unsigned us);
    void (*limit_pinned)(size_t bytes);
    /* The number of calls that copy; one copy of a batch counts once. */
    unsigned long (*copy_calls)(void);
    /* Stop copies after so many bytes; 0: never, and stopped ones go on. */
    void (*hold_copies)(uint64_t bytes);
    /* The first misuse, as a sentence, or NULL. */
    const char *(*problem)(void);
    void (*forgive)(void); /* forget it, and look for the next */
    struct standin_left (*left)(void);
};

const struct standin *standin_get(void);

#endif
