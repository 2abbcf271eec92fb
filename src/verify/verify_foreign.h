/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verify_foreign.h -- verifying what other programs wrote, file by file: DCPs in directories by all
 * that they tell, files of torch.save() by their CRC32s, safetensors by their structure.  What has
 * no checksums is read to its end, and named with what it is.
 */
#ifndef VERIFY_VERIFY_FOREIGN_H
#define VERIFY_VERIFY_FOREIGN_H

#include "verify/verify.h"

struct verify_foreign {
    struct store *store;
    const char *path;
    uint32_t flags;          /* of reader_open(), for DCPs in it */
    struct workers *workers; /* may be NULL */
    const struct verify_options *options;
    struct verify_findings *findings;
};

/* ${*is_one}: ${path} is a file with tensors, or a directory of another program's that is no DCP,
 * and was checked; see the findings.  Else nothing was. */
enum sidestep_status verify_foreign_check(const struct verify_foreign *other, bool *is_one,
                                          struct sidestep_error *err);
/* Beside the shards of a DCP that another program wrote: the rest of its directory. */
enum sidestep_status verify_foreign_beside(const struct verify_foreign *other,
                                           const struct reader *reader, struct sidestep_error *err);

#endif
