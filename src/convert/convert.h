/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * convert.h -- writes a checkpoint or a file of tensors in another format.
 *
 * sidestep_convert(): convert_select.c decides which tensors and objects the destination gets.
 * Then either convert_dcp.c makes a save of them, or convert_safetensors.c and convert_zip.c lay
 * out files, convert_write.c fills them with several threads, and copy/export.h publishes them.
 *
 * What comes in: the source, opened by checkpoint/checkpoint.h, and a path or URL for the result.
 * What goes out: the result, whole and durable, or nothing; and a report of what was left out.
 *
 * Ownership: struct conversion owns all that is allocated during the call; its arena frees it at
 * the end. The source is only read.
 *
 * Threads: the call blocks. convert_write.c starts its own threads, and ends them before it
 * returns. A conversion to DCP opens an engine for the call.
 */
#ifndef CONVERT_CONVERT_H
#define CONVERT_CONVERT_H

#include <stdatomic.h>

#include "checkpoint/checkpoint.h"
#include "copy/copy.h"
#include "load/load.h"
#include "sidestep/sidestep_tools.h"

#define CONVERT_WINDOW_BYTES ((uint64_t)16 << 20) /* what a thread writes at once */
#define CONVERT_SCRATCH_BYTES ((uint64_t)4 << 20) /* elements, before and after conversion */

/* A tensor of the destination. */
struct convert_tensor {
    const struct metadata_entry *from;
    size_t entry; /* index in the metadata of the source */
    const char *name;
    enum sidestep_dtype dtype;
    uint64_t bytes;
    uint32_t path_length; /* 0: the path is the name alone */
    const struct sidestep_path_item *path;
    _Atomic uint64_t overflows;
};

struct convert_object {
    const struct metadata_entry *from;
    const char *name;
    uint32_t path_length;
    const struct sidestep_path_item *path;
    struct sidestep_value *value; /* owned; set for formats that hold values */
};

struct conversion {
    struct sidestep_convert_options options;
    enum sidestep_format to;
    const char *source;
    const char *destination;
    unsigned threads;
    struct arena arena;
    struct store *store; /* of the source; owned, see object/object_path.h */
    struct reader *reader;
    struct tensor_reader *bytes;
    struct convert_tensor *tensors; /* in the order in which the source stores them */
    size_t tensor_count;
    struct convert_object *objects;
    size_t object_count;
    uint64_t total_bytes; /* of tensors in the destination */
    const char **files;
    size_t file_count, file_capacity;
    const char **left_out;
    size_t left_out_count;
    struct hash_table damaged; /* names in the source that failed verification ... */
    const char **reasons;      /* ... and why, by their numbers in the table */
    const char **lost;         /* "NAME: REASON", of those that were selected */
    size_t lost_count;
    enum sidestep_status lost_status; /* of the source: verify_findings_judge() */
    atomic_bool failed;               /* a rank failed to save; shared.err is the reason */
    struct {
        struct lock lock LOCK_KIND(CONVERT);
        uint64_t done_bytes GUARDED_BY(&lock);
        struct sidestep_error err GUARDED_BY(&lock);
    } shared;
};

/* ---- convert_select.c: which tensors and objects are converted, and their new names ---- */

enum sidestep_status convert_select(struct conversion *c, struct sidestep_error *err);

/* ---- convert_partial.c: what can be read of a damaged source ---- */

/* Verify the source, and record what fails. */
enum sidestep_status convert_find_damaged(struct conversion *c, struct sidestep_error *err);
/* Find out whether ${entry}, which was selected, is damaged, and if so, record it for the report.
 */
enum sidestep_status convert_is_damaged(struct conversion *c, const struct metadata_entry *entry,
                                        bool *is_lost, struct sidestep_error *err);
/* Record for the report that ${name} is lost: at most once for each entry and small file. */
enum sidestep_status convert_add_lost(struct conversion *c, const char *name, const char *reason,
                                      struct sidestep_error *err);
/* ---- convert_model.c: which part of a training state is its model ---- */

struct convert_model {
    bool wanted;      /* convert only the model; otherwise everything */
    const char *name; /* the dict at the top that is the model; NULL: all but other known dicts */
};
/* EMISMATCH: several dicts could be the model, or the rest contains the state of an optimizer. */
enum sidestep_status convert_model_find(const struct conversion *c, struct convert_model *model,
                                        struct sidestep_error *err);
bool convert_model_contains(const struct convert_model *model, const struct metadata_entry *entry);
/* The number of items of the entry's path that the model's name consists of. */
uint32_t convert_model_prefix_length(const struct convert_model *model,
                                     const struct metadata_entry *entry);

/* ---- convert_rename.c ---- */

struct convert_renames;
/* Compile the expressions and read the mapping.  ${*renames} is NULL if there are none. */
enum sidestep_status convert_renames_new(const struct conversion *c, struct convert_renames **out,
                                         struct sidestep_error *err);
void convert_renames_free(struct convert_renames **renames);
/* The new name, in the arena; ${name} itself if it does not change. */
enum sidestep_status convert_renames_apply(const struct convert_renames *renames,
                                           struct arena *arena, const char *name, const char **out,
                                           struct sidestep_error *err);

/* ---- convert_read.c: the bytes of the destination's tensors ---- */

/* Read bytes [begin, begin + bytes) of ${box} of a tensor, converted for the destination.  Any
 * thread. */
enum sidestep_status convert_read(struct conversion *c, size_t tensor, const struct box *box,
                                  uint64_t begin, uint64_t bytes, uint8_t *to,
                                  struct sidestep_error *err);
/* Add ${bytes} to the progress.  ${*is_last}: all are done.  ECANCELLED if the caller cancelled.
 * Any thread. */
enum sidestep_status convert_add_progress(struct conversion *c, uint64_t bytes, bool *is_last,
                                          struct sidestep_error *err);
/* The box of the whole tensor. */
struct box convert_tensor_box(const struct convert_tensor *tensor);

/* ---- convert_objects.c ---- */

/* The bytes of an object as a checkpoint stores it.  The caller frees ${*bytes}. */
enum sidestep_status convert_object_bytes(struct conversion *c, const struct convert_object *o,
                                          void **bytes, size_t *length, struct sidestep_error *err);
/* Keep only objects that the format can hold, with their values.  As the options say, fail because
 * of the others, or leave them out.  ${holds_plain}: the format holds objects of plain data;
 * otherwise it holds none. */
enum sidestep_status convert_filter_objects(struct conversion *c, bool holds_plain,
                                            struct sidestep_error *err);
/* Record that an object is not in the destination. */
enum sidestep_status convert_skip_object(struct conversion *c, const struct convert_object *o,
                                         struct sidestep_error *err);

/* ---- convert_write.c: several threads write files that are laid out beforehand ---- */

enum convert_segment_kind {
    CONVERT_SEGMENT_BYTES,    /* known beforehand */
    CONVERT_SEGMENT_TENSOR,   /* all of a tensor */
    CONVERT_SEGMENT_DEFERRED, /* known when the CRCs of the tensors before it are known */
};

struct convert_segment {
    enum convert_segment_kind kind;
    uint64_t offset; /* in the file */
    uint64_t length;
    size_t tensor;
    const uint8_t *bytes; /* of BYTES; of DEFERRED once they are known */
    uint32_t crc;         /* of TENSOR, so far */
};

struct convert_file {
    const char *name;
    uint64_t bytes;
    struct convert_segment *segments; /* in order, without gaps */
    size_t count, capacity;
    /* Make the bytes of segment ${i}, which is DEFERRED; all tensors before it have their CRCs.
     * One thread at a time.  NULL: the file has no CRCs, and no such segments. */
    enum sidestep_status (*fill_deferred)(struct convert_file *file, size_t i,
                                          struct sidestep_error *err);
    void *context;
};

/* Append a segment. */
enum sidestep_status convert_file_add_segment(struct convert_file *file,
                                              struct convert_segment segment,
                                              struct sidestep_error *err);
/* Write, sync and close all files. */
enum sidestep_status convert_write(struct conversion *c, struct export *export,
                                   struct convert_file *files, size_t count,
                                   struct sidestep_error *err);

/* ---- the formats: lay out, write, publish ---- */

enum sidestep_status convert_to_safetensors(struct conversion *c, struct export *export,
                                            struct sidestep_error *err);
enum sidestep_status convert_to_zip(struct conversion *c, struct export *export,
                                    struct sidestep_error *err);
/* Set the options of a save for the compression ${name}.  False: there is none of this name. */
bool convert_parse_compression(const char *name, struct sidestep_save_options *how);
/* Fail because there is no compression ${name}; the message lists all. */
enum sidestep_status convert_fail_compression(const char *name, struct sidestep_error *err);
enum sidestep_status convert_to_dcp(struct conversion *c, struct sidestep_error *err);
/* Limit of threads, by the memory that sidestep_tools.h promises. */
unsigned convert_dcp_max_threads(const struct conversion *c);

#endif
