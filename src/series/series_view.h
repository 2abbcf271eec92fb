/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * series_view.h -- what the files share that load from parts: the view, a hidden directory on each
 * node that looks like the whole checkpoint (series_gather.c), and its records (series_records.c).
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
    bool is_far;       /* nothing was put together: ${path} is that of the mirror */
    uint32_t *holders; /* per file of the manifest: a rank whose view has it */
    size_t file_count;
};

/* Does this root have a part, or all, of save ${save_id} under ${name}? */
bool series_has_save(struct sidestep_series *series, const char *name, const char *save_id);
/* All ranks get .metadata and the manifest of the whole, which rank 0 makes, and view->holders.
 * ECORRUPT: a part is damaged. */
enum sidestep_status series_get_records_all(struct series_view *view,
                                            enum sidestep_verify_mode mode, struct buffer *metadata,
                                            struct buffer *manifest, struct sidestep_error *err);

#endif
