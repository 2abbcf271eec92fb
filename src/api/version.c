/* SPDX-License-Identifier: BSD-3-Clause */
/* version.c -- the version of the loaded library, for comparison with that of the header. */
#include "sidestep/sidestep.h"

#define JOIN_(major, minor, patch) #major "." #minor "." #patch
#define JOIN(major, minor, patch) JOIN_(major, minor, patch)

const char *sidestep_version(void)
{
    return JOIN(SIDESTEP_VERSION_MAJOR, SIDESTEP_VERSION_MINOR, SIDESTEP_VERSION_PATCH);
}
