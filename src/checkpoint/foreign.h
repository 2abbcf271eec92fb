/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * foreign.h -- what is no checkpoint, but holds tensors, read as if it were one: a file of
 * safetensors, a directory of them (Hugging Face's: with an index, or one file; torch's
 * HuggingFaceStorageWriter's: several files with pieces of each tensor), a file of torch.save().
 * Known by content, not by name.
 *
 * Its tensors become entries of the reader's metadata with one chunk each, which
 * reader_locate_item() finds; so whoever reads checkpoints (loads, conversions, the command line)
 * reads these, too. Symbolic links in the user's own directory are followed: model caches are made
 * of them.
 */
#ifndef CHECKPOINT_FOREIGN_H
#define CHECKPOINT_FOREIGN_H

#include "checkpoint/reader.h"

/* What the metadata does not say of an entry. */
struct foreign_entry {
    const struct archive_tensor
        *tensor;        /* of torch.save(), places in the file; NULL: plain bytes */
    const void *object; /* of torch.save() */
};

struct foreign {
    const char *format;            /* "safetensors", "torch" */
    bool has_pieces;               /* of tensors, in files of safetensors */
    struct foreign_entry *entries; /* as the metadata's */
    struct store_dir **dirs;
    size_t dir_count;
    struct arena objects; /* what the pickle of torch.save() says */
};

/* Fill ${r} from r->path, if it is such a thing: ${*is_foreign}.  False for directories with a
 * `.metadata`.  EUNSUPPORTED says what else it is, where that is known. */
enum sidestep_status foreign_open(struct reader *r, uint32_t flags, bool *is_foreign,
                                  struct sidestep_error *err);
void foreign_free(struct foreign **foreign);

/* Entries of equal names become one of several chunks.  ECORRUPT unless they make up a tensor each.
 */
enum sidestep_status foreign_merge_shards(struct metadata *metadata, struct sidestep_error *err);

/* The object as an archive of its own, as a checkpoint would store it; malloc'ed.  EUNSUPPORTED: it
 * is more than data. */
enum sidestep_status foreign_object_encode(const void *object, void **bytes, size_t *length,
                                           struct sidestep_error *err);

#endif
