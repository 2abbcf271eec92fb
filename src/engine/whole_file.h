/* SPDX-License-Identifier: BSD-3-Clause */
/* whole_file.h -- was a file of another program cut short?  By its end, or by what its beginning
 * says of its length; its data is not read. */
#ifndef ENGINE_WHOLE_FILE_H
#define ENGINE_WHOLE_FILE_H

#include "store/store.h"

/*
 * ${*problem} is NULL, or what is wrong, to stand behind a name: " is missing", " is empty",
 * " is cut short" (of safetensors: "or damaged").  Told are zip files (torch.save's), which end in
 * a record of their own, and safetensors, which begin with the places of all tensors; of others,
 * only that there is something. Fails for want of memory only.
 */
enum sidestep_status whole_file_check(struct store_dir *dir, const char *name, const char **problem,
                                      struct sidestep_error *err);

#endif
