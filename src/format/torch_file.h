/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * torch_file.h -- a file of torch.save(): the zip of a pickle, which has the nesting, and of the
 * storages of its tensors.  Nothing in it is executed: dicts, lists and tensors are recognised, and
 * all else is data, or left alone.
 */
#ifndef FORMAT_TORCH_FILE_H
#define FORMAT_TORCH_FILE_H

#include "base/base.h"
#include "format/archive.h"

#define TORCH_FILE_MAX_ENTRIES 1000000u
/* A pickle may mean one dict in many places, of which each has entries, or one tuple as many
 * objects: so few bytes could ask for any time and memory.  What it may be as a tree, in nodes, and
 * what names and shapes may take of memory, is bounded by its size. */
#define TORCH_FILE_MAX_NODES(bytes) (((uint64_t)1 << 16) + 8 * (uint64_t)(bytes))
#define TORCH_FILE_MAX_MEMORY(bytes) (((size_t)64 << 20) + 64 * (size_t)(bytes))

struct torch_file_entry {
    const char *name; /* its path, joined by dots */
    const struct sidestep_path_item *path;
    uint32_t path_length;
    bool requires_grad;
    const struct archive_tensor *tensor; /* its places are in the file; NULL: an object */
    const void *object;                  /* for torch_file_write_object() */
    const char *unreadable; /* neither, but a tensor of a kind that cannot be read: which */
};

struct torch_file {
    struct torch_file_entry *entries; /* in the order of the pickle */
    size_t count;
};

/* Takes a state dict apart by the rules of torch.distributed.checkpoint: dicts always, lists if
 * there are tensors or dicts in them; empty ones, tuples and everything else are objects; so are
 * quantised, sparse and other tensors that are not plain ones.  All
 * lives in ${arena}.  Reads the directory and the pickle.  EUNSUPPORTED: the file does not hold
 * dicts or lists of tensors, a part of it has no name, or it is beyond the limits above. */
enum sidestep_status torch_file_read(const struct source *source, struct arena *arena,
                                     struct torch_file *out, struct sidestep_error *err);

/* Append an object as an archive of its own.  EUNSUPPORTED: there is something in it that is not
 * data. */
enum sidestep_status torch_file_write_object(const void *object, struct buffer *out,
                                             struct sidestep_error *err);

#endif
