/* SPDX-License-Identifier: BSD-3-Clause */
/* file_probe.h -- finds out the format of a file of another program, and whether it was truncated.
 *
 * It reads the end of the file, or the sizes at its beginning, but no data. */
#ifndef CATALOG_FILE_PROBE_H
#define CATALOG_FILE_PROBE_H

#include "store/store.h"

enum file_probe_format {
    FILE_PROBE_OTHER,
    FILE_PROBE_EMPTY,
    FILE_PROBE_SAFETENSORS,
    FILE_PROBE_ZIP, /* such as torch.save() */
    FILE_PROBE_PICKLE,
};

/* May the file contain tensors, judged by its name? */
bool file_probe_may_hold_tensors(const char *name);
/* Get the format from the first bytes. */
enum sidestep_status file_probe_format(struct store_file *file, uint64_t size,
                                       enum file_probe_format *format, struct sidestep_error *err);

/*
 * Check a file. ${*problem} is NULL, or text that follows a name: " is missing", " is empty", " is
 * truncated" (of safetensors: "or damaged"), " is not a regular file". Truncation is found in zip
 * files (such as torch.save()), which end with a record of their own, and in safetensors, which
 * begin with the offsets of all tensors. Of other files it only checks that they are not empty.
 * Fails if the file cannot be read.
 */
enum sidestep_status file_probe_check(struct store_dir *dir, const char *name, const char **problem,
                                      struct sidestep_error *err);

#endif
