/* SPDX-License-Identifier: BSD-3-Clause */
/* skeletons.h -- a minimal codec and a minimal store, to copy and to extend. */
#ifndef EXAMPLES_SKELETONS_H
#define EXAMPLES_SKELETONS_H

#include <sidestep/sidestep_extend.h>

/* For sidestep_codec_register(). */
extern const struct sidestep_codec codec_skeleton;

/* A store in memory; NULL: out of memory. */
struct store_skeleton;
struct store_skeleton *store_skeleton_new(void);
void store_skeleton_free(struct store_skeleton **store);
/* For struct sidestep_engine_options. */
struct sidestep_store store_skeleton_ops(struct store_skeleton *store);

#endif
