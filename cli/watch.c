/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * watch.c -- `sidestep watch`: repeatedly reads from storage which saves are under way, and prints
 * them (watch_text.c, watch_json.c).
 */
#include "watch.h"

#include "memory.h"
#include "output.h"
#include "parse_units.h"
#include "verify_path.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000ll
#define DEFAULT_INTERVAL_NS NS_PER_S
#define RATE_WEIGHT 0.3 /* of the newest rate in the average that is shown */

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

/* ---- looking */

static void update_save(struct cli_watched *w, const struct sidestep_saving *saving, int64_t now)
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

static void forget_ended(struct cli_watch_root *root)
{
    for (struct cli_watched **at = &root->saves; *at != NULL;) {
        struct cli_watched *w = *at;

        if (w->is_seen) {
            at = &w->next;
            continue;
        }
        *at = w->next;
        free(w->name);
        free(w);
    }
}

static void look(const struct cli_watch *watch, struct cli_watch_root *root)
{
    bool any_ended = false;

    root->err = (struct sidestep_error){0};
    enum sidestep_status status = sidestep_list_saving(root->path, &root->list, &root->err);
    root->is_lost = status == SIDESTEP_ENOTFOUND && root->levels.mirror != NULL &&
                    (root->is_lost || !root->has_looked);
    if (root->is_lost)
        root->err = (struct sidestep_error){0};
    else if (status != SIDESTEP_OK)
        return;
    if (!root->has_looked)
        cli_levels_note(watch->cli, &root->levels, root->is_lost);
    for (struct cli_watched *w = root->saves; w != NULL; w = w->next)
        w->is_seen = false;
    for (size_t i = 0; i < root->list.count; i++) {
        const struct sidestep_saving *saving = sidestep_saving_list_entry(&root->list, i);
        update_save(cli_watch_find(root, saving), saving, now_ns());
    }
    for (struct cli_watched *w = root->saves; w != NULL; w = w->next)
        any_ended |= !w->is_seen;
    if (any_ended && sidestep_list_root(root->path, &root->entries, &root->err) != SIDESTEP_OK)
        return;
    for (size_t i = 0; !root->has_looked && i < root->list.unread_count; i++)
        cli_output_note(watch->cli, "cannot look into %s", root->list.unread[i]);
    root->has_looked = true;
    root->unread_status = root->list.unread_status;
}

static void forget(struct cli_watch_root *root)
{
    if (root->err.status == SIDESTEP_OK)
        forget_ended(root);
    sidestep_list_release(&root->entries);
    sidestep_saving_list_release(&root->list);
}

/* One root that cannot be looked at ends the command; with several, the others are more worth. */
static enum sidestep_status look_at_all(struct cli_watch *watch)
{
    for (size_t i = 0; i < watch->root_count; i++)
        look(watch, &watch->roots[i]);
    enum sidestep_status failed = (enum sidestep_status)watch->roots[0].err.status;
    if (watch->root_count > 1 || failed == SIDESTEP_OK) {
        if (watch->is_json)
            cli_watch_print_json(watch);
        else
            cli_watch_print_text(watch);
        fflush(watch->cli->out);
    }
    for (size_t i = 0; i < watch->root_count; i++)
        forget(&watch->roots[i]);
    return watch->root_count > 1 ? SIDESTEP_OK : failed;
}

/* Wait until the next look; an interrupt ends the wait. */
static void pause_between(const struct cli_watch *watch)
{
    struct timespec time = {.tv_sec = (time_t)(watch->interval_ns / NS_PER_S),
                            .tv_nsec = (long)(watch->interval_ns % NS_PER_S)};

    if (!cli_interrupt_received())
        (void)nanosleep(&time, NULL);
}

/* Each ROOT; with --mirror, its mirror follows. */
static enum sidestep_status set_roots(struct cli_watch *watch, struct sidestep_error *err)
{
    const struct cli *cli = watch->cli;
    enum sidestep_status status = SIDESTEP_OK;
    size_t i = 0;

    do {
        struct cli_watch_root *root = &watch->roots[watch->root_count++];
        root->path = cli->operand_count > 0 ? cli->operands[i] : ".";
        if (!cli_has_option(cli, CLI_OPTION_MIRROR))
            continue;
        status = cli_levels_find(cli, root->path, &root->levels, err);
        root->level = "near";
        watch->roots[watch->root_count++] =
            (struct cli_watch_root){.path = root->levels.mirror, .level = "mirror"};
    } while (++i < cli->operand_count && status == SIDESTEP_OK);
    return status;
}

/* With --once: the status of the first root that could not be looked at, or into. */
static int status_of(const struct cli_watch *watch)
{
    for (size_t i = 0; i < watch->root_count; i++) {
        const struct cli_watch_root *root = &watch->roots[i];
        if (root->err.status != SIDESTEP_OK)
            return sidestep_status_exit((enum sidestep_status)root->err.status);
        if (root->unread_status != SIDESTEP_OK)
            return sidestep_status_exit(root->unread_status);
    }
    return 0;
}

int cli_watch_run(const struct cli *cli)
{
    static struct cli_watch watch;
    bool once = cli_has_option(cli, CLI_OPTION_ONCE);
    struct sidestep_error err = {0};
    double seconds;

    watch = (struct cli_watch){.cli = cli,
                               .is_json = cli_has_option(cli, CLI_OPTION_JSON),
                               .interval_ns = DEFAULT_INTERVAL_NS};
    if (cli_levels_check_options(cli) != 0)
        return sidestep_status_exit(SIDESTEP_EINVAL);
    if (cli_has_option(cli, CLI_OPTION_INTERVAL)) {
        if (!cli_parse_units_time(cli->options[CLI_OPTION_INTERVAL], &seconds) || seconds < 0.01 ||
            seconds > 86400)
            return cli_output_usage(cli, "watch: --interval: not a time from 0.01s to 24h");
        watch.interval_ns = (int64_t)(seconds * (double)NS_PER_S);
    }
    if (set_roots(&watch, &err) != SIDESTEP_OK)
        return cli_output_error(cli, &err);
    watch.draws = !watch.is_json && isatty(STDOUT_FILENO);
    cli_interrupt_watch();
    enum sidestep_status status = look_at_all(&watch);
    while (status == SIDESTEP_OK && !once) {
        pause_between(&watch);
        if (cli_interrupt_received()) /* the normal end */
            break;
        status = look_at_all(&watch);
    }
    for (size_t i = 0; i < watch.root_count; i++) {
        for (struct cli_watched *w = watch.roots[i].saves; w != NULL; w = w->next)
            w->is_seen = false;
        forget_ended(&watch.roots[i]);
        cli_levels_release(&watch.roots[i].levels);
    }
    if (status != SIDESTEP_OK)
        return cli_output_error(cli, &watch.roots[0].err);
    return once ? status_of(&watch) : 0;
}
