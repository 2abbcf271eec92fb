/* SPDX-License-Identifier: BSD-3-Clause */
/* convert.h -- sidestep_convert() from the inside: what convert*.c share. */
#ifndef CONVERT_CONVERT_H
#define CONVERT_CONVERT_H

#include <pthread.h>
#include <stdatomic.h>

#include "convert/export.h"
#include "checkpoint/checkpoint.h"
#include "load/load.h"

#define CONVERT_WINDOW_BYTES ((uint64_t)16 << 20) /* what a thread writes at once */
#define CONVERT_SCRATCH_BYTES                                                                      \
    ((uint64_t)4 << 20) /* elements before and after they are converted                            \
                         */

/* A tensor of the destination. */
struct convert_tensor {
    const struct metadata_entry *from;
    size_t entry; /* its number in the source's metadata */
    const char *name;
    enum sidestep_dtype dtype;
    uint64_t bytes;
    uint32_t path_length; /* 0: the name alone */
    const struct sidestep_path_item *path;
    _Atomic uint64_t overflows;
};

struct convert_object {
    const struct metadata_entry *from;
    const char *name;
    uint32_t path_length;
    const struct sidestep_path_item *path;
    struct sidestep_value *value; /* owned; for formats that take values */
};

struct convert {
    struct sidestep_convert_options options;
    enum sidestep_format to;
    const char *source;
    const char *destination;
    unsigned threads;
    struct arena arena;
    struct reader *reader;
    struct tensor_reader *bytes;
    struct convert_tensor *tensors; /* in the order in which the source has them stored */
    size_t tensor_count;
    struct convert_object *objects;
    size_t object_count;
    uint64_t total_bytes; /* of tensors in the destination */
    const char **files;
    size_t file_count, file_room;
    const char **left_out;
    size_t left_out_count;
    struct hash_table damaged; /* names in the source that did not pass the verification ... */
    const char **reasons;      /* ... and why, by their numbers there */
    const char **lost;         /* "NAME: REASON", of those that were wanted */
    size_t lost_count;
    enum sidestep_status lost_status; /* what is wrong with the source: verify_findings_judge() */
    const char *aside;                /* the file's name */
    atomic_bool failed;               /* a rank that saves: then shared.err says why */
    struct {
        pthread_mutex_t lock;
        uint64_t done_bytes;
        struct sidestep_error err;
    } shared;
};

/* ---- convert_select.c: which tensors and objects, and what they are called ---- */

enum sidestep_status convert_select(struct convert *c, struct sidestep_error *err);

/* ---- convert_partial.c: what of a damaged source can be had ---- */

/* Verify it, and note what did not pass. */
enum sidestep_status convert_find_damaged(struct convert *c, struct sidestep_error *err);
/* Is ${entry}, which is wanted, such a one?  Then that is noted for the report. */
enum sidestep_status convert_is_damaged(struct convert *c, const struct metadata_entry *entry,
                                        bool *is_lost, struct sidestep_error *err);
/* ---- convert_model.c: which part of a training state is its model ---- */

struct convert_model {
    bool wanted;      /* it alone; else all is */
    const char *name; /* the dict at the top that is the model; NULL: all but known others */
};
/* EMISMATCH: several parts could be it, or one that is none would be taken for it. */
enum sidestep_status convert_model_find(const struct convert *c, struct convert_model *model,
                                        struct sidestep_error *err);
bool convert_model_contains(const struct convert_model *model, const struct metadata_entry *entry);
/* Steps of the entry's path that the model's name is. */
uint32_t convert_model_prefix_length(const struct convert_model *model,
                                     const struct metadata_entry *entry);

/* ---- convert_rename.c ---- */

struct convert_renames;
/* Compile the expressions, read the mapping.  NULL: there are none. */
enum sidestep_status convert_renames_new(const struct convert *c, struct convert_renames **out,
                                         struct sidestep_error *err);
void convert_renames_free(struct convert_renames **renames);
/* The new name, in the arena, or ${name} itself. */
enum sidestep_status convert_renames_apply(const struct convert_renames *renames,
                                           struct arena *arena, const char *name, const char **out,
                                           struct sidestep_error *err);

/* ---- convert_read.c: the bytes of the destination's tensors ---- */

/* Bytes [begin, begin + bytes) of ${box} of a tensor, as the destination wants them.  Any thread.
 */
enum sidestep_status convert_read(struct convert *c, size_t tensor, const struct box *box,
                                  uint64_t begin, uint64_t bytes, uint8_t *to,
                                  struct sidestep_error *err);
/* ${bytes} more are done, ${*is_last}: all are; ECANCELLED if that is wanted.  Any thread. */
enum sidestep_status convert_add_progress(struct convert *c, uint64_t bytes, bool *is_last,
                                          struct sidestep_error *err);
/* The whole tensor. */
struct box convert_tensor_box(const struct convert_tensor *tensor);

/* ---- convert_objects.c ---- */

/* As a checkpoint stores it; malloc'ed. */
enum sidestep_status convert_object_bytes(struct convert *c, const struct convert_object *o,
                                          void **bytes, size_t *length, struct sidestep_error *err);
/* Leave only those that the format can hold, with their values; the others are refused, left out,
 * or put into the dict ${aside}, as the options say.  ${held}: it holds plain data; else nothing.
 */
enum sidestep_status convert_filter_objects(struct convert *c, bool held,
                                            struct sidestep_value *aside,
                                            struct sidestep_error *err);
/* Note that an object is not in the destination. */
enum sidestep_status convert_skip_object(struct convert *c, const struct convert_object *o,
                                         struct sidestep_error *err);
enum sidestep_status convert_write_aside(struct convert *c, struct export *export,
                                         const struct sidestep_value *dict,
                                         struct sidestep_error *err);

/* ---- convert_write.c: files that are laid out beforehand, written by several threads ---- */

enum convert_segment_kind {
    CONVERT_SEGMENT_BYTES,    /* known beforehand */
    CONVERT_SEGMENT_TENSOR,   /* all of a tensor */
    CONVERT_SEGMENT_DEFERRED, /* known when the CRCs of the tensors before it are: from struct late
                               */
};

struct convert_segment {
    enum convert_segment_kind kind;
    uint64_t offset; /* in the file */
    uint64_t length;
    size_t tensor;
    const uint8_t *bytes; /* of BYTES; of LATE once they are known */
    uint32_t crc;         /* of TENSOR, so far */
};

struct convert_file {
    const char *name;
    uint64_t bytes;
    struct convert_segment *segments; /* one behind the other, without gaps */
    size_t count, room;
    /* NULL: no CRCs, and no LATE segments.  Else: the bytes of segment ${i}; all tensors before it
     * have their CRCs.  One thread at a time. */
    enum sidestep_status (*late)(struct convert_file *file, size_t i, struct sidestep_error *err);
    void *context;
};

/* Add a segment behind the others. */
enum sidestep_status convert_file_add_segment(struct convert_file *file,
                                              struct convert_segment segment,
                                              struct sidestep_error *err);
/* Write, sync and close all files. */
enum sidestep_status convert_write(struct convert *c, struct export *export,
                                   struct convert_file *files, size_t count,
                                   struct sidestep_error *err);
/* Note a file of the destination for the report. */
enum sidestep_status convert_report_file(struct convert *c, const char *name,
                                         struct sidestep_error *err);

/* ---- the formats: lay out, write, publish ---- */

enum sidestep_status convert_to_safetensors(struct convert *c, struct export *export,
                                            struct sidestep_error *err);
enum sidestep_status convert_to_zip(struct convert *c, struct export *export,
                                    struct sidestep_error *err);
/* What ${compress} of the options means for a save; false: nothing. */
bool convert_parse_compression(const char *name, struct sidestep_save_options *how);
enum sidestep_status convert_to_dcp(struct convert *c, struct sidestep_error *err);
/* So many threads fit into its memory. */
unsigned convert_dcp_max_threads(const struct convert *c);

#endif
