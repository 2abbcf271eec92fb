/* SPDX-License-Identifier: BSD-3-Clause */
/* file_probe.h -- of which form is a file of another program, and was it cut short?  By its end, or
 * by what its beginning says of its length; its data is not read. */
#ifndef CATALOG_FILE_PROBE_H
#define CATALOG_FILE_PROBE_H

#include "store/store.h"

enum file_probe_format {
    FILE_PROBE_OTHER,
    FILE_PROBE_EMPTY,
    FILE_PROBE_SAFETENSORS,
    FILE_PROBE_ZIP, /* torch.save's, for one */
    FILE_PROBE_PICKLE,
};

/* By its name: may tensors be in it? */
bool file_probe_may_hold_tensors(const char *name);
/* By how it begins. */
enum sidestep_status file_probe_format(struct store_file *file, uint64_t size,
                                       enum file_probe_format *form, struct sidestep_error *err);

/*
 * ${*problem} is NULL, or what is wrong, to stand behind a name: " is missing", " is empty",
 * " is cut short" (of safetensors: "or damaged"), " is no regular file".  Told are zip files
 * (torch.save's), which end in a record of their own, and safetensors, which begin with the places
 * of all tensors; of others, only that there is something.  Fails if the file cannot be read.
 */
enum sidestep_status file_probe_check(struct store_dir *dir, const char *name, const char **problem,
                                      struct sidestep_error *err);

#endif
