/* SPDX-License-Identifier: BSD-3-Clause */
/* manifest_layout.h -- what the manifest's writer (manifest.c) and reader (manifest_read.c) share,
 * and nobody else includes.  docs/FORMAT.md explains the text. */
#ifndef FORMAT_MANIFEST_LAYOUT_H
#define FORMAT_MANIFEST_LAYOUT_H

#include "format/manifest.h"
#include "model/model.h"

#define MANIFEST_FORMAT "sidestep-manifest"
#define MANIFEST_HASH_PREFIX "sha256 "
#define MANIFEST_HASH_LINE_BYTES (sizeof(MANIFEST_HASH_PREFIX) - 1 + 2 * HASH_SHA256_BYTES + 1)
#define MANIFEST_MAX_INTEGER ((uint64_t)INT64_MAX) /* what JSON libraries keep exact */
#define MANIFEST_MAX_TIME SHOWN_MAX_TIME
#define MANIFEST_KNOWN_REQUIRED 0u

/* EUNSUPPORTED if a required feature is unknown: then the rest must not be understood. */
enum sidestep_status manifest_check_features(const struct manifest *manifest,
                                             struct sidestep_error *err);
/* Everything that manifest.h promises about the fields.  ${status}: what a violation means (EINVAL
 * to a writer, ECORRUPT to a reader). */
enum sidestep_status manifest_check(const struct manifest *manifest, enum sidestep_status status,
                                    struct sidestep_error *err);

#endif
