/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tensor_memory.h -- memory for the tensors of tests. It is host memory; if SIDESTEP_TEST_CUDA=PATH
 * names the stand-in driver (tests/cuda), most of it is on two of the driver's devices, so that the
 * same tests run with both. Such a program fails at its end if no byte of its tensors was copied to
 * or from a device, if it misused the driver, or if it did not free what it allocated there.
 */
#ifndef SUPPORT_TENSOR_MEMORY_H
#define SUPPORT_TENSOR_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

struct tensor_memory;

/* Does the program use devices? */
bool tensor_memory_has_devices(void);
/* Allocate zeroed memory. ${place}: any number; it selects the device or the host. Asserts. */
struct tensor_memory *tensor_memory_new(size_t bytes, int place);
void tensor_memory_free(struct tensor_memory *memory);
/* The address for the library ... */
void *tensor_memory_address(const struct tensor_memory *memory);
/* ... and the address at which the test sees the same bytes. */
void *tensor_memory_view(const struct tensor_memory *memory);
/* Call ${write}, which writes to the view: at once, or in order on the device's default stream. */
void tensor_memory_run(struct tensor_memory *memory, void (*write)(void *context), void *context);
/* Wait for all such writes. */
void tensor_memory_settle(const struct tensor_memory *memory);

#endif
