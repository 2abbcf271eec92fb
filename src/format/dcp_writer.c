/* SPDX-License-Identifier: BSD-3-Clause */
/* dcp_writer.c -- see dcp_writer.h. */
#include "format/dcp_writer.h"

#include <assert.h>
#include <string.h>
#include <xxhash.h>

#include "base/base.h"
#include "model/model.h"

static const struct {
    const char *module;
    const char *text;
} constants[] = {
#define CONSTANT_ROW(name, module, text) {module, text},
    DCP_CONSTANTS(CONSTANT_ROW)
#undef CONSTANT_ROW
};

#define WORD_MIN_BYTES 5u /* LONG_BINGET, which refers to a word, takes as much */

enum sidestep_status dcp_writer_reserve(struct dcp_writer *w, size_t bytes)
{
    if (w->at != NULL)
        w->out->length = (size_t)(w->at - w->out->bytes);
    if (buffer_extend(w->out, bytes) == NULL)
        return FAIL_NOMEM(w->err, w->out->length + bytes);
    w->out->length -= bytes;
    w->at = w->out->bytes + w->out->length;
    return SIDESTEP_OK;
}

/* ---------------------------------------------------------------- texts */

enum sidestep_status dcp_writer_text(struct dcp_writer *w, const char *text, size_t length)
{
    if (!utf8_is_valid(text, length))
        return FAIL(w->err, SIDESTEP_EINVAL, "'%s' is not UTF-8", display_name(text).text);
    TRY(dcp_writer_reserve(w, length + DCP_WRITER_RESERVED_BYTES));
    dcp_writer_op(w, length < 256           ? OP_SHORT_BINUNICODE
                     : length <= UINT32_MAX ? OP_BINUNICODE
                                            : OP_BINUNICODE8);
    dcp_writer_le(w, length, length < 256 ? 1 : length <= UINT32_MAX ? 4 : 8);
    memcpy(w->at, text, length);
    w->at += length;
    return SIDESTEP_OK;
}

enum sidestep_status dcp_writer_cached_text(struct dcp_writer *w, const char *text)
{
    size_t length = strlen(text);

    if (length < WORD_MIN_BYTES)
        return dcp_writer_text(w, text, length);
    struct dcp_cached_text *word = &w->words[XXH3_64bits(text, length) % DCP_WRITER_CACHE_SLOTS];
    if (word->text != NULL && word->length == length && memcmp(word->text, text, length) == 0) {
        TRY(dcp_writer_reserve(w, DCP_WRITER_RESERVED_BYTES));
        dcp_writer_get_memo(w, word->memo);
        return SIDESTEP_OK;
    }
    TRY(dcp_writer_text(w, text, length));
    *word = (struct dcp_cached_text){.text = text, .length = length, .memo = dcp_writer_memoize(w)};
    return SIDESTEP_OK;
}

enum sidestep_status dcp_writer_text_or_none(struct dcp_writer *w, const char *text)
{
    if (text != NULL)
        return dcp_writer_text(w, text, strlen(text));
    TRY(dcp_writer_reserve(w, DCP_WRITER_RESERVED_BYTES));
    dcp_writer_op(w, OP_NONE);
    return SIDESTEP_OK;
}

/* ---------------------------------------------------------------- the start */

void dcp_writer_short_text(struct dcp_writer *w, const char *text)
{
    size_t length = strlen(text);

    dcp_writer_op(w, OP_SHORT_BINUNICODE);
    dcp_writer_op(w, (uint8_t)length);
    memcpy(w->at, text, length);
    w->at += length;
}

enum sidestep_status dcp_writer_prologue(struct dcp_writer *w)
{
    for (size_t i = 0; i < ARRAY_LENGTH(constants); i++) {
        TRY(dcp_writer_reserve(w, DCP_WRITER_RESERVED_BYTES));
        if (constants[i].module != NULL)
            dcp_writer_short_text(w, constants[i].module);
        dcp_writer_short_text(w, constants[i].text);
        if (constants[i].module != NULL)
            dcp_writer_op(w, OP_STACK_GLOBAL);
        dcp_writer_memoize(w);
        dcp_writer_op(w, OP_POP);
    }
    TRY(dcp_writer_reserve(w, DCP_WRITER_RESERVED_BYTES));
    dcp_writer_get_constant(w, DCP_MEMO_GET_LAYOUT);
    dcp_writer_short_text(w, "torch.strided");
    dcp_writer_op(w, OP_TUPLE1);
    dcp_writer_op(w, OP_REDUCE);
    dcp_writer_memoize(w);
    dcp_writer_op(w, OP_POP);
    dcp_writer_get_constant(w, DCP_MEMO_MEM_FORMAT);
    dcp_writer_int(w, 0);
    dcp_writer_op(w, OP_TUPLE1);
    dcp_writer_op(w, OP_REDUCE);
    dcp_writer_memoize(w);
    dcp_writer_op(w, OP_POP);
    assert(w->memo == DCP_MEMO_END);
    return SIDESTEP_OK;
}
