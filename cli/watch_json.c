/* SPDX-License-Identifier: BSD-3-Clause */
/* watch_json.c -- prints what `sidestep watch` sees as JSON: a line for each root and look. */
#include "watch.h"

#include "json.h"

static void json_writers(struct cli_json *json, const struct sidestep_saving *saving)
{
    cli_json_open(json, "writers", '[');
    for (uint32_t i = 0; i < saving->rank_count; i++) {
        const struct sidestep_writer *writer = sidestep_saving_writer(saving, i);
        cli_json_open(json, NULL, '{');
        cli_json_uint(json, "rank", writer->rank);
        cli_json_text(json, "state", writer->state_name);
        cli_json_uint(json, "bytes", writer->bytes);
        cli_json_uint(json, "written_bytes", writer->written_bytes);
        cli_json_close(json, '}');
    }
    cli_json_close(json, ']');
}

static void json_real_or_null(struct cli_json *json, const char *key, double number)
{
    if (number < 0)
        cli_json_null(json, key);
    else
        cli_json_real(json, key, number);
}

static void json_saving(struct cli_json *json, const struct sidestep_saving *saving,
                        const struct cli_watched *w)
{
    cli_json_open(json, NULL, '{');
    cli_json_text(json, "name", saving->name);
    cli_json_text(json, "path", saving->path);
    cli_json_text(json, "save_id", saving->save_id);
    cli_json_known(json, "step", saving->step >= 0, saving->step);
    cli_json_text(json, "owner", saving->owner);
    cli_json_bool(json, "dead", saving->is_dead);
    cli_json_uint(json, "ranks", saving->rank_count);
    cli_json_uint(json, "done", saving->done_count);
    cli_json_uint(json, "failed", saving->failed_count);
    cli_json_uint(json, "written_bytes", saving->written_bytes);
    cli_json_uint(json, "total_bytes", cli_watch_total_bytes(saving));
    json_real_or_null(json, "bytes_per_second", w->rate);
    json_real_or_null(json, "seconds_left", cli_watch_time_left(w, saving));
    json_writers(json, saving);
    cli_json_close(json, '}');
}

static void json_ended(struct cli_json *json, const struct cli_watched *w,
                       const struct sidestep_list *root)
{
    const struct sidestep_listed *found;
    enum cli_watch_outcome outcome = cli_watch_outcome(w, root, &found);

    cli_json_open(json, NULL, '{');
    cli_json_text(json, "name", w->name);
    cli_json_text(json, "save_id", w->save_id);
    if (outcome == CLI_WATCH_UNKNOWN)
        cli_json_null(json, "committed");
    else
        cli_json_bool(json, "committed", outcome == CLI_WATCH_COMMITTED);
    cli_json_close(json, '}');
}

static void print_root(struct cli_watch *watch, struct cli_watch_root *root)
{
    struct cli_json json = cli_json_begin(watch->cli->out);

    cli_json_text(&json, "root", root->path);
    if (root->level != NULL)
        cli_json_text(&json, "level", root->level);
    cli_json_open(&json, "saving", '[');
    for (size_t i = 0; i < root->list.count; i++) {
        const struct sidestep_saving *saving = sidestep_saving_list_entry(&root->list, i);
        json_saving(&json, saving, cli_watch_find(root, saving));
    }
    cli_json_close(&json, ']');
    cli_json_open(&json, "ended", '[');
    for (const struct cli_watched *w = root->saves; w != NULL; w = w->next)
        if (!w->is_seen)
            json_ended(&json, w, &root->entries);
    cli_json_close(&json, ']');
    cli_json_texts(&json, "unread", root->list.unread, root->list.unread_count);
    cli_json_text(&json, "error", root->err.status != SIDESTEP_OK ? root->err.message : NULL);
    cli_json_end(&json);
}

void cli_watch_print_json(struct cli_watch *watch)
{
    for (size_t i = 0; i < watch->root_count; i++)
        print_root(watch, &watch->roots[i]);
}
