/* SPDX-License-Identifier: BSD-3-Clause */
/* save_codec.c -- chooses the codec of a save's items on this rank. */
#include <assert.h>

#include "base/base.h"
#include "codec/codec.h"
#include "save/save.h"

enum sidestep_status save_choose_codec(struct sidestep_save *save, struct sidestep_error *err)
{
    static const struct codec *const codecs[] = {
        [SIDESTEP_COMPRESS_NONE] = NULL,
        [SIDESTEP_COMPRESS_ZSTD] = &codec_zstd,
        [SIDESTEP_COMPRESS_PLANES] = &codec_planes,
        [SIDESTEP_COMPRESS_AUTO] = &codec_planes,
    };
    unsigned wanted = save->options.compress, level = save->options.compress_level;
    const char *name = save->options.codec;
    double ns_per_byte = 0;

    if (wanted >= ARRAY_LENGTH(codecs))
        return FAIL(err, SIDESTEP_EUNSUPPORTED, "save options: unknown compress %u", wanted);
    if (level != 0 && (wanted != SIDESTEP_COMPRESS_ZSTD || name != NULL))
        return FAIL(err, SIDESTEP_EINVAL, "save options: only zstd has levels");
    if (level > CODEC_ZSTD_LEVELS)
        return FAIL(err, SIDESTEP_EINVAL, "save options: zstd has levels from 1 to %u, not %u",
                    CODEC_ZSTD_LEVELS, level);
    const struct codec *codec = name != NULL ? codec_find(name)
                                : level != 0 ? codec_zstd_level(level)
                                             : codecs[wanted];
    if (name != NULL && codec == NULL)
        return FAIL(err, SIDESTEP_ENOTFOUND,
                    "save options: no codec '%.100s' (see sidestep_codec_register())", name);
    unsigned threads =
        (unsigned)min_u64(workers_count(save->engine->writers) + 1, thread_cpu_count());
    if (codec == NULL || (wanted == SIDESTEP_COMPRESS_AUTO &&
                          !compression_policy_should_compress(&save->saver->compression_policy,
                                                              threads, &ns_per_byte)))
        return SIDESTEP_OK;
    save->codec_name = codec->descriptor;
    TRY(compressor_new(codec, save->engine->clock, &save->compressor, err));
    compressor_set_time_limit(save->compressor, ns_per_byte);
    return SIDESTEP_OK;
}
