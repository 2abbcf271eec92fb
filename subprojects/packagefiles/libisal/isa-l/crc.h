/* SPDX-License-Identifier: BSD-3-Clause */
/* crc.h -- in the folder that it has where ISA-L is installed. */
#include "../include/crc.h"
