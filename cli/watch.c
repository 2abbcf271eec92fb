/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * watch.c -- `sidestep watch`: repeatedly reads from storage which saves are under way, and prints
 * them.
 *
 * On a terminal the lines are redrawn.  Otherwise each look is printed after the one before, if it
 * shows anything.  When a save has disappeared, its outcome is known: its checkpoint exists or
 * not.
 */
#include "verify_path.h"
#include "escape.h"
#include "json.h"
#include "memory.h"
#include "output.h"
#include "parse_units.h"
#include "table.h"
#include "format_units.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000ll
#define DEFAULT_INTERVAL_NS NS_PER_S
#define RATE_WEIGHT 0.3 /* of the newest rate in the average that is shown */

/* A save that was seen. */
struct watched {
    char save_id[40];
    char *name; /* of the checkpoint, or where it is written; owned */
    int64_t step;
    uint64_t written;
    int64_t seen_ns;
    double rate;  /* bytes per second; < 0: not known yet */
    bool is_seen; /* the last look saw it */
    struct watched *next;
};

struct watch {
    const struct cli *cli;
    const char *root;
    bool redraws;
    bool is_json;
    int64_t interval_ns;
    struct watched *saves;
    size_t drawn_lines; /* to redraw */
    bool has_printed_none;
    bool has_looked;
    enum sidestep_status unread_status; /* of a directory that the last look could not read */
};

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

/* ---- saves that were seen */

static struct watched *find_save(struct watch *watch, const struct sidestep_saving *saving)
{
    const char *shown = saving->name != NULL ? saving->name : saving->path;
    struct watched *w = watch->saves;

    while (w != NULL && strcmp(w->save_id, saving->save_id) != 0)
        w = w->next;
    if (w == NULL) {
        w = cli_memory_alloc(sizeof(*w));
        *w = (struct watched){.step = saving->step,
                              .name = cli_memory_copy(shown, strlen(shown)),
                              .rate = -1,
                              .next = watch->saves};
        snprintf(w->save_id, sizeof(w->save_id), "%s", saving->save_id);
        watch->saves = w;
    }
    return w;
}

static void update_save(struct watched *w, const struct sidestep_saving *saving, int64_t now)
{
    double seconds = (double)(now - w->seen_ns) / (double)NS_PER_S;

    if (w->seen_ns != 0 && seconds > 0) {
        double rate = saving->written_bytes > w->written
                          ? (double)(saving->written_bytes - w->written) / seconds
                          : 0;
        w->rate = w->rate < 0 ? rate : w->rate + RATE_WEIGHT * (rate - w->rate);
    }
    w->written = saving->written_bytes;
    w->seen_ns = now;
    w->is_seen = true;
}

/* The final size: that of the files, once all ranks have made theirs. */
static uint64_t total_bytes(const struct sidestep_saving *saving)
{
    bool all_begun = saving->expected_ranks != 0 && saving->rank_count >= saving->expected_ranks;

    return all_begun || saving->bytes > saving->expected_bytes ? saving->bytes
                                                               : saving->expected_bytes;
}

/* In seconds; < 0: unknown. */
static double time_left(const struct watched *w, const struct sidestep_saving *saving)
{
    uint64_t total = total_bytes(saving);

    if (w->rate <= 0 || saving->is_dead || total < saving->written_bytes)
        return -1;
    return (double)(total - saving->written_bytes) / w->rate;
}

/* ---- JSON: one line per look */

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
                        const struct watched *w)
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
    cli_json_uint(json, "total_bytes", total_bytes(saving));
    json_real_or_null(json, "bytes_per_second", w->rate);
    json_real_or_null(json, "seconds_left", time_left(w, saving));
    json_writers(json, saving);
    cli_json_close(json, '}');
}

/* The outcome of a save that has disappeared. */
enum outcome { COMMITTED, ABORTED, UNKNOWN };

static enum outcome find_outcome(const struct watched *w, const struct sidestep_list *root,
                                 const struct sidestep_listed **found)
{
    enum outcome outcome = ABORTED;

    for (size_t i = 0; i < root->count; i++) {
        const struct sidestep_listed *entry = sidestep_list_entry(root, i);

        if (entry->save_id != NULL && strcmp(entry->save_id, w->save_id) == 0) {
            *found = entry;
            return COMMITTED;
        }
        if (entry->save_id == NULL && entry->state == SIDESTEP_UNREADABLE &&
            strcmp(entry->name, w->name) == 0)
            outcome = UNKNOWN;
    }
    return outcome;
}

static void json_ended(struct cli_json *json, const struct watched *w,
                       const struct sidestep_list *root)
{
    const struct sidestep_listed *found;
    enum outcome outcome = find_outcome(w, root, &found);

    cli_json_open(json, NULL, '{');
    cli_json_text(json, "name", w->name);
    cli_json_text(json, "save_id", w->save_id);
    if (outcome == UNKNOWN)
        cli_json_null(json, "committed");
    else
        cli_json_bool(json, "committed", outcome == COMMITTED);
    cli_json_close(json, '}');
}

static void print_json(struct watch *watch, const struct sidestep_saving_list *list,
                       const struct sidestep_list *root)
{
    struct cli_json json = cli_json_begin(watch->cli->out);

    cli_json_open(&json, "saving", '[');
    for (size_t i = 0; i < list->count; i++)
        json_saving(&json, sidestep_saving_list_entry(list, i),
                    find_save(watch, sidestep_saving_list_entry(list, i)));
    cli_json_close(&json, ']');
    cli_json_open(&json, "ended", '[');
    for (const struct watched *w = watch->saves; w != NULL; w = w->next)
        if (!w->is_seen)
            json_ended(&json, w, root);
    cli_json_close(&json, ']');
    cli_json_texts(&json, "unread", list->unread, list->unread_count);
    cli_json_end(&json);
}

/* ---- text */

/* "step-12  45 %  1.2 GiB of 2.6 GiB  310 MiB/s  0:05 left  3 ranks, 1 done" */
static void print_saving(const struct cli *cli, const struct sidestep_saving *saving,
                         const struct watched *w)
{
    char done[CLI_FORMAT_UNITS_BYTES], all[CLI_FORMAT_UNITS_BYTES], rate[CLI_FORMAT_UNITS_BYTES],
        left[CLI_FORMAT_UNITS_BYTES];
    uint64_t total = total_bytes(saving);
    double seconds = time_left(w, saving);

    cli_format_units_size(done, saving->written_bytes);
    cli_format_units_size(all, total);
    cli_escape_write(cli->out, w->name, strlen(w->name));
    fprintf(cli->out, "  %3.0f %%  %s of %s",
            total != 0 ? 100 * (double)saving->written_bytes / (double)total : 0.0, done, all);
    if (w->rate >= 0 && !saving->is_dead) {
        cli_format_units_size(rate, (uint64_t)w->rate);
        fprintf(cli->out, "  %s/s", rate);
    }
    if (seconds >= 0) {
        cli_format_units_duration(left, (uint64_t)seconds);
        fprintf(cli->out, "  %s left", left);
    }
    fprintf(cli->out, "  %" PRIu32 " rank%s", saving->rank_count,
            saving->rank_count == 1 ? "" : "s");
    if (saving->done_count != 0)
        fprintf(cli->out, ", %" PRIu32 " done", saving->done_count);
    if (saving->failed_count != 0)
        fprintf(cli->out, ", %" PRIu32 " failed", saving->failed_count);
    if (saving->is_dead)
        cli_table_style(cli->out, cli->color ? CLI_STYLE_RED : NULL,
                        "  dead: its owner has ended ('sidestep gc' removes it)");
    fputc('\n', cli->out);
}

static void print_ended(const struct watch *watch, const struct sidestep_list *root)
{
    const struct cli *cli = watch->cli;

    for (const struct watched *w = watch->saves; w != NULL; w = w->next) {
        const struct sidestep_listed *found;
        char size[CLI_FORMAT_UNITS_BYTES];

        if (w->is_seen)
            continue;
        cli_escape_write(cli->out, w->name, strlen(w->name));
        switch (find_outcome(w, root, &found)) {
        case COMMITTED:
            cli_format_units_size(size, found->bytes);
            cli_table_style(cli->out, cli->color ? CLI_STYLE_GREEN : NULL, "  committed");
            fprintf(cli->out, ", %s\n", size);
            break;
        case ABORTED:
            cli_table_style(cli->out, cli->color ? CLI_STYLE_RED : NULL, "  aborted");
            fputc('\n', cli->out);
            break;
        case UNKNOWN:
            fputs("  ended; its outcome cannot be read\n", cli->out);
            break;
        }
    }
}

static void print_text(struct watch *watch, const struct sidestep_saving_list *list,
                       const struct sidestep_list *root)
{
    if (watch->redraws && watch->drawn_lines != 0)
        fprintf(watch->cli->out, "\033[%zuA\033[J", watch->drawn_lines);
    print_ended(watch, root);
    for (size_t i = 0; i < list->count; i++)
        print_saving(watch->cli, sidestep_saving_list_entry(list, i),
                     find_save(watch, sidestep_saving_list_entry(list, i)));
    watch->drawn_lines = list->count;
    if (list->count == 0 && (watch->redraws || !watch->has_printed_none)) {
        fputs(list->unread_count == 0 ? "nothing is being saved\n"
                                      : "nothing that can be seen is being saved\n",
              watch->cli->out);
        watch->drawn_lines = 1;
    }
    watch->has_printed_none = list->count == 0;
}

/* ---- looking */

static void forget_ended(struct watch *watch)
{
    for (struct watched **at = &watch->saves; *at != NULL;) {
        struct watched *w = *at;

        if (w->is_seen) {
            at = &w->next;
            continue;
        }
        *at = w->next;
        free(w->name);
        free(w);
    }
}

static enum sidestep_status look(struct watch *watch, struct sidestep_error *err)
{
    struct sidestep_saving_list list = {0};
    struct sidestep_list root = {0};
    bool any_ended = false;

    enum sidestep_status status = sidestep_list_saving(watch->root, &list, err);
    if (status != SIDESTEP_OK)
        return status;
    for (struct watched *w = watch->saves; w != NULL; w = w->next)
        w->is_seen = false;
    for (size_t i = 0; i < list.count; i++)
        update_save(find_save(watch, sidestep_saving_list_entry(&list, i)),
                    sidestep_saving_list_entry(&list, i), now_ns());
    for (struct watched *w = watch->saves; w != NULL; w = w->next)
        any_ended |= !w->is_seen;
    if (any_ended)
        status = sidestep_list_root(watch->root, &root, err);
    if (status == SIDESTEP_OK) {
        if (watch->is_json)
            print_json(watch, &list, &root);
        else
            print_text(watch, &list, &root);
        fflush(watch->cli->out);
    }
    for (size_t i = 0; !watch->has_looked && i < list.unread_count; i++)
        cli_output_note(watch->cli, "cannot look into %s", list.unread[i]);
    watch->has_looked = true;
    watch->unread_status = list.unread_status;
    forget_ended(watch);
    sidestep_list_release(&root);
    sidestep_saving_list_release(&list);
    return status;
}

/* Wait until the next look; an interrupt ends the wait. */
static void pause_between(const struct watch *watch)
{
    struct timespec time = {.tv_sec = (time_t)(watch->interval_ns / NS_PER_S),
                            .tv_nsec = (long)(watch->interval_ns % NS_PER_S)};

    if (!cli_interrupt_received())
        (void)nanosleep(&time, NULL);
}

int cli_watch_run(const struct cli *cli)
{
    struct watch watch = {.cli = cli,
                          .root = cli->operand_count > 0 ? cli->operands[0] : ".",
                          .is_json = cli_has_option(cli, CLI_OPTION_JSON),
                          .interval_ns = DEFAULT_INTERVAL_NS};
    struct sidestep_error err = {0};
    double seconds;

    if (cli_has_option(cli, CLI_OPTION_INTERVAL)) {
        if (!cli_parse_units_time(cli->options[CLI_OPTION_INTERVAL], &seconds) || seconds < 0.01 ||
            seconds > 86400)
            return cli_output_usage(cli, "watch: --interval: not a time from 0.01s to 24h");
        watch.interval_ns = (int64_t)(seconds * (double)NS_PER_S);
    }
    watch.redraws = !watch.is_json && isatty(STDOUT_FILENO);
    cli_interrupt_watch();
    enum sidestep_status status = look(&watch, &err);
    while (status == SIDESTEP_OK && !cli_has_option(cli, CLI_OPTION_ONCE)) {
        pause_between(&watch);
        if (cli_interrupt_received()) /* the normal end */
            break;
        status = look(&watch, &err);
    }
    for (struct watched *w = watch.saves; w != NULL; w = w->next)
        w->is_seen = false;
    forget_ended(&watch);
    if (status != SIDESTEP_OK)
        return cli_output_error(cli, &err);
    return cli_has_option(cli, CLI_OPTION_ONCE) ? sidestep_status_exit(watch.unread_status) : 0;
}
