/* SPDX-License-Identifier: BSD-3-Clause */
/* checkpoint_stats.c -- sidestep_checkpoint_stats(): computes statistics of tensors, which several
 * threads read in stretches. */
#include <stdatomic.h>
#include <string.h>

#include "base/base.h"
#include "inspect/checkpoint_open.h"
#include "load/load.h"
#include "model/model.h"

#define STRETCH_BYTES ((uint64_t)4 << 20) /* a multiple of every element size */
#define MIN_THREADS 4u
#define MAX_THREADS 8u

struct work {
    struct reader *reader;
    struct tensor_reader *bytes;
    struct sidestep_tensor_stats *stats;
    size_t *entries;  /* per tensor: its index in the metadata */
    size_t *order;    /* the tensors, in the order in which they are stored */
    uint64_t *starts; /* per tensor in that order: the number of stretches before it */
    size_t count;
    uint64_t stretch_count;
    uint64_t total_bytes;
    const struct sidestep_verify_options *options;
    _Atomic uint64_t next;
    atomic_bool stop;
    struct {
        struct lock lock LOCK_KIND(STATS);
        struct tensor_stats *summaries GUARDED_BY(&lock); /* per tensor */
        uint64_t done_bytes GUARDED_BY(&lock);
        struct sidestep_error err GUARDED_BY(&lock);
    } shared;
};

static struct box whole_box(const struct metadata_entry *entry)
{
    static const int64_t zeros[SIDESTEP_MAX_NDIM];

    return (struct box){.ndim = entry->ndim, .offsets = zeros, .lengths = entry->shape};
}

static uint64_t bytes_of(const struct work *w, size_t tensor)
{
    return metadata_tensor_bytes(&w->reader->metadata.entries[w->entries[tensor]]);
}

/* The tensor that contains a stretch. */
static size_t find_tensor(const struct work *w, uint64_t stretch)
{
    size_t low = 0, high = w->count;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (w->starts[middle] <= stretch)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static enum sidestep_status add_stretch(struct work *w, uint64_t i, uint8_t *buffer,
                                        struct sidestep_error *err)
{
    size_t at = find_tensor(w, i), tensor = w->order[at];
    const struct metadata_entry *entry = &w->reader->metadata.entries[w->entries[tensor]];
    uint64_t begin = (i - w->starts[at]) * STRETCH_BYTES;
    uint64_t bytes = min_u64(STRETCH_BYTES, bytes_of(w, tensor) - begin);
    struct tensor_stats summary = TENSOR_STATS_INIT;
    struct box box = whole_box(entry);

    TRY(tensor_reader_read(w->bytes, w->entries[tensor], &box, begin, bytes, buffer, err));
    tensor_stats_add(&summary, entry->dtype, buffer, bytes / sidestep_dtype_size(entry->dtype));
    if (w->options->cancel != NULL && *w->options->cancel)
        return FAIL(err, SIDESTEP_ECANCELLED, "the caller cancelled it");
    lock_acquire(&w->shared.lock);
    tensor_stats_merge(&w->shared.summaries[tensor], &summary);
    w->shared.done_bytes += bytes;
    if (w->options->on_progress != NULL)
        w->options->on_progress(w->options->context, w->shared.done_bytes, w->total_bytes);
    lock_release(&w->shared.lock);
    return SIDESTEP_OK;
}

static void add_stretches(void *context)
{
    struct work *w = context;
    struct sidestep_error why = {0};
    OWNED uint8_t *buffer = memory_new(STRETCH_BYTES, 1);
    enum sidestep_status status = buffer != NULL ? SIDESTEP_OK : FAIL_NOMEM(&why, STRETCH_BYTES);

    for (uint64_t i; status == SIDESTEP_OK && !atomic_load(&w->stop) &&
                     (i = atomic_fetch_add(&w->next, 1)) < w->stretch_count;)
        status = add_stretch(w, i, buffer, &why);
    if (status == SIDESTEP_OK)
        return;
    lock_acquire(&w->shared.lock);
    if (!atomic_exchange(&w->stop, true))
        w->shared.err = why;
    lock_release(&w->shared.lock);
}

static enum sidestep_status find_tensors(struct work *w, bool *wanted, struct sidestep_error *err)
{
    for (size_t i = 0; i < w->count; i++) {
        const char *name = w->stats[i].name;
        const struct metadata_entry *entry =
            name != NULL ? metadata_find(&w->reader->metadata, name) : NULL;

        if (entry == NULL)
            return FAIL(err, SIDESTEP_ENOTFOUND, "'%s' is not in '%s'",
                        display_name(name != NULL ? name : "").text, w->reader->path);
        if (entry->is_object)
            return FAIL(err, SIDESTEP_EINVAL, "'%s' is an object", display_name(name).text);
        if (entry->dtype == SIDESTEP_DTYPE_NONE)
            return reader_refuse_dtype(entry, err);
        if (entry->chunk_count == 0 || entry->chunks[0].storage.file == NULL)
            return FAIL(err, SIDESTEP_ECORRUPT, "'%s' is stored nowhere", display_name(name).text);
        w->entries[i] = (size_t)(entry - w->reader->metadata.entries);
        w->order[i] = i;
        wanted[w->entries[i]] = true;
    }
    return SIDESTEP_OK;
}

static int compare_stored(const void *a, const void *b, void *context)
{
    const struct work *w = context;
    const struct metadata_entry *entries = w->reader->metadata.entries;
    const struct metadata_storage *x = &entries[w->entries[*(const size_t *)a]].chunks[0].storage;
    const struct metadata_storage *y = &entries[w->entries[*(const size_t *)b]].chunks[0].storage;
    int order = strcmp(x->file, y->file);

    return order != 0 ? order : x->offset < y->offset ? -1 : x->offset > y->offset;
}

static void count_stretches(struct work *w)
{
    qsort_r(w->order, w->count, sizeof(*w->order), compare_stored, w);
    for (size_t i = 0; i < w->count; i++) {
        uint64_t bytes = bytes_of(w, w->order[i]);

        w->starts[i] = w->stretch_count;
        w->stretch_count += bytes / STRETCH_BYTES + (bytes % STRETCH_BYTES != 0);
        w->total_bytes += bytes;
    }
}

static void fill_stats(struct work *w) REQUIRES(&w->shared.lock)
{
    for (size_t i = 0; i < w->count; i++) {
        const struct metadata_entry *entry = &w->reader->metadata.entries[w->entries[i]];
        const struct tensor_stats *s = &w->shared.summaries[i];
        struct box box = whole_box(entry);
        bool ordered = tensor_stats_is_ordered(entry->dtype);

        w->stats[i] =
            (struct sidestep_tensor_stats){.name = w->stats[i].name,
                                           .element_count = box_volume(&box),
                                           .nan_count = s->nans,
                                           .inf_count = s->infs,
                                           .has_range = ordered && s->count + s->infs != 0,
                                           .has_mean = ordered && s->count != 0};
        if (w->stats[i].has_range) {
            w->stats[i].min = s->min;
            w->stats[i].max = s->max;
        }
        if (w->stats[i].has_mean)
            w->stats[i].mean = s->sum / (double)s->count;
    }
}

static enum sidestep_status run_threads(struct work *w, unsigned threads,
                                        struct sidestep_error *err)
{
    struct workers *workers = NULL;

    TRY(workers_new(threads - 1, "sidestep-stats", &workers, err));
    workers_run(workers, add_stretches, w);
    workers_free(&workers);
    lock_alone(&w->shared.lock);
    if (atomic_load(&w->stop)) {
        error_copy(err, &w->shared.err);
        return (enum sidestep_status)w->shared.err.status;
    }
    TRY(tensor_reader_finish(w->bytes, err));
    fill_stats(w);
    return SIDESTEP_OK;
}

static enum sidestep_status make_stats(struct work *w, struct sidestep_error *err)
{
    size_t names = w->reader->metadata.count;
    OWNED bool *wanted = memory_new(names, sizeof(*wanted));
    OWNED size_t *entries = memory_new(w->count, sizeof(*entries));
    OWNED size_t *order = memory_new(w->count, sizeof(*order));
    OWNED uint64_t *starts = memory_new(w->count, sizeof(*starts));
    OWNED struct tensor_stats *summaries = memory_new(w->count, sizeof(*summaries));
    unsigned threads = thread_choose_count(w->options->threads, MIN_THREADS, MAX_THREADS);

    if (wanted == NULL || entries == NULL || order == NULL || starts == NULL || summaries == NULL)
        return FAIL_NOMEM(err, w->count * sizeof(*summaries));
    lock_alone(&w->shared.lock);
    w->entries = entries, w->order = order, w->starts = starts, w->shared.summaries = summaries;
    for (size_t i = 0; i < w->count; i++)
        summaries[i] = (struct tensor_stats)TENSOR_STATS_INIT;
    TRY(find_tensors(w, wanted, err));
    TRY(tensor_reader_open(w->reader, wanted, threads, &w->bytes, err));
    count_stretches(w);
    enum sidestep_status status = run_threads(w, threads, err);
    tensor_reader_free(&w->bytes);
    return status;
}

enum sidestep_status sidestep_checkpoint_stats(struct sidestep_checkpoint *checkpoint,
                                               struct sidestep_tensor_stats *stats, size_t count,
                                               const struct sidestep_verify_options *theirs,
                                               struct sidestep_error *err)
{
    struct sidestep_verify_options options;

    if (checkpoint == NULL || (stats == NULL && count != 0))
        return FAIL(err, SIDESTEP_EINVAL, "checkpoint or stats is NULL");
    TRY(options_copy(&options, sizeof(options), theirs, "stats options", err));
    if (options.flags != 0 || options.threads > 1024)
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "stats options: flags 0x%x, %u threads",
                    options.flags, options.threads);
    struct work w = {
        .reader = checkpoint->reader, .stats = stats, .count = count, .options = &options};
    lock_init(&w.shared.lock, LOCK_STATS);
    enum sidestep_status status = make_stats(&w, err);
    lock_destroy(&w.shared.lock);
    return status;
}
