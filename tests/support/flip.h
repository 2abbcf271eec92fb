/* SPDX-License-Identifier: BSD-3-Clause */
/* flip.h -- flips one bit of a file. */
#ifndef SUPPORT_FLIP_H
#define SUPPORT_FLIP_H

#include "support/unit.h"

static inline void flip(const char *path, long offset)
{
    FILE *f = fopen(path, "r+");

    assert_non_null(f);
    assert_int_equal(fseek(f, offset, SEEK_SET), 0);
    int byte = fgetc(f);
    assert_int_equal(fseek(f, offset, SEEK_SET), 0);
    assert_int_not_equal(fputc(byte ^ 0x40, f), EOF);
    assert_int_equal(fclose(f), 0);
}

#endif
