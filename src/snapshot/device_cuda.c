/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device_cuda.c -- see device.h: NVIDIA's driver, libcuda.so.1, found in the process by dlopen(3).
 *
 * Names, numbers and structs are those of the driver API; symbols are asked for by the version
 * whose prototype stands here, since a plain name may mean an older one.  Nothing of the runtime
 * (cudart) is used: torch may carry another one than this machine has.
 */
#include "snapshot/device.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/memory.h"
#include "base/owned.h"

#define MODULE "/proc/driver/nvidia/version"

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
enum {
    CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
    CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
    CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12,
    CU_POINTER_ATTRIBUTE_MAPPED = 13,
};
enum { CU_MEMORYTYPE_HOST = 1, CU_MEMORYTYPE_DEVICE = 2 };
enum { CU_STREAM_NON_BLOCKING = 1 };
enum { CU_STREAM_CAPTURE_STATUS_NONE = 0, CU_STREAM_CAPTURE_MODE_RELAXED = 2 };
enum { CU_EVENT_BLOCKING_SYNC = 1, CU_EVENT_DISABLE_TIMING = 2 };
enum { CU_MEMHOSTREGISTER_PORTABLE = 1 };
enum { NEEDED_VERSION = 10010 }; /* relaxed captures, see enter() */

/* CU_STREAM_LEGACY */
void *const device_default_stream = (void *)1; /* NOLINT(performance-no-int-to-ptr) */

struct cuda_memcpy_2d { /* CUDA_MEMCPY2D_v2 */
    size_t src_x, src_y;
    int src_type;
    const void *src_host;
    cu_device_pointer src_device;
    void *src_array;
    size_t src_pitch;
    size_t dst_x, dst_y;
    int dst_type;
    void *dst_host;
    cu_device_pointer dst_device;
    void *dst_array;
    size_t dst_pitch;
    size_t width, height;
};

/* X(symbol, as we call it, its parameters) */
#define CUDA_CALLS(X)                                                                              \
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

struct cuda_calls {
#define CUDA_MEMBER(symbol, call, parameters) cu_result(*call) parameters;
    CUDA_CALLS(CUDA_MEMBER)
#undef CUDA_MEMBER
};

struct cuda {
    struct device_driver driver; /* first */
    void *library;
    struct cuda_calls calls;
};

static struct cuda *cuda_of(struct device_driver *driver)
{
    return (struct cuda *)(void *)driver;
}

/* ---- errors */

/* "cuEventRecord: CUDA_ERROR_INVALID_HANDLE (invalid resource handle)" */
static enum sidestep_status cuda_fail(const struct cuda_calls *calls, cu_result result,
                                      const char *call, const char *where,
                                      struct sidestep_error *err)
{
    const char *name = NULL, *text = NULL;
    enum sidestep_status status = SIDESTEP_EDEVICE;

    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        status = SIDESTEP_ENOMEM;
    else if (result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_HANDLE ||
             result == CUDA_ERROR_INVALID_CONTEXT)
        status = SIDESTEP_EINVAL;
    (void)calls->get_error_name(result, &name);
    (void)calls->get_error_string(result, &text);
    return error_set(err, status, 0, where, "%s: %s (%s)", call,
                     name != NULL ? name : "an unknown error",
                     text != NULL ? text : "the driver does not say what");
}

/* Call a function of the driver's; on failure return it to our caller. */
#define CUDA_TRY(cuda, symbol, call, ...)                                                          \
    do {                                                                                           \
        cu_result cuda_result_ = (cuda)->calls.call(__VA_ARGS__);                                  \
        if (cuda_result_ != CUDA_SUCCESS)                                                          \
            return cuda_fail(&(cuda)->calls, cuda_result_, symbol, HERE, err);                     \
    } while (0)

/* ---- memory */

static enum sidestep_status cuda_find(struct device_driver *driver, uint64_t address,
                                      struct device_range *range, struct sidestep_error *err)
{
    struct cuda *cuda = cuda_of(driver);
    int attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_IS_MANAGED,
                        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                        CU_POINTER_ATTRIBUTE_RANGE_SIZE,     CU_POINTER_ATTRIBUTE_MAPPED};
    unsigned type = 0, managed = 0, mapped = 0;
    int device = -1;
    cu_device_pointer begin = 0;
    size_t bytes = 0;
    void *data[] = {&type, &managed, &device, &begin, &bytes, &mapped};

    *range = (struct device_range){.device = -1};
    /* Plain memory is no error, and has zeroes. */
    cu_result result = cuda->calls.pointer_get(ARRAY_LENGTH(attributes), attributes, data, address);
    if (result == CUDA_ERROR_INVALID_VALUE)
        return SIDESTEP_OK;
    if (result == CUDA_ERROR_NOT_INITIALIZED)
        return FAIL(err, SIDESTEP_EUNSUPPORTED,
                    "CUDA was not started in this process (a child of fork() has nothing of its "
                    "parent's devices: start workers by spawn or exec)");
    if (result != CUDA_SUCCESS)
        return cuda_fail(&cuda->calls, result, "cuPointerGetAttributes", HERE, err);
    if (type != CU_MEMORYTYPE_DEVICE && (managed & 0xff) == 0)
        return SIDESTEP_OK;
    if ((mapped & 0xff) == 0) /* addresses that are reserved, with no memory behind them */
        return SIDESTEP_OK;
    *range = (struct device_range){.device = device >= 0 ? device : 0,
                                   .begin = bytes != 0 ? begin : address,
                                   .end = bytes != 0 ? begin + bytes : UINT64_MAX};
    return SIDESTEP_OK;
}

static enum sidestep_status cuda_pin(struct device_driver *driver, void *memory, uint64_t bytes,
                                     struct sidestep_error *err)
{
    struct cuda *cuda = cuda_of(driver);

    CUDA_TRY(cuda, "cuMemHostRegister", host_register, memory, bytes, CU_MEMHOSTREGISTER_PORTABLE);
    return SIDESTEP_OK;
}

static void cuda_unpin(struct device_driver *driver, void *memory)
{
    (void)cuda_of(driver)->calls.host_unregister(memory);
}

static enum sidestep_status cuda_copy(struct device_driver *driver, const struct device_copy *copy,
                                      void *stream, struct sidestep_error *err)
{
    struct cuda *cuda = cuda_of(driver);

    if (copy->rows == 1 && copy->to_device) {
        CUDA_TRY(cuda, "cuMemcpyHtoDAsync", copy_in, copy->address, copy->host, copy->bytes,
                 stream);
        return SIDESTEP_OK;
    }
    if (copy->rows == 1) {
        CUDA_TRY(cuda, "cuMemcpyDtoHAsync", copy_out, copy->host, copy->address, copy->bytes,
                 stream);
        return SIDESTEP_OK;
    }
    struct cuda_memcpy_2d rows = {.width = copy->bytes, .height = copy->rows};
    if (copy->to_device) {
        rows.src_type = CU_MEMORYTYPE_HOST;
        rows.src_host = copy->host;
        rows.src_pitch = copy->host_pitch;
        rows.dst_type = CU_MEMORYTYPE_DEVICE;
        rows.dst_device = copy->address;
        rows.dst_pitch = copy->device_pitch;
    } else {
        rows.src_type = CU_MEMORYTYPE_DEVICE;
        rows.src_device = copy->address;
        rows.src_pitch = copy->device_pitch;
        rows.dst_type = CU_MEMORYTYPE_HOST;
        rows.dst_host = copy->host;
        rows.dst_pitch = copy->host_pitch;
    }
    CUDA_TRY(cuda, "cuMemcpy2DAsync", copy_2d, &rows, stream);
    return SIDESTEP_OK;
}

/* ---- contexts */

static enum sidestep_status cuda_retain(struct device_driver *driver, int32_t device,
                                        void **context, struct sidestep_error *err)
{
    struct cuda *cuda = cuda_of(driver);
    unsigned flags = 0;
    int active = 0;

    CUDA_TRY(cuda, "cuDevicePrimaryCtxGetState", primary_get_state, device, &flags, &active);
    if (active == 0) /* retaining it would make one, of hundreds of MB */
        return FAIL(err, SIDESTEP_EUNSUPPORTED,
                    "device %d has no primary context: only that of CUDA's runtime is used, and "
                    "the program has another one",
                    device);
    CUDA_TRY(cuda, "cuDevicePrimaryCtxRetain", primary_retain, context, device);
    return SIDESTEP_OK;
}

static void cuda_release(struct device_driver *driver, int32_t device)
{
    (void)cuda_of(driver)->calls.primary_release(device);
}

/* A thread that is relaxed may allocate and ask while another captures a graph: else our call would
 * fail, or spoil the program's capture. */
static enum sidestep_status cuda_enter(struct device_driver *driver, void *context, int *before,
                                       struct sidestep_error *err)
{
    struct cuda *cuda = cuda_of(driver);
    int mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    CUDA_TRY(cuda, "cuCtxPushCurrent", ctx_push, context);
    cu_result result = cuda->calls.exchange_capture_mode(&mode);
    if (result != CUDA_SUCCESS) {
        (void)cuda->calls.ctx_pop(&context);
        return cuda_fail(&cuda->calls, result, "cuThreadExchangeStreamCaptureMode", HERE, err);
    }
    *before = mode;
    return SIDESTEP_OK;
}

static void cuda_leave(struct device_driver *driver, int before)
{
    struct cuda *cuda = cuda_of(driver);
    void *context;

    (void)cuda->calls.exchange_capture_mode(&before);
    (void)cuda->calls.ctx_pop(&context);
}

static int cuda_numa_node(struct device_driver *driver, int32_t device)
{
    char id[32] = "", path[96], text[16] = "";

    if (cuda_of(driver)->calls.device_get_pci_bus_id(id, sizeof(id), device) != CUDA_SUCCESS)
        return -1;
    for (char *c = id; *c != '\0'; c++) /* the kernel writes it small */
        *c = *c >= 'A' && *c <= 'F' ? (char)(*c - 'A' + 'a') : *c;
    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/numa_node", id);
    OWNED_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
        return -1;
    return (int)strtol(text, NULL, 10);
}

/* ---- streams and events */

static enum sidestep_status cuda_stream_new(struct device_driver *driver, void **stream,
                                            struct sidestep_error *err)
{
    struct cuda *cuda = cuda_of(driver);
    int least = 0, greatest = 0;

    CUDA_TRY(cuda, "cuCtxGetStreamPriorityRange", priority_range, &least, &greatest);
    CUDA_TRY(cuda, "cuStreamCreateWithPriority", stream_create, stream, CU_STREAM_NON_BLOCKING,
             least);
    return SIDESTEP_OK;
}

static void cuda_stream_free(struct device_driver *driver, void *stream)
{
    (void)cuda_of(driver)->calls.stream_destroy(stream);
}

static enum sidestep_status cuda_stream_wait(struct device_driver *driver, void *stream,
                                             void *event, struct sidestep_error *err)
{
    struct cuda *cuda = cuda_of(driver);

    CUDA_TRY(cuda, "cuStreamWaitEvent", stream_wait_event, stream, event, 0);
    return SIDESTEP_OK;
}

static enum sidestep_status cuda_stream_is_capturing(struct device_driver *driver, void *stream,
                                                     bool *capturing, struct sidestep_error *err)
{
    struct cuda *cuda = cuda_of(driver);
    int status = CU_STREAM_CAPTURE_STATUS_NONE;
    cu_result result = cuda->calls.stream_is_capturing(stream, &status);

    *capturing =
        result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT || /* the default stream is drawn in */
        status != CU_STREAM_CAPTURE_STATUS_NONE;
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
        return cuda_fail(&cuda->calls, result, "cuStreamIsCapturing", HERE, err);
    return SIDESTEP_OK;
}

static enum sidestep_status cuda_stream_settle(struct device_driver *driver, void *stream,
                                               struct sidestep_error *err)
{
    struct cuda *cuda = cuda_of(driver);

    CUDA_TRY(cuda, "cuStreamSynchronize", stream_synchronize, stream);
    return SIDESTEP_OK;
}

static enum sidestep_status cuda_event_new(struct device_driver *driver, void **event,
                                           struct sidestep_error *err)
{
    struct cuda *cuda = cuda_of(driver);

    CUDA_TRY(cuda, "cuEventCreate", event_create, event,
             CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING);
    return SIDESTEP_OK;
}

static void cuda_event_free(struct device_driver *driver, void *event)
{
    (void)cuda_of(driver)->calls.event_destroy(event);
}

static enum sidestep_status cuda_event_record(struct device_driver *driver, void *event,
                                              void *stream, struct sidestep_error *err)
{
    struct cuda *cuda = cuda_of(driver);

    CUDA_TRY(cuda, "cuEventRecord", event_record, event, stream);
    return SIDESTEP_OK;
}

static enum sidestep_status cuda_event_await(struct device_driver *driver, void *event,
                                             struct sidestep_error *err)
{
    struct cuda *cuda = cuda_of(driver);

    CUDA_TRY(cuda, "cuEventSynchronize", event_synchronize, event);
    return SIDESTEP_OK;
}

/* ---- opening */

static bool is_off(void)
{
    const char *wanted = getenv("SIDESTEP_CUDA");

    return wanted != NULL && strcmp(wanted, "0") == 0;
}

/* By name and version; through the driver's own table where the linker does not know it. */
static void *find_symbol(void *library, const char *name)
{
    void *symbol = dlsym(library, name), *look_up = dlsym(library, "cuGetProcAddress_v2");
    cu_result (*look_up_call)(const char *, void **, int, uint64_t, int *);
    char plain[64];
    int status;

    if (symbol != NULL || look_up == NULL)
        return symbol;
    memcpy(&look_up_call, &look_up, sizeof(look_up_call));
    snprintf(plain, sizeof(plain), "%s", name);
    char *version = strstr(plain, "_v2");
    if (version != NULL)
        *version = '\0';
    return look_up_call(plain, &symbol, 12000, 0, &status) == CUDA_SUCCESS ? symbol : NULL;
}

/* The name of the first that is not there; NULL: all are. */
static const char *find_calls(void *library, struct cuda_calls *calls)
{
    void *symbol;

#define CUDA_FIND(name, call, parameters)                                                          \
    symbol = find_symbol(library, #name);                                                          \
    if (symbol == NULL)                                                                            \
        return #name;                                                                              \
    memcpy(&calls->call, &symbol, sizeof(calls->call));
    CUDA_CALLS(CUDA_FIND)
#undef CUDA_FIND
    return NULL;
}

static void cuda_close(struct device_driver *driver)
{
    struct cuda *cuda = cuda_of(driver);

    (void)dlclose(cuda->library); /* the program still has it */
    free(cuda);
}

static const struct device_ops cuda_ops = {
    .name = "CUDA",
    .close = cuda_close,
    .find = cuda_find,
    .retain = cuda_retain,
    .release = cuda_release,
    .enter = cuda_enter,
    .leave = cuda_leave,
    .stream_new = cuda_stream_new,
    .stream_free = cuda_stream_free,
    .stream_wait = cuda_stream_wait,
    .stream_is_capturing = cuda_stream_is_capturing,
    .stream_settle = cuda_stream_settle,
    .event_new = cuda_event_new,
    .event_free = cuda_event_free,
    .event_record = cuda_event_record,
    .event_await = cuda_event_await,
    .copy = cuda_copy,
    .pin = cuda_pin,
    .unpin = cuda_unpin,
    .numa_node = cuda_numa_node,
};

/* May this library be used?  Finds its functions. */
static enum sidestep_status check_library(void *library, struct cuda_calls *calls,
                                          struct sidestep_error *err)
{
    int version = 0;
    const char *missing = find_calls(library, calls);

    if (missing != NULL)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "libcuda.so.1 has no %s: its driver is too old",
                    missing);
    cu_result result = calls->driver_get_version(&version);
    if (result != CUDA_SUCCESS)
        return cuda_fail(calls, result, "cuDriverGetVersion", HERE, err);
    if (version < NEEDED_VERSION)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "the driver is of CUDA %d.%d, %d.%d is needed",
                    version / 1000, version % 1000 / 10, NEEDED_VERSION / 1000,
                    NEEDED_VERSION % 1000 / 10);
    return SIDESTEP_OK;
}

enum sidestep_status device_cuda_open(struct device_driver **driver, struct sidestep_error *err)
{
    *driver = NULL;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (library == NULL)
        return SIDESTEP_OK;
    if (is_off()) {
        (void)dlclose(library);
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "it is switched off by SIDESTEP_CUDA=0");
    }
    struct cuda *cuda = memory_new(1, sizeof(*cuda));
    if (cuda == NULL) {
        (void)dlclose(library);
        return FAIL_NOMEM(err, sizeof(*cuda));
    }
    *cuda = (struct cuda){.driver = {.ops = &cuda_ops}, .library = library};
    enum sidestep_status status = check_library(library, &cuda->calls, err);
    if (status != SIDESTEP_OK)
        cuda_close(&cuda->driver);
    else
        *driver = &cuda->driver;
    return status;
}

/* ---- for doctor */

void device_cuda_look(struct device_cuda_report *report)
{
    struct cuda_calls calls;
    struct sidestep_error why = {0};

    *report = (struct device_cuda_report){.off = is_off()};
    void *library = report->off ? NULL : dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    report->hidden = library == NULL && (fault_hit("cuda.module") || access(MODULE, F_OK) == 0);
    if (library == NULL)
        return;
    enum sidestep_status status = check_library(library, &calls, &why);
    if (status == SIDESTEP_OK) {
        (void)calls.driver_get_version(&report->version);
        library = NULL; /* once started it has threads: it stays */
        cu_result result = calls.init(0);
        if (result == CUDA_SUCCESS)
            result = calls.device_get_count(&report->devices);
        if (result != CUDA_SUCCESS && result != CUDA_ERROR_NO_DEVICE)
            (void)cuda_fail(&calls, result, "cuInit", HERE, &why);
        if (report->devices > 0)
            (void)calls.device_get_name(report->first, sizeof(report->first), 0);
    }
    snprintf(report->problem, sizeof(report->problem), "%s", why.message);
    if (library != NULL)
        (void)dlclose(library);
}
