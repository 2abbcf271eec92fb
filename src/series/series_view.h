/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * series_view.h -- what the files share that load from parts: the view, a hidden directory on each
 * node that looks like the whole checkpoint (series_gather.c), its records (series_records.c), and
 * what is brought to it from other nodes (series_bring.c).
 */
#ifndef SERIES_SERIES_VIEW_H
#define SERIES_SERIES_VIEW_H

#include "load/load.h"
#include "series/series.h"

struct series_view {
    struct sidestep_series *series;
    struct series_whole whole;
    struct load_bring bring;
    struct commit commit; /* of a rank that leads: the hidden directory */
    char path[COMMIT_PATH_BYTES];
    char *rejected; /* SERIES_REJECTED_BYTES, while a resume loads; else NULL */
    bool is_far;    /* nothing was put together: ${path} is that of the mirror, and bring.beside the
                       part of this node */
    /* Per file of the manifest, and behind these per small file: a rank whose view has it. */
    uint32_t *holders;
    size_t file_count, small_count;
};

/* Does this root have a part, or all, of save ${save_id} under ${name}? */
bool series_has_save(struct sidestep_series *series, const char *name, const char *save_id);
/* Open ${name} of this root, and read the manifest of save ${save_id} in it. */
enum sidestep_status series_read_manifest(struct sidestep_series *series, const char *name,
                                          const char *save_id, struct store_dir **dir,
                                          struct buffer *manifest, struct sidestep_error *err);
/* All ranks get .metadata and the manifest of the whole, which rank 0 makes, and view->holders.
 * ECORRUPT: a part is damaged. */
enum sidestep_status series_get_records_all(struct series_view *view,
                                            enum sidestep_verify_mode mode, struct buffer *metadata,
                                            struct buffer *manifest, struct sidestep_error *err);

/* A struct load_bring; ${context} is the view. */
enum sidestep_status series_bring_all(void *context, const struct reader *r,
                                      const struct load_plan *plan, struct sidestep_error *err);
/* Let the view have all small files that ${manifest}, of the whole, lists. */
enum sidestep_status series_bring_small_files_all(struct series_view *view,
                                                  const struct buffer *manifest,
                                                  struct sidestep_error *err);

#endif
