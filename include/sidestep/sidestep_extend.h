/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sidestep_extend.h -- a codec and a store of one's own, without changing the library.
 *
 * A codec decides what is stored of an item; a store decides where files lie.  Both are a table of
 * functions that the library calls.  examples/codec_skeleton.c and examples/store_skeleton.c are
 * the smallest that work; docs/EXTENDING.md says what to mind.
 *
 * Every function that can fail returns SIDESTEP_OK, or another status with err->message (and
 * err->sys_errno, if the system was asked) filled in.  ${err} is never NULL.  An empty message is
 * replaced by one that says which function of which codec or store it was.  Unless said otherwise,
 * functions are called from several threads at once, all of which block all signals.
 */
#ifndef SIDESTEP_EXTEND_H
#define SIDESTEP_EXTEND_H

#include "sidestep.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- codecs */

/*
 * An item is a tensor's chunk (an archive: a head, the elements row-major and little-endian, a
 * tail) or an object.  It is encoded in parts, by several threads, in any order; a part knows
 * nothing of the others, and the parts, one behind the other, are the stored item.  It is decoded
 * as a whole, from the front to the back.
 */
struct sidestep_codec_item {
    uint64_t bytes;       /* of the item */
    uint64_t data_offset; /* the elements lie in [data_offset, data_offset + data_bytes) */
    uint64_t data_bytes;
    enum sidestep_dtype dtype; /* NONE: an object */
    uint32_t reserved;
};

/** Where bytes come from, and where they go: of one call, for its thread. */
struct sidestep_codec_input;
struct sidestep_codec_output;

/** sidestep_codec_left(input): stored bytes that have not been taken yet. */
SIDESTEP_API uint64_t sidestep_codec_left(const struct sidestep_codec_input *input);
/**
 * sidestep_codec_take(input, most, &bytes, &length, err):
 * The next ${length} stored bytes, at least 1 and at most ${most}, which stay where they are until
 * the next call.  SIDESTEP_ECORRUPT if none are left.  They are what was written: their hash was
 * compared.  What they say is not to be trusted all the same.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_codec_take(struct sidestep_codec_input *input, size_t most, const void **bytes,
                    size_t *length, struct sidestep_error *err);
/**
 * sidestep_codec_put(output, bytes, length, err): append so many bytes, which are copied.
 * SIDESTEP_ECORRUPT where decode() puts more than the item has.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_codec_put(struct sidestep_codec_output *output, const void *bytes, size_t length,
                   struct sidestep_error *err);

struct sidestep_codec {
    size_t struct_size;
    /** What checkpoints call it: "NAME/VERSION", of letters, digits, '.', '_' and '-', at most 63
        characters; one that decodes otherwise is another version. */
    const char *descriptor;
    void *context;
    /** What one thread needs to encode, for any number of items; NULL, both: nothing. */
    enum sidestep_status (*encoder_new)(void *context, void **encoder, struct sidestep_error *err);
    void (*encoder_free)(void *context, void *encoder);
    /** Encode ${length} bytes at ${begin} of the item to ${output}, and to ${index} what is to
        stand behind the item's last part: the indices of all parts, one behind the other (1 MiB at
        most).  ${begin}, if it lies in the data, is a multiple of 1 MiB of them.  It may not make
        more than 64 KiB and a 256th more than there were. */
    enum sidestep_status (*encode)(void *context, void *encoder,
                                   const struct sidestep_codec_item *item, const void *bytes,
                                   uint64_t begin, size_t length,
                                   struct sidestep_codec_output *output,
                                   struct sidestep_codec_output *index, struct sidestep_error *err);
    /** Decode one item of at most ${most} bytes, all of whose stored bytes are to be taken.
        SIDESTEP_ECORRUPT: it is none that encode() makes.  What comes out is compared with the hash
        of what went in. */
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
 * Make a codec known to this process, for good: loads, verify, conversions and all else that reads
 * then decode what carries its descriptor, and saves may ask for it (struct sidestep_save_options,
 * ${codec}).  ${codec} is copied; its context must stay.  Of a process and not of an engine,
 * because much that reads has none.  Any thread, any time; a save that is under way does not see
 * it.
 *
 * Where a checkpoint's codec is not registered, reading its tensors fails with
 * SIDESTEP_EUNSUPPORTED and the descriptor; what was stored as it is can be read all the same.
 *
 * Errors: SIDESTEP_EEXISTS: there is one of this descriptor.  SIDESTEP_EINVAL: a descriptor that is
 * none, or a function is missing.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_codec_register(const struct sidestep_codec *codec, struct sidestep_error *err);

/* ---------------------------------------------------------------- stores */

enum sidestep_store_kind { SIDESTEP_STORE_FILE, SIDESTEP_STORE_DIRECTORY, SIDESTEP_STORE_OTHER };
struct sidestep_store_stat {
    uint32_t kind;        /* enum sidestep_store_kind */
    uint32_t modified_ns; /* nanoseconds behind ${modified}, where they are known */
    uint64_t size;
    uint64_t stored; /* bytes on the medium: fewer where there are holes; 0: not known */
    uint64_t device; /* with inode: identity, which a rename does not change */
    uint64_t inode;
    int64_t modified; /* seconds since 1970 */
};
struct sidestep_store_traits {
    uint32_t is_volatile; /* forgets at power loss whatever is synced */
    uint32_t is_network;  /* others may see changes late */
    char type_name[16];   /* for people */
    uint64_t free_bytes;
    uint32_t has_free_bytes;
    uint32_t reserved;
};
enum sidestep_store_rename {
    SIDESTEP_STORE_REPLACE,   /* files replace files, directories empty ones */
    SIDESTEP_STORE_NOREPLACE, /* EEXISTS if the target is there */
    SIDESTEP_STORE_EXCHANGE,  /* swap; EUNSUPPORTED if that cannot be */
};

/*
 * Directories and files behind handles of the store's own, which it makes and frees.  A handle of a
 * directory names a directory, not a path: it may be renamed meanwhile.  A ${name} is one
 * component, but in file_open() and under no directory (${at} NULL) a path, never a URL.  All ranks
 * that save together must see the same names and bytes.
 *
 * A checkpoint is as safe as these promises are kept: rename is atomic; nothing else removes or
 * changes a name; what file_sync() (contents) and dir_sync() (names) have returned OK for survives.
 * tests/unit/store_test.c checks them for the stores of the library, and for the skeleton.
 */
struct sidestep_store {
    size_t struct_size;
    const char *name; /* in errors */
    void *context;
    /** ENOTFOUND: it is not there, or is no directory. */
    enum sidestep_status (*dir_open)(void *context, void *at, const char *name, void **dir,
                                     struct sidestep_error *err);
    void (*dir_close)(void *context, void *dir);
    enum sidestep_status (*dir_make)(void *context, void *at, const char *name,
                                     struct sidestep_error *err); /* EEXISTS */
    enum sidestep_status (*dir_remove)(void *context, void *at, const char *name,
                                       struct sidestep_error *err); /* an empty one */
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
    /** A second name of a file.  NULL: it cannot be. */
    enum sidestep_status (*link)(void *context, void *from_dir, const char *from, void *to_dir,
                                 const char *to, struct sidestep_error *err);
    /** New and empty, for reading and writing; EEXISTS if the name is there. */
    enum sidestep_status (*file_create)(void *context, void *at, const char *name, void **file,
                                        struct sidestep_error *err);
    /** For reading.  ENOTFOUND; EUNSAFE: it is no file. */
    enum sidestep_status (*file_open)(void *context, void *at, const char *name, void **file,
                                      struct sidestep_error *err);
    /** Reserve space; the size stays.  ENOSPC.  NULL: space is not reserved. */
    enum sidestep_status (*file_allocate)(void *context, void *file, uint64_t bytes,
                                          struct sidestep_error *err);
    /** All of it or a failure; from several threads, of one file too. */
    enum sidestep_status (*file_write_at)(void *context, void *file, const void *from, size_t bytes,
                                          uint64_t offset, struct sidestep_error *err);
    /** All of it; beyond the end: ECORRUPT. */
    enum sidestep_status (*file_read_at)(void *context, void *file, void *to, size_t bytes,
                                         uint64_t offset, struct sidestep_error *err);
    enum sidestep_status (*file_truncate)(void *context, void *file, uint64_t bytes,
                                          struct sidestep_error *err);
    enum sidestep_status (*file_sync)(void *context, void *file, struct sidestep_error *err);
    enum sidestep_status (*file_stat)(void *context, void *file, struct sidestep_store_stat *out,
                                      struct sidestep_error *err);
    /** A lock that dies with its holder, without waiting; ELOCKED: others have it.  NULL: none;
       then who deletes and who saves are not kept apart, and a save may replace one that commits in
        the same moment (see sidestep_save_async()). */
    enum sidestep_status (*file_lock)(void *context, void *file, bool exclusive,
                                      struct sidestep_error *err);
    /** Frees the handle in any case; a failure means that what was written may be lost. */
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
