/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store.h -- storage through a vtable: directories, files, and the few operations that the commit
 * protocol is made of.
 *
 * Everything above is written against these calls, so that tests can fail each of them, simulate a
 * disk that forgets, and run several ranks in one process.
 *
 * Contract, checked by tests/unit/store_test.c against every backend:
 *  - All work goes through directory handles, which name a directory, not a path: it may be
 *    renamed meanwhile.  A ${name} is one component, except in file_open(), where it may be a
 *    relative path beneath the directory.  No symbolic link is ever followed beneath a handle,
 *    and what is not a regular file is refused (SIDESTEP_EUNSAFE).
 *  - file_write_at() and file_read_at() move everything or fail (short ones are looped), from
 *    many threads at once, on disjoint ranges.
 *  - Nothing is durable before file_sync() (contents) and dir_sync() (names) have returned OK.
 *    A file_sync() that failed is final: the file is garbage and must be abandoned.
 *  - Errors carry the errno, the operation and the name; the caller adds what it was doing.
 *  - Handles are freed by their close functions, which accept NULL.  file_close() of a file that
 *    was written can fail, and must be checked; file_discard() is for error paths and readers.
 */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include "store/location.h"

struct store {
    const struct store_ops *ops;
};
/* Backends embed these as their first member. */
struct store_dir {
    struct store *store;
};
struct store_file {
    struct store *store;
};

enum store_kind { STORE_FILE, STORE_DIRECTORY, STORE_OTHER };
struct store_stat {
    enum store_kind kind;
    uint64_t size;
    uint64_t stored; /* bytes on the medium: fewer where the file has holes, or is compressed; 0
                        also where the storage does not say */
    uint64_t device; /* with inode: identity */
    uint64_t inode;
    int64_t modified; /* seconds since 1970, for people */
    /* Nanoseconds, to be compared with an earlier value: as fine as the storage's clock, which is
       some milliseconds where it is a disk; 0: the storage does not say. */
    uint64_t modified_ns; /* of the contents */
    uint64_t changed_ns;  /* of contents, attributes, or names: nobody can set this one */
    uint32_t links;       /* names that a file has; 0: the storage does not say */
};

enum store_rename_mode {
    STORE_REPLACE,   /* rename(2): files replace files */
    STORE_NOREPLACE, /* EEXISTS if the target is there; EUNSUPPORTED if the storage cannot */
    STORE_EXCHANGE,  /* swap; EUNSUPPORTED if the storage cannot */
};

/* flags of file_open() and file_create() */
#define STORE_WRITE 1u      /* file_open(): for locking and deleting marks, not for data */
#define STORE_DIRECT 2u     /* with O_DIRECT if allowed; see file_alignment() */
#define STORE_DROP_CACHE 4u /* file_open(): drop the file's clean pages from the cache first */

struct store_traits {
    bool is_volatile;   /* tmpfs, ramfs: forgets at power loss whatever is synced */
    bool is_network;    /* attributes may be cached: poll, re-open */
    char type_name[16]; /* "ext4", "tmpfs", "0x1234" */
    bool is_read_only;  /* we may not make or remove names in it */
    bool has_free_bytes;
    uint64_t free_bytes; /* that this user may still write, by the storage's own account */
};

struct store_ops {
    const char *name; /* "posix", "fault", "sim" */

    /* ${at} NULL: ${name} is a path, resolved as usual, symbolic links in it are followed.  It is
     * never a URL: store_dir_open() refuses those. */
    enum sidestep_status (*dir_open)(struct store *store, struct store_dir *at, const char *name,
                                     struct store_dir **out, struct sidestep_error *err);
    void (*dir_close)(struct store_dir *dir);
    enum sidestep_status (*dir_make)(struct store_dir *at, const char *name,
                                     struct sidestep_error *err);
    enum sidestep_status (*dir_remove)(struct store_dir *at, const char *name,
                                       struct sidestep_error *err);
    /* Call ${each} for every name but "." and ".."; it returns false to stop.  Order: any. */
    enum sidestep_status (*dir_list)(struct store_dir *dir,
                                     bool (*each)(void *context, const char *name), void *context,
                                     struct sidestep_error *err);
    enum sidestep_status (*dir_sync)(struct store_dir *dir, struct sidestep_error *err);
    enum sidestep_status (*dir_stat)(struct store_dir *dir, struct store_stat *out,
                                     struct sidestep_error *err);
    enum sidestep_status (*dir_traits)(struct store_dir *dir, struct store_traits *out,
                                       struct sidestep_error *err);

    /* A path that led to the directory a moment ago, for people; the caller looks whether it still
       does.  NULL where the storage cannot tell. */
    enum sidestep_status (*dir_path)(struct store_dir *dir, char *path, size_t bytes,
                                     struct sidestep_error *err);

    /* lstat; SIDESTEP_ENOTFOUND if the name is not there. */
    enum sidestep_status (*stat)(struct store_dir *at, const char *name, struct store_stat *out,
                                 struct sidestep_error *err);
    enum sidestep_status (*rename)(struct store_dir *from_dir, const char *from,
                                   struct store_dir *to_dir, const char *to,
                                   enum store_rename_mode mode, struct sidestep_error *err);
    enum sidestep_status (*unlink)(struct store_dir *at, const char *name,
                                   struct sidestep_error *err);
    /* Hard link of a file under a second name in another directory of the same storage. */
    enum sidestep_status (*link)(struct store_dir *from_dir, const char *from,
                                 struct store_dir *to_dir, const char *to,
                                 struct sidestep_error *err);

    /* New, empty, for reading and writing; EEXISTS if the name is there in any form. */
    enum sidestep_status (*file_create)(struct store_dir *at, const char *name, uint32_t flags,
                                        struct store_file **out, struct sidestep_error *err);
    enum sidestep_status (*file_open)(struct store_dir *at, const char *name, uint32_t flags,
                                      struct store_file **out, struct sidestep_error *err);
    /* Reserve space, so that a full disk is noticed early.  The size stays.  OK also where it is
       not supported. */
    enum sidestep_status (*file_allocate)(struct store_file *file, uint64_t bytes,
                                          struct sidestep_error *err);
    enum sidestep_status (*file_write_at)(struct store_file *file, const void *from, size_t bytes,
                                          uint64_t offset, struct sidestep_error *err);
    enum sidestep_status (*file_read_at)(struct store_file *file, void *to, size_t bytes,
                                         uint64_t offset, struct sidestep_error *err);
    enum sidestep_status (*file_truncate)(struct store_file *file, uint64_t bytes,
                                          struct sidestep_error *err);
    enum sidestep_status (*file_sync)(struct store_file *file, struct sidestep_error *err);
    enum sidestep_status (*file_stat)(struct store_file *file, struct store_stat *out,
                                      struct sidestep_error *err);
    /* 0: buffered.  Else O_DIRECT is on: requests whose address, length and offset are multiples
       of this go past the cache; others are done buffered by the backend itself, but for addresses
       that the device takes anyway. */
    size_t (*file_alignment)(struct store_file *file);
    /* Lock that dies with its holder (OFD).  Never waits.  ELOCKED: somebody has it.
       EUNSUPPORTED: no locks on this storage.  Exclusive needs STORE_WRITE or file_create(). */
    enum sidestep_status (*file_lock)(struct store_file *file, bool exclusive,
                                      struct sidestep_error *err);
    /* Does another handle hold a lock on it?  This takes no lock, so nobody's attempt to take one
       fails because of the question.  EUNSUPPORTED: this storage cannot tell. */
    enum sidestep_status (*file_is_locked)(struct store_file *file, bool *is_locked,
                                           struct sidestep_error *err);
    /* For store_queue.h; both are NULL where a request is only ever done by a call.  The descriptor
       on which io_uring may do this request with O_DIRECT; -1: not this one.  And, with what came
       of it (bytes, or a negative errno): finish it by calls where they are of use. */
    int (*file_async_fd)(struct store_file *file, const void *memory, size_t bytes, uint64_t offset,
                         bool is_write);
    enum sidestep_status (*file_async_end)(struct store_file *file, void *memory, size_t bytes,
                                           uint64_t offset, bool is_write, int result,
                                           struct sidestep_error *err);
    enum sidestep_status (*file_close)(struct store_file *file, struct sidestep_error *err);
    void (*file_discard)(struct store_file *file);
};

/* The host's file systems.  A constant; never freed. */
struct store *store_posix(void);

/* The calls, by name: store_dir_open(store, at, name, &out, err) ... */
#define STORE_OPS_OF(handle) ((handle)->store->ops)
static inline enum sidestep_status store_dir_open(struct store *s, struct store_dir *at,
                                                  const char *name, struct store_dir **out,
                                                  struct sidestep_error *err)
{
    if (at == NULL)
        TRY(location_check(name, err));
    return s->ops->dir_open(s, at, name, out, err);
}
static inline void store_dir_close(struct store_dir *dir)
{
    if (dir != NULL)
        STORE_OPS_OF(dir)->dir_close(dir);
}
static inline enum sidestep_status store_dir_make(struct store_dir *at, const char *name,
                                                  struct sidestep_error *err)
{
    return STORE_OPS_OF(at)->dir_make(at, name, err);
}
static inline enum sidestep_status store_dir_remove(struct store_dir *at, const char *name,
                                                    struct sidestep_error *err)
{
    return STORE_OPS_OF(at)->dir_remove(at, name, err);
}
static inline enum sidestep_status store_dir_list(struct store_dir *dir,
                                                  bool (*each)(void *context, const char *name),
                                                  void *context, struct sidestep_error *err)
{
    return STORE_OPS_OF(dir)->dir_list(dir, each, context, err);
}
static inline enum sidestep_status store_dir_sync(struct store_dir *dir, struct sidestep_error *err)
{
    return STORE_OPS_OF(dir)->dir_sync(dir, err);
}
static inline enum sidestep_status store_dir_stat(struct store_dir *dir, struct store_stat *out,
                                                  struct sidestep_error *err)
{
    return STORE_OPS_OF(dir)->dir_stat(dir, out, err);
}
static inline enum sidestep_status store_dir_traits(struct store_dir *dir, struct store_traits *out,
                                                    struct sidestep_error *err)
{
    return STORE_OPS_OF(dir)->dir_traits(dir, out, err);
}
static inline enum sidestep_status store_dir_path(struct store_dir *dir, char *path, size_t bytes,
                                                  struct sidestep_error *err)
{
    if (STORE_OPS_OF(dir)->dir_path == NULL)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "this storage does not tell paths");
    return STORE_OPS_OF(dir)->dir_path(dir, path, bytes, err);
}
static inline enum sidestep_status store_stat(struct store_dir *at, const char *name,
                                              struct store_stat *out, struct sidestep_error *err)
{
    return STORE_OPS_OF(at)->stat(at, name, out, err);
}
static inline enum sidestep_status store_rename(struct store_dir *from_dir, const char *from,
                                                struct store_dir *to_dir, const char *to,
                                                enum store_rename_mode mode,
                                                struct sidestep_error *err)
{
    return STORE_OPS_OF(from_dir)->rename(from_dir, from, to_dir, to, mode, err);
}
static inline enum sidestep_status store_unlink(struct store_dir *at, const char *name,
                                                struct sidestep_error *err)
{
    return STORE_OPS_OF(at)->unlink(at, name, err);
}
static inline enum sidestep_status store_link(struct store_dir *from_dir, const char *from,
                                              struct store_dir *to_dir, const char *to,
                                              struct sidestep_error *err)
{
    return STORE_OPS_OF(from_dir)->link(from_dir, from, to_dir, to, err);
}
static inline enum sidestep_status store_file_create(struct store_dir *at, const char *name,
                                                     uint32_t flags, struct store_file **out,
                                                     struct sidestep_error *err)
{
    return STORE_OPS_OF(at)->file_create(at, name, flags, out, err);
}
static inline enum sidestep_status store_file_open(struct store_dir *at, const char *name,
                                                   uint32_t flags, struct store_file **out,
                                                   struct sidestep_error *err)
{
    return STORE_OPS_OF(at)->file_open(at, name, flags, out, err);
}
static inline enum sidestep_status store_file_allocate(struct store_file *file, uint64_t bytes,
                                                       struct sidestep_error *err)
{
    return STORE_OPS_OF(file)->file_allocate(file, bytes, err);
}
static inline enum sidestep_status store_file_write_at(struct store_file *file, const void *from,
                                                       size_t bytes, uint64_t offset,
                                                       struct sidestep_error *err)
{
    return STORE_OPS_OF(file)->file_write_at(file, from, bytes, offset, err);
}
static inline enum sidestep_status store_file_read_at(struct store_file *file, void *to,
                                                      size_t bytes, uint64_t offset,
                                                      struct sidestep_error *err)
{
    return STORE_OPS_OF(file)->file_read_at(file, to, bytes, offset, err);
}
static inline enum sidestep_status store_file_truncate(struct store_file *file, uint64_t bytes,
                                                       struct sidestep_error *err)
{
    return STORE_OPS_OF(file)->file_truncate(file, bytes, err);
}
static inline enum sidestep_status store_file_sync(struct store_file *file,
                                                   struct sidestep_error *err)
{
    return STORE_OPS_OF(file)->file_sync(file, err);
}
static inline enum sidestep_status store_file_stat(struct store_file *file, struct store_stat *out,
                                                   struct sidestep_error *err)
{
    return STORE_OPS_OF(file)->file_stat(file, out, err);
}
static inline size_t store_file_alignment(struct store_file *file)
{
    return STORE_OPS_OF(file)->file_alignment(file);
}
static inline enum sidestep_status store_file_lock(struct store_file *file, bool exclusive,
                                                   struct sidestep_error *err)
{
    return STORE_OPS_OF(file)->file_lock(file, exclusive, err);
}
static inline enum sidestep_status store_file_is_locked(struct store_file *file, bool *is_locked,
                                                        struct sidestep_error *err)
{
    return STORE_OPS_OF(file)->file_is_locked(file, is_locked, err);
}
static inline enum sidestep_status store_file_close(struct store_file *file,
                                                    struct sidestep_error *err)
{
    return file != NULL ? STORE_OPS_OF(file)->file_close(file, err) : SIDESTEP_OK;
}
static inline void store_file_discard(struct store_file *file)
{
    if (file != NULL)
        STORE_OPS_OF(file)->file_discard(file);
}
static inline void store_dir_closep_(struct store_dir **dir)
{
    store_dir_close(*dir);
}
static inline void store_file_discardp_(struct store_file **file)
{
    store_file_discard(*file);
}
#define OWNED_DIR __attribute__((cleanup(store_dir_closep_))) struct store_dir
#define OWNED_FILE __attribute__((cleanup(store_file_discardp_))) struct store_file

/* The rest of what other folders use of this one. */
#include "store/store_custom.h"
#include "store/store_queue.h"
#include "store/store_ring.h"

#endif
