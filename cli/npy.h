/* SPDX-License-Identifier: BSD-3-Clause */
/* npy.h -- the header of NumPy's .npy files. */
#ifndef CLI_NPY_H
#define CLI_NPY_H

#include <sidestep/sidestep.h>

/** Enough for any header: SIDESTEP_MAX_NDIM lengths of 19 digits, and the rest. */
#define CLI_NPY_MAX_BYTES 2048

/** cli_npy_descr(dtype): "<f4"; NULL if NumPy has no such dtype. */
const char *cli_npy_descr(enum sidestep_dtype dtype);

/** cli_npy_header(header, entry): write the header of the tensor ${entry}, whose dtype NumPy has;
 * returns its length, a multiple of 64. */
size_t cli_npy_header(char header[CLI_NPY_MAX_BYTES], const struct sidestep_entry *entry);

#endif
