/* SPDX-License-Identifier: BSD-3-Clause */
/* device_cuda_internal.h -- declarations shared by the CUDA files (device_cuda*.c): the driver's
 * functions. */
#ifndef SNAPSHOT_DEVICE_CUDA_INTERNAL_H
#define SNAPSHOT_DEVICE_CUDA_INTERNAL_H

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>

#include "snapshot/device.h"

typedef int cu_result;
typedef uint64_t cu_device_pointer;

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
};
enum { CU_MEMORYTYPE_HOST = 1, CU_MEMORYTYPE_DEVICE = 2 };

struct cuda_memcpy_2d;
struct cuda_memcpy_attributes;

/* cuMemcpyBatchAsync() of CUDA 12.8 */
typedef cu_result cuda_copy_batch_function(cu_device_pointer *to, cu_device_pointer *from,
                                           size_t *bytes, size_t count,
                                           struct cuda_memcpy_attributes *attributes,
                                           size_t *first_with, size_t attribute_count,
                                           size_t *failed, void *stream);

/* X(symbol, field name, parameters) */
#define CUDA_FUNCTIONS(X)                                                                          \
    X(cuInit, init, (unsigned flags))                                                              \
    X(cuDriverGetVersion, driver_get_version, (int *version))                                      \
    X(cuGetErrorName, get_error_name, (cu_result error, const char **name))                        \
    X(cuGetErrorString, get_error_string, (cu_result error, const char **text))                    \
    X(cuDeviceGetCount, device_get_count, (int *count))                                            \
    X(cuDeviceGetName, device_get_name, (char *name, int length, int device))                      \
    X(cuDeviceGetPCIBusId, device_get_pci_bus_id, (char *id, int length, int device))              \
    X(cuDevicePrimaryCtxGetState, primary_get_state, (int device, unsigned *flags, int *active))   \
    X(cuDevicePrimaryCtxRetain, primary_retain, (void **context, int device))                      \
    X(cuDevicePrimaryCtxRelease_v2, primary_release, (int device))                                 \
    X(cuCtxPushCurrent_v2, ctx_push, (void *context))                                              \
    X(cuCtxPopCurrent_v2, ctx_pop, (void **context))                                               \
    X(cuCtxGetStreamPriorityRange, priority_range, (int *least, int *greatest))                    \
    X(cuPointerGetAttributes, pointer_get,                                                         \
      (unsigned count, int *attributes, void **data, cu_device_pointer pointer))                   \
    X(cuStreamCreateWithPriority, stream_create, (void **stream, unsigned flags, int priority))    \
    X(cuStreamDestroy_v2, stream_destroy, (void *stream))                                          \
    X(cuStreamWaitEvent, stream_wait_event, (void *stream, void *event, unsigned flags))           \
    X(cuStreamIsCapturing, stream_is_capturing, (void *stream, int *status))                       \
    X(cuStreamSynchronize, stream_synchronize, (void *stream))                                     \
    X(cuThreadExchangeStreamCaptureMode, exchange_capture_mode, (int *mode))                       \
    X(cuEventCreate, event_create, (void **event, unsigned flags))                                 \
    X(cuEventDestroy_v2, event_destroy, (void *event))                                             \
    X(cuEventRecord, event_record, (void *event, void *stream))                                    \
    X(cuEventSynchronize, event_synchronize, (void *event))                                        \
    X(cuMemcpyDtoHAsync_v2, copy_out,                                                              \
      (void *to, cu_device_pointer from, size_t bytes, void *stream))                              \
    X(cuMemcpyHtoDAsync_v2, copy_in,                                                               \
      (cu_device_pointer to, const void *from, size_t bytes, void *stream))                        \
    X(cuMemcpy2DAsync_v2, copy_2d, (const struct cuda_memcpy_2d *copy, void *stream))              \
    X(cuMemHostRegister_v2, host_register, (void *memory, size_t bytes, unsigned flags))           \
    X(cuMemHostUnregister, host_unregister, (void *memory))

struct cuda_functions {
#define CUDA_MEMBER(symbol, call, parameters) cu_result(*call) parameters;
    CUDA_FUNCTIONS(CUDA_MEMBER)
#undef CUDA_MEMBER
};

struct cuda {
    struct device_driver driver;
    void *library;
    struct cuda_functions calls;
    cuda_copy_batch_function *copy_batch; /* or NULL */
    atomic_bool batches_refused;          /* a batch failed, but its copies one by one did not */
};

_Static_assert(offsetof(struct cuda, driver) == 0, "cuda_from_driver() relies on it");

static inline struct cuda *cuda_from_driver(struct device_driver *driver)
{
    return (struct cuda *)(void *)driver;
}

/* Fail with a message such as "cuEventRecord: CUDA_ERROR_INVALID_HANDLE (invalid resource
 * handle)". */
enum sidestep_status device_cuda_fail(const struct cuda_functions *calls, cu_result result,
                                      const char *call, const char *where,
                                      struct sidestep_error *err);

/* Call a function of the driver; return from the calling function if it fails. */
#define CUDA_TRY(cuda, symbol, call, ...)                                                          \
    do {                                                                                           \
        cu_result cuda_result_ = (cuda)->calls.call(__VA_ARGS__);                                  \
        if (cuda_result_ != CUDA_SUCCESS)                                                          \
            return device_cuda_fail(&(cuda)->calls, cuda_result_, symbol, HERE, err);              \
    } while (0)

/* See device.h: copy(). */
enum sidestep_status device_cuda_copy(struct device_driver *driver,
                                      const struct device_copy *copies, size_t count, void *stream,
                                      size_t *failed, struct sidestep_error *err);

#endif
