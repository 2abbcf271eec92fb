/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * metrics.h -- counts what the saves of this process do, and writes it for Prometheus into a file,
 * by rename.
 *
 * Only counters and histograms, which begin anew with the process: Prometheus expects that of them.
 * What is there (`sidestep metrics`) comes from storage.  They are counted from events, on rank 0,
 * and are a text of a fixed size whatever the number of ranks and saves.
 *
 * Threads: the caller has a lock (events.h), except for metrics_write().
 */
#ifndef ENGINE_METRICS_H
#define ENGINE_METRICS_H

#include <jansson.h>

#include "base/base.h"

struct metrics;

/* Begin to count for the file ${path}, which is written at once.  EPERM, EIO, ENOSPC: it cannot be.
 */
enum sidestep_status metrics_new(const char *path, struct metrics **out,
                                 struct sidestep_error *err);
void metrics_free(struct metrics **metrics);

/* Count an event, of which ${line} has the fields.  True: the file should be written. */
bool metrics_count(struct metrics *metrics, const char *event, const json_t *line);
/* ${retries}: requests to object stores that were repeated so far. */
void metrics_format(const struct metrics *metrics, uint64_t retries, struct buffer *text);
/* Replace the file.  Any thread. */
enum sidestep_status metrics_write(const struct metrics *metrics, const struct buffer *text,
                                   struct sidestep_error *err);

#endif
