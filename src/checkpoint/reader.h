/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * reader.h -- opens a checkpoint for reading, and checks its files against each other.
 *
 * All files are opened through one directory descriptor.  With READER_ALL all are checked before
 * any tensor is read, else each one when it is first needed. Nothing is written or renamed. Stock
 * DCP directories, which have no manifest and no footers, can be read, too.
 */
#ifndef CHECKPOINT_READER_H
#define CHECKPOINT_READER_H

#include "base/base.h"
#include "format/format.h"
#include "model/model.h"
#include "store/store.h"

/* Limits in bytes of what a compressed item may decode to: an object, and the part of a tensor's
 * archive besides its data. */
#define READER_MAX_OBJECT_BYTES ((uint64_t)1 << 30)
#define READER_MAX_ENVELOPE_BYTES ((uint64_t)1 << 20)
/* An item larger than READER_MAX_OBJECT_BYTES is read into memory only if its file occupies at
 * least 1/64 of the size on the medium. A hole in a file is not an item, whatever size the metadata
 * says. */
#define READER_MAX_SPARSE_FACTOR 64u

/* Files beyond this number are opened again for each read, because descriptors are scarce if a host
 * has many ranks. */
#define READER_MAX_OPEN_FILES 100u

struct reader_file {
    const char *name;
    const char *name_there;  /* in ${dir}, if it has another one there; else NULL */
    struct store_file *file; /* NULL: opened again for each read */
    struct store_dir *dir;   /* that the file is in; NULL: the file was not opened yet */
    uint64_t bytes;          /* size in the manifest; without one, where the last item ends */
    const char *last;        /* without a manifest: name of the last item */
    struct store_stat stat; /* of the file that was checked; a file opened later must be the same */
    struct source source;
    const char *problem;         /* kind of damage: "missing", "size" ...; NULL: none */
    const char *message;         /* describes the problem to a person */
    enum sidestep_status status; /* returned to a caller that reads from the file */
    bool ours;                   /* written by sidestep: has a footer, which was checked */
    struct footer footer;        /* if ours */
    uint64_t footer_offset;
};

struct reader {
    struct store *store;
    uint32_t flags; /* of reader_open() */
    struct store_dir *dir;
    struct store_dir *beside; /* of the caller: may have some of the files, too, and these are read
                                 there; NULL: there is none */
    struct store_file *shared_lock; /* on .metadata; or NULL */
    char *path;
    struct arena arena;
    struct metadata metadata;
    bool has_manifest; /* a checkpoint of sidestep */
    bool has_index;    /* ${metadata} is taken from the index of chunks, not from .metadata */
    struct manifest manifest;
    uint8_t manifest_sha256[HASH_SHA256_BYTES]; /* without a manifest: of .metadata */
    struct buffer manifest_text, metadata_text; /* while it is opened; the latter may be empty */
    uint64_t metadata_bytes;                    /* of .metadata */
    uint8_t metadata_sha256[HASH_SHA256_BYTES];
    struct reader_file *files;
    size_t file_count;
    size_t open_files; /* files that are held open */
    struct hash_table file_names;
    bool opens_late;                 /* a file is opened when a caller reads from it */
    struct foreign *foreign;         /* NULL: it is a checkpoint */
    struct store_queue_config queue; /* for bulk reads; a caller may set the depth */
    bool skips_hashes;               /* do not compare data with its hashes */
    uint64_t record_bytes;           /* size of .metadata and manifest */
};

/* Open also if data files are missing or damaged, and note that in their ${problem}. This is for
 * callers that report exactly what is lost, and read the rest. To read an item in such a file fails
 * with its ${message}. */
#define READER_TOLERANT 0x100u
/* With READER_TOLERANT: read also items in the remaining part of a truncated file. They are checked
 * by their own CRC32, like stock items. Nothing else shows that they are of this save. */
#define READER_SALVAGE 0x2000u
/* Reads with O_DIRECT may use io_uring. */
#define READER_IO_URING 0x200u
/* Hold a shared lock on .metadata, or on the manifest of a part, until reader_close(), so that
 * nobody deletes the checkpoint. It is not an error if the lock cannot be taken: open files can be
 * read all the same, as long as there are enough descriptors. */
#define READER_SHARED_LOCK 0x400u
/* Open also files that hold tensors but are not a checkpoint: see foreign.h. */
#define READER_FOREIGN 0x800u
/* Open all files, parse .metadata as other programs do, and compare each entry with the footers.
 * This is for callers that verify or copy. Without the flag the metadata comes from the index of
 * chunks, if there is one, and a file is opened when a caller reads from it: then it is checked
 * against the manifest, and the chunk against its footer. READER_TOLERANT implies the flag. */
#define READER_ALL 0x1000u
/* Open also a part of a checkpoint (commit/commit.h). Its metadata is made from the footers, and
 * covers no tensor that has boxes in other parts. */
#define READER_PARTS 0x4000u
/* The directory has only the files that this rank reads from: see series/series_gather.c. */
#define READER_SPREAD 0x8000u
#define READER_FLAGS                                                                               \
    (READER_TOLERANT | READER_SALVAGE | READER_IO_URING | READER_SHARED_LOCK | READER_FOREIGN |    \
     READER_ALL | READER_PARTS | READER_SPREAD)
/* reader_open() opens at most so many files that nobody has read from yet. Of more files it only
 * compares the sizes. */
#define READER_MAX_FOOTERS 32u
#define READER_QUEUE_DEPTH 8u /* requests in flight, by default */

/* Open the checkpoint at ${path}. ${flags}: STORE_DROP_CACHE, STORE_DIRECT, and READER_FLAGS.
 * Starts over a few times if the checkpoint is replaced meanwhile. The message does not contain
 * ${path}: the caller adds it.
 * EUNCOMMITTED: there is no .metadata.
 * ENOTFOUND: there is no such directory.
 * ECORRUPT: the message names the file. */
enum sidestep_status reader_open(struct store *store, const char *path, uint32_t flags,
                                 struct reader **out, struct sidestep_error *err);
/* The same of ${name} in ${parent}, whose path is that of ${path} without ${name}: what ${parent}
 * remembers (store_dir_remember()) is not asked for again. */
enum sidestep_status reader_open_in(struct store_dir *parent, const char *name, const char *path,
                                    uint32_t flags, struct reader **out,
                                    struct sidestep_error *err);
void reader_close(struct reader **reader);

/* The records of a checkpoint whose manifest lists its .metadata. One rank reads them for all. */
struct reader_records {
    struct buffer manifest; /* empty: no manifest lists the .metadata */
    struct buffer chunks;   /* the index of chunks; if ${has_index} is false, .metadata */
    bool has_index;
};
void reader_records_release(struct reader_records *records);
/* What a load takes from the index of chunks. */
struct reader_wanted {
    const struct sidestep_state_dict *state; /* NULL: everything */
    bool all_names;                          /* all other names, too, without chunks */
};
/* Open without looking at the data files. ${records}: NULL; or without a manifest: it gets the
 * records; or what it got on another rank: then no record is read. */
enum sidestep_status reader_open_to_load(struct store *store, const char *path, uint32_t flags,
                                         const struct reader_wanted *wanted,
                                         struct reader_records *records, struct reader **out,
                                         struct sidestep_error *err);
/* Compare the sizes of those of files [begin, end) that were not opened. */
enum sidestep_status reader_check_sizes(struct reader *r, size_t begin, size_t end,
                                        struct sidestep_error *err);
/* If ${r} opens files late, open the file of an item, unless it is open, and check it against the
 * manifest. reader_locate_item() does so, too. Only one thread may call it at a time, unless all
 * files that it needs are open. */
enum sidestep_status reader_admit(struct reader *r, const struct metadata_storage *storage,
                                  struct sidestep_error *err);
enum sidestep_status reader_admit_file(struct reader *r, const struct reader_file *file,
                                       struct sidestep_error *err);

/* ---- reader_index.c: the index of chunks */

/* Take from the index, if there is one, what is wanted, as the metadata. ${stored}: NULL: read only
 * the pages that are needed; or empty: it gets all of the index, which is checked; or an index that
 * was got like this, and is not read again. */
enum sidestep_status reader_take_index(struct reader *r, const struct reader_wanted *wanted,
                                       struct buffer *stored, struct sidestep_error *err);
/* Read the stored bytes of the index of chunks into ${out}, which is empty, and check them. If
 * there is no index, ${out} stays empty. */
enum sidestep_status reader_read_index(const struct reader *r, struct buffer *out,
                                       struct sidestep_error *err);
/* Does the index of chunks, if there is one, say what the metadata says? ECORRUPT: no, or it is
 * damaged. ENOTFOUND: it is missing. */
enum sidestep_status reader_check_index(const struct reader *r, struct sidestep_error *err);

/* ---- reader_extra.c: the extra files, which the manifest lists */

/* NULL: there is none of this name. */
const struct extra_file *reader_find_extra(const struct reader *r, const char *name);
/* Is the file there, with its size, and if ${contents} with its hash? ECORRUPT: no. ${*kind}: what
 * damage it is ("missing", "size"), as in struct sidestep_problem; NULL: its hash, or none. */
enum sidestep_status reader_check_extra(const struct reader *r, const struct extra_file *file,
                                        bool contents, const char **kind,
                                        struct sidestep_error *err);
/* Are all files there, with their sizes? */
enum sidestep_status reader_check_extras(const struct reader *r, struct sidestep_error *err);
/* Read a file, and check its hash. The caller frees ${*bytes}, of which there are file->bytes. */
enum sidestep_status reader_read_extra(const struct reader *r, const struct extra_file *file,
                                       void **bytes, struct sidestep_error *err);

/* The size of all data files, except those that could not be opened. Of a file that was not opened
 * yet it is from the manifest, or without one from the end of its items. */
uint64_t reader_data_bytes(const struct reader *r);
/* Open the data file file->name in ${dir}, which must outlive the reader. */
enum sidestep_status reader_file_open(struct reader_file *file, struct store_dir *dir,
                                      uint32_t flags, struct sidestep_error *err);
/* Open and check file ${i}, whose name is set. With READER_TOLERANT damage is noted in the file,
 * and is not a failure. */
enum sidestep_status reader_file_check(struct reader *r, size_t i, uint32_t flags,
                                       struct sidestep_error *err);
/* Does a file without a footer, of this size, contain all of its items? */
enum sidestep_status reader_file_check_end(const struct reader_file *file, uint64_t bytes,
                                           struct sidestep_error *err);
/* Check by their attributes that the files are still those that were opened. ECORRUPT: one is not.
 * A caller that has read data without hashes calls it last. */
enum sidestep_status reader_check_unchanged(struct reader *r, struct sidestep_error *err);

/* Is the size of the file its only damage? Then it is not a file of another save. */
bool reader_file_has_wrong_size(const struct reader_file *file);

/* The location and form of one stored item, ready to be read. */
struct reader_item {
    struct reader_file *file;
    uint64_t offset; /* of the item, in the file */
    uint64_t bytes;
    const struct footer_item *footer; /* NULL: a stock item */
    /* Where the raw, row-major data is in the file, if ranges of it can be read. */
    bool ranged;
    uint64_t data_offset; /* in the file */
    uint64_t data_bytes;
    const uint64_t *blocks; /* one hash per HASH_BLOCK_BYTES of data; NULL: none */
    /* What the CRC covers, in the file: the data, or the whole storage that it is part of. */
    uint64_t storage_offset;
    uint64_t storage_bytes;
    bool has_crc;
    uint32_t storage_crc;
    bool is_plain; /* in safetensors: row-major bytes without an archive */
    const void
        *object; /* in torch.save(): an object that is not an item of its own, see foreign.h */
    const char *transform; /* decode the whole item to read it; NULL: none */
    uint64_t raw_limit;    /* upper limit of the decoded size, in bytes */
    /* In torch.save(), what the pickle says of a tensor; otherwise NULL. It is a pointer, because a
     * load has one item per chunk, so items must be small, and few items need it. */
    const struct archive_tensor *tensor;
    /* After a failure of reader_locate_item(): its place is known, but it holds something else than
     * a plain tensor of a known dtype, which PyTorch can decode: a quantised one, a subclass. */
    bool is_other_kind;
};
/* Find the item at this offset of a file written by sidestep, or NULL. */
const struct footer_item *reader_find_footer_item(const struct reader_file *file, uint64_t offset);
/* Locate a chunk of a tensor, or (entry->is_object) an object. ${before}: NULL, or an item located
 * earlier; the item right after it is found without a search. */
enum sidestep_status reader_locate_item(struct reader *reader, const struct metadata_entry *entry,
                                        const struct metadata_storage *storage,
                                        const struct box *box, const struct reader_item *before,
                                        struct reader_item *out, struct sidestep_error *err);
/* Read the archive of a stock tensor without transform again. */
enum sidestep_status reader_item_read_archive(const struct reader_item *item,
                                              const struct metadata_entry *entry,
                                              const struct box *box, struct archive_tensor *out,
                                              struct sidestep_error *err);
/* May ${bytes} of an item be held in memory at once? ECORRUPT: most of them are holes in the
 * file. */
enum sidestep_status reader_item_check_not_sparse(const struct reader_item *item, uint64_t bytes,
                                                  struct sidestep_error *err);
/* Upper limit of the memory that reader_item_read() takes, in bytes. */
uint64_t reader_item_max_memory(const struct reader_item *item);
/* Receives the data of a decoded item: in order, in blocks of HASH_BLOCK_BYTES, the last one
 * shorter. The stored bytes have been checked, but the decoded bytes not yet. */
struct reader_sink {
    enum sidestep_status (*put)(void *context, uint64_t begin, const uint8_t *bytes,
                                uint64_t length, struct sidestep_error *err);
    void *context;
    /* NULL, or memory for all of the data. Blocks that were decoded to it are not passed to
     * put(). */
    uint8_t *plain;
};
/* Decode an item written by sidestep, and check every byte that is read and that comes out.
 * ${target}: NULL: only check. */
enum sidestep_status reader_item_decode(const struct reader_item *item,
                                        const struct reader_sink *target,
                                        struct sidestep_error *err);
/* Make an item from its entry in the footer. */
struct reader_item reader_item_from_footer(struct reader_file *file,
                                           const struct footer_item *footer);
/* Read a whole stored item, and decode it. The caller frees ${*bytes}. Checks the hashes of objects
 * written by sidestep. */
enum sidestep_status reader_item_read(const struct reader_item *item, void **bytes, size_t *length,
                                      struct sidestep_error *err);
/* Check that the archive of a stock tensor agrees with the metadata of the chunk. */
enum sidestep_status reader_check_tensor(const struct archive_tensor *tensor,
                                         const struct metadata_entry *entry, const struct box *box,
                                         struct sidestep_error *err);
/* EUNSUPPORTED, because the dtype of the tensor is SIDESTEP_DTYPE_NONE: a quantised one, say. */
enum sidestep_status reader_refuse_dtype(const struct metadata_entry *entry,
                                         struct sidestep_error *err);
/* Put "'${name}' in file '${file}'" before the message of ${err}. */
void reader_blame(struct sidestep_error *err, const char *name, const struct reader_file *file);
/* Check the hashes of the blocks in ${bytes}, of which the first has number ${first} in the item.
 */
enum sidestep_status reader_check_blocks(const struct reader_item *item, uint64_t first,
                                         const void *bytes, uint64_t length,
                                         struct sidestep_error *err);

/* Does this failure to open or read a checkpoint mean that the checkpoint is not whole, or cannot
 * be understood? Otherwise it could not be read now (permission, storage, descriptors, memory),
 * which says nothing about its content. */
bool reader_status_is_damage(enum sidestep_status status);

#endif
