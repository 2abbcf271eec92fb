/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * foreign.h -- opens files that hold tensors but are not a checkpoint, as if they were one.
 *
 * These are a safetensors file, a directory of them, and a torch.save() file. A directory comes
 * from Hugging Face (with an index, or one file), or from torch's HuggingFaceStorageWriter (several
 * files with pieces of each tensor). The content decides, not the name.
 *
 * Each tensor becomes an entry of the reader's metadata with one chunk, which reader_locate_item()
 * finds. So loads, conversions and the command line read these files like a checkpoint. Symbolic
 * links in the user's own directory are followed, because model caches consist of them.
 */
#ifndef CHECKPOINT_FOREIGN_H
#define CHECKPOINT_FOREIGN_H

#include "checkpoint/reader.h"

/* What is known of an entry beyond its metadata. */
struct foreign_entry {
    const struct archive_tensor
        *tensor;        /* in torch.save(), with offsets in the file; NULL: plain bytes */
    const void *object; /* in torch.save() */
};

struct foreign {
    const char *format;            /* "safetensors", "torch" */
    bool has_pieces;               /* safetensors files hold pieces of tensors */
    struct foreign_entry *entries; /* parallel to the entries of the metadata */
    struct store_dir **dirs;
    size_t dir_count;
    struct arena objects; /* content of the pickle in a torch.save() file */
};

/* Open r->path, and fill ${r} if it is such a file or directory; ${*is_foreign} says whether it is.
 * r->dir is a directory without a `.metadata`; or NULL: it is a file. EUNSUPPORTED: the file has
 * another format, which the message names if it is known. */
enum sidestep_status foreign_open(struct reader *r, uint32_t flags, bool *is_foreign,
                                  struct sidestep_error *err);
void foreign_free(struct foreign **foreign);

/* Merge entries of equal names into one entry with several chunks. ECORRUPT: the pieces do not make
 * up a tensor. */
enum sidestep_status foreign_merge_shards(struct metadata *metadata, struct sidestep_error *err);

/* Encode the object as an archive of its own, as a checkpoint stores it. The caller frees
 * ${*bytes}.
 * EUNSUPPORTED: the object is more than data. */
enum sidestep_status foreign_object_encode(const void *object, void **bytes, size_t *length,
                                           struct sidestep_error *err);

#endif
