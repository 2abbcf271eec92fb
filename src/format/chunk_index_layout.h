/* SPDX-License-Identifier: BSD-3-Clause */
/* chunk_index_layout.h -- defines what the writer (chunk_index.c) and the reader
 * (chunk_index_read.c) of an index share.  docs/FORMAT.md specifies the bytes. */
#ifndef FORMAT_CHUNK_INDEX_LAYOUT_H
#define FORMAT_CHUNK_INDEX_LAYOUT_H

#include "format/chunk_index.h"

#define CHUNK_INDEX_MAGIC "SSCHUNKS"
#define CHUNK_INDEX_MAGIC_BYTES 8u
#define CHUNK_INDEX_VERSION 1u
#define CHUNK_INDEX_ROW_BYTES 12u

#endif
