/* SPDX-License-Identifier: BSD-3-Clause */
/* manifest_layout.h -- defines what the manifest's writer (manifest.c) and reader
 * (manifest_read.c) share.  docs/FORMAT.md specifies the text. */
#ifndef FORMAT_MANIFEST_LAYOUT_H
#define FORMAT_MANIFEST_LAYOUT_H

#include "format/manifest.h"
#include "model/model.h"

#define MANIFEST_FORMAT "sidestep-manifest"
#define MANIFEST_HASH_PREFIX "sha256 "
#define MANIFEST_HASH_LINE_BYTES (sizeof(MANIFEST_HASH_PREFIX) - 1 + 2 * HASH_SHA256_BYTES + 1)
#define MANIFEST_MAX_INTEGER ((uint64_t)INT64_MAX) /* JSON libraries read these exactly */
#define MANIFEST_MAX_TIME DISPLAY_MAX_TIME
#define MANIFEST_KNOWN_REQUIRED MANIFEST_REQUIRED_PART

/* EUNSUPPORTED: a required feature is unknown, so nothing else may be read. */
enum sidestep_status manifest_check_features(const struct manifest *manifest,
                                             struct sidestep_error *err);
/* Check all that manifest.h promises about the fields.  ${status}: the status of a violation
 * (EINVAL for a writer, ECORRUPT for a reader). */
enum sidestep_status manifest_check(const struct manifest *manifest, enum sidestep_status status,
                                    struct sidestep_error *err);

#endif
