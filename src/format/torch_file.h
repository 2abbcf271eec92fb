/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * torch_file.h -- reads a file of torch.save(): a zip with a pickle and the storages of its
 * tensors.
 *
 * It executes nothing.  It recognises dicts, lists and tensors.  All else is an object: data, or
 * something that it cannot read.
 */
#ifndef FORMAT_TORCH_FILE_H
#define FORMAT_TORCH_FILE_H

#include "base/base.h"
#include "format/archive.h"

#define TORCH_FILE_MAX_ENTRIES 1000000u
/* In a pickle, one dict may be in many places, with entries in each.  So a few bytes could ask for
 * any time and memory.  Therefore the size of the pickle limits its nodes as a tree, and the memory
 * for names and shapes. */
#define TORCH_FILE_MAX_NODES(bytes) (((uint64_t)1 << 16) + 8 * (uint64_t)(bytes))
#define TORCH_FILE_MAX_MEMORY(bytes) (((size_t)64 << 20) + 64 * (size_t)(bytes))

struct torch_file_entry {
    const char *name; /* the items of its path, joined by dots */
    const struct sidestep_path_item *path;
    uint32_t path_length;
    bool requires_grad;
    const struct archive_tensor *tensor; /* offsets are in the file; NULL: not a tensor */
    const void *object;                  /* for torch_file_write_object(); NULL: not an object */
    const char *unreadable;              /* if neither: why this tensor cannot be read */
};

struct torch_file {
    struct torch_file_entry *entries; /* in the order of the pickle */
    size_t count;
};

/* Read the entries of a state dict, by the rules of torch.distributed.checkpoint: dicts are
 * always flattened, and lists if they contain tensors or dicts.  Empty dicts and lists, tuples and
 * all else are objects.  Quantised, sparse and other tensors that are not plain are unreadable. All
 * lives in ${arena}.  Reads the directory and the pickle.  EUNSUPPORTED: the file does not contain
 * dicts or lists of tensors, a part of it has no name, or it exceeds the limits above. */
enum sidestep_status torch_file_read(const struct source *source, struct arena *arena,
                                     struct torch_file *out, struct sidestep_error *err);

/* Append an object as an archive.  EUNSUPPORTED: it is not plain data. */
enum sidestep_status torch_file_write_object(const void *object, struct buffer *out,
                                             struct sidestep_error *err);

#endif
