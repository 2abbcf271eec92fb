/* SPDX-License-Identifier: BSD-3-Clause */
/* show.h -- what the parts of `sidestep show` share. */
#ifndef CLI_SHOW_H
#define CLI_SHOW_H

#include "cli.h"
#include "json.h"

/** One look at a checkpoint. */
struct cli_show {
    const struct cli *cli;
    struct sidestep_checkpoint *checkpoint;
    struct sidestep_checkpoint_info info;
    const struct sidestep_entry **entries; /* that GLOB selects, sorted by name */
    size_t entry_count;
    bool is_damaged;                     /* an object that was shown does not match its hash */
    struct sidestep_tensor_stats *stats; /* of each entry, of objects zeros; NULL: not wanted */
};

/** Larger objects are not decoded to be printed. */
#define CLI_SHOW_MAX_VALUE_BYTES ((uint64_t)1 << 20)

/** cli_show_read_value(show, entry, &value, err): read an object, to be freed with
 * sidestep_value_free().  Corrupt bytes set ${is_damaged}, as a missing file does. */
enum sidestep_status cli_show_read_value(struct cli_show *show, const struct sidestep_entry *entry,
                                         struct sidestep_value **value, struct sidestep_error *err);
/** cli_show_value_text(show, entry): an object for people, short and escaped; to be freed. */
char *cli_show_value_text(struct cli_show *show, const struct sidestep_entry *entry);
/** cli_show_shape_text(numbers, ndim): "[2, 3]", to be freed. */
char *cli_show_shape_text(const int64_t *numbers, uint32_t ndim);
/** cli_show_chunks(show, entry, indent): one line per stored chunk. */
void cli_show_chunks(const struct cli_show *show, const struct sidestep_entry *entry,
                     size_t indent);

/** cli_show_read_stats(show, err): fill ${stats} from the tensors' data, with progress. */
enum sidestep_status cli_show_read_stats(struct cli_show *show, struct sidestep_error *err);
/** cli_show_stats(show): the tensors with their stats, as a table. */
void cli_show_stats(const struct cli_show *show);
/** cli_show_json_stats(json, stats): the member "stats" of a tensor's object. */
void cli_show_json_stats(struct cli_json *json, const struct sidestep_tensor_stats *stats);

/** cli_show_tree(show): all entries, nested at the dots of their names. */
void cli_show_tree(struct cli_show *show);

#endif
