/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sidestep_extend.h -- codecs and stores of your own, without a change to the library.
 *
 * A codec decides how an item is stored.  A store decides where files are.  Each is a table of
 * functions that the library calls.  examples/codec_skeleton.c and examples/store_skeleton.c are
 * the smallest that work; docs/EXTENDING.md is the guide.
 *
 * Every function that can fail returns SIDESTEP_OK, or another status and fills in err->message
 * (and err->sys_errno, if a system call failed).  ${err} is never NULL.  If the message is empty,
 * the library writes one that names the function and the codec or store.  Unless a comment says
 * otherwise, several threads call the functions at once, and all of them block all signals.
 */
#ifndef SIDESTEP_EXTEND_H
#define SIDESTEP_EXTEND_H

#include "sidestep.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- codecs */

/*
 * An item is a chunk of a tensor (an archive: a head, the elements row-major and little-endian, a
 * tail) or an object.  Several threads encode its parts, in any order, each without the others.
 * The encoded parts in order are the stored item.  It is decoded as a whole, from front to back.
 */
struct sidestep_codec_item {
    uint64_t bytes;       /* of the item */
    uint64_t data_offset; /* the elements are in [data_offset, data_offset + data_bytes) */
    uint64_t data_bytes;
    enum sidestep_dtype dtype; /* NONE: an object */
    uint32_t reserved;
};

/** Input and output of one call; only its thread may use them. */
struct sidestep_codec_input;
struct sidestep_codec_output;

/** sidestep_codec_left(input): the number of stored bytes that have not been taken yet. */
SIDESTEP_API uint64_t sidestep_codec_left(const struct sidestep_codec_input *input);
/**
 * sidestep_codec_take(input, most, &bytes, &length, err):
 * Take the next ${length} stored bytes, at least 1 and at most ${most}.  They stay valid until the
 * next call.  SIDESTEP_ECORRUPT if none are left.  Their hash was checked, so they are what was
 * written.  Do not trust their contents.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_codec_take(struct sidestep_codec_input *input, size_t most, const void **bytes,
                    size_t *length, struct sidestep_error *err);
/**
 * sidestep_codec_put(output, bytes, length, err): append a copy of ${length} bytes.
 * SIDESTEP_ECORRUPT if decode() puts more bytes than the item has.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_codec_put(struct sidestep_codec_output *output, const void *bytes, size_t length,
                   struct sidestep_error *err);

struct sidestep_codec {
    size_t struct_size;
    /** The name in checkpoints: "NAME/VERSION", of letters, digits, '.', '_' and '-', at most 63
        characters.  If decoding changes, the version must change. */
    const char *descriptor;
    void *context;
    /** What one thread needs to encode any number of items.  Both NULL: nothing. */
    enum sidestep_status (*encoder_new)(void *context, void **encoder, struct sidestep_error *err);
    void (*encoder_free)(void *context, void *encoder);
    /** Encode ${length} bytes at ${begin} of the item to ${output}.  Append to ${index} what must
        follow the last part of the item: the indices of all parts are concatenated (1 MiB at most).
        If ${begin} is in the data, it is a multiple of 1 MiB from the start of the data.  The
        output may exceed the input by at most 64 KiB and 1/256. */
    enum sidestep_status (*encode)(void *context, void *encoder,
                                   const struct sidestep_codec_item *item, const void *bytes,
                                   uint64_t begin, size_t length,
                                   struct sidestep_codec_output *output,
                                   struct sidestep_codec_output *index, struct sidestep_error *err);
    /** Decode one item of at most ${most} bytes.  Take all its stored bytes.  SIDESTEP_ECORRUPT:
        encode() never makes such an item.  The library compares the decoded bytes with the hash of
        the original ones. */
    enum sidestep_status (*decode)(void *context, struct sidestep_codec_input *input, uint64_t most,
                                   struct sidestep_codec_output *output,
                                   struct sidestep_error *err);
};
#define SIDESTEP_CODEC_INIT                                                                        \
    {                                                                                              \
        .struct_size = sizeof(struct sidestep_codec)                                               \
    }

/**
 * sidestep_codec_register(codec, err):
 * Register a codec in this process, for its whole life.  Everything that reads (loads, verify,
 * conversions) then decodes items with its descriptor, and saves may use it (struct
 * sidestep_save_options, ${codec}).  ${codec} is copied; its context must stay.  It belongs to the
 * process, not to an engine, because many readers have no engine.  Any thread, any time; a save
 * that is under way does not use it.
 *
 * If a checkpoint's codec is not registered, reading its tensors fails with SIDESTEP_EUNSUPPORTED
 * and the descriptor.  Items that are stored uncompressed can still be read.
 *
 * Errors: SIDESTEP_EEXISTS: this descriptor is registered already.  SIDESTEP_EINVAL: not a valid
 * descriptor, or a function is missing.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_codec_register(const struct sidestep_codec *codec, struct sidestep_error *err);

/* ---------------------------------------------------------------- stores */

enum sidestep_store_kind { SIDESTEP_STORE_FILE, SIDESTEP_STORE_DIRECTORY, SIDESTEP_STORE_OTHER };
struct sidestep_store_stat {
    uint32_t kind;        /* enum sidestep_store_kind */
    uint32_t modified_ns; /* nanoseconds of ${modified}, if known */
    uint64_t size;
    uint64_t stored; /* bytes on the medium, without holes; 0: unknown */
    uint64_t device; /* with inode: the identity of the file, which a rename does not change */
    uint64_t inode;
    int64_t modified; /* seconds since 1970 */
};
struct sidestep_store_traits {
    uint32_t is_volatile; /* loses everything at power loss, even if it is synced */
    uint32_t is_network;  /* other hosts may see changes late */
    char type_name[16];   /* for people */
    uint64_t free_bytes;
    uint32_t has_free_bytes;
    uint32_t reserved;
};
enum sidestep_store_rename {
    SIDESTEP_STORE_REPLACE,   /* files replace files, directories empty ones */
    SIDESTEP_STORE_NOREPLACE, /* EEXISTS if the target exists */
    SIDESTEP_STORE_EXCHANGE,  /* swap the two; EUNSUPPORTED if the store cannot */
};

/*
 * Directories and files behind handles that the store makes and frees.  A handle of a directory
 * stays with the directory when it is renamed.  A ${name} is one component; only in file_open() and
 * if the directory is NULL (${at}) it is a path, never a URL.  All ranks that save together must
 * see the same names and bytes.
 *
 * A checkpoint is as safe as these promises: rename is atomic; nothing else removes or changes a
 * name; whatever file_sync() (contents) and dir_sync() (names) have confirmed survives.
 * tests/unit/store_test.c checks them for the stores of the library, and for the skeleton.
 */
struct sidestep_store {
    size_t struct_size;
    const char *name; /* in errors */
    void *context;
    /** ENOTFOUND: it does not exist, or is not a directory. */
    enum sidestep_status (*dir_open)(void *context, void *at, const char *name, void **dir,
                                     struct sidestep_error *err);
    void (*dir_close)(void *context, void *dir);
    enum sidestep_status (*dir_make)(void *context, void *at, const char *name,
                                     struct sidestep_error *err); /* EEXISTS */
    enum sidestep_status (*dir_remove)(void *context, void *at, const char *name,
                                       struct sidestep_error *err); /* must be empty */
    /** Call ${each} for every name, in any order, until it returns false. */
    enum sidestep_status (*dir_list)(void *context, void *dir,
                                     bool (*each)(void *each_context, const char *name),
                                     void *each_context, struct sidestep_error *err);
    enum sidestep_status (*dir_sync)(void *context, void *dir, struct sidestep_error *err);
    enum sidestep_status (*dir_stat)(void *context, void *dir, struct sidestep_store_stat *out,
                                     struct sidestep_error *err);
    /** NULL: nothing is known. */
    enum sidestep_status (*dir_traits)(void *context, void *dir, struct sidestep_store_traits *out,
                                       struct sidestep_error *err);
    /** ENOTFOUND.  Links are not followed, here and elsewhere. */
    enum sidestep_status (*stat)(void *context, void *at, const char *name,
                                 struct sidestep_store_stat *out, struct sidestep_error *err);
    enum sidestep_status (*rename)(void *context, void *from_dir, const char *from, void *to_dir,
                                   const char *to, enum sidestep_store_rename mode,
                                   struct sidestep_error *err);
    enum sidestep_status (*unlink)(void *context, void *at, const char *name,
                                   struct sidestep_error *err); /* a file; ENOTFOUND */
    /** Give a file a second name.  NULL: the store cannot. */
    enum sidestep_status (*link)(void *context, void *from_dir, const char *from, void *to_dir,
                                 const char *to, struct sidestep_error *err);
    /** Create an empty file, for reading and writing; EEXISTS if the name exists. */
    enum sidestep_status (*file_create)(void *context, void *at, const char *name, void **file,
                                        struct sidestep_error *err);
    /** Open for reading.  ENOTFOUND; EUNSAFE: not a file. */
    enum sidestep_status (*file_open)(void *context, void *at, const char *name, void **file,
                                      struct sidestep_error *err);
    /** Reserve space and keep the size.  ENOSPC.  NULL: space is not reserved. */
    enum sidestep_status (*file_allocate)(void *context, void *file, uint64_t bytes,
                                          struct sidestep_error *err);
    /** Write all of it or fail; several threads may write to one file. */
    enum sidestep_status (*file_write_at)(void *context, void *file, const void *from, size_t bytes,
                                          uint64_t offset, struct sidestep_error *err);
    /** Read all of it; ECORRUPT beyond the end. */
    enum sidestep_status (*file_read_at)(void *context, void *file, void *to, size_t bytes,
                                         uint64_t offset, struct sidestep_error *err);
    enum sidestep_status (*file_truncate)(void *context, void *file, uint64_t bytes,
                                          struct sidestep_error *err);
    enum sidestep_status (*file_sync)(void *context, void *file, struct sidestep_error *err);
    enum sidestep_status (*file_stat)(void *context, void *file, struct sidestep_store_stat *out,
                                      struct sidestep_error *err);
    /** Take a lock, without waiting, that ends with the process that holds it.  ELOCKED: somebody
        else has it.  NULL: the store has no locks.  Then nothing keeps deletes and saves apart, and
        a save may replace one that commits in the same moment (see sidestep_save_async()). */
    enum sidestep_status (*file_lock)(void *context, void *file, bool exclusive,
                                      struct sidestep_error *err);
    /** Free the handle in any case; after a failure, what was written may be lost. */
    enum sidestep_status (*file_close)(void *context, void *file, struct sidestep_error *err);
};
#define SIDESTEP_STORE_INIT                                                                        \
    {                                                                                              \
        .struct_size = sizeof(struct sidestep_store)                                               \
    }

#ifdef __cplusplus
}
#endif
#endif
