/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sidestep_tools.h -- what needs no engine: looking at checkpoints, checking, comparing, pinning
 * and deleting them, other formats, copies, and what a machine allows.
 *
 * Only sidestep_gc(), sidestep_prune(), sidestep_delete(), sidestep_pin(), sidestep_tag(),
 * sidestep_rebuild(), sidestep_convert(), sidestep_copy(), sidestep_mirror() and sidestep_doctor()
 * write to storage.
 *
 * The conventions of sidestep.h hold.
 */
#ifndef SIDESTEP_TOOLS_H
#define SIDESTEP_TOOLS_H

#include "sidestep_series.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- looking at checkpoints */

enum sidestep_presence {
    SIDESTEP_COMMITTED,  /* exists */
    SIDESTEP_SAVING,     /* being written, or nobody can tell whether it still is */
    SIDESTEP_TRASH,      /* being deleted */
    SIDESTEP_BAD,        /* failed verification, set aside */
    SIDESTEP_FOREIGN,    /* another directory, a file with tensors that is not a checkpoint, or a
                            symbolic link */
    SIDESTEP_UNREADABLE, /* a directory that could not be looked into: it may be any of the others
                          */
    SIDESTEP_COMPLETE,   /* another program's whole checkpoint, not a DCP: see ${layout} */
    SIDESTEP_INCOMPLETE, /* another program's checkpoint, not whole: see ${reason} */
    SIDESTEP_DEAD,       /* left by a killed save: sidestep_gc() removes it */
    SIDESTEP_DAMAGED,    /* a checkpoint with files that are missing, cut short, or cannot be
                            parsed: see ${reason} */
    SIDESTEP_PART,       /* no checkpoint: the files of the ranks that see this directory, where
                            others see another one (SIDESTEP_SERIES_PER_NODE): see ${part_ranks} */
};
#define SIDESTEP_PRESENCE_END (SIDESTEP_PART + 1)

/** sidestep_presence_name(state): its word in listings: "committed", "saving" ...  NULL: there is
 * no such state. */
SIDESTEP_API const char *sidestep_presence_name(enum sidestep_presence state);

struct sidestep_listed {
    const char *name; /* in ${root} */
    const char *path;
    const char *state_name; /* sidestep_presence_name() of ${state} */
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
    bool is_abandoned; /* a resume has left it behind */
    bool is_renamed;   /* a series saved it under another name, so it was copied or renamed.  No
                          resume chooses it by itself, and nothing deletes it */
    bool is_link;      /* a symbolic link: what it leads to is read, but nothing is renamed, deleted
                          or written through it */
    uint32_t tag_count;
    uint32_t metric_count;
    uint32_t shared_files; /* of ${files}: written by an earlier save, whose checkpoint shares
                              them (SIDESTEP_SERIES_INCREMENTAL) */
    const char *const *tags;
    const struct sidestep_metric *metrics;
    const char *layout; /* the program that uses this form, by names and files: "lightning",
                           "torchtitan", "transformers", "accelerate".  "dcp": shards without
                           .metadata.  FOREIGN with tensors: "safetensors" or "torch".  NULL: ours,
                           or an unknown form */
    const char *reason; /* what is wrong with it ("optimizer.pt is truncated"), or, if it is whole,
                           why no resume chooses it by itself ("is of another run (...)").  NULL
                           only if it is committed or complete */
    const char *naming; /* the template of its series' names; NULL: they are a prefix and the step,
                           or no series saved it */
    const char *target; /* SAVING, DEAD: the checkpoint that the save makes or made; NULL: unknown,
                           or not a save */
    enum sidestep_status status; /* UNREADABLE, DAMAGED: the status of opening it (EPERM, EIO,
                                    ECORRUPT ...); else SIDESTEP_OK */
    uint32_t small_files;        /* of ${files}: small files of ours, without aliases */
    uint64_t small_bytes;        /* of ${bytes} */
    /* Why the retention of the run that has the root keeps it: "newest", "last", "every" (its step
     * is kept), "best" (by a metric), "apart" (it shares no file with the newest), "pinned",
     * "only" (no other is valid), "all" (the run deletes nothing), "not-ours", "no-step",
     * "damaged", "unreadable", "unknown" (no run has recorded here what it keeps).  Decided by the
     * function that the run's prune uses.  NULL: the next prune deletes it; or it is no
     * checkpoint. */
    const char *kept;
    const char *kept_because; /* in words: "it is pinned"; NULL as ${kept} */
    const char *part_ranks;   /* PART: which of the ${ranks}, "0-7"; else NULL */
};
struct sidestep_list {
    size_t count;
    const void *entries; /* the library's: see sidestep_list_entry() */
    void *owner;
};
/**
 * sidestep_list_root(root, list, err): list what is under ${root}, hidden names included.  A
 * checkpoint is COMMITTED only if all its files are there, can be opened, and have the right size;
 * sidestep_verify() checks their bytes.  Checkpoints of other programs are recognized by their
 * names and files.  Each form has its own check for completeness: the file that is written last
 * must be there, and no file may be cut short; a file that names the latest checkpoint proves
 * nothing.  sidestep never deletes or renames them.  A symbolic link counts as what it leads to;
 * one that leads to another entry, or to nothing, is FOREIGN.  Uses up to 4 threads.
 * SIDESTEP_ENOTFOUND if ${root} is not a directory.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_list_root(const char *root, struct sidestep_list *list, struct sidestep_error *err);
/** sidestep_list_entry(list, i): by step, oldest first, then by name; NULL past the end.  It lives
 * as long as the list. */
SIDESTEP_API const struct sidestep_listed *sidestep_list_entry(const struct sidestep_list *list,
                                                               size_t i);
SIDESTEP_API void sidestep_list_release(struct sidestep_list *list);

/** struct sidestep_writer: one rank of a save, as storage shows it. */
struct sidestep_writer {
    uint32_t rank;
    uint32_t reserved;
    const char *state_name; /* "writing"; "sealed": written, but not voted for; "done": its bytes
                               are durable; "failed" */
    uint64_t bytes;         /* of its files */
    uint64_t written_bytes; /* of ${bytes}: already written */
};
/** struct sidestep_saving: a save that is under way, or that was killed. */
struct sidestep_saving {
    const char *name; /* of the checkpoint that it makes; NULL: unknown */
    const char *path; /* where it is being written */
    const char *save_id;
    const char *owner; /* "process 4711 on node-3", from its pending marker; NULL: unknown */
    int64_t step;      /* from its pending marker, or its name; -1: unknown */
    bool is_dead;      /* the process that began it has ended: it will not be finished.  False where
                          storage cannot tell */
    uint32_t rank_count; /* ranks that have begun to write; more may follow */
    uint32_t done_count; /* ... of which: */
    uint32_t failed_count;
    uint64_t bytes; /* of all its files so far */
    uint64_t written_bytes;
    uint64_t expected_bytes; /* of the newest checkpoint under the root; 0: there is none */
    uint32_t expected_ranks; /* that wrote that one; 0: unknown */
    uint32_t reserved;
    const void *writers; /* the library's: see sidestep_saving_writer() */
};
struct sidestep_saving_list {
    size_t count;
    const void *entries; /* the library's: see sidestep_saving_list_entry() */
    void *owner;
    size_t unread_count; /* "PATH: REASON": directories that could not be looked into, and may
                            contain a save */
    const char *const *unread;
    enum sidestep_status unread_status; /* of the first: EPERM, EIO ...; SIDESTEP_OK: none */
    uint32_t reserved;
};
/**
 * sidestep_list_saving(root, list, err): list the saves under ${root}, from what is on storage.  It
 * asks no process, and disturbs none.  Files are made with their final size, so holes in a file
 * show what is not written yet.  On storage that does not report holes, a file counts either as
 * written or as not written.  SIDESTEP_ENOTFOUND if ${root} is not a directory.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_list_saving(const char *root, struct sidestep_saving_list *list,
                     struct sidestep_error *err);
/** sidestep_saving_list_entry(list, i): by step, then by name; NULL past the end.
 * sidestep_saving_writer(saving, i): one of its ${rank_count} ranks, by rank; NULL past the end.
 * They live as long as the list. */
SIDESTEP_API const struct sidestep_saving *
sidestep_saving_list_entry(const struct sidestep_saving_list *list, size_t i);
SIDESTEP_API const struct sidestep_writer *
sidestep_saving_writer(const struct sidestep_saving *saving, size_t i);
SIDESTEP_API void sidestep_saving_list_release(struct sidestep_saving_list *list);

/** A checkpoint that is newer than the one that was found, and why it was not chosen. */
struct sidestep_passed_over {
    const char *path;
    const char *state_name; /* as in a listing.  "damaged": it was tried.  "committed": it may be
                               whole, and ${reason} says why no resume chooses it by itself */
    const char *reason;     /* "file '__1_0.distcp': it is missing" */
    int64_t step;           /* -1: unknown */
    enum sidestep_status status; /* with which it failed; SIDESTEP_OK: it was not tried */
    uint32_t reserved;
};
struct sidestep_latest_report {
    const char *path;   /* of the checkpoint; NULL: none was found */
    const char *layout; /* of the checkpoint: see struct sidestep_listed */
    int64_t step;       /* -1: unknown */
    int64_t saved_at;   /* seconds since 1970, for people; -1: unknown */
    const char *kept;   /* see struct sidestep_listed */
    const char *kept_because;
    size_t passed_count;
    const void *passed; /* the library's: see sidestep_latest_report_passed() */
    void *owner;
};
struct sidestep_verify_options;
/**
 * sidestep_find_latest(root, verify, options, report, err): find the newest checkpoint under
 * ${root} that passes ${verify}: the one that a resume of a series there takes.  It passes over
 * checkpoints that a resume has left behind, those of another run, and those that were copied or
 * renamed.  (It does not know whether the series is opened with ${max_restarts} or
 * SIDESTEP_SERIES_ANY_RUN.)  If sidestep can load none, it is the newest that is complete in
 * another program's form; only SIDESTEP_VERIFY_STRUCTURE accepts these, because they have no
 * checksums.  If a run deletes what was found meanwhile, the root is listed again.
 *
 * ${report} names the checkpoints that were passed over, also after a failure; release it in each
 * case.  ${options}: threads, progress of each checkpoint that is read, and cancel, as for
 * sidestep_verify(); may be NULL.  Blocks while it reads; any thread; not collective.
 *
 * Errors as for sidestep_series_load(): SIDESTEP_ENOTFOUND: there is none yet.  SIDESTEP_ECORRUPT:
 * there are some, and none is valid.  SIDESTEP_EMISMATCH: a resume chooses none of them by itself.
 * SIDESTEP_EPERM, SIDESTEP_EIO: one cannot be read now, so nobody knows whether it is valid, and no
 * older one is chosen.  Also: SIDESTEP_EINVAL if ${root} is itself a checkpoint, a file, or a
 * dangling link; SIDESTEP_ELOCKED if each one was deleted before it was looked at;
 * SIDESTEP_ECANCELLED.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_find_latest(const char *root, enum sidestep_verify_mode verify,
                     const struct sidestep_verify_options *options,
                     struct sidestep_latest_report *report, struct sidestep_error *err);
/**
 * sidestep_look(root, verify, options, list, report, err): sidestep_find_latest() and
 * sidestep_list_root() by one look.  On an object store it takes half of the requests.  ${list} is
 * filled whenever the root could be listed, whatever is returned; its ${owner} is NULL if it could
 * not.  Release it in each case.  Errors and the rest: as for sidestep_find_latest().
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_look(const char *root, enum sidestep_verify_mode verify,
              const struct sidestep_verify_options *options, struct sidestep_list *list,
              struct sidestep_latest_report *report, struct sidestep_error *err);
/** sidestep_latest_report_passed(report, i): newest first; NULL past the end.  It lives as long as
 * the report. */
SIDESTEP_API const struct sidestep_passed_over *
sidestep_latest_report_passed(const struct sidestep_latest_report *report, size_t i);
SIDESTEP_API void sidestep_latest_report_release(struct sidestep_latest_report *report);

/** A checkpoint opened for reading.  Its files stay open, so it stays readable if it is deleted. */
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
    uint64_t shared_bytes; /* of ${bytes}: written by an earlier save, whose checkpoint shares
                              them (SIDESTEP_SERIES_INCREMENTAL) */
    size_t damaged_count;  /* files that are missing, cut short, or of another save */
    const char *damage;    /* of the first: "file '__1_0.distcp': it is missing"; NULL: none */
    size_t unread_count;   /* files that cannot be read now; they may be whole */
    const char *unread;    /* of the first: "file '__1_0.distcp': ... Permission denied"; or NULL */
    enum sidestep_status unread_status; /* of the first: EPERM, EIO ...; SIDESTEP_OK: none */
    uint32_t reserved2;
};
#define SIDESTEP_CHECKPOINT_INFO_INIT SIDESTEP_INIT(struct sidestep_checkpoint_info)

/** One stored chunk of a tensor, or the bytes of an object (with an ndim of 0). */
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
    const char *dtype_name; /* set even if dtype is SIDESTEP_DTYPE_NONE; NULL for objects */
    uint32_t ndim;
    const int64_t *shape;
    uint64_t bytes;     /* of the whole tensor; stored bytes of an object */
    size_t chunk_count; /* 1 for an object */
    const struct sidestep_chunk *chunks;
    uint32_t path_length; /* 0: no path is recorded, and ${path} is NULL */
    const struct sidestep_path_item *path;
};

/**
 * sidestep_checkpoint_open(path, &checkpoint, err): open a checkpoint, of torch or ours, or another
 * file with tensors: see enum sidestep_format.  A checkpoint with damaged files is opened, too.
 * Whatever is in its other files can be read.  Reading from a damaged one fails, and the message
 * says which file it is and what is wrong with it; see ${damage} of struct
 * sidestep_checkpoint_info.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_checkpoint_open(const char *path, struct sidestep_checkpoint **checkpoint,
                         struct sidestep_error *err);
SIDESTEP_API void sidestep_checkpoint_close(struct sidestep_checkpoint **checkpoint);
/** sidestep_checkpoint_info(checkpoint, info): its strings live as long as the checkpoint. */
SIDESTEP_API enum sidestep_status
sidestep_checkpoint_info(const struct sidestep_checkpoint *checkpoint,
                         struct sidestep_checkpoint_info *info);
/** The number of tensors and objects; they are sorted by name, and live as long as the checkpoint.
 */
SIDESTEP_API size_t sidestep_checkpoint_count(const struct sidestep_checkpoint *checkpoint);
SIDESTEP_API const struct sidestep_entry *
sidestep_checkpoint_entry(const struct sidestep_checkpoint *checkpoint, size_t i);
/** sidestep_checkpoint_find(checkpoint, name): NULL if there is none. */
SIDESTEP_API const struct sidestep_entry *
sidestep_checkpoint_find(const struct sidestep_checkpoint *checkpoint, const char *name);

/**
 * sidestep_checkpoint_read_tensor(checkpoint, name, offsets, lengths, data, bytes, err):
 * Read a box of a tensor into ${data}: row-major, contiguous, little-endian.  ${bytes} must be the
 * box's size.  NULL ${offsets} and ${lengths}: the whole tensor.  Every byte is verified.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_checkpoint_read_tensor(struct sidestep_checkpoint *checkpoint, const char *name,
                                const int64_t *offsets, const int64_t *lengths, void *data,
                                size_t bytes, struct sidestep_error *err);

/** sidestep_checkpoint_read_bytes(..., &bytes, &length): the stored bytes of an object, or of a
 * tensor that only PyTorch can decode: quantised, or of a class of its own.  Free them with
 * sidestep_bytes_free().  SIDESTEP_EINVAL: it is a tensor that can be read.  SIDESTEP_EUNSUPPORTED:
 * the tensor is stored in several parts. */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_checkpoint_read_bytes(struct sidestep_checkpoint *checkpoint, const char *name,
                               void **bytes, size_t *length, struct sidestep_error *err);

/** A small file of a checkpoint: see sidestep_state_dict_add_file(). */
struct sidestep_file {
    const char *name;
    const char *stored; /* the name of the file in the checkpoint that has the bytes */
    uint64_t bytes;
    uint32_t rank; /* that gave it to the save */
    bool is_alias; /* a link to the checkpoint, without bytes */
    char sha256[65];
};
/** The number of small files, and one of them; they live as long as the checkpoint. */
SIDESTEP_API size_t sidestep_checkpoint_file_count(const struct sidestep_checkpoint *checkpoint);
SIDESTEP_API const struct sidestep_file *
sidestep_checkpoint_file(const struct sidestep_checkpoint *checkpoint, size_t i);
/**
 * sidestep_checkpoint_read_file(checkpoint, name, &bytes, &length, err):
 * Read a small file as a whole, and check its hash.  Free ${*bytes} with sidestep_bytes_free().
 * Blocks; one thread at a time.
 *
 * Errors: SIDESTEP_ENOTFOUND: the checkpoint lists none of this name.  SIDESTEP_ECORRUPT: it is
 * missing or was changed.  SIDESTEP_EINVAL: it is a link to the checkpoint.  SIDESTEP_EPERM,
 * SIDESTEP_EIO, SIDESTEP_ETIMEDOUT: it cannot be read now.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_checkpoint_read_file(struct sidestep_checkpoint *checkpoint, const char *name,
                              void **bytes, size_t *length, struct sidestep_error *err);
/**
 * sidestep_read_file(path, name, most, &bytes, &length, err):
 * Read file ${name} of the directory or URL ${path} as a whole, such as ".metadata".  Free
 * ${*bytes} with sidestep_bytes_free().  Nothing is verified.  Blocks; any thread.
 *
 * Errors: SIDESTEP_ENOTFOUND: there is none.  SIDESTEP_ECORRUPT: it has more than ${most} bytes.
 * SIDESTEP_EPERM, SIDESTEP_EIO, SIDESTEP_ETIMEDOUT: it cannot be read now; EIO also if it is no
 * regular file, or a symbolic link to nothing.  SIDESTEP_EINVAL, SIDESTEP_EUNSUPPORTED: ${path}
 * (sidestep_check_path()).
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_read_file(const char *path, const char *name, uint64_t most, void **bytes, size_t *length,
                   struct sidestep_error *err);
/**
 * sidestep_decode(transform, stored, length, most, &bytes, &bytes_length, err):
 * Decode an item, for programs that read the files by themselves.  ${stored} are its ${length}
 * bytes, and ${transform} is what the checkpoint records for it ("stream.zstd/1",
 * "sidestep.planes/1").  Free ${bytes}, the item, with sidestep_bytes_free().  SIDESTEP_ECORRUPT:
 * it is damaged, or has more than ${most} bytes.  Hashes are not checked.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_decode(const char *transform, const void *stored, size_t length, uint64_t most,
                void **bytes, size_t *bytes_length, struct sidestep_error *err);
/** sidestep_checkpoint_read_value(..., &value): an object, decoded.  Free it with
 * sidestep_value_free().  Of a tensor that only PyTorch can decode: a SIDESTEP_VALUE_OPAQUE that
 * says what it is, its class or "a quantised tensor".  SIDESTEP_EINVAL: it is a tensor that can be
 * read. */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_checkpoint_read_value(struct sidestep_checkpoint *checkpoint, const char *name,
                               struct sidestep_value **value, struct sidestep_error *err);

/** Statistics of the elements of a tensor. */
struct sidestep_tensor_stats {
    const char *name; /* the caller's */
    uint64_t element_count;
    uint64_t nan_count;
    uint64_t inf_count;
    bool has_range; /* ${min} and ${max} are set, over all elements except NaN */
    bool has_mean;  /* ${mean} is set, over the finite elements */
    double min;     /* none of the three for complex dtypes, and for dtypes that are only bits */
    double max;
    double mean;
};

/**
 * sidestep_checkpoint_stats(checkpoint, stats, count, options, err):
 * Read the tensors stats[i].name, and fill in the other fields.  Every byte that has a checksum is
 * verified.  ${options}: threads, progress and cancel as for sidestep_verify(); may be NULL.
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
/** A file that was read to its end, but has no checksum of its bytes. */
struct sidestep_unchecked {
    const char *file; /* relative to the path that was verified */
    const char *what; /* "safetensors" (whole in its structure), "JSON", "a pickle" ... */
};
struct sidestep_verify_report {
    bool is_ok;
    uint32_t unlisted_count; /* problems that were found beyond those that are listed */
    uint64_t checked_bytes;
    size_t problem_count;
    const void *problems; /* the library's: see sidestep_verify_report_problem() */
    void *owner;
    enum sidestep_status status; /* of all problems together: SIDESTEP_OK: there are none;
                                    ECORRUPT: there is damage; EUNCOMMITTED: it was not written
                                    completely; EPERM, EIO: files may not, or could not, be read,
                                    and nothing worse is known */
    uint32_t reserved;
    size_t unchecked_count; /* files that other programs wrote without checksums; not problems */
    const void *unchecked;  /* the library's: see sidestep_verify_report_unchecked() */
};
struct sidestep_verify_options {
    size_t struct_size;
    uint32_t threads; /* 0: by the machine */
    uint32_t flags;   /* none yet */
    void (*on_progress)(void *context, uint64_t done_bytes, uint64_t total_bytes);
    void *context;
    const bool volatile *cancel; /* set to true to stop with SIDESTEP_ECANCELLED; may be NULL */
};
#define SIDESTEP_VERIFY_OPTIONS_INIT SIDESTEP_INIT(struct sidestep_verify_options)

/**
 * sidestep_verify(path, options, report, err): read everything at ${path}, and check every byte
 * that has a hash.  SIDESTEP_OK: it was read; report->status is the result.
 *
 * Of torch's own checkpoints it checks structure, coverage, and CRC32 where it was written.  It
 * checks what other programs wrote file by file: DCPs in directories, files of torch.save()
 * (CRC32), safetensors (structure).  sidestep_verify_report_unchecked() names what has no
 * checksums.  ${path} may be a file, a directory of a known form (see ${layout} of struct
 * sidestep_listed), or a directory with files of tensors and no checkpoints.  A file that may not
 * be read is one problem, not one for each of its tensors.
 *
 * Errors: SIDESTEP_EUNCOMMITTED: there is no checkpoint.  SIDESTEP_ENOTFOUND, SIDESTEP_EPERM,
 * SIDESTEP_EIO: it could not be opened.  SIDESTEP_ECANCELLED.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_verify(const char *path, const struct sidestep_verify_options *options,
                struct sidestep_verify_report *report, struct sidestep_error *err);
/** sidestep_verify_report_problem(report, i), sidestep_verify_report_unchecked(report, i): NULL
 * past the end.  They live as long as the report. */
SIDESTEP_API const struct sidestep_problem *
sidestep_verify_report_problem(const struct sidestep_verify_report *report, size_t i);
SIDESTEP_API const struct sidestep_unchecked *
sidestep_verify_report_unchecked(const struct sidestep_verify_report *report, size_t i);
SIDESTEP_API void sidestep_verify_report_release(struct sidestep_verify_report *report);

/** struct sidestep_difference: a name that only one of two checkpoints has, or that differs. */
struct sidestep_difference {
    const char *name;
    const char *kind;    /* "only_a", "only_b", "kind" (tensor or object), "dtype", "shape", "value"
                            (of an object), "data" (of a tensor), "file" (a small file) */
    const char *message; /* in words */
    /* Of "data" only: */
    uint64_t element_count; /* elements whose bits differ */
    double max_abs;         /* the largest |a - b|; infinity where only one of them is NaN; NaN for
                               dtypes that are not numbers */
    double max_rel;         /* the largest |a - b| / max(|a|, |b|); infinity and NaN as above */
    uint32_t ndim;
    uint32_t reserved;
    const int64_t *first; /* index of the first element that differs */
};
struct sidestep_diff_report {
    bool is_same;
    uint32_t reserved;
    size_t same_count;   /* names that do not differ ... */
    size_t same_by_hash; /* ... of which tensors and files with equal stored hashes: not read */
    uint64_t read_bytes; /* of tensors, from each of the two */
    size_t difference_count;
    const void *differences; /* the library's: see sidestep_diff_report_difference() */
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
#define SIDESTEP_DIFF_OPTIONS_INIT SIDESTEP_INIT(struct sidestep_diff_options)

/**
 * sidestep_diff(a, b, options, report, err): compare two checkpoints by name: which tensors and
 * objects they have, and by how much these differ.  Programs and shardings may differ.  Small files
 * are compared if sidestep wrote both.
 * SIDESTEP_OK: they were compared; see report->is_same.  All that is read is verified; tensors with
 * equal stored hashes are not read.  ${options}: threads, progress and cancel as for
 * sidestep_verify(); may be NULL.  It uses about 100 MiB, and memory for the names; torch's chunks,
 * which have no hashes of blocks, are held whole.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_diff(const char *a, const char *b, const struct sidestep_diff_options *options,
              struct sidestep_diff_report *report, struct sidestep_error *err);
/** sidestep_diff_report_difference(report, i): by name; those of small files follow.  NULL past the
 * end.  It lives as long as the report. */
SIDESTEP_API const struct sidestep_difference *
sidestep_diff_report_difference(const struct sidestep_diff_report *report, size_t i);
SIDESTEP_API void sidestep_diff_report_release(struct sidestep_diff_report *report);

/** Only report what would be removed. */
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
 * sidestep_gc(parent, flags, report, err): remove what killed saves and deletes left in ${parent}.
 * Touches only our own names whose owner is dead; never a checkpoint, never .bad.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status sidestep_gc(const char *parent, uint32_t flags,
                                                                struct sidestep_gc_report *report,
                                                                struct sidestep_error *err);
SIDESTEP_API void sidestep_gc_report_release(struct sidestep_gc_report *report);

/**
 * sidestep_prune(root, retention, flags, report, err):
 * Do by hand what a series does by itself: delete those of our checkpoints under ${root} that
 * ${retention} does not keep, whichever run made them.  ${flags}: SIDESTEP_GC_DRY_RUN.  ${report}
 * is that of sidestep_gc().  SIDESTEP_ELOCKED: a run has the series open.
 * If storage refuses a deletion, or a part of one, the others are done, and the failure of the
 * first is returned.  ${report} is filled in, too, and must be released.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_prune(const char *root, const struct sidestep_retention *retention, uint32_t flags,
               struct sidestep_gc_report *report, struct sidestep_error *err);

/**
 * sidestep_delete(path, err):
 * Delete one checkpoint of ours, in a directory or a bucket, as sidestep_prune() does: first nobody
 * finds it any more, then its files go. What a kill leaves is no checkpoint, and sidestep_gc()
 * removes it. The caller knows that no run needs it. Durable when it returns. Blocks; any thread;
 * not collective.
 *
 * Errors: SIDESTEP_ENOTFOUND: there is no whole checkpoint of ours. SIDESTEP_ELOCKED: it stays,
 * because it is pinned, is being read or replaced, or has files of others in it. SIDESTEP_EPERM: it
 * stays. SIDESTEP_EIO, SIDESTEP_ETIMEDOUT: storage does not answer; it may be gone, so delete it
 * again. SIDESTEP_EINVAL, SIDESTEP_EUNSUPPORTED: ${path} (sidestep_check_path()).
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status sidestep_delete(const char *path,
                                                                    struct sidestep_error *err);

/**
 * sidestep_pin(path, on, err): protect a checkpoint from retention (${on}), or no longer.  Durable
 * when it returns.  A run may have the series open.  SIDESTEP_ENOTFOUND: it does not exist, or was
 * deleted meanwhile.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status sidestep_pin(const char *path, bool on,
                                                                 struct sidestep_error *err);
/** sidestep_tag(path, tag, on, err): add a tag to a checkpoint, or remove it; like sidestep_pin().
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_tag(const char *path, const char *tag, bool on, struct sidestep_error *err);

/**
 * sidestep_rebuild(path, err): write `.metadata` and manifest anew from the footers of the shards,
 * for a directory whose `.metadata` was lost or damaged.  Refused if the shards are not one whole
 * save, or if there is a readable `.metadata`.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status sidestep_rebuild(const char *path,
                                                                     struct sidestep_error *err);

/* ---------------------------------------------------------------- other formats */

/*
 * A path that is read (sidestep_load(), sidestep_checkpoint_open(), sidestep_convert()) may be
 * a checkpoint, or: a file of safetensors; a directory of them, as Hugging Face's libraries write
 * it; a file of torch.save() (the zip format, of dicts and lists, flattened as
 * torch.distributed.checkpoint does).  The content decides which it is.  Nothing in a pickle is
 * executed.  Safetensors have no checksums: only sizes and structure are checked.
 */

enum sidestep_format {
    SIDESTEP_FORMAT_AUTO,        /* by the name of the destination, see sidestep_convert() */
    SIDESTEP_FORMAT_DCP,         /* a checkpoint of ours */
    SIDESTEP_FORMAT_SAFETENSORS, /* a directory; one file if its name ends in .safetensors */
    SIDESTEP_FORMAT_TORCH,       /* a file of torch.save() */
    SIDESTEP_FORMAT_NPZ,         /* a file of NumPy's savez() */
};

/** What to do with objects that the format cannot hold: all objects in safetensors and npz; in
 * torch.save(), those that are not None, bool, int, float, str, bytes, list, tuple or dict. */
enum sidestep_objects {
    SIDESTEP_OBJECTS_REFUSE, /* fail, and name the first */
    SIDESTEP_OBJECTS_SKIP,   /* leave them out; the report lists them */
};

/** Replace what is at the destination, if it looks like the output of a conversion. */
#define SIDESTEP_CONVERT_REPLACE 1u
/** Only the weights: see sidestep_convert(). */
#define SIDESTEP_CONVERT_MODEL_ONLY 2u
/** Do everything but write data; the report says what would be written. */
#define SIDESTEP_CONVERT_DRY_RUN 4u
/** Convert what can be read and verified of a damaged checkpoint; leave out and report the rest. */
#define SIDESTEP_CONVERT_PARTIAL 8u

struct sidestep_convert_options {
    size_t struct_size;
    enum sidestep_format to;
    enum sidestep_objects objects;
    uint32_t flags;   /* SIDESTEP_CONVERT_* */
    uint32_t ranks;   /* DCP: write shard files as so many ranks would, one after the other; at most
                         64; 0: 1 */
    uint32_t threads; /* at most 64; 0: by number of cores.  Memory limits them further: to a
                         checkpoint 16; compressed 8, with a level of zstd 4, from level 10 on 3; to
                         files 10 */
    enum sidestep_dtype dtype;  /* convert all tensors of float64, float32, float16, bfloat16,
                                   float8_e4m3fn and float8_e5m2 to it, rounding to nearest, ties
                                   to even; NONE: leave them */
    uint64_t max_shard_bytes;   /* of tensors in one safetensors file of a directory; 0: 5 GB.  A
                                   larger tensor gets a file of its own */
    const char *const *include; /* patterns of fnmatch(3) for names in the source */
    size_t include_count;       /* 0: all */
    const char *const *exclude;
    size_t exclude_count;
    const char *const *rename; /* "s/PATTERN/REPLACEMENT/": a POSIX extended regular expression;
                                  \1 to \9 and & in the replacement; a final g: all matches.
                                  Each is applied to all names, one after the other */
    size_t rename_count;
    const char *mapping;  /* a file: a JSON object of names and new names; after ${rename} */
    const char *compress; /* DCP: "none", "zstd", "zstd:LEVEL", "planes", or "auto", which here
                             means planes, because no training waits; NULL: none */
    void (*on_progress)(void *context, uint64_t done_bytes, uint64_t total_bytes);
    void *context;
    const bool volatile *cancel; /* set to true to stop with SIDESTEP_ECANCELLED; may be NULL */
};
#define SIDESTEP_CONVERT_OPTIONS_INIT SIDESTEP_INIT(struct sidestep_convert_options)

struct sidestep_convert_report {
    const char *from; /* "sidestep", "dcp", "safetensors", "torch" */
    const char *to;   /* "dcp", "safetensors", "torch", "npz" */
    size_t tensor_count;
    size_t object_count;   /* in the destination */
    uint64_t tensor_bytes; /* in the destination */
    uint64_t bytes_read;   /* from storage */
    size_t file_count;     /* files of the destination, relative to it; a single file: its name */
    const char *const *files;
    size_t left_out_count; /* names of objects that are not in the destination */
    const char *const *left_out;
    size_t overflow_count; /* "NAME: COUNT": tensors with elements that became infinite or NaN in
                              the conversion to ${dtype} */
    const char *const *overflows;
    size_t narrowed_count; /* "NAME: float32 to bfloat16": tensors converted to a dtype that lacks
                              values of their own */
    const char *const *narrowed;
    size_t lost_count; /* "NAME: REASON": tensors and objects that SIDESTEP_CONVERT_PARTIAL left
                          out, because they are damaged or cannot be read */
    const char *const *lost;
    void *owner;
    enum sidestep_status lost_status; /* SIDESTEP_OK: nothing is lost.  ECORRUPT: there is damage.
                                         EPERM, EIO: files may not, or could not, be read */
    uint32_t reserved;
};

/**
 * sidestep_convert(source, destination, options, report, err):
 * Write what is at ${source} to ${destination} in another format, or in the same format with other
 * names, dtypes or files.  This process does it alone, in pieces: memory stays below 256 MiB
 * whatever the size.  The exceptions are objects, compressed tensors, and tensors that are not
 * stored row-major, which are decoded one by one.  Every byte that has a checksum is checked.
 * ${options} and ${report} may be NULL.
 *
 * The destination is whole and durable when this returns, or it does not exist.  Its parent must
 * exist.  It must not exist before, or be an empty directory, unless SIDESTEP_CONVERT_REPLACE.
 * The next conversion to the same destination, or sidestep_gc(), removes what a killed one left
 * beside it.  ${source} is not changed.
 *
 * AUTO: a destination that ends in .safetensors, .npz, .pt, .pth or .bin is a file of that kind.
 * Any other is a directory: safetensors if ${source} is a checkpoint, else DCP.  With
 * SIDESTEP_CONVERT_PARTIAL it is always DCP, because the rest of a checkpoint should be a
 * checkpoint again, and safetensors cannot hold its objects.
 *
 * SIDESTEP_CONVERT_MODEL_ONLY: if the source has a dict called model, model_state_dict,
 * state_dict, module or app.model at its top, take only that dict, without its name.  Else take all
 * but the dicts at its top that are called optim, optimizer, optimizers, optimizer_state_dict,
 * optimizer_states, opt, lr_scheduler, lr_schedulers, lr_scheduler_state_dict, scheduler,
 * dataloader, train_state, rng, rng_state and loops.  Never take objects.  EMISMATCH, with the
 * names at the top: there are two of the former dicts, or what is left without the latter contains
 * the state of an optimizer.
 *
 * SIDESTEP_CONVERT_PARTIAL, for a damaged checkpoint: all of it is verified first, as by
 * sidestep_verify() (with ${on_progress}, which then starts anew), and what fails is left out.
 * SIDESTEP_ECORRUPT if no tensor passes, or if the metadata or the manifest is damaged.
 *
 * A DCP destination gets the small files of the source, unless SIDESTEP_CONVERT_MODEL_ONLY; other
 * formats have none.
 *
 * Tensors in a DCP or torch.save() destination keep their nesting.  If they were renamed, or if the
 * source has only names, they are at the top.  Two names of one tensor in torch.save() stay so in
 * torch.save(), and become two tensors elsewhere.
 *
 * Errors: SIDESTEP_EEXISTS, SIDESTEP_EINVAL for an option, SIDESTEP_EUNSUPPORTED for what the
 * format cannot hold, SIDESTEP_EMISMATCH if nothing is selected or two names become one, those of
 * reading, those of sidestep_save() (SIDESTEP_EUNKNOWN, too), SIDESTEP_ENOSPC, SIDESTEP_EIO,
 * SIDESTEP_ECANCELLED.  If only the report runs out of memory, the conversion succeeds and the
 * report is zeros.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_convert(const char *source, const char *destination,
                 const struct sidestep_convert_options *options,
                 struct sidestep_convert_report *report, struct sidestep_error *err);
SIDESTEP_API void sidestep_convert_report_release(struct sidestep_convert_report *report);

/* ---------------------------------------------------------------- copies */

/** Replace the checkpoint that is at the destination. */
#define SIDESTEP_COPY_REPLACE 1u

struct sidestep_copy_options {
    size_t struct_size;
    uint32_t flags;   /* SIDESTEP_COPY_* */
    uint32_t threads; /* at most 64; 0: by number of cores, and 16 with an object store */
    void (*on_progress)(void *context, uint64_t done_bytes, uint64_t total_bytes);
    void *context;
    const bool volatile *cancel; /* set to true to stop with SIDESTEP_ECANCELLED; may be NULL */
};
#define SIDESTEP_COPY_OPTIONS_INIT SIDESTEP_INIT(struct sidestep_copy_options)

struct sidestep_copy_report {
    char save_id[40];      /* of the checkpoint, and of its copy; "": it is not one of ours */
    int64_t step;          /* -1: unknown */
    uint64_t file_count;   /* of the checkpoint: data files */
    uint64_t bytes;        /* in them */
    uint64_t copied_count; /* by this call; the others were there already, whole */
    uint64_t copied_bytes;
};

/**
 * sidestep_copy(source, destination, options, report, err):
 * Copy the checkpoint at ${source} to ${destination}.  Each may be a path or the URL of an object
 * store (s3://BUCKET/PREFIX).  The copy has the same bytes, so the same save id, manifest and names
 * of files.  ${options} and ${report} may be NULL.  This process does it alone.  Memory: 8 MiB for
 * each thread, and at an object store up to 10 parts of each file that is being written.
 *
 * Every byte is checked by its hash when it is read, and no byte is written that fails.  A
 * checkpoint of PyTorch has fewer checksums: its copy is read once more and checked by those.
 *
 * The copy is whole and durable when this returns, or it does not exist: it appears in one step, as
 * a save does.  The parent of a path must exist.  The destination must not exist, or be an empty
 * directory.  If it is a whole copy of this very save already, nothing is copied, and the call
 * succeeds.  With SIDESTEP_COPY_REPLACE it may hold another checkpoint, or a damaged copy; in a
 * directory, nothing but that.  What is replaced stays until the copy takes its place.
 *
 * After SIDESTEP_ECANCELLED, EIO and the like, and after a kill, the same call goes on: it checks
 * files that are there by their hashes, and copies those that are missing or damaged.  After
 * SIDESTEP_ENOSPC in a directory, nothing is left: the space is free again at once.
 * sidestep_gc() removes an unfinished copy (at an object store once it is an hour old), and so does
 * a save to the same destination.
 *
 * Files that an incremental save shares with other checkpoints are copied, and are not shared any
 * more.  Pins, tags and metrics belong to the root, and are not copied.
 *
 * Errors: SIDESTEP_EEXISTS; SIDESTEP_EINVAL: source and destination are one place;
 * SIDESTEP_ELOCKED: another process copies there now;
 * SIDESTEP_ECORRUPT: the source is damaged; SIDESTEP_EUNSUPPORTED: it has files in subdirectories,
 * or no `.metadata`; those of reading and of sidestep_save() (SIDESTEP_EUNKNOWN, too).
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_copy(const char *source, const char *destination,
              const struct sidestep_copy_options *options, struct sidestep_copy_report *report,
              struct sidestep_error *err);

/* ---------------------------------------------------------------- a mirror of a series */

struct sidestep_mirror_options {
    size_t struct_size;
    uint32_t flags;   /* must be 0 */
    uint32_t threads; /* at most 64; 0: 4 to a bucket, else 2 */
    uint64_t every;   /* send a checkpoint only if its step is at least so many after the newest one
                         at the mirror; 0: 1 */
    const struct sidestep_retention *retention; /* what stays at the mirror; copied; NULL: all.
                                                   With ${keep_every} a checkpoint of such a step is
                                                   sent even if a newer one is there already.
                                                   ${keep_best} goes by the metrics there */
    uint64_t bytes_per_second;                  /* at most so many are written; 0: no limit */
    void (*on_progress)(void *context, uint64_t done_bytes, uint64_t total_bytes); /* of one
                                                                                      checkpoint */
    void *context;
    const bool volatile *cancel; /* set to true to stop with SIDESTEP_ECANCELLED; may be NULL */
};
#define SIDESTEP_MIRROR_OPTIONS_INIT SIDESTEP_INIT(struct sidestep_mirror_options)

struct sidestep_mirror_report {
    int64_t step;          /* of the newest whole checkpoint at the near level; -1: none */
    int64_t mirrored_step; /* of the newest one at the mirror, as the call ends; -1: none */
    uint64_t bytes;        /* that this call wrote to the mirror */
    size_t sent_count;
    const char *const *sent; /* paths of the new checkpoints at the mirror, in this order */
    size_t passed_count;
    const char *const *passed; /* "PATH: REASON": checkpoints of the near level that are not at the
                                  mirror */
    size_t removed_count;
    const char *const *removed;         /* paths that the retention has deleted at the mirror */
    enum sidestep_status passed_status; /* ECORRUPT ...: a checkpoint of the near level is damaged,
                                           and an older one was taken; else SIDESTEP_OK */
    uint32_t reserved;
    void *owner;
};

/**
 * sidestep_mirror(root, mirror, options, report, err):
 * Bring ${mirror} up to date: another root, a path or the URL of an object store, that gets the
 * checkpoints of the series at ${root}.  The parent of a path must exist.  What is to be done is
 * found out from both places, so this call goes on where another process was interrupted, and any
 * number of processes may make it.
 *
 * The newest checkpoint is sent first.  Older ones are sent only if they are pinned or named by
 * ${keep_every}; ${report} lists the others as passed.  A checkpoint is sent as by sidestep_copy():
 * every byte is checked by its hash as it is read, and the copy is whole and durable, or it does
 * not exist.  If it is damaged, the next older one is taken.  Pins, tags and metrics go with it,
 * and those that are set later follow.  A pin at either place holds there until it is removed
 * there.
 *
 * ${retention} concerns the mirror only, and only checkpoints of this run.  It deletes nothing if a
 * run has the mirror open as its own root.  What interrupted copies left at the mirror is removed
 * when nothing is left to be sent.  Nothing at ${root} is changed.
 *
 * Parts of checkpoints (SIDESTEP_SERIES_PER_NODE) are sent by such a call on each node, at the same
 * time, when the run is over.  The node that has the part of rank 0 publishes.  Each call returns
 * when the checkpoint is at the mirror.  While the run goes on, they are passed over with
 * EMISMATCH: it sends them itself.
 *
 * It works in a thread of its own, with low priority, and blocks the caller until that has ended.
 * Memory as for sidestep_copy().  Any thread; not collective.  ${options} and ${report} may be
 * NULL.  The report is filled also after a failure; release it in any case.
 *
 * Errors: SIDESTEP_ENOTFOUND: there is no series at ${root} (yet).  SIDESTEP_EMISMATCH: the mirror
 * has checkpoints of another run.  SIDESTEP_EABORTED: the mirror has checkpoints of a later
 * incarnation of the run, so what is at ${root} is outdated.  SIDESTEP_EINVAL: both are one place,
 * or an option is wrong.  SIDESTEP_EPEER, SIDESTEP_ETIMEDOUT: another node has no whole part of the
 * newest, or sent nothing for ten minutes; older ones were tried.  Those of sidestep_copy().  After
 * all of them, what is at the mirror is whole.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_mirror(const char *root, const char *mirror, const struct sidestep_mirror_options *options,
                struct sidestep_mirror_report *report, struct sidestep_error *err);
SIDESTEP_API void sidestep_mirror_report_release(struct sidestep_mirror_report *report);

/* ---------------------------------------------------------------- what a machine allows */

enum sidestep_allowed {
    SIDESTEP_ALLOWED_NO, /* sidestep does it in another way, which costs something: see ${fix} */
    SIDESTEP_ALLOWED_PARTLY, /* with a limit: see ${text} */
    SIDESTEP_ALLOWED_YES,
    SIDESTEP_ALLOWED_FACT, /* needs no permission; worth knowing */
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
    const void *findings; /* the library's: see sidestep_doctor_report_finding() */
    void *owner;
};
/**
 * sidestep_doctor(directory, report, err):
 * Try out what makes saves and loads fast here: for this process, with this user's rights, and for
 * files in ${directory}.  Makes a file of one page there, and unlinks it before use.  If that is
 * not allowed, the findings say so.  A "no" is a finding, not a failure.  What it says about pinned
 * and merged memory is true of this process only.  For a training process, see ${copy_reason} of
 * its saves.
 * SIDESTEP_ENOTFOUND if there is no such directory.
 */
SIDESTEP_API SIDESTEP_MUST_USE enum sidestep_status
sidestep_doctor(const char *directory, struct sidestep_doctor_report *report,
                struct sidestep_error *err);
/** sidestep_doctor_report_finding(report, i): NULL past the end.  It lives as long as the report.
 */
SIDESTEP_API const struct sidestep_finding *
sidestep_doctor_report_finding(const struct sidestep_doctor_report *report, size_t i);
SIDESTEP_API void sidestep_doctor_report_release(struct sidestep_doctor_report *report);

#ifdef __cplusplus
}
#endif
#endif
