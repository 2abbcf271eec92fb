/* SPDX-License-Identifier: BSD-3-Clause */
/* show.h -- data and functions that the files of `sidestep show` share. */
#ifndef CLI_SHOW_H
#define CLI_SHOW_H

#include "cli.h"
#include "json.h"

/** One run of the command. */
struct cli_show {
    const struct cli *cli;
    struct sidestep_checkpoint *checkpoint;
    struct sidestep_checkpoint_info info;
    const struct sidestep_entry **entries; /* those that GLOB selects, sorted by name */
    size_t entry_count;
    const struct sidestep_file **files; /* small files that GLOB selects */
    size_t file_count;
    bool is_damaged; /* an object that was shown is damaged */
    char **classes; /* per entry: of a tensor that only PyTorch can decode, what it is; else NULL */
    struct sidestep_tensor_stats *stats; /* per entry; zeros for objects; NULL: not asked for */
};

/** Objects that are larger are not decoded. */
#define CLI_SHOW_MAX_VALUE_BYTES ((uint64_t)1 << 20)

/** cli_show_read_value(show, entry, &value, err): read an object; free it with
 * sidestep_value_free().  Corrupt bytes and a missing file set ${is_damaged}. */
enum sidestep_status cli_show_read_value(struct cli_show *show, const struct sidestep_entry *entry,
                                         struct sidestep_value **value, struct sidestep_error *err);
/** cli_show_value_text(show, entry): an object as short escaped text; the caller frees it. */
char *cli_show_value_text(struct cli_show *show, const struct sidestep_entry *entry);
/** cli_show_find_classes(show): fill ${classes}. */
void cli_show_find_classes(struct cli_show *show);
/** cli_show_shape_text(numbers, ndim): "[2, 3]"; the caller frees it. */
char *cli_show_shape_text(const int64_t *numbers, uint32_t ndim);
/** cli_show_chunks(show, entry, indent): print one line per stored chunk. */
void cli_show_chunks(const struct cli_show *show, const struct sidestep_entry *entry,
                     size_t indent);

/** cli_show_read_stats(show, err): read the tensors to fill ${stats}, with progress. */
enum sidestep_status cli_show_read_stats(struct cli_show *show, struct sidestep_error *err);
/** cli_show_stats(show): print the tensors and their stats as a table. */
void cli_show_stats(const struct cli_show *show);
/** cli_show_json_stats(json, stats): print the member "stats" of a tensor. */
void cli_show_json_stats(struct cli_json *json, const struct sidestep_tensor_stats *stats);

/** cli_show_tree(show): print all entries, nested at the dots of their names. */
void cli_show_tree(struct cli_show *show);

#endif
