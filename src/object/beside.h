/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * beside.h -- files that other Python packages have installed beside this one. The wheel has no
 * libcurl and no certificates; PyPI's pycurl and certifi have.
 */
#ifndef OBJECT_BESIDE_H
#define OBJECT_BESIDE_H

#include "base/base.h"

#define BESIDE_PATH_BYTES 4096

/*
 * Find a file whose name begins with ${prefix} in ${folder} of the folder that has this package.
 * False: there is none.
 */
bool beside_find(const char *folder, const char *prefix, char path[BESIDE_PATH_BYTES]);

/*
 * The file of certificates to trust, if libcurl's own choice, ${file} and ${folder}, does not
 * exist: it is the place of the system that libcurl was built on.  Each may be NULL.  Returns NULL:
 * keep libcurl's choice; else ${path} or a constant.
 */
const char *beside_certificates(const char *file, const char *folder, char path[BESIDE_PATH_BYTES]);

#endif
