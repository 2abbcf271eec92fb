/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * reader.h -- a checkpoint opened for reading: all files through one directory descriptor, and
 * checked against each other before any tensor is touched.  Read-only: no lock, no rename.  Stock
 * DCP directories (no manifest, no footers) are read as well.
 */
#ifndef CHECKPOINT_READER_H
#define CHECKPOINT_READER_H

#include "base/base.h"
#include "format/format.h"
#include "model/model.h"
#include "store/store.h"

/* What a compressed item may decode to: an object; a tensor's archive beyond its data. */
#define READER_MAX_OBJECT_BYTES ((uint64_t)1 << 30)
#define READER_MAX_ENVELOPE_BYTES ((uint64_t)1 << 20)
/* What is larger than that is read into memory only if its file takes this part of it on the
 * medium: a hole is no item, whatever the metadata says of its size. */
#define READER_MAX_SPARSE_FACTOR 64u

/* More files than this are opened anew for each read: descriptors are scarce, ranks are not. */
#define READER_MAX_OPEN_FILES 100u

struct reader_file {
    const char *name;
    struct store_file *file; /* NULL: opened anew for each read */
    struct store_dir *dir;
    struct store_stat
        stat; /* of the file that was checked: what is opened later must be the same */
    struct source source;
    const char *problem; /* kind of what is wrong with it: "missing", "size" ...; NULL: nothing */
    const char *message; /* ... in words */
    enum sidestep_status status; /* ... to who reads from it */
    bool ours;                   /* has a footer, which was checked */
    struct footer footer;        /* if ours */
    uint64_t footer_offset;
};

struct reader {
    struct store *store;
    struct store_dir *dir;
    struct store_file *lease; /* .metadata with a shared lock, or NULL */
    char *path;
    struct arena arena;
    struct metadata metadata;
    bool has_manifest; /* a checkpoint of ours */
    bool salvages;     /* READER_SALVAGE */
    bool is_listed;    /* by it, so ${metadata} is what the footers say */
    struct manifest manifest;
    uint8_t manifest_sha256[HASH_SHA256_BYTES]; /* of .metadata where there is no manifest */
    struct reader_file *files;
    size_t file_count;
    struct hash_table file_names;
    struct foreign *foreign;         /* NULL: a checkpoint */
    struct store_queue_config queue; /* for who reads much; its depth may be set */
    bool takes_data;                 /* as it is: what is read is not compared with its hashes */
    uint64_t bytes;                  /* of data files */
    uint64_t record_bytes;           /* of .metadata and manifest */
};

/* Open also if data files are missing or wrong, and note it in their ${problem}: for those who want
 * to know what exactly is lost, and to read the rest.  Items in such a file are refused with its
 * ${message}. */
#define READER_TOLERANT 0x100u
/* With READER_TOLERANT: but for those that lie in what is left of a file that was cut short.  They
 * are read as torch's are, by their own CRC32: nothing else tells that they are this save's. */
#define READER_SALVAGE 0x2000u
/* What is read with O_DIRECT may be read through io_uring. */
#define READER_IO_URING 0x200u
/* Nobody may delete it before reader_close(): .metadata carries a shared lock.  Where that cannot
 * be had, nothing is said: what is open can be read all the same, as long as descriptors last. */
#define READER_SHARED_LOCK 0x400u
/* Also what is no checkpoint, but holds tensors: see foreign.h. */
#define READER_FOREIGN 0x800u
/* For who doubts what is there: a .metadata of ours is parsed, as other programs do, and each entry
 * compared with the footers.  Else, since its bytes have the hash that the manifest lists, it says
 * what the footers say, which take a quarter of the time to read.  With READER_TOLERANT always. */
#define READER_PARSE_METADATA 0x1000u
#define READER_FLAGS                                                                               \
    (READER_TOLERANT | READER_SALVAGE | READER_IO_URING | READER_SHARED_LOCK | READER_FOREIGN |    \
     READER_PARSE_METADATA)
#define READER_QUEUE_DEPTH 8u /* requests in flight, where nobody says */

/* ${flags}: STORE_DROP_CACHE, STORE_DIRECT, READER_TOLERANT, READER_SALVAGE, READER_IO_URING,
 * READER_SHARED_LOCK, READER_FOREIGN, READER_PARSE_METADATA.  EUNCOMMITTED: no .metadata there.
 * ENOTFOUND: no directory. ECORRUPT names the file.  Retries a few times if the checkpoint is
 * replaced meanwhile. The message does not name ${path}: the caller does. */
enum sidestep_status reader_open(struct store *store, const char *path, uint32_t flags,
                                 struct reader **out, struct sidestep_error *err);
void reader_close(struct reader **reader);
/* Open the data file file->name of ${dir}, which must outlive ${r}. */
enum sidestep_status reader_file_open(struct reader *r, struct reader_file *file,
                                      struct store_dir *dir, uint32_t flags,
                                      struct sidestep_error *err);
/* Open and check file ${i}, whose name is set.  With READER_TOLERANT what is wrong with it is noted
 * in it, and is no failure. */
enum sidestep_status reader_file_check(struct reader *r, size_t i, uint32_t flags,
                                       struct sidestep_error *err);
/* Are the files, as far as their attributes tell, those that were opened?  ECORRUPT: one is not.
 * Asked last, by who has read what no hash covers. */
enum sidestep_status reader_check_unchanged(struct reader *r, struct sidestep_error *err);

/* Is what is wrong with it that it is shorter (or longer) than it was?  It is no other save's. */
bool reader_file_has_wrong_size(const struct reader_file *file);

/* One stored item, ready to be read. */
struct reader_item {
    struct reader_file *file;
    uint64_t offset; /* of the item in the file */
    uint64_t bytes;
    const struct footer_item *footer; /* NULL: a stock item */
    /* Where the raw, row-major data lies in the file, if it can be read in ranges. */
    bool ranged;
    uint64_t data_offset; /* in the file */
    uint64_t data_bytes;
    const uint64_t *blocks; /* hashes of HASH_BLOCK_BYTES each; NULL: none */
    /* What a CRC covers, in the file: the data, or all that it shares a storage with. */
    uint64_t storage_offset;
    uint64_t storage_bytes;
    bool has_crc;
    uint32_t storage_crc;
    bool is_plain;         /* row-major bytes and nothing else: of safetensors */
    const void *object;    /* of torch.save(): not stored as an item, see foreign.h */
    const char *transform; /* decode the whole item first; NULL: none */
    uint64_t raw_limit;    /* more than this it cannot decode to */
    /* Of torch.save(), what its pickle says of a tensor; of all others NULL: a load has one item
     * for each chunk, which had better be small, and few have to be known so well. */
    const struct archive_tensor *tensor;
};
/* The item at this offset of a file of ours, or NULL. */
const struct footer_item *reader_find_footer_item(const struct reader_file *file, uint64_t offset);
/* A chunk of a tensor, or (entry->is_object) an object.  ${before}: NULL, or one that was found:
 * what lies behind it is found without a search. */
enum sidestep_status reader_locate_item(struct reader *reader, const struct metadata_entry *entry,
                                        const struct metadata_storage *storage,
                                        const struct box *box, const struct reader_item *before,
                                        struct reader_item *out, struct sidestep_error *err);
/* What the archive of a stock tensor without transform says; it is read again. */
enum sidestep_status reader_item_read_archive(const struct reader_item *item,
                                              const struct metadata_entry *entry,
                                              const struct box *box, struct archive_tensor *out,
                                              struct sidestep_error *err);
/* May ${bytes} of an item be held in memory at once?  ECORRUPT: they are holes, for the most part.
 */
enum sidestep_status reader_item_check_not_sparse(const struct reader_item *item, uint64_t bytes,
                                                  struct sidestep_error *err);
/* More memory than this reader_item_read() does not take. */
uint64_t reader_item_max_memory(const struct reader_item *item);
/* Where the data of a decoded item goes: in order, in blocks of HASH_BLOCK_BYTES, the last one
 * less. They have not been checked, but what they were decoded from. */
struct reader_sink {
    enum sidestep_status (*put)(void *context, uint64_t begin, const uint8_t *bytes,
                                uint64_t length, struct sidestep_error *err);
    void *context;
    /* NULL, or where all of it is wanted as it is: what was decoded to there is not put. */
    uint8_t *plain;
};
/* Undo the transform of an item of ours, and check every byte that is read and that comes out.
 * ${place}: NULL: only check. */
enum sidestep_status reader_item_decode(const struct reader_item *item,
                                        const struct reader_sink *place,
                                        struct sidestep_error *err);
/* An item as its footer has it. */
struct reader_item reader_item_from_footer(struct reader_file *file,
                                           const struct footer_item *footer);
/* The whole stored item, transform undone, malloc'ed; for our objects the hashes are checked. */
enum sidestep_status reader_item_read(const struct reader_item *item, void **bytes, size_t *length,
                                      struct sidestep_error *err);
/* An archive of a stock tensor agrees with what the metadata says of the chunk. */
enum sidestep_status reader_check_tensor(const struct archive_tensor *tensor,
                                         const struct metadata_entry *entry, const struct box *box,
                                         struct sidestep_error *err);
/* Say in ${err} that it is about ${name} in ${file}. */
void reader_blame(struct sidestep_error *err, const char *name, const struct reader_file *file);
/* Check the hashes of blocks [first, first + bytes / block) held in ${bytes}. */
enum sidestep_status reader_check_blocks(const struct reader_item *item, uint64_t first,
                                         const void *bytes, uint64_t length,
                                         struct sidestep_error *err);

/* Does a failure to open or read a checkpoint speak of the checkpoint: it is not whole, or not to
 * be understood?  Else it could not be read now (permission, storage, descriptors, memory), which
 * says nothing of what is there. */
bool reader_status_is_damage(enum sidestep_status status);

#endif
