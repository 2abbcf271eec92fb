/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * format.h -- writes and parses the formats of files, one file for each format.
 *
 * The formats: DCP's `.metadata` (dcp_metadata.h), items as torch.save() archives (archive.h), the
 * footer of a shard (footer.h), the manifest of a checkpoint (manifest.h), safetensors, files of
 * torch.save(), .npy, pointers of Git LFS, and the names of files (file_name.h, name_template.h).
 * docs/FORMAT.md explains the formats of sidestep.
 *
 * What comes in: structs of model/, to be written; or bytes of a file, to be parsed.
 * What goes out: bytes in a buffer, or structs of model/.
 *
 * Trust: no bytes are trusted.  A parser checks every length before it reads, allocates what its
 * limits allow, never lets the file choose the depth of a recursion, and executes nothing: a pickle
 * is data.  Each parser has a fuzz target in fuzz/.
 *
 * Ownership: the results of a parser live in the arena or struct that the caller passed.
 *
 * Threads: no state is shared, so any thread may write or parse.  Nothing here opens a file: bytes
 * come through base/source.h.
 */
#ifndef FORMAT_FORMAT_H
#define FORMAT_FORMAT_H

#include "format/archive.h"
#include "format/chunk_index.h"
#include "format/chunk_list.h"
#include "format/dcp_metadata.h"
#include "format/extra_file.h"
#include "format/file_name.h"
#include "format/footer.h"
#include "format/json_reader.h"
#include "format/manifest.h"
#include "format/name_template.h"
#include "format/npy.h"
#include "format/pickle.h"
#include "format/pointer_file.h"
#include "format/safetensors.h"
#include "format/torch_file.h"
#include "format/torch_write.h"
#include "format/zip_writer.h"

#endif
