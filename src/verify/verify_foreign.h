/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verify_foreign.h -- verifies what other programs wrote, file by file: DCP checkpoints in
 * directories as completely as their data allows, files of torch.save() by their CRC32s,
 * safetensors by their structure.  Files without checksums are read to the end, and listed with
 * what they are.
 */
#ifndef VERIFY_VERIFY_FOREIGN_H
#define VERIFY_VERIFY_FOREIGN_H

#include "verify/verify.h"

struct verify_foreign_request {
    struct store *store;
    const char *path;
    uint32_t flags;          /* of reader_open(), for DCP checkpoints in it */
    struct workers *workers; /* may be NULL */
    const struct verify_options *options;
    struct verify_findings *findings;
};

/* Check ${path} if it is a file with tensors, or another program's directory that is not a DCP
 * checkpoint.  ${*is_foreign}: it is one of these; see the findings. */
enum sidestep_status verify_foreign_check(const struct verify_foreign_request *request,
                                          bool *is_foreign, struct sidestep_error *err);
/* Check the files that a DCP checkpoint of another program does not list, in its directory. */
enum sidestep_status verify_foreign_beside(const struct verify_foreign_request *request,
                                           const struct reader *reader, struct sidestep_error *err);

#endif
