/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * store.h -- reads and writes storage through a vtable: directories, files, and the operations of
 * the commit protocol.
 *
 * All folders above reach storage through these calls only.  So tests can make each call fail,
 * simulate a disk that loses what is not synced, and run several ranks in one process.
 *
 * Contract, checked by tests/unit/store_test.c against every backend:
 *  - Calls go through handles of directories.  A handle stays with its directory when the directory
 *    is renamed.  A ${name} is one component; only in file_open() it may be a relative path beneath
 *    the directory.  Beneath a handle, calls follow no symbolic link, and refuse what is not a
 *    regular file (SIDESTEP_EUNSAFE).  Only store_file_open_to_read() follows links, so nothing is
 *    locked, written, renamed or removed through one.
 *  - file_write_at() and file_read_at() move all bytes or fail.  Many threads may call them at
 *    once, on disjoint ranges.
 *  - Contents are durable when file_sync() has returned OK, names when dir_sync() has.  If a
 *    file_sync() fails, the file is lost: do not use it any more.
 *  - Errors have the errno, the operation and the name.  The caller adds what it was doing.
 *  - The close functions free handles, and accept NULL.  file_close() of a file that was written
 *    can fail, and must be checked.  file_discard() is for error paths and readers.
 */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include "store/location.h"
#include "store/store_places.h"

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

enum store_kind {
    STORE_FILE,
    STORE_DIRECTORY,
    STORE_HERE, /* a symbolic link to the directory that it lies in */
    STORE_LINK, /* any other symbolic link */
    STORE_OTHER
};
struct store_stat {
    enum store_kind kind;
    uint64_t size;
    uint64_t stored; /* bytes on the medium: fewer than ${size} if the file has holes or is
                        compressed; 0 also if the storage does not tell */
    uint64_t device; /* device and inode identify a file */
    uint64_t inode;
    int64_t modified; /* seconds since 1970, for people */
    /* Nanoseconds, to compare with an earlier value.  The resolution is that of the storage's
       clock, some milliseconds on a disk.  0: the storage does not tell. */
    uint64_t modified_ns; /* of the contents */
    uint64_t changed_ns;  /* of contents, attributes or names; no program can set it */
    uint32_t links;       /* the number of names; 0: the storage does not tell */
};

enum store_rename_mode {
    STORE_REPLACE,   /* as rename(2) */
    STORE_NOREPLACE, /* EEXISTS if the target exists; EUNSUPPORTED if the storage cannot do this */
    STORE_EXCHANGE,  /* swap two names; EUNSUPPORTED if the storage cannot do this */
};

/* flags of file_open() and file_create() */
#define STORE_WRITE 1u      /* file_open(): to take an exclusive lock, not to write data */
#define STORE_DIRECT 2u     /* with O_DIRECT if allowed; see file_alignment() */
#define STORE_DROP_CACHE 4u /* file_open(): drop the file's clean pages from the cache first */
#define STORE_FOLLOW                                                                               \
    8u /* file_open(): follow symbolic links; only with no STORE_WRITE.  EIO: one                  \
          leads to nothing.  Use store_file_open_to_read(). */

struct store_traits {
    bool is_volatile;    /* tmpfs, ramfs: a power loss loses even what is synced */
    bool is_network;     /* attributes may be cached: open again until they are new */
    char type_name[32];  /* "ext4", "tmpfs", "fuse.sshfs", "0x1234" */
    bool is_read_only;   /* this process may not make or remove names in it */
    bool has_free_bytes; /* ${free_bytes} is known */
    uint64_t free_bytes; /* that this user may still write, as the storage reports */
};

/* What a store consists of.  Code whose steps differ has a table of operations for each layout:
 * commit/form.h and root/root.h. */
enum store_layout { STORE_OF_DIRECTORIES, STORE_OF_KEYS, STORE_LAYOUTS };

struct store_ops {
    const char *name; /* "posix", "fault", "sim", "s3" */
    enum store_layout layout;
    bool takes_urls; /* dir_open() without ${at} takes URLs, and no paths */

    /* How many large reads at once are useful now, because each waits for an answer from far away.
     * NULL: one for each processor. */
    unsigned (*reads)(struct store *store);

    /* Free the store, after all its handles.  NULL: it is a constant, or its maker frees it. */
    void (*free)(struct store *store);

    /* If ${at} is NULL, ${name} is a path, in which symbolic links are followed.  It is a URL only
     * if ${takes_urls}; otherwise store_dir_open() refuses URLs. */
    enum sidestep_status (*dir_open)(struct store *store, struct store_dir *at, const char *name,
                                     struct store_dir **out, struct sidestep_error *err);
    void (*dir_close)(struct store_dir *dir);
    enum sidestep_status (*dir_make)(struct store_dir *at, const char *name,
                                     struct sidestep_error *err);
    enum sidestep_status (*dir_remove)(struct store_dir *at, const char *name,
                                       struct sidestep_error *err);
    /* Call ${each} for every name but "." and "..", in any order, until it returns false. */
    enum sidestep_status (*dir_list)(struct store_dir *dir,
                                     bool (*each)(void *context, const char *name), void *context,
                                     struct sidestep_error *err);
    /* List all that lies below the directory, and keep the list.  The directory, and directories
       opened in it afterwards, then show the names, sizes and times of this moment.  A second call
       lists again; directories that were opened in it must be closed before.  NULL: the storage
       answers quickly without a list. */
    enum sidestep_status (*dir_remember)(struct store_dir *dir, struct sidestep_error *err);
    enum sidestep_status (*dir_sync)(struct store_dir *dir, struct sidestep_error *err);
    enum sidestep_status (*dir_stat)(struct store_dir *dir, struct store_stat *out,
                                     struct sidestep_error *err);
    enum sidestep_status (*dir_traits)(struct store_dir *dir, struct store_traits *out,
                                       struct sidestep_error *err);

    /* A path that led to the directory a moment ago, for messages.  The caller checks whether it
       still does.  NULL: the storage cannot tell. */
    enum sidestep_status (*dir_path)(struct store_dir *dir, char *path, size_t bytes,
                                     struct sidestep_error *err);

    /* As lstat(2).  ENOTFOUND: there is no such name. */
    enum sidestep_status (*stat)(struct store_dir *at, const char *name, struct store_stat *out,
                                 struct sidestep_error *err);
    enum sidestep_status (*rename)(struct store_dir *from_dir, const char *from,
                                   struct store_dir *to_dir, const char *to,
                                   enum store_rename_mode mode, struct sidestep_error *err);
    enum sidestep_status (*unlink)(struct store_dir *at, const char *name,
                                   struct sidestep_error *err);
    /* Give a file a second name, as a hard link, in any directory of the same storage.  If ${from}
       is ".", make a symbolic link to the directory ${to_dir} in it. */
    enum sidestep_status (*link)(struct store_dir *from_dir, const char *from,
                                 struct store_dir *to_dir, const char *to,
                                 struct sidestep_error *err);

    /* Make a new empty file and open it for reading and writing.  EEXISTS: the name exists. */
    enum sidestep_status (*file_create)(struct store_dir *at, const char *name, uint32_t flags,
                                        struct store_file **out, struct sidestep_error *err);
    enum sidestep_status (*file_open)(struct store_dir *at, const char *name, uint32_t flags,
                                      struct store_file **out, struct sidestep_error *err);
    /* Reserve space, so that a full disk is noticed early.  Does not change the size.  OK also if
       the storage does not support it. */
    enum sidestep_status (*file_allocate)(struct store_file *file, uint64_t bytes,
                                          struct sidestep_error *err);
    enum sidestep_status (*file_write_at)(struct store_file *file, const void *from, size_t bytes,
                                          uint64_t offset, struct sidestep_error *err);
    enum sidestep_status (*file_read_at)(struct store_file *file, void *to, size_t bytes,
                                         uint64_t offset, struct sidestep_error *err);
    /* One read of consecutive bytes, to several places.  NULL: a read for each is as good. */
    enum sidestep_status (*file_read_places)(struct store_file *file,
                                             const struct store_places *places, uint64_t offset,
                                             struct sidestep_error *err);
    enum sidestep_status (*file_truncate)(struct store_file *file, uint64_t bytes,
                                          struct sidestep_error *err);
    enum sidestep_status (*file_sync)(struct store_file *file, struct sidestep_error *err);
    enum sidestep_status (*file_stat)(struct store_file *file, struct store_stat *out,
                                      struct sidestep_error *err);
    /* 0: all requests are buffered.  Otherwise O_DIRECT is on: requests whose address, length and
       offset are multiples of this go past the page cache.  The backend buffers the others, unless
       only the address is not a multiple, and the device accepts it. */
    size_t (*file_alignment)(struct store_file *file);
    /* Take a lock that ends with its holder (OFD).  Never waits.  ELOCKED: another handle holds it.
       EUNSUPPORTED: the storage has no locks.  An exclusive lock needs STORE_WRITE or
       file_create(). */
    enum sidestep_status (*file_lock)(struct store_file *file, bool exclusive,
                                      struct sidestep_error *err);
    /* Does another handle hold a lock on the file?  This takes no lock, so it makes no other
       attempt to lock the file fail.  EUNSUPPORTED: the storage cannot tell. */
    enum sidestep_status (*file_is_locked)(struct store_file *file, bool *is_locked,
                                           struct sidestep_error *err);
    /* These two are for store_queue.h.  NULL: the storage does not support io_uring.
       file_async_fd() returns the descriptor on which io_uring may do this request with O_DIRECT;
       -1: it may not do this one.  file_async_end() takes the result (bytes, or a negative errno),
       and does the rest of the request by calls. */
    int (*file_async_fd)(struct store_file *file, const void *memory, size_t bytes, uint64_t offset,
                         bool is_write);
    enum sidestep_status (*file_async_end)(struct store_file *file, void *memory, size_t bytes,
                                           uint64_t offset, bool is_write, int result,
                                           struct sidestep_error *err);
    enum sidestep_status (*file_close)(struct store_file *file, struct sidestep_error *err);
    void (*file_discard)(struct store_file *file);

    /* A small file as a whole, with one request each: append it to ${out} (ECORRUPT: it has more
       than ${max} bytes); make or replace it, durably.  NULL: by the calls above
       (commit/small_file.h). */
    enum sidestep_status (*file_get)(struct store_dir *at, const char *name, uint64_t max,
                                     struct buffer *out, struct sidestep_error *err);
    enum sidestep_status (*file_put)(struct store_dir *at, const char *name, const void *bytes,
                                     size_t length, struct sidestep_error *err);
};

/* The host's file systems.  A constant, never freed. */
struct store *store_posix(void);

/* The calls: store_dir_open(store, at, name, &out, err) ... */
#define STORE_OPS_OF(handle) ((handle)->store->ops)
/* 0: one for each processor. */
static inline unsigned store_reads(struct store *s)
{
    return s->ops->reads != NULL ? s->ops->reads(s) : 0;
}
static inline enum sidestep_status store_dir_open(struct store *s, struct store_dir *at,
                                                  const char *name, struct store_dir **out,
                                                  struct sidestep_error *err)
{
    if (at == NULL && !s->ops->takes_urls)
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
static inline enum sidestep_status store_dir_remember(struct store_dir *dir,
                                                      struct sidestep_error *err)
{
    return STORE_OPS_OF(dir)->dir_remember != NULL ? STORE_OPS_OF(dir)->dir_remember(dir, err)
                                                   : SIDESTEP_OK;
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
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "this storage cannot tell the path of a directory");
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
/* Rename to a name that does not exist.  Storage that cannot check this replaces it. */
static inline enum sidestep_status store_rename_new(struct store_dir *from_dir, const char *from,
                                                    struct store_dir *to_dir, const char *to,
                                                    struct sidestep_error *err)
{
    enum sidestep_status status = store_rename(from_dir, from, to_dir, to, STORE_NOREPLACE, err);

    return status == SIDESTEP_EUNSUPPORTED
               ? store_rename(from_dir, from, to_dir, to, STORE_REPLACE, err)
               : status;
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
/* Make a symbolic link to the directory ${at} in it (STORE_HERE). */
static inline enum sidestep_status store_link_here(struct store_dir *at, const char *name,
                                                   struct sidestep_error *err)
{
    return STORE_OPS_OF(at)->link(at, ".", at, name, err);
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
/* store_read.c: open a file of a checkpoint, to read it.  Symbolic links to regular files are
 * followed: people move shards to larger disks, and download caches consist of links.  Nothing is
 * opened that is not a regular file, so this neither waits nor changes a device.  ENOTFOUND: there
 * is no such name.  EIO: the name is there, but leads to nothing, or to no regular file, so its
 * bytes are not known to be wrong.  EPERM. */
enum sidestep_status store_file_open_to_read(struct store_dir *at, const char *name, uint32_t flags,
                                             struct store_file **out, struct sidestep_error *err);
/* As store_stat(), but of the file that a symbolic link leads to, if that can be read.  ${name} may
 * be a relative path beneath ${at}. */
enum sidestep_status store_stat_to_read(struct store_dir *at, const char *name,
                                        struct store_stat *out, struct sidestep_error *err);
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
/* store_places.c */
enum sidestep_status store_file_read_places(struct store_file *file,
                                            const struct store_places *places, uint64_t offset,
                                            struct sidestep_error *err);
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

/* ---- store_parent.c: finds the directory of one file that a caller names by its path or URL */

/*
 * Open the directory that contains ${path}, and find the file's name in it.  Links are resolved
 * where the storage has any: the caches of Hugging Face's libraries consist of them.
 *
 * The caller closes ${*dir}.  ${*name} lies in ${arena}.  ENOTFOUND, EPERM, EIO: the path leads
 * nowhere, may not be read, or the storage failed. ENOMEM.
 */
enum sidestep_status store_parent_open(struct store *store, const char *path, struct arena *arena,
                                       struct store_dir **dir, const char **name,
                                       struct sidestep_error *err);

/* Is there an object with the URL ${path}?  In a bucket, a URL can be that of a directory and that
 * of a file at once.  False for storage with directories. */
bool store_parent_has_object(struct store *store, const char *path, struct arena *arena);

/* The headers of this folder that other folders use. */
#include "store/store_queue.h"
#include "store/store_ring.h"

#endif
