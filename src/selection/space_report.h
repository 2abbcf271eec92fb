/* SPDX-License-Identifier: BSD-3-Clause */
/* space_report.h -- writes the message when storage is full: how much was needed, how much was
 * free, and how much space old checkpoints use. */
#ifndef SELECTION_SPACE_REPORT_H
#define SELECTION_SPACE_REPORT_H

#include "store/store.h"

#define SPACE_REPORT_BYTES 448u

/*
 * Write to ${words} how much space would be freed by deleting all checkpoints in ${root}, the
 * directory at ${path}, except the newest, and how to do that.  "": nothing would be freed, or it
 * is not known.
 * ${run_id}: count only those of this run, whose series is open; NULL or "": those of any run.
 * Deletes nothing.  Blocks while it reads the directory.
 */
void space_describe(struct store_dir *root, const char *path, const char *run_id,
                    char words[SPACE_REPORT_BYTES]);

/* If ${err} says that storage is full, put in front how much is needed, and how many bytes were
 * free in ${dir} before ${stored} of them were written, and ${words}.  ${what} is a subject and its
 * verb, as in "the copy takes". */
void space_report(struct sidestep_error *err, struct store_dir *dir, const char *what,
                  uint64_t needed, uint64_t stored, const char *words);

#endif
