/* SPDX-License-Identifier: BSD-3-Clause */
/* codec_custom.h -- finds the codecs that the program has registered (sidestep_extend.h). */
#ifndef CODEC_CODEC_CUSTOM_H
#define CODEC_CODEC_CUSTOM_H

#include "codec/codec.h"

/* The registered codec with this descriptor.  NULL: there is none.  Codecs are never freed. */
const struct codec *codec_custom_find(const char *descriptor);

#endif
