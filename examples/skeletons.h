/* SPDX-License-Identifier: BSD-3-Clause */
/* skeletons.h -- a minimal codec, to copy and to extend. */
#ifndef EXAMPLES_SKELETONS_H
#define EXAMPLES_SKELETONS_H

#include <sidestep/sidestep_extend.h>

/* For sidestep_codec_register(). */
extern const struct sidestep_codec codec_skeleton;

#endif
