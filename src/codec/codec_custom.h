/* SPDX-License-Identifier: BSD-3-Clause */
/* codec_custom.h -- codecs that a program brings along: sidestep_extend.h. */
#ifndef CODEC_CODEC_CUSTOM_H
#define CODEC_CODEC_CUSTOM_H

#include "codec/codec.h"

/* By its descriptor; NULL: none was registered.  What was is never freed. */
const struct codec *codec_custom_find(const char *descriptor);

#endif
