/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device_cuda.c -- implements device.h with NVIDIA's driver, libcuda.so.1, which dlopen(3) finds in
 * the process.
 *
 * Names, numbers and structs are those of the driver API.  Symbols are looked up with the version
 * whose prototype is used here, because a plain name may mean an older one.  Nothing of the runtime
 * (cudart) is used: torch may bring a version that differs from this machine's.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "snapshot/device_cuda_internal.h"

#define NVIDIA_MODULE "/proc/driver/nvidia/version"

enum {
    CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
    CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
    CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE = 10,
    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
    CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12,
    CU_POINTER_ATTRIBUTE_MAPPED = 13,
};
enum { CU_STREAM_NON_BLOCKING = 1 };
enum { CU_STREAM_CAPTURE_STATUS_NONE = 0, CU_STREAM_CAPTURE_MODE_RELAXED = 2 };
enum { CU_EVENT_BLOCKING_SYNC = 1, CU_EVENT_DISABLE_TIMING = 2 };
enum { CU_MEMHOSTREGISTER_PORTABLE = 1 };
enum { NEEDED_VERSION = 10010 }; /* has the relaxed capture mode, see cuda_enter() */
/* Has the prototype of cuMemcpyBatchAsync() used here; CUDA 13.0 changed it. */
enum { BATCH_VERSION = 12080 };

/* CU_STREAM_LEGACY */
void *const device_default_stream = (void *)1; /* NOLINT(performance-no-int-to-ptr) */

/* ---- errors */

enum sidestep_status device_cuda_fail(const struct cuda_functions *calls, cu_result result,
                                      const char *call, const char *where,
                                      struct sidestep_error *err)
{
    const char *name = NULL, *text = NULL;
    enum sidestep_status status = SIDESTEP_EDEVICE;

    assert(result != CUDA_SUCCESS);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        status = SIDESTEP_ENOMEM;
    else if (result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_HANDLE ||
             result == CUDA_ERROR_INVALID_CONTEXT)
        status = SIDESTEP_EINVAL;
    (void)calls->get_error_name(result, &name);
    (void)calls->get_error_string(result, &text);
    return error_set(err, status, 0, where, "%s: %s (%s)", call,
                     name != NULL ? name : "an unknown error",
                     text != NULL ? text : "the driver gives no description");
}

/* ---- memory */

static enum sidestep_status cuda_find(struct device_driver *driver, uint64_t address,
                                      struct device_allocation *range, struct sidestep_error *err)
{
    struct cuda *cuda = cuda_from_driver(driver);
    int attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                        CU_POINTER_ATTRIBUTE_IS_MANAGED,
                        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                        CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                        CU_POINTER_ATTRIBUTE_MAPPED,
                        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE};
    unsigned type = 0, managed = 0, mapped = 0, whole = 0;
    int device = -1;
    cu_device_pointer begin = 0;
    size_t bytes = 0;
    void *data[] = {&type, &managed, &device, &begin, &bytes, &mapped, &whole};

    *range = (struct device_allocation){.device = -1};
    /* For ordinary host memory this succeeds and sets zeros. */
    cu_result result = cuda->calls.pointer_get(ARRAY_LENGTH(attributes), attributes, data, address);
    if (result == CUDA_ERROR_INVALID_VALUE)
        return SIDESTEP_OK;
    if (result == CUDA_ERROR_NOT_INITIALIZED)
        return FAIL(err, SIDESTEP_EUNSUPPORTED,
                    "CUDA was not started in this process (a child of fork() has nothing of its "
                    "parent's devices: start workers by spawn or exec)");
    if (result != CUDA_SUCCESS)
        return device_cuda_fail(&cuda->calls, result, "cuPointerGetAttributes", HERE, err);
    if (type != CU_MEMORYTYPE_DEVICE && (managed & 0xff) == 0)
        return SIDESTEP_OK;
    if ((mapped & 0xff) == 0) /* addresses that are reserved without memory */
        return SIDESTEP_OK;
    /* Only memory of cuMemAlloc() is fit for the old kind of IPC, and that has no holes. */
    *range = (struct device_allocation){.device = device >= 0 ? device : 0,
                                        .is_whole = bytes != 0 && (whole & 0xff) != 0,
                                        .begin = bytes != 0 ? begin : address,
                                        .end = bytes != 0 ? begin + bytes : UINT64_MAX};
    return SIDESTEP_OK;
}

static enum sidestep_status cuda_pin(struct device_driver *driver, void *memory, uint64_t bytes,
                                     struct sidestep_error *err)
{
    struct cuda *cuda = cuda_from_driver(driver);

    CUDA_TRY(cuda, "cuMemHostRegister", host_register, memory, bytes, CU_MEMHOSTREGISTER_PORTABLE);
    return SIDESTEP_OK;
}

static void cuda_unpin(struct device_driver *driver, void *memory)
{
    (void)cuda_from_driver(driver)->calls.host_unregister(memory);
}

/* ---- contexts */

static enum sidestep_status cuda_retain(struct device_driver *driver, int32_t device,
                                        void **context, struct sidestep_error *err)
{
    struct cuda *cuda = cuda_from_driver(driver);
    unsigned flags = 0;
    int active = 0;

    CUDA_TRY(cuda, "cuDevicePrimaryCtxGetState", primary_get_state, device, &flags, &active);
    if (active == 0) /* retaining would create a context of hundreds of MB */
        return FAIL(err, SIDESTEP_EUNSUPPORTED,
                    "device %d has no primary context: sidestep uses only that of CUDA's "
                    "runtime, and the program uses another one",
                    device);
    CUDA_TRY(cuda, "cuDevicePrimaryCtxRetain", primary_retain, context, device);
    return SIDESTEP_OK;
}

static void cuda_release(struct device_driver *driver, int32_t device)
{
    (void)cuda_from_driver(driver)->calls.primary_release(device);
}

/* In relaxed mode a thread may allocate and query while another thread captures a graph. Otherwise
 * sidestep's call would fail, or invalidate the program's capture. */
static enum sidestep_status cuda_enter(struct device_driver *driver, void *context, int *before,
                                       struct sidestep_error *err)
{
    struct cuda *cuda = cuda_from_driver(driver);
    int mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    CUDA_TRY(cuda, "cuCtxPushCurrent", ctx_push, context);
    cu_result result = cuda->calls.exchange_capture_mode(&mode);
    if (result != CUDA_SUCCESS) {
        (void)cuda->calls.ctx_pop(&context);
        return device_cuda_fail(&cuda->calls, result, "cuThreadExchangeStreamCaptureMode", HERE,
                                err);
    }
    *before = mode;
    return SIDESTEP_OK;
}

static void cuda_leave(struct device_driver *driver, int before)
{
    struct cuda *cuda = cuda_from_driver(driver);
    void *context;

    (void)cuda->calls.exchange_capture_mode(&before);
    (void)cuda->calls.ctx_pop(&context);
}

static int cuda_numa_node(struct device_driver *driver, int32_t device)
{
    char id[32] = "", path[96], text[16] = "";

    if (cuda_from_driver(driver)->calls.device_get_pci_bus_id(id, sizeof(id), device) !=
        CUDA_SUCCESS)
        return -1;
    for (char *c = id; *c != '\0'; c++) /* sysfs has the ID in lower case */
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
    struct cuda *cuda = cuda_from_driver(driver);
    int least = 0, greatest = 0;

    CUDA_TRY(cuda, "cuCtxGetStreamPriorityRange", priority_range, &least, &greatest);
    CUDA_TRY(cuda, "cuStreamCreateWithPriority", stream_create, stream, CU_STREAM_NON_BLOCKING,
             least);
    return SIDESTEP_OK;
}

static void cuda_stream_free(struct device_driver *driver, void *stream)
{
    (void)cuda_from_driver(driver)->calls.stream_destroy(stream);
}

static enum sidestep_status cuda_stream_wait(struct device_driver *driver, void *stream,
                                             void *event, struct sidestep_error *err)
{
    struct cuda *cuda = cuda_from_driver(driver);

    CUDA_TRY(cuda, "cuStreamWaitEvent", stream_wait_event, stream, event, 0);
    return SIDESTEP_OK;
}

static enum sidestep_status cuda_stream_is_capturing(struct device_driver *driver, void *stream,
                                                     bool *capturing, struct sidestep_error *err)
{
    struct cuda *cuda = cuda_from_driver(driver);
    int status = CU_STREAM_CAPTURE_STATUS_NONE;
    cu_result result = cuda->calls.stream_is_capturing(stream, &status);

    /* The default stream takes part in a capture. */
    bool implicit = result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;

    *capturing = implicit || status != CU_STREAM_CAPTURE_STATUS_NONE;
    if (result != CUDA_SUCCESS && !implicit)
        return device_cuda_fail(&cuda->calls, result, "cuStreamIsCapturing", HERE, err);
    return SIDESTEP_OK;
}

static enum sidestep_status cuda_stream_synchronize(struct device_driver *driver, void *stream,
                                                    struct sidestep_error *err)
{
    struct cuda *cuda = cuda_from_driver(driver);

    CUDA_TRY(cuda, "cuStreamSynchronize", stream_synchronize, stream);
    return SIDESTEP_OK;
}

static enum sidestep_status cuda_event_new(struct device_driver *driver, void **event,
                                           struct sidestep_error *err)
{
    struct cuda *cuda = cuda_from_driver(driver);

    CUDA_TRY(cuda, "cuEventCreate", event_create, event,
             CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING);
    return SIDESTEP_OK;
}

static void cuda_event_free(struct device_driver *driver, void *event)
{
    (void)cuda_from_driver(driver)->calls.event_destroy(event);
}

static enum sidestep_status cuda_event_record(struct device_driver *driver, void *event,
                                              void *stream, struct sidestep_error *err)
{
    struct cuda *cuda = cuda_from_driver(driver);

    CUDA_TRY(cuda, "cuEventRecord", event_record, event, stream);
    return SIDESTEP_OK;
}

static enum sidestep_status cuda_event_synchronize(struct device_driver *driver, void *event,
                                                   struct sidestep_error *err)
{
    struct cuda *cuda = cuda_from_driver(driver);

    CUDA_TRY(cuda, "cuEventSynchronize", event_synchronize, event);
    return SIDESTEP_OK;
}

/* ---- opening */

static bool is_off(void)
{
    const char *value = getenv("SIDESTEP_CUDA");

    return value != NULL && strcmp(value, "0") == 0;
}

/* Look a symbol up in the driver's own table.  NULL: the driver does not have the name in
 * ${version}, whose prototype is used here. */
static void *look_up(void *library, const char *name, int version)
{
    void *symbol = NULL, *get = dlsym(library, "cuGetProcAddress_v2");
    cu_result (*get_call)(const char *, void **, int, uint64_t, int *);
    int status;

    if (get == NULL)
        return NULL;
    memcpy(&get_call, &get, sizeof(get_call));
    return get_call(name, &symbol, version, 0, &status) == CUDA_SUCCESS ? symbol : NULL;
}

/* Look a symbol up with dlsym(), and then in the driver's table. */
static void *find_symbol(void *library, const char *name)
{
    void *symbol = dlsym(library, name);
    char plain[64];

    if (symbol != NULL)
        return symbol;
    snprintf(plain, sizeof(plain), "%s", name);
    char *version = strstr(plain, "_v2");
    if (version != NULL)
        *version = '\0';
    return look_up(library, plain, 12000);
}

/* Returns the name of the first missing function; NULL: all were found. */
static const char *find_calls(void *library, struct cuda_functions *calls)
{
    void *symbol;

#define CUDA_FIND(name, call, parameters)                                                          \
    symbol = find_symbol(library, #name);                                                          \
    if (symbol == NULL)                                                                            \
        return #name;                                                                              \
    memcpy(&calls->call, &symbol, sizeof(calls->call));
    CUDA_FUNCTIONS(CUDA_FIND)
#undef CUDA_FIND
    return NULL;
}

static void cuda_close(struct device_driver *driver)
{
    struct cuda *cuda = cuda_from_driver(driver);

    (void)dlclose(cuda->library); /* the program still has it open */
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
    .stream_synchronize = cuda_stream_synchronize,
    .event_new = cuda_event_new,
    .event_free = cuda_event_free,
    .event_record = cuda_event_record,
    .event_synchronize = cuda_event_synchronize,
    .copy = device_cuda_copy,
    .pin = cuda_pin,
    .unpin = cuda_unpin,
    .numa_node = cuda_numa_node,
};

/* Check that this library can be used, and store its functions in ${calls}. */
static enum sidestep_status check_library(void *library, struct cuda_functions *calls,
                                          struct sidestep_error *err)
{
    int version = 0;
    const char *missing = find_calls(library, calls);

    if (missing != NULL)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "libcuda.so.1 has no %s: its driver is too old",
                    missing);
    cu_result result = calls->driver_get_version(&version);
    if (result != CUDA_SUCCESS)
        return device_cuda_fail(calls, result, "cuDriverGetVersion", HERE, err);
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
    if (status != SIDESTEP_OK) {
        cuda_close(&cuda->driver);
        return status;
    }
    void *batch = look_up(library, "cuMemcpyBatchAsync", BATCH_VERSION);
    memcpy(&cuda->copy_batch, &batch, sizeof(batch));
    *driver = &cuda->driver;
    return SIDESTEP_OK;
}

/* ---- for doctor */

void device_cuda_probe(struct device_cuda_report *report)
{
    struct cuda_functions calls;
    struct sidestep_error why = {0};

    *report = (struct device_cuda_report){.off = is_off()};
    void *library = report->off ? NULL : dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    report->hidden =
        library == NULL && (fault_hit("cuda.module") || access(NVIDIA_MODULE, F_OK) == 0);
    if (library == NULL)
        return;
    enum sidestep_status status = check_library(library, &calls, &why);
    if (status == SIDESTEP_OK) {
        (void)calls.driver_get_version(&report->version);
        library = NULL; /* once started, the driver has threads: keep it loaded */
        cu_result result = calls.init(0);
        if (result == CUDA_SUCCESS)
            result = calls.device_get_count(&report->devices);
        if (result != CUDA_SUCCESS && result != CUDA_ERROR_NO_DEVICE)
            (void)device_cuda_fail(&calls, result, "cuInit", HERE, &why);
        if (report->devices > 0)
            (void)calls.device_get_name(report->first, sizeof(report->first), 0);
    }
    snprintf(report->problem, sizeof(report->problem), "%s", why.message);
    if (library != NULL)
        (void)dlclose(library);
}
