/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sidestep.h -- distributed, asynchronous checkpoints for model training.
 *
 * A training job holds its state (tensors and small objects) spread over many
 * ranks.  sidestep copies that state aside while training waits for a moment,
 * writes it in the background, and makes it appear as one directory: whole,
 * durable and verified, or not at all.  The directory is a PyTorch Distributed
 * Checkpoint (DCP): stock torch loads it, and sidestep loads torch's.
 *
 * The shortest program that saves and loads:
 *
 *      struct sidestep_engine *engine = NULL;
 *      struct sidestep_state_dict *state = NULL;
 *      struct sidestep_error err = {0};
 *      int64_t shape[] = {1024, 1024};
 *
 *      if (sidestep_engine_open(&engine, NULL, &err) ||
 *          sidestep_state_dict_new(&state, &err) ||
 *          sidestep_state_dict_add_tensor(state, &(struct sidestep_tensor){
 *              .struct_size = sizeof(struct sidestep_tensor), .name = "model.weight",
 *              .dtype = SIDESTEP_FLOAT32, .ndim = 2, .shape = shape, .data = weight}, &err) ||
 *          sidestep_save(engine, "ckpt/step-100", state, NULL, NULL, &err))
 *              fprintf(stderr, "%s\n", err.message);
 *
 * How this header is ordered: status and errors; what a state is; the engine;
 * saving; loading; series; looking at checkpoints without an engine; other formats; what a machine
 * allows.
 *
 * Conventions, true for every function unless its comment says otherwise:
 *
 *  - Returns SIDESTEP_OK (0) or a status.  ${err} is the last parameter, may be
 *    NULL, is filled on failure and left untouched on success.
 *  - Nothing prints, exits, aborts, or raises a signal.
 *  - Strings are UTF-8, NUL-terminated and copied.  Sizes and offsets are bytes.
 *    Shapes, offsets of boxes, and strides count elements, outermost dimension first.
 *  - Options structs start with struct_size; a zeroed field means "default".  A field
 *    or flag that this library does not know is refused, never ignored.
 *  - Destructors take a pointer to the handle, set it to NULL, and accept NULL.
 *  - "Collective" functions must be called by every rank of the engine's
 *    communicator in the same order.  They return the same status on every rank;
 *    err->rank says on which rank the reason lies (-1: on this one).
 *  - A handle may be used by one thread at a time.  sidestep_save_poll() and
 *    sidestep_save_wait() may be called from any thread.
 *  - No function may be called in a child after fork() on handles made before it.
 */
#ifndef SIDESTEP_H
#define SIDESTEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SIDESTEP_VERSION_MAJOR 0
#define SIDESTEP_VERSION_MINOR 1
#define SIDESTEP_VERSION_PATCH 0

#define SIDESTEP_API __attribute__((visibility("default")))
#define SIDESTEP_MUST_USE __attribute__((warn_unused_result))

/** sidestep_version(): "0.1.0", of the library that is loaded. */
SIDESTEP_API const char *sidestep_version(void);

/* ---------------------------------------------------------------- status and errors */

/*
 * One line per failure that a caller can act on: X(name, exit status of the command
 * line, text).  The numbers of the enum are part of the ABI: append, never reorder.
 */
#define SIDESTEP_STATUS_MAP(X)                                                                     \
    X(OK, 0, "success")                                                                            \
    X(EINVAL, 2, "invalid argument")                                                               \
    X(ENOMEM, 1, "out of memory")                                                                  \
    X(EIO, 1, "storage failed")                                                                    \
    X(ENOSPC, 28, "no space left on storage")                                                      \
    X(EPERM, 12, "permission denied")                                                              \
    X(ENOTFOUND, 10, "nothing found")                                                              \
    X(EEXISTS, 1, "already exists")                                                                \
    X(ECORRUPT, 3, "stored bytes do not match their checksum or format")                           \
    X(EUNSAFE, 3, "refused: the file asks for what data never needs")                              \
    X(EUNCOMMITTED, 4, "checkpoint is incomplete or was never committed")                          \
    X(EUNSUPPORTED, 5, "not supported")                                                            \
    X(EMISMATCH, 1, "state and checkpoint do not match")                                           \
    X(ELOCKED, 11, "locked or in use")                                                             \
    X(EBUSY, 11, "another save is in flight")                                                      \
    X(EPEER, 1, "another rank failed")                                                             \
    X(EDISAGREE, 1, "ranks disagree")                                                              \
    X(ETIMEDOUT, 1, "deadline passed")                                                             \
    X(EABORTED, 1, "save was aborted; no checkpoint was made")                                     \
    X(EUNKNOWN, 1, "outcome unknown; the checkpoint may or may not exist")                         \
    X(EFORKED, 1, "handle belongs to the parent of this process")                                  \
    X(ECANCELLED, 130, "interrupted")                                                              \
    X(EDEVICE, 1, "a device or its driver failed")

enum sidestep_status {
#define SIDESTEP_STATUS_ENUM(name, exit_status, text) SIDESTEP_##name,
    SIDESTEP_STATUS_MAP(SIDESTEP_STATUS_ENUM)
#undef SIDESTEP_STATUS_ENUM
};

/**
 * struct sidestep_error: why a call failed.  Owned by the caller; no pointers inside,
 * so it can be copied, sent to another rank, or kept after the engine is gone.  Its
 * size never changes.  Too long a message is cut.
 */
struct sidestep_error {
    int32_t status;       /* enum sidestep_status: branch on this ... */
    int32_t sys_errno;    /* ... or on this; 0 if the kernel was not involved */
    int32_t rank;         /* rank that failed first; -1 means "this one" */
    uint32_t reserved[3]; /* zero */
    char where[40];       /* "publish.c:118", for bug reports */
    char message[704];    /* "save 'ckpt/step-12': write __3_0.distcp: No space left ..." */
};

/** sidestep_status_text(status): one static sentence for ${status}; never NULL. */
SIDESTEP_API const char *sidestep_status_text(enum sidestep_status status);

/** sidestep_status_exit(status): exit status of the command line for ${status}. */
SIDESTEP_API int sidestep_status_exit(enum sidestep_status status);

/*
 * Paths.  Every path that a function takes is one of a file system: absolute, or relative to the
 * working directory of the process.  What begins with SCHEME:// (a letter, then letters, digits,
 * '+', '-' and '.') is a URL and is refused with SIDESTEP_EUNSUPPORTED, and an empty path with
 * SIDESTEP_EINVAL; nothing is made or changed then.  A local path of that shape is given as
 * "./s3://x".
 */

/**
 * sidestep_check_path(path, err):
 * Say whether ${path} is one that the functions of the library take.  They all ask by themselves;
 * a program asks before it changes a path that it was given (makes it absolute, joins it to
 * another), because what comes of a URL then does not look like one.  Reads nothing, does not
 * block; any thread.
 * Errors: SIDESTEP_EINVAL: ${path} is NULL or empty.  SIDESTEP_EUNSUPPORTED: it is a URL.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status sidestep_check_path(const char *path,
                                                                        struct sidestep_error *err);

/* ---------------------------------------------------------------- what a state is */

/*
 * Element types, with torch's names and bytes per element: X(name, torch name, bytes).
 * float4_e2m1fn_x2 holds two values in one byte, and its shapes count bytes, as in torch.
 */
#define SIDESTEP_DTYPE_MAP(X)                                                                      \
    X(FLOAT64, "float64", 8)                                                                       \
    X(FLOAT32, "float32", 4)                                                                       \
    X(FLOAT16, "float16", 2)                                                                       \
    X(BFLOAT16, "bfloat16", 2)                                                                     \
    X(COMPLEX64, "complex64", 8)                                                                   \
    X(COMPLEX128, "complex128", 16)                                                                \
    X(INT8, "int8", 1)                                                                             \
    X(INT16, "int16", 2)                                                                           \
    X(INT32, "int32", 4)                                                                           \
    X(INT64, "int64", 8)                                                                           \
    X(UINT8, "uint8", 1)                                                                           \
    X(BOOL, "bool", 1)                                                                             \
    X(UINT16, "uint16", 2)                                                                         \
    X(UINT32, "uint32", 4)                                                                         \
    X(UINT64, "uint64", 8)                                                                         \
    X(COMPLEX32, "complex32", 4)                                                                   \
    X(FLOAT8_E4M3FN, "float8_e4m3fn", 1)                                                           \
    X(FLOAT8_E5M2, "float8_e5m2", 1)                                                               \
    X(FLOAT8_E4M3FNUZ, "float8_e4m3fnuz", 1)                                                       \
    X(FLOAT8_E5M2FNUZ, "float8_e5m2fnuz", 1)                                                       \
    X(FLOAT8_E8M0FNU, "float8_e8m0fnu", 1)                                                         \
    X(FLOAT4_E2M1FN_X2, "float4_e2m1fn_x2", 1)                                                     \
    X(BITS8, "bits8", 1)                                                                           \
    X(BITS1X8, "bits1x8", 1)                                                                       \
    X(BITS2X4, "bits2x4", 1)                                                                       \
    X(BITS4X2, "bits4x2", 1)                                                                       \
    X(BITS16, "bits16", 2)                                                                         \
    X(BCOMPLEX32, "bcomplex32", 4)

enum sidestep_dtype {
    SIDESTEP_DTYPE_NONE = 0,
#define SIDESTEP_DTYPE_ENUM(name, torch_name, bytes) SIDESTEP_##name,
    SIDESTEP_DTYPE_MAP(SIDESTEP_DTYPE_ENUM) SIDESTEP_DTYPE_END
#undef SIDESTEP_DTYPE_ENUM
};

/** sidestep_dtype_name(dtype): torch's name without "torch."; NULL if there is no such dtype. */
SIDESTEP_API const char *sidestep_dtype_name(enum sidestep_dtype dtype);

/** sidestep_dtype_size(dtype): bytes per element; 0 if there is no such dtype. */
SIDESTEP_API size_t sidestep_dtype_size(enum sidestep_dtype dtype);

/** sidestep_dtype_from_name(name): "float32" or "torch.float32"; SIDESTEP_DTYPE_NONE if unknown. */
SIDESTEP_API enum sidestep_dtype sidestep_dtype_from_name(const char *name);

#define SIDESTEP_MAX_NDIM 64       /* dimensions of a tensor */
#define SIDESTEP_MAX_NAME 4096     /* bytes of a name, the NUL excluded */
#define SIDESTEP_MAX_PATH_ITEMS 64 /* depth of a nested state dict */
#define SIDESTEP_MAX_RANKS 1048576

/** In a path item: a key of a dict that is the integer ${index}; ${key} is NULL. */
#define SIDESTEP_PATH_INT_KEY 1u

/**
 * struct sidestep_path_item: one step from the root of a nested state dict to a value: a
 * key of a dict (${key} not NULL), an index of a list (${key} NULL), or an integer that is the
 * key of a dict (${key} NULL, SIDESTEP_PATH_INT_KEY; may be negative).
 * {"optim", 0, "exp_avg"} is what Python calls state["optim"][0]["exp_avg"]; its name is
 * "optim.0.exp_avg", and a path that spells another name than its entry's is refused.
 * The name is the same whether 0 is an index of a list, the integer key 0 or the key "0": stock
 * torch is told "0" for both keys, and which of them are integers is recorded beside that, so
 * that sidestep finds {0: ...} again and stock torch reads on.
 *
 * A path is needed where the nesting matters to who reads: stock torch turns
 * "optim.0.exp_avg" back into nested dicts and lists by the recorded path alone.  Without one, an
 * entry is a top-level key, dots and all; sidestep_load() finds entries by name and never looks at
 * paths.
 */
struct sidestep_path_item {
    const char *key;
    int64_t index;
    uint32_t flags;    /* SIDESTEP_PATH_INT_KEY, or 0 */
    uint32_t reserved; /* zero */
};

/** Every replica lists the same bytes; sidestep may write any part from any of them. */
#define SIDESTEP_TENSOR_REPLICATED 1u
/** Recorded for readers; the saved data is the same. */
#define SIDESTEP_TENSOR_REQUIRES_GRAD 2u
/** A device or a network card may write into its memory by itself.  Write protection does not stop
 * it, so the tensor is copied before the call returns.  Two kinds of pinned memory are found
 * without this flag: what CUDA has pinned; and what the kernel counts in VmPin (buffers that were
 * registered with io_uring, with RDMA, or by MPI, UCX or gloo over RDMA).  The kernel does not say
 * where that lies, so all tensors are copied while VmPin is not zero.  Set the flag for memory that
 * only VFIO, AF_XDP, V4L2 or a driver out of the kernel's tree has pinned: they count it elsewhere,
 * or nowhere.
 */
#define SIDESTEP_TENSOR_PINNED 4u
/** Only the CPU writes into its memory, pinned or not (parameters and moments of optimizers that
 * run on the CPU; devices may read).  So it may be write-protected, also while this process has
 * memory pinned. */
#define SIDESTEP_TENSOR_CPU_WRITES 8u
/** A promise, for a tensor in device memory: after the call of a save nothing writes to it but what
 * stands behind sidestep_fence() on its stream.  So it may be copied beside the next forward and
 * backward.  For parameters and states of an optimizer that is fenced; not for what changes in
 * forward (statistics of batch normalization) or outside of optimizers.  It is no part of the
 * layout.
 */
#define SIDESTEP_TENSOR_FENCED 16u

/**
 * struct sidestep_tensor: this rank's shard of one tensor: where it lies in memory, and
 * which box of the global tensor it is.  All arrays have ${ndim} elements.
 *
 * Two entries of one state may carry the same name if their boxes differ (a rank that
 * holds several shards of a tensor).  A tensor that several ranks list with the same box
 * is saved once: by the lowest rank, or, with SIDESTEP_TENSOR_REPLICATED on all of them,
 * by whichever has the least to write, and in parts when it is large.
 */
struct sidestep_tensor {
    size_t struct_size;
    const char *name; /* fully qualified name: "model.layers.0.weight" */
    enum sidestep_dtype dtype;
    uint32_t ndim;          /* 0 for a scalar */
    const int64_t *shape;   /* of the whole (global) tensor */
    const int64_t *offsets; /* of this shard in it; NULL: zeros */
    const int64_t *lengths; /* of this shard; NULL: ${shape} */
    const int64_t *strides; /* of this shard in memory, in elements; NULL: row-major */
    void *data;             /* first element of the shard; read by a save, written by a load; may
                               be NULL if the shard is empty.  In host memory, or in a device's,
                               see struct sidestep_stream */
    uint32_t flags;         /* SIDESTEP_TENSOR_* */
    uint32_t path_length;   /* 0: the path is the name alone */
    const struct sidestep_path_item *path;
    uint32_t turn;     /* of SIDESTEP_TENSOR_FENCED, no part of the layout: tensors of an earlier
                          turn are copied first, see sidestep_fence_until() */
    uint32_t reserved; /* zero */
};
#define SIDESTEP_TENSOR_INIT                                                                       \
    {                                                                                              \
        .struct_size = sizeof(struct sidestep_tensor)                                              \
    }

/*
 * Values: what Python would call None, bool, int, float, str, bytes, list, tuple, dict.
 * Built in C so that Python sees the real value, and decoded from checkpoints without
 * executing anything.  A value owns its children.
 */
enum sidestep_value_kind {
    SIDESTEP_VALUE_NONE,
    SIDESTEP_VALUE_BOOL,
    SIDESTEP_VALUE_INT,
    SIDESTEP_VALUE_FLOAT,
    SIDESTEP_VALUE_STR,
    SIDESTEP_VALUE_BYTES,
    SIDESTEP_VALUE_LIST,
    SIDESTEP_VALUE_TUPLE,
    SIDESTEP_VALUE_DICT,
    SIDESTEP_VALUE_OPAQUE, /* decoded only: something that is none of the above */
};
struct sidestep_value;

/*
 * Constructors return NULL when memory is short.  sidestep_value_append() and _set() take
 * ownership of what they are given, also on failure, and accept NULL (they then fail with
 * SIDESTEP_ENOMEM), so that calls nest:
 *      sidestep_value_set(dict, sidestep_value_str("lr"), sidestep_value_float(1e-4), &err)
 */
SIDESTEP_API struct sidestep_value *sidestep_value_none(void);
SIDESTEP_API struct sidestep_value *sidestep_value_bool(bool v);
SIDESTEP_API struct sidestep_value *sidestep_value_int(int64_t v);
SIDESTEP_API struct sidestep_value *sidestep_value_float(double v);
SIDESTEP_API struct sidestep_value *sidestep_value_str(const char *utf8);
SIDESTEP_API struct sidestep_value *sidestep_value_bytes(const void *bytes, size_t length);
SIDESTEP_API struct sidestep_value *sidestep_value_list(void);
SIDESTEP_API struct sidestep_value *sidestep_value_tuple(void);
SIDESTEP_API struct sidestep_value *sidestep_value_dict(void);
/** sidestep_value_append(seq, item, err): add ${item} (taken) to a list or tuple. */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_value_append(struct sidestep_value *seq, struct sidestep_value *item,
                      struct sidestep_error *err);
/** sidestep_value_set(dict, key, item, err): set a key of a dict; takes both; replaces an equal
 * key. */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status sidestep_value_set(struct sidestep_value *dict,
                                                                       struct sidestep_value *key,
                                                                       struct sidestep_value *item,
                                                                       struct sidestep_error *err);
SIDESTEP_API void sidestep_value_free(struct sidestep_value **value);

/* Reading a value.  Pointers live as long as the value.  Asking for another kind than
 * sidestep_value_kind() says returns 0, 0.0, or NULL. */
SIDESTEP_API enum sidestep_value_kind sidestep_value_kind(const struct sidestep_value *value);
SIDESTEP_API bool sidestep_value_get_bool(const struct sidestep_value *value);
SIDESTEP_API int64_t sidestep_value_get_int(const struct sidestep_value *value);
SIDESTEP_API double sidestep_value_get_float(const struct sidestep_value *value);
/** Bytes of a str, of bytes, or the description of an opaque one; ${length} may be NULL. */
SIDESTEP_API const char *sidestep_value_get_bytes(const struct sidestep_value *value,
                                                  size_t *length);
/** Items of a list, tuple or dict. */
SIDESTEP_API size_t sidestep_value_count(const struct sidestep_value *value);
/** Item ${i} of a list or tuple, value ${i} of a dict in insertion order; NULL past the end. */
SIDESTEP_API const struct sidestep_value *sidestep_value_item(const struct sidestep_value *value,
                                                              size_t i);
/** Key ${i} of a dict. */
SIDESTEP_API const struct sidestep_value *sidestep_value_key(const struct sidestep_value *value,
                                                             size_t i);

/**
 * sidestep_value_from_pickle(bytes, length, &value, err):
 * Decode a pickle (protocols 0 to 5) of plain data: None, bool, int, float, str, bytes, list,
 * tuple, dict, and what is made of them.  Nothing is executed or imported. An object that is
 * reached by several ways is copied for each of them. Errors: SIDESTEP_EUNSUPPORTED: a sound pickle
 * of what is not plain data (another class, an int beyond 64 bits, a container that contains
 * itself, a str that is not Unicode text) or of what copying makes larger than the library decodes:
 * let Python keep it as it is. SIDESTEP_ECORRUPT: no pickle.  ${*value} is the caller's, to be
 * freed with sidestep_value_free().
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_value_from_pickle(const void *bytes, size_t length, struct sidestep_value **value,
                           struct sidestep_error *err);

/**
 * sidestep_value_to_pickle(value, &bytes, &length, err):
 * The pickle (protocol 3) of a value.  It names no class, so pickle.loads() of it runs nothing.
 * SIDESTEP_EUNSUPPORTED if there is a SIDESTEP_VALUE_OPAQUE in it.  ${*bytes} is the caller's, to
 * be freed with sidestep_bytes_free().
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_value_to_pickle(const struct sidestep_value *value, void **bytes, size_t *length,
                         struct sidestep_error *err);

/*
 * A state dict: what this rank saves, or wants loaded.  It keeps copies of names, shapes
 * and objects, and the *addresses* of tensors: the memory stays the caller's and must be
 * valid until the save is RELEASED (see below), or the load has returned.
 * One state dict may be saved and loaded, any number of times, in any order: to resume and then
 * to go on saving needs only one.  A load gives its objects the loaded values.
 */
struct sidestep_state_dict;

/** sidestep_state_dict_new(&state, err): an empty one. */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_state_dict_new(struct sidestep_state_dict **state, struct sidestep_error *err);
/** sidestep_state_dict_free(&state): not while a save of it is being staged. */
SIDESTEP_API void sidestep_state_dict_free(struct sidestep_state_dict **state);

/**
 * sidestep_state_dict_add_tensor(state, tensor, err): add one shard.
 * Errors: SIDESTEP_EINVAL names the tensor and what is wrong with it (no name, box outside
 * the shape, sizes that overflow, a NULL address with elements, the same box twice).
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_state_dict_add_tensor(struct sidestep_state_dict *state,
                               const struct sidestep_tensor *tensor, struct sidestep_error *err);

/**
 * sidestep_state_dict_add_value(state, name, path, path_length, value, err):
 * Add an object; Python sees ${value} under ${name}.  Takes ${value} on success.  To load an
 * object, add it with a NULL ${value}, load, and ask sidestep_state_dict_value().
 * Objects are saved by the lowest rank that lists them.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_state_dict_add_value(struct sidestep_state_dict *state, const char *name,
                              const struct sidestep_path_item *path, uint32_t path_length,
                              struct sidestep_value *value, struct sidestep_error *err);

/**
 * sidestep_state_dict_add_bytes(state, name, path, path_length, bytes, length, err):
 * Add an object by its stored bytes, which are copied and written as they are.  Stock torch
 * reads them if they are what torch.save() makes.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_state_dict_add_bytes(struct sidestep_state_dict *state, const char *name,
                              const struct sidestep_path_item *path, uint32_t path_length,
                              const void *bytes, size_t length, struct sidestep_error *err);

/**
 * sidestep_state_dict_set_value(state, name, value, err):
 * Give an object that was added before another value (taken on success): the step counter of this
 * step, say.  Objects are no part of the layout, so the next save need not plan again.
 * Errors: SIDESTEP_ENOTFOUND if there is no object of this name.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_state_dict_set_value(struct sidestep_state_dict *state, const char *name,
                              struct sidestep_value *value, struct sidestep_error *err);
/** sidestep_state_dict_set_bytes(...): the same with stored bytes, which are copied. */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_state_dict_set_bytes(struct sidestep_state_dict *state, const char *name,
                              const void *bytes, size_t length, struct sidestep_error *err);

/**
 * sidestep_state_dict_set_data(state, data, count, err):
 * The same layout at other addresses: ${data}[i] is the first element of the i-th tensor shard,
 * counted in the order in which they were added, objects left out; ${count} is the number of all
 * of them.  Everything else about a shard (strides too) stays.  All or none: on failure the state
 * is as before.
 * Errors: SIDESTEP_EINVAL if ${count} is another number, or an address is NULL where there are
 * elements.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_state_dict_set_data(struct sidestep_state_dict *state, void *const *data, size_t count,
                             struct sidestep_error *err);

/** ${bytes} are a pickle of plain data; decoded as by sidestep_value_from_pickle(). */
#define SIDESTEP_OBJECT_PICKLE 1u
/** ${bytes} are stored as they are, as by sidestep_state_dict_set_bytes(). */
#define SIDESTEP_OBJECT_STORED 2u

/** struct sidestep_object: what one object of a state is from now on. */
struct sidestep_object {
    uint64_t index;    /* among the state's objects, in the order in which they were added */
    const void *bytes; /* copied */
    size_t length;
    uint32_t kind;     /* SIDESTEP_OBJECT_PICKLE or SIDESTEP_OBJECT_STORED */
    uint32_t reserved; /* zero */
};

/**
 * sidestep_state_dict_set_objects(state, objects, count, err):
 * Give ${count} objects that were added before other contents, in one call; the others stay.  All
 * or none: on failure the state is as before.  Of two for the same object the later one counts.
 * Errors: SIDESTEP_ENOTFOUND: there is no object of this index.  SIDESTEP_EINVAL: another kind, or
 * NULL with a length.  Those of sidestep_value_from_pickle(), with the name of the object.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_state_dict_set_objects(struct sidestep_state_dict *state,
                                const struct sidestep_object *objects, size_t count,
                                struct sidestep_error *err);

/** sidestep_state_dict_value(state, name): a loaded object, decoded; NULL if there is none. */
SIDESTEP_API const struct sidestep_value *
sidestep_state_dict_value(const struct sidestep_state_dict *state, const char *name);
/** sidestep_state_dict_bytes(state, name, &length): the stored bytes of a loaded object, or NULL.
 */
SIDESTEP_API const void *sidestep_state_dict_bytes(const struct sidestep_state_dict *state,
                                                   const char *name, size_t *length);

/* ---------------------------------------------------------------- ranks */

/**
 * struct sidestep_comm: the host program's collectives.  sidestep has no network code of its
 * own.  Called only on the thread that calls a collective function of this header, never in
 * the background.  Each callback returns 0, or non-zero for failure, which must be seen on
 * every rank.  All are collective over ${size} ranks; buffers are host memory.
 *
 * Ready-made: NULL for a single process; sidestep_mpi.h for MPI.
 */
struct sidestep_comm {
    size_t struct_size;
    void *context;
    int32_t rank;
    int32_t size;
    /** Element-wise maximum of ${count} values over all ranks, result everywhere. */
    int (*all_reduce_max)(void *context, uint64_t *values, size_t count);
    /** ${bytes} bytes from ${root} to everybody. */
    int (*broadcast)(void *context, void *buffer, size_t bytes, int32_t root);
    /** ${send_bytes} from each rank to rank 0, one behind the other, in rank order, in
        ${recv}; ${recv_bytes} has a size per rank.  Both are NULL elsewhere. */
    int (*gather)(void *context, const void *send, size_t send_bytes, void *recv,
                  const size_t *recv_bytes);
    /** The reverse of gather. */
    int (*scatter)(void *context, const void *send, const size_t *send_bytes, void *recv,
                   size_t recv_bytes);
};

/* ---------------------------------------------------------------- engine */

/*
 * An engine owns threads, the staging pool and the communicator; it has no directory.
 * Usually one per process.
 *
 * File descriptors: an engine keeps none open but that of ${event_path}, a series has 3; a save
 * takes up to 10 while it is under way, a load or an open checkpoint up to 200 and 2 for each of
 * its threads, and each thread of them one more with io_uring, whatever the number of shards and
 * ranks. So 300 that are free are enough.  Where there are too few, a call fails with SIDESTEP_EIO
 * and err->sys_errno EMFILE or ENFILE.
 */
struct sidestep_engine;

/** Never use O_DIRECT, even where it is allowed: as SIDESTEP_IO_BUFFERED. */
#define SIDESTEP_ENGINE_NO_DIRECT_IO 1u
/** Hold still by write protection also where the machine allows only the kind that cannot wait in
 * system calls: as long as a save has not RELEASED them, a read(2) or recv(2) into tensors fails
 * with EFAULT.  For programs whose tensors are written by their own code only. */
#define SIDESTEP_ENGINE_USER_MODE_FAULTS 2u
/** Background threads keep the priority they were started with. */
#define SIDESTEP_ENGINE_KEEP_PRIORITY 4u
/** Background writes go on as fast as they can while others read from the same disk. */
#define SIDESTEP_ENGINE_KEEP_PACE 8u

/*
 * How a save holds the state still while training goes on.  What is written is the same: the state
 * at the time of the call, bit for bit.
 *
 * COPY: the tensors are copied before sidestep_save_async() returns.
 * COW (copy on write): their pages are write-protected, with userfaultfd(2); the call returns at
 * once, and each stretch of 2 MiB is copied in the background, or when somebody writes to it, who
 * then waits for that copy (0.1-0.3 ms).  STAGED comes at once; RELEASED when all is copied: until
 * then the memory must not be freed, unmapped, moved or discarded, or the save fails (the program
 * goes on).  It may be written, also by system calls, and the process may fork.  It may be
 * registered with a device from the return of the call on, but not during the call: no thread may
 * write to the state then, and a registration counts as a write, as does a direct read (O_DIRECT)
 * that has not ended.
 *
 * Where memory changes in spite of its protection, the save fails with SIDESTEP_EINVAL and the name
 * of the tensor, and later saves of the engine copy: after MADV_GUARD_INSTALL, where pages are
 * merged (KSM), after another user of userfaultfd, and where a device that nobody counts changes
 * what is being written from where it lies.
 *
 * Chosen per tensor: private anonymous memory can be protected; files, shared memory, stacks,
 * SIDESTEP_TENSOR_PINNED, tensors that are not contiguous, and stretches of less than 1 MiB are
 * copied.  So is everything in blocking saves; where the machine refuses (userfaultfd needs
 * vm.unprivileged_userfaultfd=1, CAP_SYS_PTRACE or access to /dev/userfaultfd); where pool_bytes is
 * too small even for what cannot be protected; while this process has memory pinned for devices,
 * but for SIDESTEP_TENSOR_CPU_WRITES; and while it lets the kernel merge pages (KSM).  struct
 * sidestep_save_info says how much, and why. Under a pool_bytes that is smaller than the state, who
 * writes to it early may also have to wait for the disk, which makes room; so may who writes to
 * what is just being written from where it lies (${faults_disk}).
 */
enum sidestep_snapshot {
    SIDESTEP_SNAPSHOT_AUTO, /* COW, and COPY where the last saves showed that COW gains nothing:
                               the trainer wrote to most of the state before it was copied */
    SIDESTEP_SNAPSHOT_COPY,
    SIDESTEP_SNAPSHOT_COW, /* wherever it is possible */
};

/** How bytes go to storage and back.  Whatever is chosen, a file system that refuses O_DIRECT is
    written and read through the page cache; struct sidestep_save_info says what was used. */
enum sidestep_io {
    SIDESTEP_IO_AUTO,     /* io_uring where the kernel lets this process use it, else threads */
    SIDESTEP_IO_URING,    /* sidestep_engine_open() fails where it does not */
    SIDESTEP_IO_THREADS,  /* O_DIRECT, by threads that wait */
    SIDESTEP_IO_BUFFERED, /* through the page cache */
};

/**
 * Under write protection, when copies are made in the background.  Ahead of the disk: a trainer
 * that soon writes to the state again finds it copied already, and waits for nothing; it takes
 * memory for what the disk has not written yet, up to pool_bytes.  Or only when the disk is ready
 * for them, or the trainer writes: that takes 64 MiB, whatever the size, and tensors of
 * more than 1 MiB that are contiguous are written straight from their memory.
 */
enum sidestep_copy_ahead {
    SIDESTEP_COPY_AHEAD_AUTO, /* from the start if the last saves showed that the trainer writes
                                 before the disk is done; else once it does */
    SIDESTEP_COPY_AHEAD_ALWAYS,
    SIDESTEP_COPY_AHEAD_NEVER,
};

struct sidestep_store; /* sidestep_extend.h */

struct sidestep_engine_options {
    size_t struct_size;
    const struct sidestep_comm *comm; /* copied; NULL: a single process */
    uint32_t threads;       /* of each kind (staging; hashing and I/O); 0: by the machine */
    uint32_t flags;         /* SIDESTEP_ENGINE_* */
    uint64_t pool_bytes;    /* hard cap of staging memory on this rank, at least 16 MiB; 0: what
                               the largest state so far needs.  Under a smaller cap a save by copy
                               writes the rest before it returns, and says so; one by write
                               protection lets who writes to the state wait */
    uint64_t timeout_ms;    /* give up on a silent rank; 0: 600,000 */
    const char *event_path; /* append one line of JSON per phase edge; NULL: none */
    void (*on_event)(void *event_context, const char *json_line); /* from any thread */
    void *event_context;
    enum sidestep_io io;
    uint32_t
        io_depth; /* requests in flight, at most 64; 0: with io_uring 8, and after six saves of
                     256 MiB or more, which try 4, 8 and 16, the smallest of these that writes as
                     fast as any; else 4.  `sidestep bench` measures what serves a disk best */
    enum sidestep_snapshot snapshot;
    enum sidestep_copy_ahead copy_ahead;
    uint64_t write_bytes_per_second; /* limit of what this rank writes; 0: none */
    const char *background_cpus;     /* where background threads run, as "0-3,8"; NULL: anywhere */
    const struct sidestep_store *store; /* where paths of this engine's saves, loads and series lie
                                           (sidestep_extend.h); copied, its context must stay as
                                           long as the engine and its handles; NULL: file systems */
};
#define SIDESTEP_ENGINE_OPTIONS_INIT                                                               \
    {                                                                                              \
        .struct_size = sizeof(struct sidestep_engine_options)                                      \
    }

/**
 * sidestep_engine_open(&engine, options, err):
 * Start the threads.  Collective.  ${options} may be NULL.  Allocates no staging memory yet.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_engine_open(struct sidestep_engine **engine, const struct sidestep_engine_options *options,
                     struct sidestep_error *err);

/**
 * sidestep_engine_prepare(engine, state, err):
 * Allocate and pre-fault the staging pool for ${state}, and start what SIDESTEP_SNAPSHOT_COW needs,
 * so that the first save does not pay for it.  Optional.  Not collective.  Blocks (0.1-3 s per GiB,
 * by the machine).
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_engine_prepare(struct sidestep_engine *engine, const struct sidestep_state_dict *state,
                        struct sidestep_error *err);

/** struct sidestep_huge_pages: what sidestep_state_dict_huge_pages() found and did. */
struct sidestep_huge_pages {
    size_t struct_size;
    uint64_t bytes;      /* of the state, in stretches that huge pages can hold */
    uint64_t huge_bytes; /* of them on huge pages now */
    uint64_t took_ns;
    int32_t sys_errno; /* why others are not, for the first of them, or 0 */
    uint32_t reserved; /* zero */
};
#define SIDESTEP_HUGE_PAGES_INIT                                                                   \
    {                                                                                              \
        .struct_size = sizeof(struct sidestep_huge_pages)                                          \
    }

/**
 * sidestep_state_dict_huge_pages(state, report, err):
 * Put the tensors of ${state} on huge pages, as far as whole ones fit: neither addresses nor
 * contents change, and threads that use them wait at most for the page that is being moved.  With
 * them write protection costs 1 ms per GiB at most instead of 20, and computing is often faster,
 * too. Optional, once after the state was built, and not while a save has not RELEASED the state
 * (what is protected stays as it is).  A fork(2) splits what is then written: where protecting
 * takes long, a background thread puts such pages together again between two saves (Linux 6.1; 1 to
 * 2 s per GiB; ${huge_bytes} of struct sidestep_save_info), in memory that has MADV_HUGEPAGE, as
 * this function gives it.
 * ${report} may be NULL.  Not collective.  Blocks: 0.2-3 s per GiB that has to be moved, nothing
 * for what is on huge pages already.  Needs Linux 6.1; before, the kernel is asked to do it by and
 * by, where transparent huge pages are enabled at all.
 * An allocator that gives huge pages from the start costs nothing: glibc with
 * GLIBC_TUNABLES=glibc.malloc.hugetlb=1, jemalloc with MALLOC_CONF=thp:always, or
 * /sys/kernel/mm/transparent_hugepage/enabled set to always.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_state_dict_huge_pages(const struct sidestep_state_dict *state,
                               struct sidestep_huge_pages *report, struct sidestep_error *err);

/*
 * A good neighbour.  Threads that hash and write in the background run in the idle class of
 * processor and disk, where the process may leave it again, else with a nice value of 10.  While
 * somebody waits for a save (a blocking or streamed one, sidestep_save_wait(),
 * sidestep_save_finish(), the next save, close), it is done at full priority, and neither a pause
 * nor ${spread_ms} holds it; ${write_bytes_per_second} always does.
 * While anybody reads from the disk that it is written to (a data loader; the kernel counts that
 * for local disks), and nobody waits for it, one window of 4 MiB is written at a time, since
 * readers wait behind all that a disk has been given: ${backed_off_ns} of struct
 * sidestep_save_info.  Not with SIDESTEP_ENGINE_KEEP_PACE.
 */

/** sidestep_engine_pause(engine), sidestep_engine_resume(engine): between the two, background
    writes stand still, after those in flight: for parts of training that nothing may disturb.  Any
    thread. */
SIDESTEP_API void sidestep_engine_pause(struct sidestep_engine *engine);
SIDESTEP_API void sidestep_engine_resume(struct sidestep_engine *engine);

/**
 * sidestep_engine_close(&engine, err):
 * Wait for a save in flight, close the series that are open, stop the threads, free everything.
 * Collective.  Returns the sticky error: that of a save whose outcome nobody asked for.
 * The engine is gone in any case, also where its communicator is: then the callbacks' failure is
 * what is returned (SIDESTEP_EPEER), and nothing is left behind on this rank.
 * Handles of its saves and series stay valid until they are given to sidestep_save_finish() and
 * sidestep_series_close(), in any order; a save can still be waited for, a series does nothing
 * more.  No other thread may be in a call on any of them meanwhile.
 */
SIDESTEP_API enum sidestep_status sidestep_engine_close(struct sidestep_engine **engine,
                                                        struct sidestep_error *err);

/* ---------------------------------------------------------------- devices */

/*
 * Tensors in the memory of a CUDA device are saved and loaded where they are: an address is enough,
 * the driver is asked what it is.  That is done if the program has loaded the driver (libcuda.so.1)
 * itself, and never else; no context is made, the device's primary context is used.  Managed memory
 * counts as device memory.  SIDESTEP_CUDA=0 in the environment switches it off: saves and loads of
 * such tensors are then refused.
 *
 * A save does not wait for devices.  Streams of the library copy beside the program's, from the
 * point on that the program's streams have reached at the time of the call:
 *
 *      the program's stream   step N | forward, backward of N+1      | fence | optimizer of N+1
 *      the library's                 | not FENCED |      FENCED             |
 *
 * When sidestep_save_async() returns, work that is submitted from then on to ${streams} of its
 * options may write to all tensors but those with SIDESTEP_TENSOR_FENCED: it waits, on the device,
 * until they are copied.  Work on other streams, and the host, may write once the save is STAGED
 * (sidestep_save_wait()), or behind sidestep_fence().  Tensors in host memory may be modified at
 * once, as ever.  Nothing may be freed before RELEASED.
 *
 * Staging memory is registered with the driver (pinned) when the first such save needs it; where
 * that is refused, copies go through pageable memory, the call waits for them, and struct
 * sidestep_save_info says so.  With a pool_bytes that is smaller than the state, windows of it are
 * copied when there is room: sidestep_fence() then waits until the last copy was submitted, and a
 * save waits in the call where more than half of the pool would be needed for what is not FENCED.
 *
 * A blocking save, and a load, have ended on the devices when they return.
 *
 * To find a missing fence: SIDESTEP_FENCE_DEBUG=MS in the environment of sidestep_engine_open().
 * What is FENCED is then read in the call, which waits for that, and once more when it was written;
 * but not before the first sidestep_fence(), or MS milliseconds, have passed: more than a step
 * takes.  If it has changed, the save fails with SIDESTEP_EINVAL and a tensor's name.  STAGED comes
 * that much later, sidestep_fence() waits for it on the host, and training is slow.
 */

/** struct sidestep_stream: a stream of a device, as the driver and the runtime know it. */
struct sidestep_stream {
    int32_t device;    /* as the driver counts them, from 0 */
    uint32_t reserved; /* zero */
    void *stream;      /* CUstream, cudaStream_t; NULL: the legacy default stream */
};

/** sidestep_device_of(address): the device whose memory this is; -1: host memory, or no driver. */
SIDESTEP_API int32_t sidestep_device_of(const void *address);

struct sidestep_save; /* one save in flight, see below */
/**
 * sidestep_fence(save, stream, err):
 * Work that is submitted to ${stream} from now on waits, on the device, until all that ${save}
 * copies from devices has been copied.  The host does not wait, unless copies have not been
 * submitted yet (see above), or a graph is being captured on the stream.  After STAGED it does
 * nothing. Not collective; the thread that saves.  Any number of times, for any number of streams.
 * Errors: SIDESTEP_EDEVICE, SIDESTEP_EINVAL: the driver refused; the tensors must then not be
 * written before sidestep_save_wait() has returned.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_fence(struct sidestep_save *save, const struct sidestep_stream *stream,
               struct sidestep_error *err);

/**
 * sidestep_fence_until(save, stream, turn, err):
 * As sidestep_fence(), but ${stream} waits only for what is not FENCED, and for FENCED tensors
 * whose turn is at most ${turn}: for programs with several optimizers that step one after the other
 * (in backward, say).  Tensors of an earlier turn are copied first; how far the device is, is known
 * every 32 MiB.  The fence is for all where pool_bytes is smaller than the state, and with
 * SIDESTEP_FENCE_DEBUG.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_fence_until(struct sidestep_save *save, const struct sidestep_stream *stream,
                     uint32_t turn, struct sidestep_error *err);

/* ---------------------------------------------------------------- save */

/*
 * The life of a save, on each rank:
 *
 *   STAGING -> STAGED -> RELEASED -> WRITTEN -> COMMITTED
 *      |          |         |           |   \-> UNKNOWN
 *      +----------+---------+-----------+-----> ABORTED
 *
 * STAGED: the tensors may be modified.  RELEASED: their memory may be freed, unmapped or
 * resized (by copy at the same time as STAGED, see enum sidestep_snapshot).  WRITTEN: this rank's
 * bytes are durable.  COMMITTED: the checkpoint exists, on every rank's word, and survives power
 * loss.  ABORTED: it does not exist and never will.  UNKNOWN: nobody can tell yet; the message says
 * what is known, where to look and what to do.  So ends also a save whose path, or a directory
 * above it, was renamed or replaced meanwhile: the checkpoint is whole then, and the message says
 * where it is, if that can be found.
 */
enum sidestep_save_state {
    SIDESTEP_SAVE_STAGING,
    SIDESTEP_SAVE_STAGED,
    SIDESTEP_SAVE_RELEASED,
    SIDESTEP_SAVE_WRITTEN,
    SIDESTEP_SAVE_COMMITTED,
    SIDESTEP_SAVE_ABORTED,
    SIDESTEP_SAVE_UNKNOWN,
};

/** Refuse with SIDESTEP_EBUSY where the call would wait for an earlier save. */
#define SIDESTEP_SAVE_NOWAIT 1u
/** Refuse with SIDESTEP_EEXISTS if the path holds a checkpoint, now or when this save is about to
 * commit.  The same on every rank. */
#define SIDESTEP_SAVE_NO_REPLACE 2u
/** Nobody changes the state before the save is STAGED: the caller waits for it, say, but not in the
 * library.  Then nothing is write-protected or copied in the call; it is copied as it is written,
 * through 48 MiB of the pool whatever the size, and STAGED comes when the disk is nearly done.  Of
 * this rank; tensors on devices are staged as ever. */
#define SIDESTEP_SAVE_STILL 4u
/** Its failure is told by its handle alone; no later call is refused because of it.  For a program
 * that always asks, in a thread of its own, say: the next call may come before that thread has. Of
 * this rank. */
#define SIDESTEP_SAVE_NOT_STICKY 8u

/*
 * Compression, of each tensor and object by itself, in the background: the call takes no longer.
 * What does not shrink (by 3 percent; less than 4 KiB never does) is stored as it is.  Lossless.
 * docs/COMPRESSION.md says what it gains, and what it costs.
 *
 * ZSTD is torch's own "stream.zstd/1", which stock torch loads where the package zstandard is
 * installed.  Weights repeat in no bytes, so it does not look for that unless it is given a level.
 * PLANES takes floating numbers apart into planes of bytes first: exponents shrink,
 * mantissas are left alone; smaller and faster than ZSTD, and read by sidestep, and by stock torch
 * with the extension that the Python package has.
 *
 * AUTO is PLANES where that makes saves faster: a tensor is compressed if a sample of it shows that
 * this is done faster than the disk would write it as it is.  How fast the disk is, earlier saves
 * of the engine have shown; the first one is written as it is.
 */
enum sidestep_compress {
    SIDESTEP_COMPRESS_NONE,
    SIDESTEP_COMPRESS_ZSTD,
    SIDESTEP_COMPRESS_PLANES,
    SIDESTEP_COMPRESS_AUTO,
};

#define SIDESTEP_MAX_QUEUE 8u
struct sidestep_save_options {
    size_t struct_size;
    uint32_t flags;    /* SIDESTEP_SAVE_* */
    uint32_t has_step; /* non-zero: record ${step}.  A name like "ckpt/step-100" records none
                          by itself: sidestep_list_root() goes by it for want of better */
    uint64_t step;
    uint64_t deadline_ms; /* for the commit, since the last progress seen; 0: the engine's */
    const struct sidestep_error *failure; /* NULL, or why this rank cannot take part: see below */
    uint64_t spread_ms; /* write evenly over this time, if the disk is faster: to be done before
                           the next save, say, with the least disturbance; 0: as fast as it goes */
    enum sidestep_compress compress;       /* of this rank; ranks may differ */
    uint32_t stream_count;                 /* at most 64 */
    const struct sidestep_stream *streams; /* that made the state, of devices that it lies on: see
                                              there.  None: the default stream of each */
    const char *codec; /* instead of ${compress}: the descriptor of a codec that the program has
                          registered (sidestep_extend.h), or of one of ours; NULL: none.  AUTO: what
                          it encodes faster than the disk would write */
    uint32_t compress_level; /* of ZSTD: 1 to 19, libzstd's; 0: no search for bytes that repeat */
    uint32_t queue; /* so many earlier saves, SIDESTEP_MAX_QUEUE at most, may still be under way
                       when this one starts; 0: it waits for them.  See sidestep_save_async() */
};
#define SIDESTEP_SAVE_OPTIONS_INIT                                                                 \
    {                                                                                              \
        .struct_size = sizeof(struct sidestep_save_options)                                        \
    }

/*
 * ${failure}, of saves and loads: a rank that cannot take part (what makes up its state raised an
 * exception, say) must not leave the others waiting in a collective function.  It calls the same
 * function and gives its reason: a status that is not SIDESTEP_OK, and a message (${rank} is not
 * read).  Its state and path may be NULL.  Every rank then fails with that error, err->rank naming
 * the one that gave it (-1 on that rank itself); nothing is left on storage, and the next save or
 * load works.  If several ranks have a reason, the lowest rank's is told to those that have none.
 * Costs nothing where no rank fails.
 */

/** The layout was the one of the save before: no planning was needed. */
#define SIDESTEP_SAVE_PLAN_REUSED 1u
/** The pool was too small: part of the state was written before the call returned. */
#define SIDESTEP_SAVE_STREAMED 2u
/** The storage does not survive power loss (tmpfs and the like). */
#define SIDESTEP_SAVE_VOLATILE 4u
/** Written with O_DIRECT. */
#define SIDESTEP_SAVE_DIRECT_IO 8u
/** Written through io_uring. */
#define SIDESTEP_SAVE_URING 16u
/** Device memory was copied through pageable memory, since staging memory cannot be pinned. */
#define SIDESTEP_SAVE_PAGEABLE 32u
/** It started while an earlier save was under way, and was written after that. */
#define SIDESTEP_SAVE_QUEUED 64u

/** struct sidestep_gain: what compression gained, and what it cost. */
struct sidestep_gain {
    uint64_t raw_bytes;
    uint64_t stored_bytes; /* equal: nothing was gained */
    uint64_t encode_ns;    /* of all threads together */
};
#define SIDESTEP_GAINS 32

/**
 * struct sidestep_save_info: how far a save is and what it cost this rank.  Times in
 * nanoseconds; those of phases that have not ended are 0.
 */
struct sidestep_save_info {
    size_t struct_size;
    enum sidestep_save_state state;
    uint32_t flags;       /* SIDESTEP_SAVE_PLAN_REUSED ... */
    char save_id[40];     /* 32 hexadecimal digits */
    uint64_t bytes_total; /* this rank writes; with compression, more than that until WRITTEN */
    uint64_t bytes_staged;
    uint64_t bytes_written;
    uint64_t call_ns;    /* the trainer was stopped */
    uint64_t wait_ns;    /* ... of which waiting for an earlier save */
    uint64_t plan_ns;    /* ... agreeing and planning */
    uint64_t pool_ns;    /* ... allocating the pool (first save) */
    uint64_t stage_ns;   /* ... copying */
    uint64_t write_ns;   /* in the background: until WRITTEN */
    uint64_t commit_ns;  /* in the background: from WRITTEN to COMMITTED */
    uint64_t held_ns;    /* ... of write_ns: held back by a pause, a limit or spread_ms */
    uint64_t release_ns; /* in the background: from STAGED to RELEASED; 0: at the same time */
    enum sidestep_snapshot snapshot; /* COW if any tensor was held so, else COPY */
    uint32_t
        io_depth; /* requests in flight, at most, while it was written; known from WRITTEN on */
    uint64_t cow_bytes;     /* of tensors: write-protected in the call ... */
    uint64_t copy_bytes;    /* ... and copied in it */
    uint64_t faults;        /* writes by the program that had to wait: known from RELEASED on */
    uint64_t faults_waited; /* ... for a copy that was under way already */
    uint64_t fault_bytes;   /* copied because of them */
    uint64_t fault_ns;      /* that they waited, all threads together */
    uint64_t fault_max_ns;  /* the longest */
    char copy_reason[128];  /* why what is large enough to be protected was copied, or "" */
    uint64_t faults_disk;   /* of faults: that had to wait for the disk (enum sidestep_snapshot) */
    uint64_t pool_bytes;    /* of the pool, that were needed at once; known from WRITTEN on */
    uint64_t ahead_bytes;   /* copied in the background, ahead of the disk */
    uint64_t live_bytes;    /* written straight from the tensors, without a copy */
    /* With compression, of this rank's tensors and objects; known once WRITTEN; else 0. */
    uint64_t raw_bytes;
    uint64_t stored_bytes;
    uint64_t encode_ns;
    struct sidestep_gain gains[SIDESTEP_GAINS]; /* by enum sidestep_dtype; [0]: objects */
    uint64_t device_bytes; /* of tensors: copied from devices; no part of cow and copy_bytes ... */
    uint64_t fenced_bytes; /* ... of which SIDESTEP_TENSOR_FENCED */
    uint64_t device_ns;    /* from the beginning of the call until they were copied */
    uint64_t fence_ns;     /* the host waited in sidestep_fence() */
    char pin_reason[128];  /* with SIDESTEP_SAVE_PAGEABLE: why, else "" */
    uint64_t linked_bytes; /* of bytes_total: shared with an earlier checkpoint, not written
                              (SIDESTEP_SERIES_INCREMENTAL); known from WRITTEN on */
    char link_reason[128]; /* why what could have been shared was written, or "" */
    uint64_t huge_bytes; /* after it: of tensors, put on huge pages again, which a fork(2) had split
                            (sidestep_state_dict_huge_pages()) ... */
    uint64_t huge_ns;    /* ... in this time of a background thread */
    uint64_t backed_off_ns; /* of write_ns: one write at a time, as others read from the disk */
};
#define SIDESTEP_SAVE_INFO_INIT                                                                    \
    {                                                                                              \
        .struct_size = sizeof(struct sidestep_save_info)                                           \
    }

/**
 * sidestep_save_async(engine, path, state, options, &save, err):
 * Snapshot ${state} and write it in the background as the directory ${path}.  Collective:
 * every rank gives the same ${path} on shared storage.
 *
 * ${path} may be new, an empty directory, an older checkpoint (it is replaced, atomically),
 * or a directory with other files (they are kept).  Its parent must exist.  SIDESTEP_ENOTFOUND
 * names the first component that is missing, or is no directory (then ${sys_errno} is ENOTDIR).
 *
 * A save replaces only the checkpoint that was there when this was called.  If another save to
 * ${path}, of this or of another process, has committed since, this one ends with SIDESTEP_EEXISTS:
 * the message names both saves, and what is there stays.  So a process that was stopped, or waited
 * for its storage, cannot replace a newer checkpoint when it goes on.  To replace it after all,
 * save again.  SIDESTEP_ELOCKED: another process held a lock on ${path} for longer than the
 * timeout.  On storage without locks two saves may still replace each other in the same moment;
 * then the later one ends with SIDESTEP_EUNKNOWN, and until the next save to ${path} nothing of
 * either is deleted.
 *
 * SIDESTEP_ENOSPC: the storage is full, and what was there stays.  The message says how many bytes
 * this rank's files take and how many were free.  On rank 0 it also says how many bytes it would
 * free to delete all checkpoints beside ${path} but the newest.
 *
 * Returns once the tensors may be modified, i.e. when they have been copied or write-protected
 * (enum sidestep_snapshot), not when they are durable.  Their memory must stay until RELEASED;
 * ${state} itself is no longer needed.  Waits for an earlier save unless SIDESTEP_SAVE_NOWAIT or
 * ${queue}.  On success ${*save} is owned by the caller and must be given to
 * sidestep_save_finish().  On failure
 * ${*save} is NULL, nothing was made, and earlier checkpoints are untouched. An error of an earlier
 * save whose outcome nobody asked for is returned here, before anything is done, once; but for one
 * that was started with SIDESTEP_SAVE_NOT_STICKY.
 *
 * With a ${queue} of n it does not wait while no more than n earlier saves are under way.  They are
 * written one after the other, so checkpoints come to exist in the order of the calls; one that
 * fails keeps none behind it from that.  A save that starts while another is under way is copied,
 * into memory of its own: as much as the state takes, as often as there are such saves.  Under
 * ${pool_bytes}, which holds for all together, and where memory is short, it waits until there is
 * room.  It also waits for all others if it goes to the path of one of them, is incremental or of
 * tensors on devices, or if one of them is.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_save_async(struct sidestep_engine *engine, const char *path,
                    const struct sidestep_state_dict *state,
                    const struct sidestep_save_options *options, struct sidestep_save **save,
                    struct sidestep_error *err);

/**
 * sidestep_save_poll(save, info): fill ${info} with what is known now.  Never blocks on
 * storage; any thread.  SIDESTEP_EINVAL if struct_size is not set.
 */
SIDESTEP_API enum sidestep_status sidestep_save_poll(struct sidestep_save *save,
                                                     struct sidestep_save_info *info);

/**
 * sidestep_save_wait(save, state, timeout_ms, err):
 * Block until the save has reached ${state} or ended.  SIDESTEP_OK: reached.
 * SIDESTEP_ETIMEDOUT: not yet, after ${timeout_ms} (< 0: for ever); the save goes on.
 * Otherwise the reason why it never will.  Not collective; any thread.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_save_wait(struct sidestep_save *save, enum sidestep_save_state state, int64_t timeout_ms,
                   struct sidestep_error *err);

/**
 * sidestep_save_watch(save, state, timeout_ms, err):
 * The same, for a thread that is none of training's: the save is not hurried.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_save_watch(struct sidestep_save *save, enum sidestep_save_state state, int64_t timeout_ms,
                    struct sidestep_error *err);

/**
 * sidestep_save_hurry(save): from now on it is done as if somebody waited for it.  Any thread.
 */
SIDESTEP_API void sidestep_save_hurry(struct sidestep_save *save);

/**
 * sidestep_save_cancel(save): give it up, soon: it is ABORTED with SIDESTEP_EABORTED, and what was
 * at its path stays.  The state may be changed and its memory given back once the save has ended
 * (sidestep_save_wait()), not before; the handle is still to be finished.  Does nothing once this
 * rank has said yes (WRITTEN; rank 0: once it commits).  Not collective: one rank is enough, and
 * the others learn which.  Does not block; any thread.
 */
SIDESTEP_API void sidestep_save_cancel(struct sidestep_save *save);

/**
 * sidestep_save_finish(&save, info, err):
 * Wait until the checkpoint is COMMITTED or has failed, fill ${info} (may be NULL), and
 * release ${*save}, in every case.  Not collective.  NULL ${*save} is a no-op.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_save_finish(struct sidestep_save **save, struct sidestep_save_info *info,
                     struct sidestep_error *err);

/**
 * sidestep_save(engine, path, state, options, info, err):
 * The same, blocking until COMMITTED.  Collective; every rank gets the coordinator's verdict.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_save(struct sidestep_engine *engine, const char *path,
              const struct sidestep_state_dict *state, const struct sidestep_save_options *options,
              struct sidestep_save_info *info, struct sidestep_error *err);

/* ---------------------------------------------------------------- load */

enum sidestep_verify_mode {
    SIDESTEP_VERIFY_READ, /* default: check every byte that is read */
    /* Check everything before the first tensor is touched.  For what is no checkpoint
       (sidestep_load() of safetensors, torch.save()), which has no hashes, as SIDESTEP_VERIFY_READ:
       the CRC32 of a tensor of torch.save() is checked as it is read. */
    SIDESTEP_VERIFY_BEFORE,
    /* Files, sizes, names, ids; tensors are taken as they are stored, but what has to be decoded
       (objects, what is compressed) is checked. */
    SIDESTEP_VERIFY_STRUCTURE,
};

/** Missing and mismatched names are reported, not an error. */
#define SIDESTEP_LOAD_PARTIAL 1u
/** Names in the checkpoint that the state lacks are an error. */
#define SIDESTEP_LOAD_STRICT 2u

struct sidestep_load_options {
    size_t struct_size;
    uint32_t flags; /* SIDESTEP_LOAD_* */
    enum sidestep_verify_mode verify;
    const struct sidestep_error *failure;  /* NULL, or why this rank cannot take part: see struct
                                              sidestep_save_options */
    const struct sidestep_stream *streams; /* whose work the load waits for before it writes to
                                              tensors on devices.  None: the default streams */
    uint32_t stream_count;                 /* at most 64 */
    uint32_t reserved;                     /* zero */
};
#define SIDESTEP_LOAD_OPTIONS_INIT                                                                 \
    {                                                                                              \
        .struct_size = sizeof(struct sidestep_load_options)                                        \
    }

/**
 * struct sidestep_load_report: what a load found.  Filled by the library; release it with
 * sidestep_load_report_release().  Names are sorted.
 */
struct sidestep_load_report {
    size_t struct_size;
    uint64_t bytes_loaded;   /* placed in the caller's tensors on this rank */
    uint64_t bytes_read;     /* read from storage */
    size_t missing_count;    /* in the state, not in the checkpoint */
    size_t unexpected_count; /* in the checkpoint, not in the state of this rank */
    size_t mismatched_count; /* other shape, dtype or kind */
    const char *const *missing;
    const char *const *unexpected;
    const char *const *mismatched; /* "name: saved float32 [2,3], wanted float32 [3,3]" */
    void *owner;                   /* the library's */
};
#define SIDESTEP_LOAD_REPORT_INIT                                                                  \
    {                                                                                              \
        .struct_size = sizeof(struct sidestep_load_report)                                         \
    }
SIDESTEP_API void sidestep_load_report_release(struct sidestep_load_report *report);

/**
 * sidestep_load(engine, path, state, options, report, err):
 * Fill the tensors and objects of ${state} from the checkpoint ${path}: ours or torch's, saved
 * by any number of ranks in any sharding.  Collective: all ranks load the same save, or all
 * fail.  Writes, locks and renames nothing on storage.  Blocks.
 * On failure the contents of the tensors are unspecified (unless the error came before the
 * first byte: missing and mismatched names do, and tensors in memory that may not be written, which
 * are SIDESTEP_EINVAL).  ${report} may be NULL.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_load(struct sidestep_engine *engine, const char *path, struct sidestep_state_dict *state,
              const struct sidestep_load_options *options, struct sidestep_load_report *report,
              struct sidestep_error *err);

/* ---------------------------------------------------------------- series */

/*
 * A series is a directory of checkpoints of one run, "step-<n>".  Opening it takes the lock,
 * starts a new incarnation that fences every earlier one, and clears what they left.
 *
 * A run that looks after itself:
 *
 *      struct sidestep_retention keep = {.struct_size = sizeof(keep), .keep_last = 3};
 *      struct sidestep_series_options options = {.struct_size = sizeof(options),
 *          .interval_ms = 600000, .flags = SIDESTEP_SERIES_REQUESTS, .retention = &keep};
 *      sidestep_series_open(engine, "ckpt", &options, &series, &err);
 *      sidestep_series_load(series, state, NULL, &step, NULL, NULL, &err);
 *      for (...; step++) {
 *              train();
 *              sidestep_series_should_save(series, step, &due, &err);
 *              if (due)
 *                      sidestep_series_save_async(series, step, state, NULL, &save, &err) ...
 *      }
 *      sidestep_series_close(&series, &err);
 */
struct sidestep_series;

/** Of two metrics the larger one is the better one (else the smaller). */
#define SIDESTEP_RETENTION_MAX 1u

/**
 * struct sidestep_retention: which checkpoints stay; all others of the run are deleted, once a
 * newer one is committed, in the background, by rank 0.  What stays in any case: the newest one
 * that is valid, those that are pinned, those that somebody is reading (a load, an open checkpoint;
 * they go the next time), those that are damaged (and they do not count), those of
 * other runs and of other programs, directories with files that are not ours, and everything while
 * the outcome of a save is UNKNOWN or before this incarnation has committed one of its own.
 * Those that a resume left behind (see sidestep_series_load_step()) go first.
 * With a ${keep_last} of 2 or more, the newest that shares no file with the newest one stays, too.
 */
struct sidestep_retention {
    size_t struct_size;
    uint32_t flags;      /* SIDESTEP_RETENTION_* */
    uint32_t keep_last;  /* the newest; 0 and 1: that one alone */
    uint64_t keep_every; /* and those whose step is a multiple of it; 0: none */
    uint32_t keep_best;  /* and the best by ${metric}; 0: none */
    uint32_t reserved;
    const char *metric; /* see sidestep_series_note() */
};
#define SIDESTEP_RETENTION_INIT                                                                    \
    {                                                                                              \
        .struct_size = sizeof(struct sidestep_retention)                                           \
    }

/** Listen to sidestep_series_request(): sidestep_series_should_save() then agrees now and then. */
#define SIDESTEP_SERIES_REQUESTS 1u
/** A save that is due by an interval, while the one before is under way, is left out. */
#define SIDESTEP_SERIES_SKIP_BUSY 2u
/** Resume also from what another run made (it counts as this run's from then on). */
#define SIDESTEP_SERIES_ANY_RUN 4u
/** A save for which the storage has less space than the newest checkpoint takes (the last one that
    was saved, or resumed from, or is found at opening) fails at once, with SIDESTEP_ENOSPC, instead
    of when the storage is full. */
#define SIDESTEP_SERIES_CHECK_SPACE 8u
/** The same, but first all that the retention may let go goes, but the newest: ${keep_last},
    ${keep_every} and ${keep_best} do not hold then.  What is pinned stays; and so does everything
    before this run has committed one of its own, after each opening ("sidestep prune" makes room by
    hand). */
#define SIDESTEP_SERIES_MAKE_ROOM 16u
/** Incremental: tensors that two saves in a row found equal, 1 MiB of them at least on a rank, are
    written once more, into a file of their own, and later checkpoints of this engine share it (by
    hard links) as long as they stay as they are; so they cost a read of memory, and no payload.  If
    one of them changes, all are written anew, and so they are after 16 links, and where the storage
    refuses links (${link_reason}).  A bad block in such a file damages all checkpoints that share
    it: so a retention with a ${keep_last} of 2 or more also keeps the newest checkpoint that shares
    no file with the newest.  What is shared is never compressed. */
#define SIDESTEP_SERIES_INCREMENTAL 32u

struct sidestep_series_options {
    size_t struct_size;
    uint32_t flags;        /* SIDESTEP_SERIES_* */
    uint32_t max_restarts; /* so many runs may resume from a checkpoint and end without having
                              committed another one or closed the series; then the one before it
                              has its turn.  0: any number */
    const char *prefix; /* of the checkpoints' names, which are this and the step ("step-42"), not
                           padded; NULL: "step-".  '/', '%', '{' and '}' are refused.  Names of
                           other kinds: ${name} */
    const struct sidestep_retention *retention; /* copied; NULL: all stay */
    /* For sidestep_series_should_save(): */
    uint64_t interval_steps; /* 0: none */
    uint64_t interval_ms;    /* 0: none */
    uint64_t check_ms;       /* how soon a request is noticed, about; 0: 5,000 */
    uint64_t mtbf_ms;        /* the job fails about that often: the interval follows from that and
                                from what saves are measured to cost; 0: it does not */
    double max_lost;         /* with ${mtbf_ms}: the part of time that saves and repeated work may
                                take, 0.02 say: the longest interval that keeps it; 0, or if none
                                does: the interval at which least is lost */
    const char *name; /* of the checkpoints, in the place of ${prefix}: a template with {step}, or
                         {step:08} (zeroes in front, to 1 to 20 digits), once: "step_{step:08}",
                         "step-{step}.dcp"; NULL: prefix and step.  See sidestep_name_of_step() */
};
#define SIDESTEP_SERIES_OPTIONS_INIT                                                               \
    {                                                                                              \
        .struct_size = sizeof(struct sidestep_series_options)                                      \
    }

/**
 * sidestep_series_open(engine, root, options, &series, err):
 * Collective.  Makes ${root} if its parent exists.  SIDESTEP_ELOCKED names host and pid of
 * the process that holds it.  SIDESTEP_EDISAGREE: the ranks have other roots, names, flags or
 * intervals, so that one of them would save alone.  SIDESTEP_EINVAL: see sidestep_name_of_step().
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_series_open(struct sidestep_engine *engine, const char *root,
                     const struct sidestep_series_options *options, struct sidestep_series **series,
                     struct sidestep_error *err);

/**
 * sidestep_name_of_step(naming, step, name, err):
 * How a series of this ${name} calls the checkpoint of ${step}: "step_{step:08}" and 42 make
 * "step_00000042".  A step with more digits than that has all of them.
 * SIDESTEP_EINVAL: {step} does not stand in it exactly once, or with a format other than {step:0N}
 * or {step:0Nd}, N from 1 to 20; it starts with a dot; a digit stands beside {step}; more than 63
 * bytes stand before or behind it; it ends as names of sidestep's own files do (".distcp", ".part",
 * ".saving", ...); or has '/', '%', a quote, a backslash, a control character, or is no UTF-8.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_name_of_step(const char *naming, uint64_t step, char name[256],
                      struct sidestep_error *err);

/**
 * sidestep_step_of_name(naming, name, &step, err):
 * The step whose name this is.  SIDESTEP_ENOTFOUND: none's, by this template: "step_{step:08}"
 * never makes "step_42".
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_step_of_name(const char *naming, const char *name, uint64_t *step,
                      struct sidestep_error *err);

/**
 * sidestep_series_save_async(...): as sidestep_save_async() to ROOT/step-<step>.  SIDESTEP_EEXISTS
 * if that step is committed already, unless a resume has left it behind: then it is replaced, but
 * not if it is pinned.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_series_save_async(struct sidestep_series *series, uint64_t step,
                           const struct sidestep_state_dict *state,
                           const struct sidestep_save_options *options, struct sidestep_save **save,
                           struct sidestep_error *err);

/** sidestep_series_save(...): the same, blocking until COMMITTED. */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_series_save(struct sidestep_series *series, uint64_t step,
                     const struct sidestep_state_dict *state,
                     const struct sidestep_save_options *options, struct sidestep_save_info *info,
                     struct sidestep_error *err);

/**
 * sidestep_series_load(series, state, options, &step, report, err):
 * Load the newest checkpoint that verifies.  Collective.  One that does not verify, after a
 * second, uncached read, is set aside as .bad (if it is ours) and the next older one is
 * tried; so it is when somebody deletes it meanwhile.  Passed over are also: those that an earlier
 * resume left behind, those of another run, and those from which too many runs have come to nothing
 * (${max_restarts}).  From then on the run goes on from there: newer checkpoints, if there are any,
 * are of a line that has ended.  No resume chooses them, retention lets them go, and a save of
 * their step replaces them.
 * SIDESTEP_ENOTFOUND: nothing there yet.  SIDESTEP_ECORRUPT: there are checkpoints, but none that
 * is valid (SIDESTEP_EMISMATCH: none that may be resumed from); the message lists what was rejected
 * and why.  SIDESTEP_EPERM, SIDESTEP_EIO, SIDESTEP_ENOMEM: one could not be read, which says
 * nothing of whether it is valid (permission, storage that fails, too few descriptors).  Then
 * nothing is changed and no older one is taken: it has to be made readable, or an older step to be
 * named (sidestep_series_load_step()).
 * ${*step} is set on success; ${rejected} may be NULL, else receives the same list.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_series_load(struct sidestep_series *series, struct sidestep_state_dict *state,
                     const struct sidestep_load_options *options, uint64_t *step,
                     struct sidestep_load_report *report, char rejected[2048],
                     struct sidestep_error *err);

/**
 * sidestep_series_load_step(series, step, state, options, report, err):
 * Go back to ${step}: load that checkpoint and no other, and go on from there, as above.
 * Collective.  Whoever only wants to look at it calls sidestep_load().
 * SIDESTEP_ENOTFOUND: there is none of this step, or somebody has deleted it meanwhile.  What is
 * wrong with it is an error; it is not set aside.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_series_load_step(struct sidestep_series *series, uint64_t step,
                          struct sidestep_state_dict *state,
                          const struct sidestep_load_options *options,
                          struct sidestep_load_report *report, struct sidestep_error *err);

/** Why a save is due: the interval, ... */
#define SIDESTEP_DUE_INTERVAL 1u
/** ... a rank has asked for one, ... */
#define SIDESTEP_DUE_SAVE 2u
/** ... or for the end of the run: this is the last one. Set from then on. */
#define SIDESTEP_DUE_STOP 4u

/**
 * sidestep_series_should_save(series, step, &due, err):
 * Is a save due at ${step}?  ${*due} is 0 or SIDESTEP_DUE_*, and the same on every rank, whatever
 * their clocks say and whichever of them was asked to save.  To be called by every rank after the
 * same steps, usually each.
 * Most calls do not communicate: the ranks agree (one all-reduce of five words) at steps on which
 * they have agreed before, about every ${check_ms}, as rank 0 foresees it from the time that steps
 * take; and never if saves are due only by ${interval_steps}.  An agreement that fails is
 * SIDESTEP_EPEER.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_series_should_save(struct sidestep_series *series, uint64_t step, uint32_t *due,
                            struct sidestep_error *err);

/**
 * sidestep_series_quiet_until(series, step):
 * For bindings to which each call is dear: the first step, from ${step} on, at which
 * sidestep_series_should_save() has to be called.  Until then it says 0 and talks to nobody, as
 * long as steps do not go back; UINT64_MAX: always.  Not collective, and the same on every rank.
 */
SIDESTEP_API uint64_t sidestep_series_quiet_until(const struct sidestep_series *series,
                                                  uint64_t step);

/**
 * sidestep_series_request(series, what):
 * Ask for a save (SIDESTEP_DUE_SAVE), or for one and then the end (SIDESTEP_DUE_STOP), on any rank,
 * from any thread, or from a signal handler.  Needs SIDESTEP_SERIES_REQUESTS.
 */
SIDESTEP_API void sidestep_series_request(struct sidestep_series *series, uint32_t what);

struct sidestep_series_status {
    size_t struct_size;
    uint64_t interval_ms; /* between saves, as of now; 0: not by time */
    uint64_t skipped;     /* saves that were left out (SIDESTEP_SERIES_SKIP_BUSY) */
    uint64_t agreements;  /* of sidestep_series_should_save() */
    double lost;          /* with ${mtbf_ms}: the part of time that is expected to be lost */
    uint64_t queued;      /* saves that started while another was under way (${queue}) */
};
#define SIDESTEP_SERIES_STATUS_INIT                                                                \
    {                                                                                              \
        .struct_size = sizeof(struct sidestep_series_status)                                       \
    }
/** sidestep_series_status(series, status): as known on this rank; times are rank 0's to know.
    SIDESTEP_EINVAL if struct_size is not set. */
SIDESTEP_API enum sidestep_status sidestep_series_status(struct sidestep_series *series,
                                                         struct sidestep_series_status *status);

struct sidestep_metric {
    const char *name; /* letters, digits, '_' and '-', at most 64 */
    double value;
};
/**
 * sidestep_series_note(series, step, metrics, metric_count, tags, tag_count, err):
 * What is to be known of the checkpoint of ${step}: metrics (for ${keep_best}) and tags (spelled as
 * names of metrics are).  Not collective: rank 0's words count, those of others are ignored.
 * Before the save of that step is started, they become durable with it, in the background; after it
 * was committed, before this returns.  A metric replaces what was noted before under its name.
 * Errors: SIDESTEP_EINVAL for a name.  SIDESTEP_EBUSY: the save of ${step} is under way.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_series_note(struct sidestep_series *series, uint64_t step,
                     const struct sidestep_metric *metrics, size_t metric_count,
                     const char *const *tags, size_t tag_count, struct sidestep_error *err);

struct sidestep_gc_report;
/**
 * sidestep_series_prune(series, report, err):
 * Delete now what the retention lets go, and say what went since the last call, in the background
 * too.  Not collective, and from any thread: rank 0 does it, on others the report is empty.
 * ${report} is as of sidestep_gc(), and released alike.  A checkpoint that cannot be deleted is
 * among those that are kept.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_series_prune(struct sidestep_series *series, struct sidestep_gc_report *report,
                      struct sidestep_error *err);

/**
 * sidestep_series_delete(series, step, err):
 * Delete one committed checkpoint of this series.  Collective.  Refused with SIDESTEP_ELOCKED:
 * the newest one that verifies, one that is pinned or being read, any while an outcome is UNKNOWN,
 * and any before this incarnation has committed one of its own.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_series_delete(struct sidestep_series *series, uint64_t step, struct sidestep_error *err);

/**
 * sidestep_series_close(&series, err):
 * Wait for its saves, release the lock.  Collective.  After sidestep_engine_close(), which did all
 * that, it only frees the handle, and other functions of the series return SIDESTEP_EINVAL.
 */
SIDESTEP_API enum sidestep_status sidestep_series_close(struct sidestep_series **series,
                                                        struct sidestep_error *err);

/* ---------------------------------------------------------------- looking at checkpoints */

/* None of what follows needs an engine, and none but sidestep_gc(), sidestep_rebuild(),
 * sidestep_prune(), sidestep_pin(), sidestep_tag(), sidestep_convert() and sidestep_doctor() writes
 * to storage. */

enum sidestep_presence {
    SIDESTEP_COMMITTED,  /* exists */
    SIDESTEP_SAVING,     /* being written, or it cannot be told whether it still is */
    SIDESTEP_TRASH,      /* being deleted */
    SIDESTEP_BAD,        /* failed verification, set aside */
    SIDESTEP_FOREIGN,    /* a directory that is none of the above, a file with tensors that is no
                            checkpoint, or a symbolic link */
    SIDESTEP_UNREADABLE, /* a directory that could not be looked into: it may be any of the above */
    SIDESTEP_COMPLETE,   /* a whole checkpoint of another program, that is no DCP: see ${layout} */
    SIDESTEP_INCOMPLETE, /* one of another program's that is not whole: see ${reason} */
    SIDESTEP_DEAD,       /* left behind by a killed save: sidestep_gc() removes it */
    SIDESTEP_DAMAGED,    /* a checkpoint of which files are missing, cut short, or not to be
                            understood: see ${reason} */
};

struct sidestep_listed {
    const char *name; /* in ${root} */
    const char *path;
    const char *state_name; /* "committed", "saving", "trash", "bad", "foreign", "unreadable",
                               "complete", "incomplete", "dead", "damaged" */
    enum sidestep_presence state;
    uint32_t ranks; /* that wrote it; 0: unknown */
    int64_t step;   /* -1: unknown */
    uint64_t bytes; /* of its files */
    uint64_t files;
    int64_t saved_at;     /* seconds since 1970, for people; -1: unknown */
    const char *save_id;  /* NULL: not ours */
    const char *run_id;   /* of the series that wrote it; NULL: none */
    uint64_t incarnation; /* of that series, counted from 1; 0: none */
    bool is_pinned;
    bool is_abandoned; /* a resume has left it behind: it is of a line that has ended */
    bool is_renamed;   /* a series saved it under another name than this: it was copied, or renamed,
                          since.  No resume picks it unasked, and nothing deletes it */
    uint32_t tag_count;
    uint32_t metric_count;
    uint32_t shared_files; /* of ${files}: written by an earlier save, whose checkpoint has them,
                              too (SIDESTEP_SERIES_INCREMENTAL) */
    const char *const *tags;
    const struct sidestep_metric *metrics;
    const char *layout; /* the program whose form it has, by its name and files: "lightning",
                           "torchtitan", "transformers", "accelerate", "megatron", "deepspeed";
                           "dcp": shards without .metadata; of FOREIGN, "safetensors" or "torch" if
                           it has tensors.  NULL: ours, or none that is known */
    const char *reason; /* why no resume takes it unasked: what is wrong with it ("optimizer.pt is
                           cut short"), or, whole as it is, "is of another run (...)".  NULL only if
                           it is committed or complete */
    const char *naming; /* the template of its series' names; NULL: they are a prefix and the step,
                           or no series saved it */
    const char *target; /* of a save (SAVING, DEAD): the checkpoint that it is, or was, to become;
                           NULL: unknown, or no save */
    enum sidestep_status status; /* UNREADABLE, DAMAGED: what opening it gave (EPERM, EIO, ECORRUPT
                                    ...); else SIDESTEP_OK */
    uint32_t reserved;
};
struct sidestep_list {
    size_t count;
    const struct sidestep_listed *entries; /* by step, oldest first, then by name */
    void *owner;
};
/**
 * sidestep_list_root(root, list, err): what lies under ${root}, hidden names included.  A
 * checkpoint is COMMITTED only if all of its files are there, can be opened, and have the size that
 * they should have; their bytes are for sidestep_verify() to check.  Checkpoints of other programs
 * are known by their names and files, and tried for completeness in the way that fits each: what is
 * written last must be there, and no file may be cut short; a file that says which is the latest
 * vouches for nothing.  Nothing of sidestep deletes or renames them.  Symbolic links are listed as
 * FOREIGN, and not followed.  Up to 4 threads look.  SIDESTEP_ENOTFOUND if ${root} is not a
 * directory.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_list_root(const char *root, struct sidestep_list *list, struct sidestep_error *err);
SIDESTEP_API void sidestep_list_release(struct sidestep_list *list);

/** struct sidestep_writer: one rank of a save, as far as storage shows it. */
struct sidestep_writer {
    uint32_t rank;
    uint32_t reserved;
    const char *state_name; /* "writing"; "sealed" (written, not voted for yet); "done" (its bytes
                               are durable); "failed" */
    uint64_t bytes;         /* of its files */
    uint64_t written_bytes; /* of them there already */
};
/** struct sidestep_saving: a save that is under way, or that was killed. */
struct sidestep_saving {
    const char *name; /* of the checkpoint that it is to become; NULL: unknown */
    const char *path; /* where it is being written */
    const char *save_id;
    const char *owner; /* "process 4711 on node-3", as its mark says; NULL: unknown */
    int64_t step;      /* by its mark, or its name; -1: unknown */
    bool is_dead;      /* whoever began it has ended: it will not be finished.  False where storage
                          cannot tell */
    uint32_t rank_count; /* ranks that have begun to write; more may follow */
    uint32_t done_count; /* ... of which: */
    uint32_t failed_count;
    uint64_t bytes; /* of all files that are there */
    uint64_t written_bytes;
    uint64_t expected_bytes; /* what the newest checkpoint under the root takes; 0: there is none */
    uint32_t expected_ranks; /* that wrote it; 0: unknown */
    uint32_t reserved;
    const struct sidestep_writer *writers; /* ${rank_count}, by rank */
};
struct sidestep_saving_list {
    size_t count;
    const struct sidestep_saving *entries; /* by step, then by name */
    void *owner;
    size_t unread_count; /* "PATH: REASON": directories that could not be looked into, in which
                            there may be a save */
    const char *const *unread;
    enum sidestep_status
        unread_status; /* of the first: EPERM, EIO ...; SIDESTEP_OK: there is none */
    uint32_t reserved;
};
/**
 * sidestep_list_saving(root, list, err): what is being saved under ${root}, from what lies there:
 * nobody is asked, and nobody notices.  Files are made with their final size, so what is written of
 * them is told by the holes that they still have; on storage that does not tell, it is all, or
 * nothing.  SIDESTEP_ENOTFOUND if ${root} is not a directory.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_list_saving(const char *root, struct sidestep_saving_list *list,
                     struct sidestep_error *err);
SIDESTEP_API void sidestep_saving_list_release(struct sidestep_saving_list *list);

/** A checkpoint that is newer than the one that was found, and why it was not taken. */
struct sidestep_passed_over {
    const char *path;
    const char *state_name; /* as in a listing; "damaged": it was tried.  "committed": it may be
                               whole, and ${reason} says why no resume takes it unasked */
    const char *reason;     /* "file '__1_0.distcp': it is missing" */
    int64_t step;           /* -1: unknown */
    enum sidestep_status status; /* what it failed with; SIDESTEP_OK: it was not tried */
    uint32_t reserved;
};
struct sidestep_latest_report {
    const char *path;   /* of what was found; NULL: nothing */
    const char *layout; /* of that: see struct sidestep_listed; NULL: ours, or none that is known */
    int64_t step;       /* -1: unknown */
    int64_t saved_at;   /* seconds since 1970, for people; -1: unknown */
    size_t passed_count;
    const struct sidestep_passed_over *passed; /* newest first */
    void *owner;
};
struct sidestep_verify_options;
/**
 * sidestep_find_latest(root, verify, options, report, err): the newest checkpoint under ${root}
 * that passes ${verify}, and so what a resume of a series there takes.  What a run has left behind
 * by going back, what another run made, and what was copied or renamed is passed over (only what a
 * series that is opened with ${max_restarts} or SIDESTEP_SERIES_ANY_RUN makes of it is not known
 * here).  Where there is none that sidestep can load, it is the newest that is complete in another
 * program's form (which only SIDESTEP_VERIFY_STRUCTURE can tell: it has no checksums).  Beside a
 * run that deletes what it replaces, the root is looked at anew where what was found has gone.
 *
 * ${report} names what was passed over, also after a failure; release it in each case.  ${options}:
 * threads, progress of each checkpoint that is read, and cancel, as of sidestep_verify(); may be
 * NULL.  Blocks while it reads; any thread; not collective.
 *
 * Errors as sidestep_series_load(): SIDESTEP_ENOTFOUND: there is none yet.  SIDESTEP_ECORRUPT:
 * there are some, and none is valid.  SIDESTEP_EMISMATCH: none that a resume takes unasked.
 * SIDESTEP_EPERM, SIDESTEP_EIO: one cannot be read now, which says nothing of whether it is valid,
 * so nothing older is taken.  Besides, SIDESTEP_EINVAL if ${root} is itself a checkpoint, a file,
 * or a link that leads nowhere,
 * SIDESTEP_ELOCKED if each one went before it could be looked at, SIDESTEP_ECANCELLED.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_find_latest(const char *root, enum sidestep_verify_mode verify,
                     const struct sidestep_verify_options *options,
                     struct sidestep_latest_report *report, struct sidestep_error *err);
SIDESTEP_API void sidestep_latest_report_release(struct sidestep_latest_report *report);

/**
 * sidestep_latest(root, verify, &path, err): the path alone of what sidestep_find_latest() finds,
 * to be freed with sidestep_string_free(); with the same errors.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_latest(const char *root, enum sidestep_verify_mode verify, char **path,
                struct sidestep_error *err);
SIDESTEP_API void sidestep_string_free(char **string);

/** A checkpoint opened for reading.  Its files stay open, so a delete does not hurt. */
struct sidestep_checkpoint;

struct sidestep_checkpoint_info {
    size_t struct_size;
    const char *path;
    const char *format;  /* "dcp" (torch's), "sidestep" (DCP with our footers and manifest),
                            "safetensors" or "torch": see enum sidestep_format */
    const char *save_id; /* may be "" */
    int64_t step;        /* -1: unknown */
    uint32_t world_size; /* ranks that wrote it; 0: unknown */
    uint32_t reserved;
    uint64_t bytes; /* of its files */
    size_t tensor_count;
    size_t object_count;
    uint64_t shared_bytes; /* of ${bytes}: written by an earlier save, whose checkpoint has them,
                              too (SIDESTEP_SERIES_INCREMENTAL) */
    size_t damaged_count;  /* of its files: missing, cut short, of another save */
    const char *damage;    /* "file '__1_0.distcp': it is missing", of the first; NULL: none */
    size_t unread_count;   /* of its files that cannot be read now: they may be whole */
    const char *unread;    /* "file '__1_0.distcp': ... Permission denied", of the first; or NULL */
    enum sidestep_status unread_status; /* of that: EPERM, EIO ...; SIDESTEP_OK: there is none */
    uint32_t reserved2;
};
#define SIDESTEP_CHECKPOINT_INFO_INIT                                                              \
    {                                                                                              \
        .struct_size = sizeof(struct sidestep_checkpoint_info)                                     \
    }

/** One stored chunk of a tensor, or the bytes of an object (then ndim is 0). */
struct sidestep_chunk {
    const int64_t *offsets;
    const int64_t *lengths;
    const char *file;
    uint64_t file_offset;
    uint64_t file_bytes;
    const char *transform; /* "stream.zstd/1", or NULL */
};
struct sidestep_entry {
    const char *name;
    bool is_object;
    enum sidestep_dtype dtype;
    const char *dtype_name; /* also where dtype is SIDESTEP_DTYPE_NONE; NULL for objects */
    uint32_t ndim;
    const int64_t *shape;
    uint64_t bytes;     /* of the whole tensor; stored bytes of an object */
    size_t chunk_count; /* 1 for an object */
    const struct sidestep_chunk *chunks;
    uint32_t path_length; /* 0: none is recorded, and ${path} is NULL */
    const struct sidestep_path_item *path;
};

/**
 * sidestep_checkpoint_open(path, &checkpoint, err): of torch's or of ours, or another thing that
 * holds tensors: see enum sidestep_format.  A checkpoint of which files are damaged is opened, too:
 * what lies in the others can be read, and reading what does not fails and says in which file it
 * lies and what is wrong with that; ${damage} of struct sidestep_checkpoint_info.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_checkpoint_open(const char *path, struct sidestep_checkpoint **checkpoint,
                         struct sidestep_error *err);
SIDESTEP_API void sidestep_checkpoint_close(struct sidestep_checkpoint **checkpoint);
/** sidestep_checkpoint_info(checkpoint, info): its strings live as long as the checkpoint. */
SIDESTEP_API enum sidestep_status
sidestep_checkpoint_info(const struct sidestep_checkpoint *checkpoint,
                         struct sidestep_checkpoint_info *info);
/** Tensors and objects together, sorted by name; entries live as long as the checkpoint. */
SIDESTEP_API size_t sidestep_checkpoint_count(const struct sidestep_checkpoint *checkpoint);
SIDESTEP_API const struct sidestep_entry *
sidestep_checkpoint_entry(const struct sidestep_checkpoint *checkpoint, size_t i);
/** sidestep_checkpoint_find(checkpoint, name): NULL if there is none. */
SIDESTEP_API const struct sidestep_entry *
sidestep_checkpoint_find(const struct sidestep_checkpoint *checkpoint, const char *name);

/**
 * sidestep_checkpoint_read_tensor(checkpoint, name, offsets, lengths, data, bytes, err):
 * Read a box of a tensor into ${data}: row-major, contiguous, little-endian; ${bytes} must be the
 * box's size.  NULL ${offsets} and ${lengths}: the whole tensor.  Every byte is verified.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_checkpoint_read_tensor(struct sidestep_checkpoint *checkpoint, const char *name,
                                const int64_t *offsets, const int64_t *lengths, void *data,
                                size_t bytes, struct sidestep_error *err);

/** sidestep_checkpoint_read_bytes(..., &bytes, &length): the stored bytes of an object, to be
    freed with sidestep_bytes_free(). */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_checkpoint_read_bytes(struct sidestep_checkpoint *checkpoint, const char *name,
                               void **bytes, size_t *length, struct sidestep_error *err);
SIDESTEP_API void sidestep_bytes_free(void **bytes);
/**
 * sidestep_decode(transform, stored, length, most, &bytes, &bytes_length, err):
 * Undo a transform: ${stored} are the ${length} bytes of an item that a checkpoint has with
 * ${transform} ("stream.zstd/1", "sidestep.planes/1"), for programs that read files by themselves.
 * ${bytes}: the item, freed with sidestep_bytes_free().  SIDESTEP_ECORRUPT: it is damaged, or has
 * more than ${most} bytes.  Hashes are not looked at.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_decode(const char *transform, const void *stored, size_t length, uint64_t most,
                void **bytes, size_t *bytes_length, struct sidestep_error *err);
/** sidestep_checkpoint_read_value(..., &value): an object, decoded; freed with
 * sidestep_value_free(). */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_checkpoint_read_value(struct sidestep_checkpoint *checkpoint, const char *name,
                               struct sidestep_value **value, struct sidestep_error *err);

/** What the elements of a tensor are like. */
struct sidestep_tensor_stats {
    const char *name; /* the caller's */
    uint64_t element_count;
    uint64_t nan_count;
    uint64_t inf_count;
    uint32_t has_range; /* not 0: ${min} and ${max}, of all but NaN; there is one such element */
    uint32_t has_mean;  /* not 0: ${mean}, of those that are finite; there is one such element */
    double min;         /* neither: complex ones, and those that are bits and no numbers */
    double max;
    double mean;
};

/**
 * sidestep_checkpoint_stats(checkpoint, stats, count, options, err):
 * Read the tensors stats[i].name, and fill in all else.  Every byte is verified, as far as there
 * are checksums.  ${options}: threads, progress and cancel as of sidestep_verify(); may be NULL.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status sidestep_checkpoint_stats(
    struct sidestep_checkpoint *checkpoint, struct sidestep_tensor_stats *stats, size_t count,
    const struct sidestep_verify_options *options, struct sidestep_error *err);

struct sidestep_problem {
    const char *file; /* relative to the checkpoint; may be NULL */
    const char *name; /* of the tensor or object; may be NULL */
    const char *kind; /* One of:
                       * "missing", "size", "hash", "format", "id", "unsafe", "coverage": damage;
                       * "incomplete": another program did not write all of its checkpoint;
                       * "io", "permission": it could not be read, so it may be whole. */
    const char *message;
};
/** A file that was read to its end, and has nothing that tells whether its bytes are right. */
struct sidestep_unchecked {
    const char *file; /* relative to the path that was verified */
    const char *what; /* "safetensors" (whole in its structure), "JSON", "a pickle" ... */
};
struct sidestep_verify_report {
    bool ok;
    uint32_t unlisted_count; /* problems that were found beyond those that are listed */
    uint64_t checked_bytes;
    size_t problem_count;
    const struct sidestep_problem *problems;
    void *owner;
    enum sidestep_status status; /* what the problems come to: SIDESTEP_OK: there are none;
                                    ECORRUPT: there is damage; EUNCOMMITTED: not all of it was
                                    written; EPERM, EIO: nothing worse is known than that files may
                                    not be, or could not be, read */
    uint32_t reserved;
    size_t unchecked_count; /* what other programs wrote without checksums; no problem */
    const struct sidestep_unchecked *unchecked;
};
struct sidestep_verify_options {
    size_t struct_size;
    uint32_t threads; /* 0: by the machine */
    uint32_t flags;   /* none yet */
    void (*on_progress)(void *context, uint64_t done_bytes, uint64_t total_bytes);
    void *context;
    const bool volatile *cancel; /* set to true to stop with SIDESTEP_ECANCELLED; may be NULL */
};
#define SIDESTEP_VERIFY_OPTIONS_INIT                                                               \
    {                                                                                              \
        .struct_size = sizeof(struct sidestep_verify_options)                                      \
    }

/**
 * sidestep_verify(path, options, report, err): read everything at ${path}, and check every byte for
 * which there is a hash.  SIDESTEP_OK: it was read, see report->status.
 *
 * For torch's own checkpoints that is structure, coverage, and CRC32 where it was written.  What
 * other programs wrote is gone through file by file: DCPs in directories, files of torch.save()
 * (CRC32), safetensors (structure); what has no checksums is named in report->unchecked.  ${path}
 * may be a file, a directory of which the form is known (see ${layout} of struct sidestep_listed),
 * or one with files of tensors and no checkpoints.  Of a file that may not be read there is one
 * problem, and not one for each tensor in it.
 *
 * Errors: SIDESTEP_EUNCOMMITTED: there is no checkpoint.  SIDESTEP_ENOTFOUND, SIDESTEP_EPERM,
 * SIDESTEP_EIO: it could not be opened.  SIDESTEP_ECANCELLED.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_verify(const char *path, const struct sidestep_verify_options *options,
                struct sidestep_verify_report *report, struct sidestep_error *err);
SIDESTEP_API void sidestep_verify_report_release(struct sidestep_verify_report *report);

/** struct sidestep_difference: a name that two checkpoints do not have in common, or not alike. */
struct sidestep_difference {
    const char *name;
    const char *kind;    /* "only_a", "only_b", "kind" (tensor or object), "dtype", "shape", "value"
                            (of an object), "data" (of a tensor) */
    const char *message; /* in words */
    /* Of "data" only: */
    uint64_t element_count; /* elements whose bits differ */
    double max_abs;         /* the largest |a - b|; infinity where one is NaN and the other is not;
                               NaN for dtypes that are no numbers */
    double max_rel;         /* the largest |a - b| / max(|a|, |b|); infinity and NaN likewise */
    uint32_t ndim;
    uint32_t reserved;
    const int64_t *first; /* index of the first element that differs */
};
struct sidestep_diff_report {
    bool same;
    uint32_t reserved;
    size_t same_count;   /* names that are alike, ... */
    size_t same_by_hash; /* ... of which tensors whose stored hashes say so: they were not read */
    uint64_t read_bytes; /* of tensors, of each of the two */
    size_t difference_count;
    const struct sidestep_difference *differences; /* by name */
    void *owner;
};
struct sidestep_diff_options {
    size_t struct_size;
    uint32_t threads; /* 0: by the machine */
    uint32_t flags;   /* none yet */
    void (*on_progress)(void *context, uint64_t done_bytes, uint64_t total_bytes);
    void *context;
    const bool volatile *cancel; /* set to true to stop with SIDESTEP_ECANCELLED; may be NULL */
};
#define SIDESTEP_DIFF_OPTIONS_INIT                                                                 \
    {                                                                                              \
        .struct_size = sizeof(struct sidestep_diff_options)                                        \
    }

/**
 * sidestep_diff(a, b, options, report, err): compare two checkpoints by name: what they hold, and
 * how far apart it is, whoever wrote them and in whatever sharding.  SIDESTEP_OK: they were
 * compared, see report->same.  What is read is verified; tensors that were saved with equal hashes
 * are not read.  Memory is bounded (about 100 MiB, and what the names take), but for chunks without
 * hashes of blocks, which are torch's: those are held whole.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_diff(const char *a, const char *b, const struct sidestep_diff_options *options,
              struct sidestep_diff_report *report, struct sidestep_error *err);
SIDESTEP_API void sidestep_diff_report_release(struct sidestep_diff_report *report);

/** Only say what would be removed. */
#define SIDESTEP_GC_DRY_RUN 1u
struct sidestep_gc_report {
    size_t removed_count;
    const char *const *removed; /* paths */
    size_t kept_count;
    const char *const *kept; /* "path: reason" */
    uint64_t bytes;          /* freed */
    void *owner;
};
/**
 * sidestep_gc(parent, flags, report, err): remove what killed saves and deletes left in
 * ${parent}.  Touches only names of ours whose owner is dead; never a checkpoint, never .bad.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status sidestep_gc(const char *parent, uint32_t flags,
                                                                struct sidestep_gc_report *report,
                                                                struct sidestep_error *err);
SIDESTEP_API void sidestep_gc_report_release(struct sidestep_gc_report *report);

/**
 * sidestep_prune(root, retention, flags, report, err):
 * What a series does by itself, by hand: of the checkpoints of ours under ${root}, whichever run
 * made them, delete what ${retention} lets go.  ${flags}: SIDESTEP_GC_DRY_RUN.  ${report} is as of
 * sidestep_gc().  SIDESTEP_ELOCKED: a run has the series open.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_prune(const char *root, const struct sidestep_retention *retention, uint32_t flags,
               struct sidestep_gc_report *report, struct sidestep_error *err);

/**
 * sidestep_pin(path, on, err): protect a checkpoint from retention, or no longer.  Durable when it
 * returns; it may be done while a run has the series open.  SIDESTEP_ENOTFOUND: it is not there, or
 * was deleted meanwhile.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status sidestep_pin(const char *path, bool on,
                                                                 struct sidestep_error *err);
/** sidestep_tag(path, tag, on, err): put a tag on a checkpoint, or take it away; as above. */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_tag(const char *path, const char *tag, bool on, struct sidestep_error *err);

/**
 * sidestep_rebuild(path, err): write `.metadata` and manifest anew from the shards' own
 * footers, for a directory whose `.metadata` was lost or damaged.  Refused where the shards do
 * not make up one whole save, and where a readable `.metadata` is there.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status sidestep_rebuild(const char *path,
                                                                     struct sidestep_error *err);

/* ---------------------------------------------------------------- other formats */

/*
 * Where a path is read (sidestep_load(), sidestep_checkpoint_open(), sidestep_convert()), it may be
 * a checkpoint, and also: a file of safetensors; a directory of them, as Hugging Face's libraries
 * write it; a file of torch.save() (the zip format, of dicts and lists, taken apart as a save of
 * torch.distributed.checkpoint takes them apart).  What it is, its content says.  Nothing in a
 * pickle is executed.  Safetensors have no checksums: of them only sizes and structure are checked.
 */

enum sidestep_format {
    SIDESTEP_FORMAT_AUTO,        /* by the name of the destination, see sidestep_convert() */
    SIDESTEP_FORMAT_DCP,         /* a checkpoint of ours */
    SIDESTEP_FORMAT_SAFETENSORS, /* a directory; one file if its name ends in .safetensors */
    SIDESTEP_FORMAT_TORCH,       /* a file of torch.save() */
    SIDESTEP_FORMAT_NPZ,         /* a file of NumPy's savez() */
};

/** What becomes of objects that the format cannot hold: all of them in safetensors and npz; in
 * torch.save(), those that are more than None, bool, int, float, str, bytes, list, tuple, dict. */
enum sidestep_objects {
    SIDESTEP_OBJECTS_REFUSE, /* fail, and name the first */
    SIDESTEP_OBJECTS_SKIP,   /* leave them out; the report lists them */
    SIDESTEP_OBJECTS_ASIDE,  /* into a file of torch.save(), a dict by name: "objects.pt" in a
                                directory, DST.objects.pt beside a file.  What is more than data is
                                kept there as bytes: the file that torch.save() made of it */
};

/** Replace what is at the destination, if it is what a conversion makes. */
#define SIDESTEP_CONVERT_REPLACE 1u
/** Only the weights: see sidestep_convert(). */
#define SIDESTEP_CONVERT_MODEL_ONLY 2u
/** Do everything up to the first byte of data; the report says what there would be. */
#define SIDESTEP_CONVERT_DRY_RUN 4u
/* Of a damaged checkpoint: what can be read, and verified; what cannot is left out, and reported */
#define SIDESTEP_CONVERT_PARTIAL 8u

struct sidestep_convert_options {
    size_t struct_size;
    enum sidestep_format to;
    enum sidestep_objects objects;
    uint32_t flags; /* SIDESTEP_CONVERT_* */
    uint32_t ranks; /* DCP: shard files, as if so many ranks had saved, at most 64; 0: 1.  They are
                       written one after the other */
    uint32_t threads; /* 0: by the machine; at most 64.  No more run than memory is for: 16 to a
                         checkpoint, 8 where it is compressed, at a level of zstd 4, from 10 on 3;
                         and 10 to files */
    enum sidestep_dtype dtype;  /* of all tensors of float64, float32, float16, bfloat16,
                                   float8_e4m3fn and float8_e5m2: converted to it, rounded to
                                   nearest,  ties to even; NONE: as they are */
    uint64_t max_shard_bytes;   /* of tensors in a file of a directory of safetensors; 0: 5 GB.  One
                                   that is larger is alone in its file */
    const char *const *include; /* patterns as of fnmatch(3), of names in the source */
    size_t include_count;       /* 0: all */
    const char *const *exclude;
    size_t exclude_count;
    const char *const *rename; /* "s/PATTERN/REPLACEMENT/", a POSIX extended regular expression;
                                  \1 to \9 and & in the replacement; g behind it: all matches.
                                  One after the other, each to all names */
    size_t rename_count;
    const char *mapping;  /* a file: a JSON object of names and new names; after ${rename} */
    const char *compress; /* DCP: "none", "zstd", "zstd:LEVEL", "planes", or "auto", which here is
                             planes: no training waits for it; NULL: none */
    void (*on_progress)(void *context, uint64_t done_bytes, uint64_t total_bytes);
    void *context;
    const bool volatile *cancel; /* set to true to stop with SIDESTEP_ECANCELLED; may be NULL */
};
#define SIDESTEP_CONVERT_OPTIONS_INIT                                                              \
    {                                                                                              \
        .struct_size = sizeof(struct sidestep_convert_options)                                     \
    }

struct sidestep_convert_report {
    const char *from; /* "sidestep", "dcp", "safetensors", "torch" */
    const char *to;   /* "dcp", "safetensors", "torch", "npz" */
    size_t tensor_count;
    size_t object_count;   /* in the destination */
    uint64_t tensor_bytes; /* in the destination */
    uint64_t bytes_read;   /* from storage */
    size_t file_count;     /* of the destination, relative to it; one that is a file: its name */
    const char *const *files;
    size_t left_out_count; /* names of objects that are not in the destination */
    const char *const *left_out;
    const char *aside;     /* path of what SIDESTEP_OBJECTS_ASIDE made; NULL: nothing */
    size_t overflow_count; /* "NAME: COUNT": tensors of which elements became infinite or NaN by the
                              conversion to ${dtype} */
    const char *const *overflows;
    size_t lost_count; /* "NAME: REASON": tensors and objects that SIDESTEP_CONVERT_PARTIAL left
                          out, as they are damaged or cannot be read */
    const char *const *lost;
    void *owner;
    enum sidestep_status lost_status; /* SIDESTEP_OK: nothing is lost.  ECORRUPT: there is damage.
                                         EPERM, EIO: files may not, or could not, be read */
    uint32_t reserved;
};

/**
 * sidestep_convert(source, destination, options, report, err):
 * Write what is at ${source} to ${destination} in another format, or in the same with other names,
 * types or files.  By this process alone, in pieces: memory stays below 256 MiB whatever the size,
 * but for objects, compressed tensors and those that are not stored row-major, which are decoded
 * one by one.  Every byte that is read is checked, as far as the source has checksums.  ${options}
 * and ${report} may be NULL.
 *
 * The destination is there whole and durable when this returns, or not at all; its parent must
 * exist.  It must not exist before, or be an empty directory, unless SIDESTEP_CONVERT_REPLACE.
 * What a killed conversion leaves beside it, the next one to the same destination removes, or
 * sidestep_gc().  ${source} is not touched.
 *
 * AUTO: a destination that ends in .safetensors, .npz, .pt, .pth or .bin is a file of that kind;
 * any other is a directory: DCP, unless ${source} is a checkpoint: then safetensors.  With
 * SIDESTEP_CONVERT_PARTIAL it is DCP always, since what is left of a checkpoint is to be one again,
 * and safetensors cannot hold its objects.
 *
 * SIDESTEP_CONVERT_MODEL_ONLY: where the source has a dict called model, model_state_dict,
 * state_dict, module or app.model at its top, that dict alone, its name taken off; else all but
 * the dicts at its top that are called optim, optimizer, optimizers, optimizer_state_dict,
 * optimizer_states, opt, lr_scheduler, lr_schedulers, lr_scheduler_state_dict, scheduler,
 * dataloader, train_state, rng, rng_state and loops; and in both cases no objects.  EMISMATCH,
 * with what is at the top: two of the former are there, or of the latter, what is left has the
 * state of an optimizer.
 *
 * SIDESTEP_CONVERT_PARTIAL: of a checkpoint that is damaged.  All of it is verified first, as by
 * sidestep_verify() (with ${on_progress}, which then starts anew), and what does not pass is left
 * out; SIDESTEP_ECORRUPT if no tensor does, or if its metadata or manifest is what is damaged.
 *
 * Tensors of a DCP or torch.save() destination are nested as they were, unless they were renamed:
 * then, and where the source has names alone, they are at the top.  Two names of one tensor in
 * torch.save() stay that in torch.save(), and become two tensors elsewhere.
 *
 * Errors: SIDESTEP_EEXISTS, SIDESTEP_EINVAL for an option, SIDESTEP_EUNSUPPORTED for what the
 * format cannot hold, SIDESTEP_EMISMATCH if nothing is selected or two names become one, those of
 * reading, those of sidestep_save() (SIDESTEP_EUNKNOWN, too), SIDESTEP_ENOSPC, SIDESTEP_EIO,
 * SIDESTEP_ECANCELLED.  If memory is short only when all is done, the report is zeros.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_convert(const char *source, const char *destination,
                 const struct sidestep_convert_options *options,
                 struct sidestep_convert_report *report, struct sidestep_error *err);
SIDESTEP_API void sidestep_convert_report_release(struct sidestep_convert_report *report);

/* ---------------------------------------------------------------- what a machine allows */

enum sidestep_allowed {
    SIDESTEP_ALLOWED_NO, /* sidestep does it in another way, which costs something: see ${fix} */
    SIDESTEP_ALLOWED_PARTLY, /* with a limit, which ${text} says */
    SIDESTEP_ALLOWED_YES,
    SIDESTEP_ALLOWED_FACT, /* nothing to be allowed: worth knowing */
};
struct sidestep_finding {
    const char *name;       /* "io_uring", "direct_io" ...: stable; new ones may come */
    const char *state_name; /* "no", "partly", "yes", "fact" */
    enum sidestep_allowed state;
    uint32_t reserved;
    const char *text; /* what was found, and what it means */
    const char *fix;  /* what to do about it; NULL: nothing */
};
struct sidestep_doctor_report {
    size_t count;
    const struct sidestep_finding *findings;
    void *owner;
};
/**
 * sidestep_doctor(directory, report, err):
 * Try out what makes saves and loads fast here: for this process, with this user's rights, and for
 * files in ${directory}.  Makes a file of one page there, unlinked before it is used; where that
 * is not allowed, the findings say so.  A "no" is a finding, not a failure.
 * SIDESTEP_ENOTFOUND if there is no such directory.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_doctor(const char *directory, struct sidestep_doctor_report *report,
                struct sidestep_error *err);
SIDESTEP_API void sidestep_doctor_report_release(struct sidestep_doctor_report *report);

#ifdef __cplusplus
}
#endif
#endif
