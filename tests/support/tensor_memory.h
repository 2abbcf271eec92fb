/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tensor_memory.h -- where tests put tensors.  Host memory; or, for a program that is started with
 * SIDESTEP_TEST_CUDA=PATH of the stand-in driver (tests/cuda), most of it on two devices of that:
 * so the same tests are run over both.  A program that is started so, and of whose tensors no byte
 * was ever copied to or from a device, or that misuses the driver, or leaves something there, fails
 * at its end.
 */
#ifndef SUPPORT_TENSOR_MEMORY_H
#define SUPPORT_TENSOR_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

struct tensor_memory;

/* Was the program started so? */
bool tensor_memory_has_devices(void);
/* Zeroed.  ${place}: any number, which decides on the device, or the host.  Asserts. */
struct tensor_memory *tensor_memory_new(size_t bytes, int place);
void tensor_memory_free(struct tensor_memory *memory);
/* What the library is told ... */
void *tensor_memory_address(const struct tensor_memory *memory);
/* ... and where the test finds the same bytes. */
void *tensor_memory_view(const struct tensor_memory *memory);
/* ${write} writes to the view: at once, or when the device's default stream comes to it. */
void tensor_memory_run(struct tensor_memory *memory, void (*write)(void *context), void *context);
/* Wait for what was run. */
void tensor_memory_settle(const struct tensor_memory *memory);

#endif
