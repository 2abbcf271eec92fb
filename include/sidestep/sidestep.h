/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sidestep.h -- distributed, asynchronous checkpoints for model training.
 *
 * The state of a training job (tensors and small objects) is sharded over many ranks.
 * sidestep takes a snapshot of it while training waits for a moment, writes it in the
 * background, and makes it appear as one directory: whole, durable and verified, or not at
 * all.  The directory is a PyTorch Distributed Checkpoint (DCP): stock torch loads it, and
 * sidestep loads torch's.
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
 * Order of this header: status and errors; the state; ranks; the engine; devices; saving; loading.
 * Others, each of which includes what it needs:
 *
 *  sidestep_series.h  the checkpoints of one run: resuming, retention, when to save
 *  sidestep_tools.h   without an engine: looking at checkpoints, other formats, copies
 *  sidestep_extend.h  codecs of your own
 *  sidestep_mpi.h     ranks of an MPI program
 *
 * Conventions, true for every function unless its comment says otherwise:
 *
 *  - A function returns SIDESTEP_OK (0) or a status.  ${err} is the last parameter and may
 *    be NULL.  A failure fills it; a success leaves it untouched.
 *  - No function prints, exits, aborts, or raises a signal.
 *  - Strings are NUL-terminated and copied.  Names are UTF-8; paths are any bytes.
 *  - Sizes and offsets are bytes.  Shapes, offsets of boxes, and strides count elements, outermost
 *    dimension first.
 *  - Options structs start with struct_size.  A zeroed field means "default".  The library
 *    refuses a field or flag that it does not know.
 *  - What is true or false is a bool, named is_... or has_... in structs.  Choices that combine are
 *    the bits of flags.
 *  - Entries of lists are read by functions, because later versions may append fields to them.
 *  - Destructors take a pointer to the handle, set it to NULL, and accept NULL.
 *  - Every rank of the engine's communicator must call "collective" functions, in the same
 *    order.  They return the same status on every rank.  err->rank names the rank that has
 *    the reason (-1: this one).
 *  - One thread at a time may use a handle.  Any thread may call sidestep_save_poll() and
 *    sidestep_save_wait().
 *  - After fork(), a child may not use handles that were made before.
 */
#ifndef SIDESTEP_H
#define SIDESTEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* SIDESTEP_INIT(struct sidestep_tensor): the initial value of a struct that has a struct_size. Each
 * struct has a name for its own, such as SIDESTEP_TENSOR_INIT. */
#ifdef __cplusplus
template <class Struct> inline Struct sidestep_init()
{
    Struct zeroed = Struct();
    zeroed.struct_size = sizeof(Struct);
    return zeroed;
}
#define SIDESTEP_INIT(type) sidestep_init<type>()
extern "C" {
#else
#define SIDESTEP_INIT(type)                                                                        \
    {                                                                                              \
        .struct_size = sizeof(type)                                                                \
    }
#endif

#define SIDESTEP_VERSION_MAJOR 0
#define SIDESTEP_VERSION_MINOR 2
#define SIDESTEP_VERSION_PATCH 0

#define SIDESTEP_API __attribute__((visibility("default")))
#define SIDESTEP_MUST_USE __attribute__((warn_unused_result))

/** sidestep_version(): the version of the loaded library, as "0.2.0". */
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
 * struct sidestep_error: why a call failed.  The caller owns it.  It contains no pointers,
 * so it can be copied, sent to another rank, or kept after the engine is closed.  Its size
 * never changes.  A message that is too long is cut.
 */
struct sidestep_error {
    int32_t status;       /* enum sidestep_status: branch on this ... */
    int32_t sys_errno;    /* ... or on this; 0 if the kernel was not involved */
    int32_t rank;         /* rank that failed first; -1 means "this one" */
    uint32_t reserved[3]; /* zero */
    char where[40];       /* "publish.c:118", for bug reports */
    char message[704];    /* "save 'ckpt/step-12': write __3_0.distcp: No space left ..." */
};

/** sidestep_status_text(status): one static sentence that describes ${status}; never NULL. */
SIDESTEP_API const char *sidestep_status_text(enum sidestep_status status);

/** sidestep_status_exit(status): exit status of the command line for ${status}. */
SIDESTEP_API int sidestep_status_exit(enum sidestep_status status);

/*
 * Paths.  A path is one of a file system (absolute, or relative to the working directory of the
 * process), or the URL "s3://BUCKET/PREFIX" of an S3-compatible object store (docs/OBJECTS.md).  A
 * function that does not take such URLs, and every function with a URL of another scheme (a letter,
 * then letters, digits, '+', '-' and '.', then "://"), fails with SIDESTEP_EUNSUPPORTED.  An empty
 * path fails with SIDESTEP_EINVAL.  Such a call changes nothing.  Write a local path of that shape
 * as "./s3://x".
 */

/**
 * sidestep_check_path(path, err):
 * Check that the functions of the library accept ${path}.  They check it themselves; a program
 * calls this before it changes a path that it was given (makes it absolute, joins it to another),
 * because the result of changing a URL no longer looks like one.  Reads nothing, does not block;
 * any thread.
 * Errors: SIDESTEP_EINVAL: ${path} is NULL or empty, or no bucket or key can have this name.
 * SIDESTEP_EUNSUPPORTED: it is a URL of another scheme than s3.
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

#define SIDESTEP_MAX_NDIM 64     /* dimensions of a tensor */
#define SIDESTEP_MAX_NAME 4096   /* bytes of a name, the NUL excluded */
#define SIDESTEP_MAX_FILES 4096u /* small files that a rank may give to a save */
#define SIDESTEP_MAX_FILE_BYTES (UINT64_C(64) << 30)
#define SIDESTEP_MAX_PATH_ITEMS 64 /* depth of a nested state dict */
#define SIDESTEP_MAX_RANKS 1048576

/** A path item is the integer key ${index} of a dict; ${key} is NULL. */
#define SIDESTEP_PATH_INT_KEY 1u

/**
 * struct sidestep_path_item: one step from the root of a nested state dict to a value: a
 * key of a dict (${key} not NULL), an index of a list (${key} NULL), or an integer key of a dict
 * (${key} NULL, SIDESTEP_PATH_INT_KEY; may be negative).
 * {"optim", 0, "exp_avg"} is Python's state["optim"][0]["exp_avg"].  Its name is
 * "optim.0.exp_avg".  A path that gives another name than its entry has is refused.
 * The name is the same for index 0 of a list, the integer key 0 and the key "0".  Stock torch sees
 * "0" for both keys.  sidestep records separately which keys are integers, so that it can restore
 * {0: ...} while stock torch can still read the checkpoint.
 *
 * Give a path where the nesting matters to readers: stock torch turns "optim.0.exp_avg" back into
 * nested dicts and lists by the recorded path alone.  An entry without a path is a top-level key,
 * with all its dots.  sidestep_load() finds entries by name and never looks at paths.
 */
struct sidestep_path_item {
    const char *key;
    int64_t index;
    uint32_t flags;    /* SIDESTEP_PATH_INT_KEY, or 0 */
    uint32_t reserved; /* zero */
};

/** Every replica lists the same bytes; sidestep may write any part of them from any replica. */
#define SIDESTEP_TENSOR_REPLICATED 1u
/** Recorded for readers; the saved data is the same. */
#define SIDESTEP_TENSOR_REQUIRES_GRAD 2u
/** A device or a network card may write to the tensor's memory by itself.  Write protection does
 * not stop such writes, so the tensor is copied before the call returns.  The library detects two
 * kinds of pinned memory without this flag: memory that CUDA has pinned, and memory that the kernel
 * counts in VmPin (buffers registered with io_uring, with RDMA, or by MPI, UCX or gloo over RDMA).
 * The kernel does not say where the latter lies, so all tensors are copied while VmPin is not zero,
 * and while an io_uring instance of this process has registered buffers.
 * Set the flag for memory that only VFIO, AF_XDP, V4L2, habanalabs, VMCI, etnaviv or a driver
 * outside the kernel's tree has pinned: these count it elsewhere, or not at all.
 */
#define SIDESTEP_TENSOR_PINNED 4u
/** Only the CPU writes to the tensor's memory, pinned or not (parameters and moments of optimizers
 * that run on the CPU; devices may read).  So it may be write-protected, even while this process
 * has pinned memory. */
#define SIDESTEP_TENSOR_CPU_WRITES 8u
/** A promise, for a tensor in device memory: after the call of a save, only work that is behind
 * sidestep_fence() on its stream writes to it.  So it may be copied during the next forward and
 * backward.  Set it for parameters and states of an optimizer whose step is fenced.  Do not set it
 * for what changes in forward (statistics of batch normalization) or outside of optimizers.  The
 * flag is not part of the layout.
 */
#define SIDESTEP_TENSOR_FENCED 16u

/**
 * struct sidestep_tensor: this rank's shard of one tensor: its address, and its box in the
 * global tensor.  All arrays have ${ndim} elements.
 *
 * Two entries of one state may have the same name if their boxes differ (a rank with several
 * shards of a tensor).  If several ranks list a tensor with the same box, it is saved once: with
 * the value of the lowest rank.  With SIDESTEP_TENSOR_REPLICATED on all of them, the rank with the
 * least to write saves it, on the host with the least, and several ranks save parts of a large
 * tensor; nothing compares their values.  Without the flag they may do so where the values were
 * compared and are equal (enum sidestep_replicas).  The caller, which knows what its ranks have,
 * gives values that differ names that differ.
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
    void *data;             /* first element of the shard; a save reads it, a load writes it; may
                               be NULL if the shard is empty.  In host memory, or in a device's,
                               see struct sidestep_stream */
    uint32_t flags;         /* SIDESTEP_TENSOR_* */
    uint32_t path_length;   /* 0: the path is the name alone */
    const struct sidestep_path_item *path;
    uint32_t turn;     /* of SIDESTEP_TENSOR_FENCED: tensors with a lower turn are copied first, see
                          sidestep_fence_until(); not part of the layout */
    uint32_t reserved; /* zero */
};
#define SIDESTEP_TENSOR_INIT SIDESTEP_INIT(struct sidestep_tensor)

/*
 * Values: what Python calls None, bool, int, float, str, bytes, list, tuple, dict.  Python
 * loads them as such, and sidestep decodes them without executing anything.  A value owns its
 * children.
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
    SIDESTEP_VALUE_OPAQUE, /* decoded only: none of the above */
};
struct sidestep_value;

/*
 * Constructors return NULL when memory is short.  sidestep_value_append() and _set() take
 * ownership of their arguments, also on failure.  They accept NULL (and then fail with
 * SIDESTEP_ENOMEM), so calls can be nested:
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
/** sidestep_value_set(dict, key, item, err): set a key of a dict; takes ownership of both; replaces
 * the value of an equal key. */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status sidestep_value_set(struct sidestep_value *dict,
                                                                       struct sidestep_value *key,
                                                                       struct sidestep_value *item,
                                                                       struct sidestep_error *err);
SIDESTEP_API void sidestep_value_free(struct sidestep_value **value);

/* Reading a value.  Pointers live as long as the value.  A function for another kind than
 * sidestep_value_kind() returns 0, 0.0, or NULL. */
SIDESTEP_API enum sidestep_value_kind sidestep_value_kind(const struct sidestep_value *value);
SIDESTEP_API bool sidestep_value_get_bool(const struct sidestep_value *value);
SIDESTEP_API int64_t sidestep_value_get_int(const struct sidestep_value *value);
SIDESTEP_API double sidestep_value_get_float(const struct sidestep_value *value);
/** The bytes of a str or bytes, or the description of an opaque value; ${length} may be NULL. */
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
 * tuple, dict, and containers of these.  Nothing is executed or imported.  An object that the
 * pickle references several times is copied for each reference.
 * Errors: SIDESTEP_ECORRUPT: not a pickle.  SIDESTEP_EUNSUPPORTED: a valid pickle of something
 * else than plain data (another class, an int beyond 64 bits, a container that contains itself, a
 * str that is not Unicode text), or one whose copies exceed what the library decodes: let Python
 * keep it as it is.  The caller frees ${*value} with sidestep_value_free().
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_value_from_pickle(const void *bytes, size_t length, struct sidestep_value **value,
                           struct sidestep_error *err);

/**
 * sidestep_value_to_pickle(value, &bytes, &length, err):
 * Encode a value as a pickle (protocol 3).  The pickle names no class, so pickle.loads() executes
 * nothing.  SIDESTEP_EUNSUPPORTED if the value contains a SIDESTEP_VALUE_OPAQUE.  The caller frees
 * ${*bytes} with sidestep_bytes_free().
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_value_to_pickle(const struct sidestep_value *value, void **bytes, size_t *length,
                         struct sidestep_error *err);
/** sidestep_bytes_free(&bytes): free bytes that a function of the library has returned. */
SIDESTEP_API void sidestep_bytes_free(void **bytes);

/*
 * A state dict: what this rank saves, or loads into.  It keeps copies of names, shapes and
 * objects, and the *addresses* of tensors.  The memory stays the caller's and must be valid until
 * the save is RELEASED (see below), or the load has returned.
 * A state dict may be saved and loaded any number of times, in any order, so one is enough to
 * resume and then to go on saving.  A load gives its objects the loaded values.
 */
struct sidestep_state_dict;

/** sidestep_state_dict_new(&state, err): make an empty one. */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_state_dict_new(struct sidestep_state_dict **state, struct sidestep_error *err);
/** sidestep_state_dict_free(&state): do not call it while a save of it is being staged. */
SIDESTEP_API void sidestep_state_dict_free(struct sidestep_state_dict **state);

/**
 * sidestep_state_dict_add_tensor(state, tensor, err): add one shard.
 * Errors: SIDESTEP_EINVAL names the tensor and its defect (no name, box outside the shape,
 * sizes that overflow, a NULL address with elements, the same box twice).
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_state_dict_add_tensor(struct sidestep_state_dict *state,
                               const struct sidestep_tensor *tensor, struct sidestep_error *err);

/**
 * sidestep_state_dict_add_value(state, name, path, path_length, value, err):
 * Add an object; Python sees ${value} under ${name}.  Takes ownership of ${value} on success.  To
 * load an object, add it with a NULL ${value}, load, and call sidestep_state_dict_value().  The
 * lowest rank that lists an object saves it; values of other ranks are not compared with it.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_state_dict_add_value(struct sidestep_state_dict *state, const char *name,
                              const struct sidestep_path_item *path, uint32_t path_length,
                              struct sidestep_value *value, struct sidestep_error *err);

/**
 * sidestep_state_dict_add_bytes(state, name, path, path_length, bytes, length, err):
 * Add an object by its stored bytes, which are copied and written unchanged.  Stock torch
 * reads them if torch.save() made them.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_state_dict_add_bytes(struct sidestep_state_dict *state, const char *name,
                              const struct sidestep_path_item *path, uint32_t path_length,
                              const void *bytes, size_t length, struct sidestep_error *err);

enum sidestep_file_flag {
    /* Several ranks may have a file of this name; that of the lowest rank is saved.  Without it,
     * the save fails unless their bytes are equal. */
    SIDESTEP_FILE_FIRST_RANK = 1,
    /* No file, but a symbolic link to the checkpoint itself, for readers that look for it in a
     * directory of its own.  Buckets have no links; there it is only listed. */
    SIDESTEP_FILE_ALIAS = 2,
    /* ${bytes} are the absolute path of a file of this host.  It becomes the file of the save: by a
     * second name where it lies on the same storage, is a regular file and has no other names, else
     * by a copy.  The save reads it in the background: nobody may change or remove it until the
     * save has ended, or write to it ever after.  Its own name stays. */
    SIDESTEP_FILE_TAKE = 4,
};

/**
 * sidestep_state_dict_add_file(state, name, bytes, length, flags, err):
 * Add a small file (the state of a trainer, a tokenizer), or replace the one of this name.  The
 * next save writes it into the checkpoint under ${name}, and it is a part of it: durable before the
 * commit, listed with its hash, verified, copied and deleted with it.  ${bytes} are copied, and a
 * save that is under way keeps them.  Loads ignore files: see sidestep_checkpoint_read_file().
 *
 * ${name}: a relative path of at most 1024 bytes and 8 levels, in UTF-8, without control and
 * combining characters.  The save refuses a name that sidestep or torch uses, and two that are
 * equal but for case.  In a directory that existed before the save, a file of this name that is
 * not the checkpoint's stays; then only sidestep finds that of the checkpoint.
 * ${flags}: of enum sidestep_file_flag.
 * Errors: SIDESTEP_EINVAL (a NULL, too many files, too many bytes), SIDESTEP_ENOMEM; the save that
 * follows reports SIDESTEP_EINVAL for a name, and SIDESTEP_EDISAGREE if ranks have different bytes
 * under one name.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_state_dict_add_file(struct sidestep_state_dict *state, const char *name, const void *bytes,
                             size_t length, uint32_t flags, struct sidestep_error *err);
/** sidestep_state_dict_clear_files(state): remove all files; a save that is under way keeps its
 * own. */
SIDESTEP_API void sidestep_state_dict_clear_files(struct sidestep_state_dict *state);

/**
 * sidestep_state_dict_set_value(state, name, value, err):
 * Give an existing object another value (the step counter, for example).  Takes ownership of
 * ${value} on success.  Objects are not part of the layout, so the next save need not plan again.
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
 * Give the tensors new addresses and keep the layout.  ${data}[i] is the first element of the i-th
 * tensor shard, in the order in which they were added, without the objects.  ${count} is the number
 * of all shards.  Everything else of a shard (strides too) stays.  All or none: a failure leaves
 * the state as it was.
 * Errors: SIDESTEP_EINVAL if ${count} is wrong, or an address is NULL for a shard with elements.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_state_dict_set_data(struct sidestep_state_dict *state, void *const *data, size_t count,
                             struct sidestep_error *err);

/** ${bytes} are a pickle of plain data; sidestep_value_from_pickle() decodes it. */
#define SIDESTEP_OBJECT_PICKLE 1u
/** ${bytes} are stored unchanged, as by sidestep_state_dict_set_bytes(). */
#define SIDESTEP_OBJECT_STORED 2u

/** struct sidestep_object: the new contents of one object of a state. */
struct sidestep_object {
    uint64_t index;    /* among the state's objects, in the order in which they were added */
    const void *bytes; /* copied */
    size_t length;
    uint32_t kind;     /* SIDESTEP_OBJECT_PICKLE or SIDESTEP_OBJECT_STORED */
    uint32_t reserved; /* zero */
};

/**
 * sidestep_state_dict_set_objects(state, objects, count, err):
 * Give ${count} existing objects new contents, in one call; the others stay.  All or none: a
 * failure leaves the state as it was.  Of two entries for one object, the later one counts.
 * Errors: SIDESTEP_ENOTFOUND: there is no object of this index.  SIDESTEP_EINVAL: unknown kind, or
 * NULL with a length.  Those of sidestep_value_from_pickle(), with the name of the object.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_state_dict_set_objects(struct sidestep_state_dict *state,
                                const struct sidestep_object *objects, size_t count,
                                struct sidestep_error *err);

/** sidestep_state_dict_value(state, name): a loaded object, decoded; NULL if it does not exist. */
SIDESTEP_API const struct sidestep_value *
sidestep_state_dict_value(const struct sidestep_state_dict *state, const char *name);
/** sidestep_state_dict_bytes(state, name, &length): the stored bytes of a loaded object, or NULL.
 */
SIDESTEP_API const void *sidestep_state_dict_bytes(const struct sidestep_state_dict *state,
                                                   const char *name, size_t *length);

/* ---------------------------------------------------------------- ranks */

/**
 * struct sidestep_comm: the host program's collectives.  sidestep has no network code.  The
 * callbacks run only on a thread that calls a collective function of this header, never in the
 * background.  Each callback returns 0, or non-zero for a failure, which every rank must see.
 * All are collective over ${size} ranks; buffers are in host memory.
 *
 * Ready-made: NULL for a single process; sidestep_mpi.h for MPI.
 */
struct sidestep_comm {
    size_t struct_size;
    void *context;
    int32_t rank;
    int32_t size;
    /** Element-wise maximum of ${count} values over all ranks; every rank gets the result. */
    int (*all_reduce_max)(void *context, uint64_t *values, size_t count);
    /** Send ${bytes} bytes from ${root} to all ranks. */
    int (*broadcast)(void *context, void *buffer, size_t bytes, int32_t root);
    /** Rank 0 gets ${send_bytes} from each rank into ${recv}, one after the other, in rank order;
        ${recv_bytes} has a size per rank.  Both are NULL on the other ranks. */
    int (*gather)(void *context, const void *send, size_t send_bytes, void *recv,
                  const size_t *recv_bytes);
    /** The reverse of gather. */
    int (*scatter)(void *context, const void *send, const size_t *send_bytes, void *recv,
                   size_t recv_bytes);
};
#define SIDESTEP_COMM_INIT SIDESTEP_INIT(struct sidestep_comm)

/* ---------------------------------------------------------------- engine */

/*
 * An engine owns threads, the staging pool and the communicator.  It has no directory.  A process
 * usually has one.
 *
 * File descriptors: an engine keeps only ${event_path} open.  A series has 5.  A save uses up to
 * 10.  A load or an open checkpoint uses up to 200, and 2 for each of its threads.  With io_uring,
 * each thread of a save or load uses one more.  The numbers of shards and ranks do not matter, so
 * 300 free descriptors are enough.  If there are too few, a call fails with SIDESTEP_EIO, and
 * err->sys_errno is EMFILE or ENFILE.
 */
struct sidestep_engine;

/** Write-protect also where the machine allows only the kind that cannot wait in system calls.
 * Until a save is RELEASED, a read(2) or recv(2) into its tensors then fails with EFAULT.  For
 * programs in which only their own code writes to tensors. */
#define SIDESTEP_ENGINE_USER_MODE_FAULTS 1u
/** Saves in the background go on at full pace: their threads keep the priority with which they were
 * started, and their writes do not slow down while others read from the same disk. */
#define SIDESTEP_ENGINE_KEEP_PACE 2u

/*
 * How a save keeps the snapshot while training goes on.  Either way it writes the state at the time
 * of the call, bit for bit.
 *
 * COPY: the tensors are copied before sidestep_save_async() returns.
 *
 * COW (copy-on-write): their pages are write-protected with userfaultfd(2), and the call returns at
 * once.  Each granule of 2 MiB is copied in the background, or when the program writes to it; that
 * write waits for the copy (0.1-0.3 ms).  The save is STAGED at once, and RELEASED when everything
 * is copied.  Before RELEASED:
 *  - The memory must not be freed, unmapped, moved or discarded.  Otherwise the save fails, and the
 *    program goes on.
 *  - The program may write to it, also by system calls, and may fork.
 *  - It may be registered with a device once the call has returned.
 * During the call no thread may write to the state.  A registration counts as a write; so does a
 * direct read (O_DIRECT) that has not ended.
 *
 * If protected memory changes without a fault, the save fails with SIDESTEP_EINVAL and the name of
 * the tensor, and later saves of the engine copy.  This happens after MADV_GUARD_INSTALL, where the
 * kernel merges pages (KSM), and after another use of userfaultfd.
 *
 * The choice is made per tensor.  Private anonymous memory can be protected.  These are copied:
 * files, shared memory, stacks, SIDESTEP_TENSOR_PINNED, tensors that are not contiguous, and
 * stretches of less than 1 MiB.  Everything is copied
 *  - in blocking saves;
 *  - in saves that start while an earlier one is being written (${queue});
 *  - where the machine refuses (userfaultfd needs vm.unprivileged_userfaultfd=1, CAP_SYS_PTRACE or
 *    access to /dev/userfaultfd);
 *  - where pool_bytes is too small even for what cannot be protected;
 *  - while this process has memory pinned for devices, except SIDESTEP_TENSOR_CPU_WRITES;
 *  - while the kernel may merge pages of this process (KSM).
 * struct sidestep_save_info says how much was copied, and why.
 *
 * If pool_bytes is smaller than the state, an early write to the state may also wait for the disk
 * to free pool memory (${faults_disk}).
 */
enum sidestep_snapshot {
    SIDESTEP_SNAPSHOT_AUTO, /* COW.  After a save by COW that cost the program more time than a
                               copy would have: COPY, for some saves.  Call and waits count, and
                               processor time in the background while all processors are busy */
    SIDESTEP_SNAPSHOT_COPY,
    SIDESTEP_SNAPSHOT_COW, /* wherever it is possible */
};

/** How bytes go to storage and back.  If a file system refuses O_DIRECT, the page cache is used in
    any case; struct sidestep_save_info says what was used. */
enum sidestep_io {
    SIDESTEP_IO_AUTO,     /* io_uring where the kernel lets this process use it, else threads; but
                             a load that takes little of the free memory leaves what it reads in
                             the page cache, for the next one */
    SIDESTEP_IO_URING,    /* io_uring; sidestep_engine_open() fails where it is not allowed */
    SIDESTEP_IO_THREADS,  /* O_DIRECT, by threads that wait */
    SIDESTEP_IO_BUFFERED, /* through the page cache */
};

/**
 * When the background copies write-protected memory.  Either ahead of the disk: a trainer that
 * soon writes to the state again finds it copied already and does not wait.  This takes memory for
 * what the disk has not written yet, up to pool_bytes.  Or only when the disk is ready for it or
 * the trainer writes to it: this takes about 16 MiB, whatever the size of the state.
 */
enum sidestep_copy_ahead {
    SIDESTEP_COPY_AHEAD_AUTO, /* from the start if the last saves showed that the trainer writes
                                 before the disk is done; else from its first writes on */
    SIDESTEP_COPY_AHEAD_ALWAYS,
    SIDESTEP_COPY_AHEAD_NEVER,
};

/**
 * enum sidestep_replicas: who writes tensors that all ranks list with the same box, without
 * SIDESTEP_TENSOR_REPLICATED on all of them (parameters under data parallelism, for example).
 *
 * Where their bytes are equal on all ranks, each rank can write a part of them: hosts, and then the
 * ranks of each host, write as many bytes as others.  To find out, each rank hashes them in the
 * call, which takes the time of reading them.  If one differs, the lowest rank writes its own
 * value, as always.  A checkpoint never holds values of several ranks, nor another than that of the
 * lowest rank where they differ, whatever is chosen here; loads do not see the difference.
 *
 * Left to the lowest rank: tensors on devices, with gaps, fenced ones, those in memory of mapped
 * files, all of less than 64 KiB, and everything where they are less than 16 MiB together; and all
 * saves of an engine that has an incremental series, whose files must not move between ranks.
 */
enum sidestep_replicas {
    SIDESTEP_REPLICAS_AUTO, /* share where that costs the program little: in saves by copy, or of a
                               state that nobody changes meanwhile, by ranks on several hosts */
    SIDESTEP_REPLICAS_LOWEST, /* the lowest rank writes them */
    SIDESTEP_REPLICAS_SHARE,  /* share in all saves, also where the ranks are on one host */
};

struct sidestep_engine_options {
    size_t struct_size;
    const struct sidestep_comm *comm; /* copied; NULL: a single process */
    uint32_t threads;       /* of each kind (staging; hashing and I/O); 0: by number of cores */
    uint32_t flags;         /* SIDESTEP_ENGINE_* */
    uint64_t pool_bytes;    /* hard cap of staging memory on this rank, at least 16 MiB; 0: what
                               the largest state so far needs, as far as the machine and the cgroups
                               have room for it.  Under a smaller cap, a save by copy
                               writes the rest before it returns, and reports that; under write
                               protection, writes to the state may wait */
    uint64_t timeout_ms;    /* give up on a silent rank; 0: 600,000 */
    const char *event_path; /* append one line of JSON per phase begin and end; NULL: none */
    void (*on_event)(void *event_context, const char *json_line); /* from any thread */
    void *event_context;
    enum sidestep_io io;
    uint32_t io_depth; /* requests in flight, at most 64.  0: 4; with io_uring 8.
                          `sidestep bench` measures which depth suits a disk */
    enum sidestep_snapshot snapshot;
    enum sidestep_copy_ahead copy_ahead;
    uint64_t write_bytes_per_second; /* limit of what this rank writes; 0: none */
    const char *background_cpus;     /* where background threads run, as "0-3,8"; NULL: anywhere */
    const char *metrics_path; /* rank 0 keeps counters and histograms of its saves there, in the
                                 text format of Prometheus: a file of ours, which each save replaces
                                 by a rename (docs/OBSERVABILITY.md).  NULL: none */
    enum sidestep_replicas replicas; /* the same on all ranks: else as LOWEST */
    uint32_t reserved;               /* zero */
};
#define SIDESTEP_ENGINE_OPTIONS_INIT SIDESTEP_INIT(struct sidestep_engine_options)

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
 * so that the first save need not.  Optional.  Not collective.  Blocks (0.1-3 s per GiB, depending
 * on the machine).
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_engine_prepare(struct sidestep_engine *engine, const struct sidestep_state_dict *state,
                        struct sidestep_error *err);

/** struct sidestep_huge_pages: what sidestep_state_dict_huge_pages() found and did. */
struct sidestep_huge_pages {
    size_t struct_size;
    uint64_t bytes;      /* of the state: in stretches that huge pages can hold */
    uint64_t huge_bytes; /* of ${bytes}: on huge pages now */
    uint64_t took_ns;
    int32_t sys_errno; /* why the first stretch that is on small pages stays there, or 0 */
    uint32_t reserved; /* zero */
};
#define SIDESTEP_HUGE_PAGES_INIT SIDESTEP_INIT(struct sidestep_huge_pages)

/**
 * sidestep_state_dict_huge_pages(state, report, err):
 * Put the tensors of ${state} on huge pages, as far as whole huge pages fit.  Addresses and
 * contents stay.  A thread that uses the tensors waits at most for the page that is being moved. On
 * huge pages, write protection costs at most 1 ms per GiB instead of 20, and computing is often
 * faster.  Optional; call it once after the state was built, and not between a save and its
 * RELEASED (protected memory stays as it is).  ${report} may be NULL.  Not collective.  Blocks:
 * 0.2-3 s per GiB that must be moved, and no time for memory that is on huge pages already.  Needs
 * Linux 6.1; an older kernel is asked to do it over time, if transparent huge pages are enabled at
 * all.
 *
 * Without this call it happens over the first saves: where protecting takes long, a background
 * thread puts tensors on huge pages between two saves (Linux 6.1; 0.5 to 2 s per GiB; ${huge_bytes}
 * of struct sidestep_save_info).  So it does with pages that a fork(2) has split.  It waits while
 * all processors are busy, and leaves pages alone that were never touched, that another process
 * has, too, or that have MADV_NOHUGEPAGE.  Where the system offers no huge pages ("never"), it only
 * takes memory that has MADV_HUGEPAGE, which this function sets.
 *
 * An allocator that provides huge pages from the start costs nothing: glibc with
 * GLIBC_TUNABLES=glibc.malloc.hugetlb=1, jemalloc with MALLOC_CONF=thp:always, or
 * /sys/kernel/mm/transparent_hugepage/enabled set to always.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_state_dict_huge_pages(const struct sidestep_state_dict *state,
                               struct sidestep_huge_pages *report, struct sidestep_error *err);

/*
 * Priority of background work.  Threads that hash and write in the background run in the idle class
 * of processor and disk, if the process may leave it again; else with a nice value of 10.  While
 * somebody waits for a save (a blocking or streamed one, sidestep_save_wait(),
 * sidestep_save_finish(), the next save, close), it runs at full priority, and neither a pause nor
 * ${spread_ms} delays it.  ${write_bytes_per_second} always holds.
 *
 * While another program reads from the disk that a save writes to (a data loader, for example; the
 * kernel counts reads of local disks), and nobody waits for the save, one window of 4 MiB is
 * written at a time, because reads wait behind all writes that a disk has accepted.
 * ${backed_off_ns} of struct sidestep_save_info reports it.  SIDESTEP_ENGINE_KEEP_PACE disables it.
 */

/** sidestep_engine_pause(engine), sidestep_engine_resume(engine): stop background writes, and the
    copies that they need, after those in flight, until the engine is resumed: for parts of training
    that nothing may disturb.  Any thread. */
SIDESTEP_API void sidestep_engine_pause(struct sidestep_engine *engine);
SIDESTEP_API void sidestep_engine_resume(struct sidestep_engine *engine);

/**
 * sidestep_engine_close(&engine, err):
 * Wait for saves in flight, close open series, stop the threads, free everything.  Collective.
 * Returns the sticky error: that of a save whose outcome nobody asked for.
 * The engine is closed in any case.  If its communicator fails, the call returns that failure
 * (SIDESTEP_EPEER) and leaves nothing behind on this rank.
 * Handles of its saves and series stay valid until they are given to sidestep_save_finish() and
 * sidestep_series_close(), in any order.  A save can still be waited for; a series does nothing
 * more.  During the call, no other thread may use any of them.
 */
SIDESTEP_API enum sidestep_status sidestep_engine_close(struct sidestep_engine **engine,
                                                        struct sidestep_error *err);

/* ---------------------------------------------------------------- devices */

/*
 * Tensors in the memory of a CUDA device are saved and loaded in place.  Give the address; the
 * library asks the driver where it is.  It does so only if the program has loaded the driver
 * (libcuda.so.1).  It makes no context and uses the device's primary context.  Managed memory
 * counts as device memory.  SIDESTEP_CUDA=0 in the environment switches this off: saves and loads
 * of such tensors are then refused.
 *
 * A save does not wait for devices.  The library's streams copy beside the program's streams, from
 * the point that these have reached at the time of the call:
 *
 *      the program's stream   step N | forward, backward of N+1      | fence | optimizer of N+1
 *      the library's                 | not FENCED |      FENCED             |
 *
 * When sidestep_save_async() has returned:
 *  - Work that the program then submits to ${streams} of the options may write to all tensors
 *    without SIDESTEP_TENSOR_FENCED: it waits, on the device, until they are copied.
 *  - Work on other streams, and the host, may write to them once the save is STAGED
 *    (sidestep_save_wait()), or behind sidestep_fence().
 *  - Tensors in host memory may be modified at once.
 *  - Nothing may be freed before RELEASED.
 *
 * Staging memory is registered with the driver (pinned) when the first such save needs it.  If the
 * driver refuses, copies go through pageable memory, the call waits for them, and struct
 * sidestep_save_info reports that.  If pool_bytes is smaller than the state, windows are copied as
 * slots become free: sidestep_fence() then waits until the last copy was submitted, and a save
 * waits in the call if tensors without FENCED would need more than half of the pool.
 *
 * A blocking save, and a load, are complete on the devices when they return.
 *
 * To find a missing fence, set SIDESTEP_FENCE_DEBUG=MS in the environment of
 * sidestep_engine_open().  FENCED tensors are then read in the call, which waits for that.  They
 * are read again when they are written, but not before the first sidestep_fence(), or before MS
 * milliseconds have passed; choose more than a step takes.  If a tensor has changed, the save fails
 * with SIDESTEP_EINVAL and its name.  STAGED comes that much later, sidestep_fence() waits for it
 * on the host, and training is slow.
 */

/** struct sidestep_stream: a stream of a device, as the driver and the runtime know it. */
struct sidestep_stream {
    int32_t device;    /* as the driver counts them, from 0 */
    uint32_t reserved; /* zero */
    void *stream;      /* CUstream, cudaStream_t; NULL: the legacy default stream */
};

/** sidestep_device_of(address): the device that has this memory; -1: host memory, or no driver. */
SIDESTEP_API int32_t sidestep_device_of(const void *address);

struct sidestep_save; /* one save in flight, see below */
/**
 * sidestep_fence(save, stream, err):
 * Make work that is submitted to ${stream} from now on wait, on the device, until ${save} has
 * copied everything that it copies from devices.  The host waits only if copies have not been
 * submitted yet (see above), or if a graph is being captured on the stream.  After STAGED it does
 * nothing.  Not collective; call it on the thread that saves, any number of times, for any number
 * of streams.
 * Errors: SIDESTEP_EDEVICE, SIDESTEP_EINVAL: the driver refused; do not write to the tensors before
 * sidestep_save_wait() has returned.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_fence(struct sidestep_save *save, const struct sidestep_stream *stream,
               struct sidestep_error *err);

/**
 * sidestep_fence_until(save, stream, turn, err):
 * Like sidestep_fence(), but ${stream} waits only for tensors without FENCED, and for FENCED
 * tensors whose turn is at most ${turn}: for programs with several optimizers that step one after
 * the other (in backward, for example).  Tensors with a lower turn are copied first.  The library
 * sees the device's progress every 32 MiB.  If pool_bytes is smaller than the state, or with
 * SIDESTEP_FENCE_DEBUG, the fence covers all tensors.
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
 * bytes are durable.  COMMITTED: the checkpoint exists, all ranks have voted for it, and it
 * survives power loss.  ABORTED: it does not exist and never will.  UNKNOWN: it may or may not
 * exist; the message says what is known, where to look and what to do.  A save also ends as UNKNOWN
 * if its path, or a directory above it, was renamed or replaced meanwhile.  The checkpoint is whole
 * then, and the message says where it is, if that can be found.
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

/** Fail with SIDESTEP_EBUSY instead of waiting for an earlier save. */
#define SIDESTEP_SAVE_NOWAIT 1u
/** Fail with SIDESTEP_EEXISTS if the path holds a checkpoint, now or when this save is about to
 * commit.  Must be the same on every rank. */
#define SIDESTEP_SAVE_NO_REPLACE 2u
/** Nobody changes the state before the save is STAGED, because the caller waits for it, for
 * example, outside of the library.  So the call neither write-protects nor copies anything.  The
 * state is copied as it is written, through 48 MiB of the pool whatever its size, and STAGED comes
 * when the disk is nearly done.  Holds for this rank; tensors on devices are staged as usual. */
#define SIDESTEP_SAVE_STILL 4u
/** Only the save's own handle reports its failure; no later call fails because of it.  For a
 * program that always asks, but perhaps after its next call, in a thread of its own.  Holds for
 * this rank. */
#define SIDESTEP_SAVE_NOT_STICKY 8u

/*
 * Compression, of each tensor and object by itself, in the background: the call takes no longer.
 * It is lossless.  What does not shrink by 3 percent, and what has less than 4 KiB, is stored
 * uncompressed.  docs/COMPRESSION.md says what it gains, and what it costs.
 *
 * ZSTD is torch's "stream.zstd/1", which stock torch loads if the package zstandard is installed.
 * Weights contain no repeated strings of bytes, so ZSTD searches for them only if it is given a
 * level.
 * PLANES first splits floating-point numbers into planes of bytes.  It compresses the exponents and
 * leaves the mantissas alone.  Its files are smaller, and it is faster than ZSTD.  sidestep reads
 * them, and stock torch does with the extension in the Python package.
 *
 * AUTO is PLANES where that makes saves faster: a tensor is compressed if a sample shows that
 * compressing it is faster than writing it uncompressed.  The speed of the disk is known from
 * earlier saves of the engine; the first save is uncompressed.
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
    uint32_t flags; /* SIDESTEP_SAVE_* */
    bool has_step;  /* record ${step}.  A name like "ckpt/step-100" does not record
                          a step; sidestep_list_root() takes it from the name if none is recorded */
    uint64_t step;
    uint64_t deadline_ms; /* for the commit, since the last progress seen; 0: the engine's */
    const struct sidestep_error *failure; /* NULL, or why this rank cannot take part: see below */
    uint64_t spread_ms; /* if the disk is faster, spread the writes evenly over this time, to
                           disturb training least before the next save; 0: write at full speed */
    enum sidestep_compress compress;       /* of this rank; ranks may differ */
    uint32_t stream_count;                 /* at most 64 */
    const struct sidestep_stream *streams; /* the streams that made the state, of the devices that
                                              hold it, see there.  None: the default streams */
    const char *codec; /* instead of ${compress}: the descriptor of a codec of the library, or of
                          one that the program has registered (sidestep_extend.h); NULL: none.  With
                          AUTO: used where it is faster than the disk */
    uint32_t compress_level; /* of ZSTD: libzstd's 1 to 19; 0: no search for repeated strings */
    uint32_t queue; /* this save starts while at most this many earlier saves are under way; 0: it
                       waits for them.  At most SIDESTEP_MAX_QUEUE; see sidestep_save_async() */
};
#define SIDESTEP_SAVE_OPTIONS_INIT SIDESTEP_INIT(struct sidestep_save_options)

/*
 * ${failure}, of saves and loads.  A rank that cannot take part (its state raised an exception, for
 * example) must not leave the others waiting in a collective function.  It calls the same function
 * and gives its reason: a status other than SIDESTEP_OK, and a message (${rank} is not read).  Its
 * state and path may be NULL.  Then every rank fails with that error, and err->rank is the rank
 * that gave it (-1 on that rank itself).  Nothing is left on storage, and the next save or load
 * works.  If several ranks give a reason, the others get that of the lowest rank.  It costs nothing
 * if no rank fails.
 */

/** The layout was that of the save before: no planning was needed. */
#define SIDESTEP_SAVE_PLAN_REUSED 1u
/** The pool was too small: part of the state was written before the call returned. */
#define SIDESTEP_SAVE_STREAMED 2u
/** The storage does not survive power loss (tmpfs and the like). */
#define SIDESTEP_SAVE_VOLATILE 4u
/** Written with O_DIRECT. */
#define SIDESTEP_SAVE_DIRECT_IO 8u
/** Written through io_uring. */
#define SIDESTEP_SAVE_URING 16u
/** Device memory was copied through pageable memory, because staging memory cannot be pinned. */
#define SIDESTEP_SAVE_PAGEABLE 32u
/** It started while an earlier save was under way, and was written after that one. */
#define SIDESTEP_SAVE_QUEUED 64u

/** struct sidestep_gain: what compression gained, and what it cost. */
struct sidestep_gain {
    uint64_t raw_bytes;
    uint64_t stored_bytes; /* equal: nothing was gained */
    uint64_t encode_ns;    /* of all threads together */
};
#define SIDESTEP_GAINS 32

/**
 * struct sidestep_save_info: how far a save is and what it cost this rank.  Times are in
 * nanoseconds; times of phases that have not ended are 0.
 */
struct sidestep_save_info {
    size_t struct_size;
    enum sidestep_save_state state;
    uint32_t flags;       /* SIDESTEP_SAVE_PLAN_REUSED ... */
    char save_id[40];     /* 32 hexadecimal digits */
    uint64_t bytes_total; /* this rank writes; with compression, an upper bound until WRITTEN */
    uint64_t bytes_staged;
    uint64_t bytes_written;
    uint64_t call_ns;    /* the call stopped the trainer for this time ... */
    uint64_t wait_ns;    /* ... of which waiting for an earlier save */
    uint64_t plan_ns;    /* ... agreeing and planning */
    uint64_t pool_ns;    /* ... allocating the pool (first save) */
    uint64_t stage_ns;   /* ... copying */
    uint64_t write_ns;   /* in the background: until WRITTEN */
    uint64_t commit_ns;  /* in the background: from WRITTEN to COMMITTED */
    uint64_t held_ns;    /* ... of write_ns: held back by a pause, a limit or spread_ms */
    uint64_t release_ns; /* in the background: from STAGED to RELEASED; 0: at the same time */
    enum sidestep_snapshot snapshot; /* COW if any tensor was write-protected, else COPY */
    uint32_t io_depth;               /* most requests in flight; known from WRITTEN on */
    uint64_t cow_bytes;              /* of tensors: write-protected in the call ... */
    uint64_t copy_bytes;             /* ... and copied in it */
    uint64_t faults;        /* writes by the program that waited; known from RELEASED on ... */
    uint64_t faults_waited; /* ... of which for a copy that was under way already */
    uint64_t fault_bytes;   /* copied because of such writes */
    uint64_t fault_ns;      /* time that they waited, all threads together */
    uint64_t fault_max_ns;  /* the longest wait */
    char copy_reason[128];  /* why the call copied what it could have protected; "": large tensors
                               were protected.  docs/PYTORCH.md lists the reasons, and what to do */
    uint64_t faults_disk;   /* of ${faults}: waited for the disk (enum sidestep_snapshot) */
    uint64_t pool_bytes;    /* most of the pool that was in use at once; known from WRITTEN on */
    uint64_t ahead_bytes;   /* copied in the background, ahead of the disk */
    /* With compression, of this rank's tensors and objects; known once WRITTEN; else 0. */
    uint64_t raw_bytes;
    uint64_t stored_bytes;
    uint64_t encode_ns;
    struct sidestep_gain gains[SIDESTEP_GAINS]; /* by enum sidestep_dtype; [0]: objects */
    uint64_t device_bytes; /* of tensors: copied from devices; not in cow_bytes or copy_bytes ... */
    uint64_t fenced_bytes; /* ... of which SIDESTEP_TENSOR_FENCED */
    uint64_t device_ns;    /* from the beginning of the call until they were copied */
    uint64_t fence_ns;     /* the host waited in sidestep_fence() */
    char pin_reason[128];  /* with SIDESTEP_SAVE_PAGEABLE: why, else "" */
    uint64_t linked_bytes; /* of bytes_total: shared with an earlier checkpoint, not written
                              (SIDESTEP_SERIES_INCREMENTAL); known from WRITTEN on */
    char link_reason[128]; /* why tensors that could have been shared were written, or "" */
    uint64_t huge_bytes;   /* of tensors: put on huge pages after the save
                              (sidestep_state_dict_huge_pages()) ... */
    uint64_t huge_ns;      /* ... in this time of a background thread */
    uint64_t backed_off_ns; /* of write_ns: one write at a time, as others read from the disk */
    char pool_reason[128];  /* why the pool is smaller than the state without pool_bytes, or "" */
    uint64_t cpu_ns; /* processor time in the background, all threads together: copies, hashes and
                        writes; known from WRITTEN on ... */
    uint64_t cpu_wait_ns;    /* ... and how long these threads, of low priority, waited for a
                                processor: more than 4 times as long means that the program keeps all
                                processors busy.  0 where the kernel does not count it */
    uint64_t compared_bytes; /* of tensors that all ranks have: hashed (enum sidestep_replicas) */
    uint64_t compare_ns;     /* ... in this time of the call */
    char differs[256]; /* names of such tensors whose values were found to differ in this save:
                          "'a', 'b' and 2 more", else "".  Those of the lowest rank are
                          saved */
};
#define SIDESTEP_SAVE_INFO_INIT SIDESTEP_INIT(struct sidestep_save_info)

/**
 * sidestep_save_async(engine, path, state, options, &save, err):
 * Take a snapshot of ${state} and write it in the background as the directory ${path}.
 * Collective: every rank gives the same ${path} on shared storage.
 *
 * ${path} may be new, an empty directory, an older checkpoint (which is replaced atomically), or a
 * directory with other files (which stay).  Its parent must exist.  SIDESTEP_ENOTFOUND names the
 * first component that is missing, or is not a directory (then ${sys_errno} is ENOTDIR).
 *
 * At the first save to a directory the ranks find out whether all of them see what rank 0 has just
 * made there.  SIDESTEP_EDISAGREE on every rank, within seconds: they do not share it; the message
 * says which ranks and hosts see it.
 *
 * A save replaces only the checkpoint that was there at the time of the call.  If another save to
 * ${path}, of this or of another process, has committed since, this one ends with SIDESTEP_EEXISTS:
 * the message names both saves, and what is there stays.  So a process that was stopped, or waited
 * for its storage, cannot replace a newer checkpoint when it goes on.  To replace it after all,
 * save again.  SIDESTEP_ELOCKED: another process held a lock on ${path} for longer than the
 * timeout.  On storage without locks two saves may still replace each other in the same moment;
 * then the later one ends with SIDESTEP_EUNKNOWN, and until the next save to ${path} nothing of
 * either is deleted.
 *
 * SIDESTEP_ENOSPC: the storage is full, and what was there stays.  The message says how many bytes
 * this rank's files take and how many were free.  On rank 0 it also says how many bytes become free
 * if all checkpoints beside ${path} except the newest are deleted.
 *
 * Returns once the tensors may be modified, that is, when they have been copied or write-protected
 * (enum sidestep_snapshot), not when they are durable.  Their memory must stay until RELEASED;
 * ${state} itself is no longer needed.  Waits for an earlier save, unless SIDESTEP_SAVE_NOWAIT or
 * ${queue} is set.  On success the caller owns ${*save} and must give it to
 * sidestep_save_finish().  On failure ${*save} is NULL, nothing was made, and earlier checkpoints
 * are untouched.  If an earlier save failed and nobody asked for its outcome, the call does nothing
 * and returns that error, once, unless that save had SIDESTEP_SAVE_NOT_STICKY.
 *
 * With a ${queue} of n, the call does not wait while at most n earlier saves are under way.  Saves
 * are written one after the other, so checkpoints come to exist in the order of the calls.  One
 * that fails does not stop those behind it.  A save that starts while another is under way is
 * copied to memory of its own, of the size of the state.  ${pool_bytes} holds for all of them
 * together: under it, and if memory is short, a save waits until there is room.  A save also waits
 * for all others if it, or one of them, is incremental or of tensors on devices, and for one with
 * the same path and those before it.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_save_async(struct sidestep_engine *engine, const char *path,
                    const struct sidestep_state_dict *state,
                    const struct sidestep_save_options *options, struct sidestep_save **save,
                    struct sidestep_error *err);

/**
 * sidestep_save_poll(save, info): fill ${info} with what is known now.  Never waits for
 * storage; any thread.  SIDESTEP_EINVAL if struct_size is not set.
 */
SIDESTEP_API enum sidestep_status sidestep_save_poll(struct sidestep_save *save,
                                                     struct sidestep_save_info *info);

/**
 * sidestep_save_wait(save, state, timeout_ms, err):
 * Block until the save has reached ${state} or ended.  SIDESTEP_OK: reached.
 * SIDESTEP_ETIMEDOUT: not reached after ${timeout_ms} (< 0: no limit); the save goes on.
 * Otherwise the reason why it never will.  Not collective; any thread.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_save_wait(struct sidestep_save *save, enum sidestep_save_state state, int64_t timeout_ms,
                   struct sidestep_error *err);

/**
 * sidestep_save_watch(save, state, timeout_ms, err):
 * The same, but the save stays in the background: for a thread for which training does not wait.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_save_watch(struct sidestep_save *save, enum sidestep_save_state state, int64_t timeout_ms,
                    struct sidestep_error *err);

/**
 * sidestep_save_hurry(save): run it at full priority from now on, as if somebody waited.  Any
 * thread.
 */
SIDESTEP_API void sidestep_save_hurry(struct sidestep_save *save);

/**
 * sidestep_save_cancel(save): give it up soon.  It ends ABORTED with SIDESTEP_EABORTED, and what
 * was at its path stays.  The state may be changed and its memory freed once the save has ended
 * (sidestep_save_wait()), not before.  The handle must still be finished.  Does nothing once this
 * rank has voted (WRITTEN; on rank 0: once it commits).  Not collective: one rank is enough, and
 * the others learn which.  Does not block; any thread.
 */
SIDESTEP_API void sidestep_save_cancel(struct sidestep_save *save);

/**
 * sidestep_save_finish(&save, info, err):
 * Wait until the checkpoint is COMMITTED or has failed, fill ${info} (may be NULL), and
 * release ${*save}, in every case.  Not collective.  A no-op if ${*save} is NULL.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_save_finish(struct sidestep_save **save, struct sidestep_save_info *info,
                     struct sidestep_error *err);

/**
 * sidestep_save(engine, path, state, options, info, err):
 * The same, blocking until COMMITTED.  Collective; every rank gets the outcome of rank 0.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_save(struct sidestep_engine *engine, const char *path,
              const struct sidestep_state_dict *state, const struct sidestep_save_options *options,
              struct sidestep_save_info *info, struct sidestep_error *err);

/* ---------------------------------------------------------------- load */

enum sidestep_verify_mode {
    SIDESTEP_VERIFY_READ, /* default: check every byte that is read */
    /* Check everything before the first tensor is touched.  Like SIDESTEP_VERIFY_READ for
       safetensors and torch.save() files, which have no hashes: the CRC32 of a tensor of
       torch.save() is checked as the tensor is read. */
    SIDESTEP_VERIFY_BEFORE,
    /* Check files, sizes, names and ids.  Tensors are loaded as they are stored, but whatever must
       be decoded (objects, compressed items) is checked. */
    SIDESTEP_VERIFY_STRUCTURE,
};

/** Missing and mismatched names are reported, and are not an error. */
#define SIDESTEP_LOAD_PARTIAL 1u
/** Names in the checkpoint that the state lacks are an error. */
#define SIDESTEP_LOAD_STRICT 2u

struct sidestep_load_options {
    size_t struct_size;
    uint32_t flags; /* SIDESTEP_LOAD_* */
    enum sidestep_verify_mode verify;
    const struct sidestep_error *failure;  /* NULL, or why this rank cannot take part: see struct
                                              sidestep_save_options */
    const struct sidestep_stream *streams; /* the load waits for the work of these streams before
                                              it writes to devices.  None: the default streams */
    uint32_t stream_count;                 /* at most 64 */
    uint32_t reserved;                     /* zero */
    /* NULL, or what looks at the objects before a byte of a tensor is written.  It is called once
       for each checkpoint that is tried, by the calling thread, when the objects of ${state} are
       loaded.  With SIDESTEP_VERIFY_READ a tensor may still turn out to be damaged.  If it fails,
       the load fails on all ranks.  It must not use the engine.  All ranks set it, or none */
    enum sidestep_status (*check_objects)(void *context, struct sidestep_error *err);
    void *context; /* its first argument */
};
#define SIDESTEP_LOAD_OPTIONS_INIT SIDESTEP_INIT(struct sidestep_load_options)

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
    const char *const *mismatched; /* "name: saved float32 [2,3], wanted float32 [3,3]".  A dtype is
                                      never converted.  Names of the state in neither list were
                                      read whole */
    void *owner;                   /* the library's */
};
#define SIDESTEP_LOAD_REPORT_INIT SIDESTEP_INIT(struct sidestep_load_report)
SIDESTEP_API void sidestep_load_report_release(struct sidestep_load_report *report);

/**
 * sidestep_load(engine, path, state, options, report, err):
 * Load the tensors and objects of ${state} from the checkpoint ${path}: ours or torch's, saved
 * by any number of ranks in any sharding.  Collective: all ranks load the same save, or all
 * fail.  Writes, locks and renames nothing on storage.  Blocks.  ${report} may be NULL.
 * After a failure the contents of the tensors are unspecified.  Three kinds of errors are found
 * before the first byte is written: missing and mismatched names, tensors in memory that may not be
 * written (SIDESTEP_EINVAL), and what options->check_objects finds.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_load(struct sidestep_engine *engine, const char *path, struct sidestep_state_dict *state,
              const struct sidestep_load_options *options, struct sidestep_load_report *report,
              struct sidestep_error *err);

#ifdef __cplusplus
}
#endif
#endif
