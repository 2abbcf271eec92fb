/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cat.c -- `sidestep cat`: writes the bytes of one tensor, object or small file.
 *
 * It writes a tensor of any size in boxes of at most PIECE_BYTES.  In row-major order such a box
 * is contiguous if it is one index wide in every dimension before the one that is cut, and whole in
 * every dimension after it.
 */
#include "cli.h"
#include "memory.h"
#include "output.h"
#include "progress.h"
#include "src/format/npy.h"
#include "suggest.h"
#include "value.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE_BYTES ((uint64_t)48 << 20) /* 64 MiB together with the library's buffers */

/* The boxes of one tensor. */
struct pieces {
    const struct sidestep_entry *entry;
    uint32_t cut;       /* dimension that is cut */
    uint64_t row_bytes; /* of one index of ${cut} */
    int64_t offsets[SIDESTEP_MAX_NDIM];
    int64_t lengths[SIDESTEP_MAX_NDIM];
};

static void pieces_init(struct pieces *pieces, const struct sidestep_entry *entry)
{
    uint64_t inner = sidestep_dtype_size(entry->dtype);
    uint32_t d = entry->ndim;

    *pieces = (struct pieces){.entry = entry};
    /* The product of the lengths is ${entry->bytes}, so no partial product overflows. */
    while (d > 1 && inner * (uint64_t)entry->shape[d - 1] <= PIECE_BYTES) {
        d--;
        inner *= (uint64_t)entry->shape[d];
    }
    pieces->cut = d - 1;
    pieces->row_bytes = inner;
    for (uint32_t i = 0; i < entry->ndim; i++)
        pieces->lengths[i] = i > pieces->cut ? entry->shape[i] : 1;
}

/* Set ${lengths} to those of the box at ${offsets}; returns its bytes. */
static uint64_t pieces_size(struct pieces *pieces)
{
    uint32_t cut = pieces->cut;
    int64_t left = pieces->entry->shape[cut] - pieces->offsets[cut];
    int64_t rows = (int64_t)(PIECE_BYTES / pieces->row_bytes);

    pieces->lengths[cut] = rows < left ? rows : left;
    return (uint64_t)pieces->lengths[cut] * pieces->row_bytes;
}

/* Move ${offsets} past the box; false at the end of the tensor. */
static bool pieces_next(struct pieces *pieces)
{
    uint32_t d = pieces->cut;

    pieces->offsets[d] += pieces->lengths[d];
    while (pieces->offsets[d] == pieces->entry->shape[d]) {
        if (d == 0)
            return false;
        pieces->offsets[d--] = 0;
        pieces->offsets[d]++;
    }
    return true;
}

/* Progress is drawn only if the output is a file: a pager would show it between the bytes. */
static bool output_is_file(void)
{
    struct stat stat;

    return fstat(STDOUT_FILENO, &stat) == 0 && S_ISREG(stat.st_mode);
}

/* Read all pieces, in order; write them to standard output if ${write}, else only verify them. */
static enum sidestep_status read_pieces(const struct cli *cli,
                                        struct sidestep_checkpoint *checkpoint,
                                        const struct sidestep_entry *entry, void *buffer,
                                        bool write, struct sidestep_error *err)
{
    struct cli_progress progress;
    struct pieces pieces;
    enum sidestep_status status;
    uint64_t done = 0;

    pieces_init(&pieces, entry);
    cli_progress_begin(&progress, cli, entry->name);
    progress.enabled = progress.enabled && output_is_file();
    do {
        uint64_t bytes = pieces_size(&pieces);

        status = sidestep_checkpoint_read_tensor(checkpoint, entry->name, pieces.offsets,
                                                 pieces.lengths, buffer, bytes, err);
        if (status != SIDESTEP_OK)
            break;
        if (write)
            fwrite(buffer, 1, bytes, cli->out);
        done += bytes;
        cli_progress_update(&progress, done, entry->bytes);
    } while (pieces_next(&pieces));
    cli_progress_end(&progress);
    return status;
}

/* Copy a tensor that fits in one piece, scalars included. */
static enum sidestep_status copy_whole(const struct cli *cli,
                                       struct sidestep_checkpoint *checkpoint,
                                       const struct sidestep_entry *entry, void *buffer,
                                       const char *header, size_t header_bytes,
                                       struct sidestep_error *err)
{
    enum sidestep_status status = sidestep_checkpoint_read_tensor(checkpoint, entry->name, NULL,
                                                                  NULL, buffer, entry->bytes, err);

    if (status != SIDESTEP_OK)
        return status;
    fwrite(header, 1, header_bytes, cli->out);
    fwrite(buffer, 1, entry->bytes, cli->out);
    return SIDESTEP_OK;
}

/* After a header all bytes must follow, so verify the tensor completely before writing it. */
static enum sidestep_status copy_pieces(const struct cli *cli,
                                        struct sidestep_checkpoint *checkpoint,
                                        const struct sidestep_entry *entry, void *buffer,
                                        const char *header, size_t header_bytes,
                                        struct sidestep_error *err)
{
    if (header_bytes != 0) {
        enum sidestep_status status = read_pieces(cli, checkpoint, entry, buffer, false, err);

        if (status != SIDESTEP_OK)
            return status;
    }
    fwrite(header, 1, header_bytes, cli->out);
    return read_pieces(cli, checkpoint, entry, buffer, true, err);
}

static enum sidestep_status cat_tensor(const struct cli *cli,
                                       struct sidestep_checkpoint *checkpoint,
                                       const struct sidestep_entry *entry,
                                       struct sidestep_error *err)
{
    enum sidestep_status status;
    char header[NPY_MAX_BYTES];
    size_t header_bytes = 0;
    void *buffer;

    if (sidestep_dtype_size(entry->dtype) == 0)
        return cli_error_set(err, SIDESTEP_EUNSUPPORTED,
                             "cat: '%s' has dtype %s, and tensors of this dtype cannot be read",
                             entry->name, entry->dtype_name);
    if (cli_has_option(cli, CLI_OPTION_NPY)) {
        if (npy_descr(entry->dtype) == NULL)
            return cli_error_set(err, SIDESTEP_EUNSUPPORTED,
                                 "cat: '%s' is %s, which NumPy lacks; without --npy its bytes are "
                                 "written as they are",
                                 entry->name, entry->dtype_name);
        header_bytes = npy_header(header, entry->dtype, entry->ndim, entry->shape);
    }
    buffer = cli_memory_alloc(entry->bytes < PIECE_BYTES ? entry->bytes : PIECE_BYTES);
    if (entry->bytes <= PIECE_BYTES)
        status = copy_whole(cli, checkpoint, entry, buffer, header, header_bytes, err);
    else
        status = copy_pieces(cli, checkpoint, entry, buffer, header, header_bytes, err);
    free(buffer);
    return status;
}

static enum sidestep_status cat_object(const struct cli *cli,
                                       struct sidestep_checkpoint *checkpoint, const char *name,
                                       struct sidestep_error *err)
{
    void *bytes = NULL;
    size_t length = 0;
    enum sidestep_status status =
        sidestep_checkpoint_read_bytes(checkpoint, name, &bytes, &length, err);

    if (status == SIDESTEP_OK)
        fwrite(bytes, 1, length, cli->out);
    sidestep_bytes_free(&bytes);
    return status;
}

static enum sidestep_status cat_value(const struct cli *cli, struct sidestep_checkpoint *checkpoint,
                                      const char *name, struct sidestep_error *err)
{
    struct cli_json json = {.out = cli->out};
    struct sidestep_value *value = NULL;
    enum sidestep_status status = sidestep_checkpoint_read_value(checkpoint, name, &value, err);

    if (status != SIDESTEP_OK)
        return status;
    cli_value_json(&json, NULL, value);
    fputc('\n', cli->out);
    sidestep_value_free(&value);
    return SIDESTEP_OK;
}

static enum sidestep_status cat_file(const struct cli *cli, struct sidestep_checkpoint *checkpoint,
                                     const char *name, struct sidestep_error *err)
{
    void *bytes = NULL;
    size_t length = 0;
    enum sidestep_status status =
        sidestep_checkpoint_read_file(checkpoint, name, &bytes, &length, err);

    if (status == SIDESTEP_OK && length != 0)
        fwrite(bytes, 1, length, cli->out);
    sidestep_bytes_free(&bytes);
    return status;
}

static bool has_file(const struct sidestep_checkpoint *checkpoint, const char *name)
{
    for (size_t i = 0; i < sidestep_checkpoint_file_count(checkpoint); i++)
        if (strcmp(sidestep_checkpoint_file(checkpoint, i)->name, name) == 0)
            return true;
    return false;
}

static enum sidestep_status not_found(struct sidestep_checkpoint *checkpoint, const char *path,
                                      const char *name, struct sidestep_error *err)
{
    struct cli_suggest suggest;

    if (has_file(checkpoint, name))
        return cli_error_set(err, SIDESTEP_ENOTFOUND,
                             "cat: '%s' of '%s' is a small file: write it with --file", name, path);
    cli_suggest_init(&suggest, name);
    for (size_t i = 0; i < sidestep_checkpoint_count(checkpoint); i++)
        cli_suggest_offer(&suggest, sidestep_checkpoint_entry(checkpoint, i)->name);
    if (suggest.best != NULL)
        return cli_error_set(err, SIDESTEP_ENOTFOUND, "cat: no '%s' in '%s'; did you mean '%s'?",
                             name, path, suggest.best);
    return cli_error_set(err, SIDESTEP_ENOTFOUND, "cat: no '%s' in '%s'", name, path);
}

static enum sidestep_status cat_named(const struct cli *cli, struct sidestep_checkpoint *checkpoint,
                                      struct sidestep_error *err)
{
    const char *name = cli->operands[1];
    const struct sidestep_entry *entry = sidestep_checkpoint_find(checkpoint, name);

    if (cli_has_option(cli, CLI_OPTION_FILE))
        return cat_file(cli, checkpoint, name, err);
    if (entry == NULL)
        return not_found(checkpoint, cli->operands[0], name, err);
    if (cli_has_option(cli, CLI_OPTION_VALUE) && !entry->is_object)
        return cli_error_set(err, SIDESTEP_EINVAL, "cat: '%s' is a tensor; --value is for objects",
                             name);
    if (cli_has_option(cli, CLI_OPTION_NPY) && entry->is_object)
        return cli_error_set(err, SIDESTEP_EINVAL, "cat: '%s' is an object; --npy is for tensors",
                             name);
    if (cli_has_option(cli, CLI_OPTION_VALUE))
        return cat_value(cli, checkpoint, name, err);
    if (entry->is_object)
        return cat_object(cli, checkpoint, name, err);
    return cat_tensor(cli, checkpoint, entry, err);
}

int cli_cat_run(const struct cli *cli)
{
    struct sidestep_checkpoint *checkpoint = NULL;
    struct sidestep_error err = {0};
    enum sidestep_status status;

    if (cli_has_option(cli, CLI_OPTION_NPY) + cli_has_option(cli, CLI_OPTION_VALUE) +
            cli_has_option(cli, CLI_OPTION_FILE) >
        1)
        return cli_output_usage(cli, "cat: --npy, --value and --file exclude each other");
    if (isatty(STDOUT_FILENO) && !cli_has_option(cli, CLI_OPTION_FORCE) &&
        !cli_has_option(cli, CLI_OPTION_VALUE))
        return cli_output_usage(cli, "cat: standard output is a terminal; --force writes bytes to "
                                     "it nevertheless");
    status = sidestep_checkpoint_open(cli->operands[0], &checkpoint, &err);
    if (status == SIDESTEP_OK)
        status = cat_named(cli, checkpoint, &err);
    sidestep_checkpoint_close(&checkpoint);
    return status == SIDESTEP_OK ? 0 : cli_output_error(cli, &err);
}
