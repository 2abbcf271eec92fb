/* SPDX-License-Identifier: BSD-3-Clause */
/* tensor_memory.c -- allocates memory of tensors on the host or on devices of the stand-in driver.
 */
#include "tensor_memory.h"

#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda/standin.h"

#define DEVICES 2
/* Each rank's device streams are threads; with more ranks, everything is in host memory. */
#define MAX_PLACES (8 * 64)

struct tensor_memory {
    int device; /* -1: host */
    void *address;
    void *view;
    size_t bytes;
};

struct writing {
    void (*write)(void *context);
    void *context;
};

static const struct standin *cuda; /* NULL: everything is in host memory */
static pid_t owner;                /* process that uses the devices; its children do not */

static void check_at_exit(void)
{
    if (getpid() != owner)
        return;
    struct standin_left left = cuda->left(), none = {0};
    const char *problem = cuda->problem();
    if (problem == NULL && memcmp(&left, &none, sizeof(none)) != 0)
        problem = "something is left in the driver";
    if (problem == NULL && cuda->copied_bytes() == 0)
        problem = "nothing was on a device";
    if (problem == NULL)
        return;
    fprintf(stderr, "# the stand-in driver: %s\n", problem);
    _exit(99);
}

static void look(void)
{
    const struct standin *(*get)(void);
    const char *path = getenv("SIDESTEP_TEST_CUDA");

    if (path == NULL)
        return;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *symbol = library != NULL ? dlsym(library, "standin_get") : NULL;
    if (symbol == NULL)
        fprintf(stderr, "# %s\n", dlerror());
    assert(symbol != NULL);
    memcpy(&get, &symbol, sizeof(get));
    cuda = get();
    cuda->reset(DEVICES);
    owner = getpid();
    (void)atexit(check_at_exit);
}

bool tensor_memory_has_devices(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, look);
    return cuda != NULL;
}

struct tensor_memory *tensor_memory_new(size_t bytes, int place)
{
    struct tensor_memory *memory = malloc(sizeof(*memory));

    assert(memory != NULL);
    *memory = (struct tensor_memory){.device = -1, .bytes = bytes};
    if (tensor_memory_has_devices() && getpid() == owner && place % 3 != 2 && place < MAX_PLACES) {
        memory->device = place % 3 % DEVICES;
        memory->address = cuda->allocate(memory->device, bytes);
        memory->view = cuda->view(memory->address);
    } else {
        memory->address = memory->view = calloc(1, bytes);
        assert(memory->address != NULL);
    }
    return memory;
}

void tensor_memory_free(struct tensor_memory *memory)
{
    if (memory->device >= 0) {
        tensor_memory_settle(memory);
        cuda->free(memory->address);
    } else {
        free(memory->address);
    }
    free(memory);
}

void *tensor_memory_address(const struct tensor_memory *memory)
{
    return memory->address;
}

void *tensor_memory_view(const struct tensor_memory *memory)
{
    return memory->view;
}

static void write_kernel(void *view, size_t bytes, void *context)
{
    struct writing *writing = context;

    (void)view;
    (void)bytes;
    writing->write(writing->context);
    free(writing);
}

void tensor_memory_run(struct tensor_memory *memory, void (*write)(void *context), void *context)
{
    if (memory->device < 0) {
        write(context);
        return;
    }
    struct writing *writing = malloc(sizeof(*writing));
    assert(writing != NULL);
    *writing = (struct writing){write, context};
    cuda->launch(memory->device, NULL, write_kernel, memory->address, memory->bytes, writing);
}

void tensor_memory_settle(const struct tensor_memory *memory)
{
    if (memory->device >= 0)
        cuda->synchronize(memory->device, NULL);
}
