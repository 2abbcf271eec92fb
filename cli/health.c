/* SPDX-License-Identifier: BSD-3-Clause */
/* health.c -- one look at a root, from storage alone; see health.h. */
#include "health.h"

#include "format_units.h"
#include "levels.h"
#include "memory.h"
#include "verify_path.h"

#include <stdarg.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <time.h>

/* A dead save is news only if nothing has swept it for this long: after a preemption, the next save
 * of the run does. */
#define DEAD_SAVE_SECONDS 86400

static const char *const names[] = {"OK", "WARNING", "CRITICAL", "UNKNOWN"};

const char *cli_health_name(enum cli_health level)
{
    return names[level];
}

enum cli_health cli_health_worse(enum cli_health a, enum cli_health b)
{
    static const int weight[] = {[CLI_HEALTH_OK] = 0,
                                 [CLI_HEALTH_WARNING] = 1,
                                 [CLI_HEALTH_UNKNOWN] = 2,
                                 [CLI_HEALTH_CRITICAL] = 3};

    return weight[a] >= weight[b] ? a : b;
}

enum cli_health cli_health_of(const struct cli_health_look *look)
{
    return look->finding_count != 0 ? look->findings[0].level : CLI_HEALTH_OK;
}

/* Add a finding behind those that are as bad.  If there are too many, the last one goes. */
static void __attribute__((format(printf, 3, 4)))
find(struct cli_health_look *look, enum cli_health level, const char *format, ...)
{
    struct cli_health_finding finding = {.level = level};
    size_t at = look->finding_count;
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(finding.text, sizeof(finding.text), format, arguments);
    va_end(arguments);
    while (at > 0 && look->findings[at - 1].level != level &&
           cli_health_worse(level, look->findings[at - 1].level) == level)
        at--;
    if (at == CLI_HEALTH_MAX_FINDINGS)
        return;
    if (look->finding_count < CLI_HEALTH_MAX_FINDINGS)
        look->finding_count++;
    memmove(&look->findings[at + 1], &look->findings[at],
            (look->finding_count - 1 - at) * sizeof(finding));
    look->findings[at] = finding;
}

static bool is_choice(const struct sidestep_listed *entry)
{
    return (entry->state == SIDESTEP_COMMITTED || entry->state == SIDESTEP_COMPLETE ||
            entry->state == SIDESTEP_PART) &&
           !entry->is_abandoned && !entry->is_renamed;
}

static void count_entries(struct cli_health_look *look, const struct sidestep_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        const struct sidestep_listed *entry = sidestep_list_entry(list, i);

        if (cli_is_lost_and_found(entry))
            continue;
        look->counts[entry->state]++;
        look->kept += is_choice(entry);
        if (entry->state != SIDESTEP_FOREIGN && entry->state != SIDESTEP_UNREADABLE)
            look->bytes += entry->bytes;
        if (look->newest != NULL && strcmp(entry->path, look->newest) == 0)
            look->newest_bytes = entry->bytes;
    }
}

static void judge_entries(struct cli_health_look *look, const struct sidestep_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        const struct sidestep_listed *entry = sidestep_list_entry(list, i);
        int64_t age = entry->saved_at >= 0 ? look->now - entry->saved_at : -1;

        if (entry->state == SIDESTEP_UNREADABLE && !cli_is_lost_and_found(entry))
            find(look, CLI_HEALTH_UNKNOWN, "'%s' cannot be read: %s", entry->name, entry->reason);
        else if (entry->state == SIDESTEP_BAD)
            find(look, CLI_HEALTH_WARNING, "'%s' failed verification and was set aside",
                 entry->name);
        else if (entry->state == SIDESTEP_DAMAGED)
            find(look, CLI_HEALTH_WARNING, "'%s' is damaged: %s", entry->name, entry->reason);
        else if (entry->state == SIDESTEP_DEAD && age > DEAD_SAVE_SECONDS)
            find(look, CLI_HEALTH_WARNING,
                 "'%s' is of a save that was killed long ago ('sidestep gc' removes it)",
                 entry->name);
    }
}

static void judge_age(struct cli_health_look *look, const struct cli_health_limits *limits)
{
    int64_t age = look->now - look->saved_at;
    char is[CLI_FORMAT_UNITS_BYTES], may[CLI_FORMAT_UNITS_BYTES];

    if (limits->max_age == 0)
        return;
    if (look->saved_at < 0) {
        find(look, CLI_HEALTH_UNKNOWN, "nobody knows how old '%s' is", look->newest);
        return;
    }
    cli_format_units_age(is, age);
    cli_format_units_age(may, limits->max_age);
    if (age > limits->max_age)
        find(look, CLI_HEALTH_CRITICAL,
             "the newest checkpoint is %s old, and at most %s is allowed", is, may);
}

/* Would the next save find space?  One of the same size, without retention before it. */
static void judge_space(struct cli_health_look *look)
{
    struct statvfs space;
    char has[CLI_FORMAT_UNITS_BYTES], needs[CLI_FORMAT_UNITS_BYTES];

    if (statvfs(look->place, &space) != 0) /* an object store */
        return;
    look->has_space = true;
    look->free_bytes = (uint64_t)space.f_bavail * space.f_frsize;
    if (look->free_bytes >= look->newest_bytes)
        return;
    cli_format_units_size(has, look->free_bytes);
    cli_format_units_size(needs, look->newest_bytes);
    find(look, CLI_HEALTH_WARNING,
         "the next save may find no space: %s are free, and the newest checkpoint has %s", has,
         needs);
}

/* What the status says of the root.  Only these two mean that there is nothing to resume from; with
 * any other, nobody knows. */
static enum cli_health health_of_status(enum sidestep_status status)
{
    return status == SIDESTEP_ECORRUPT || status == SIDESTEP_EMISMATCH ? CLI_HEALTH_CRITICAL
                                                                       : CLI_HEALTH_UNKNOWN;
}

static void verify_one(const struct cli *cli, struct cli_health_look *look,
                       const struct sidestep_listed *entry)
{
    struct sidestep_verify_report report = {0};
    struct sidestep_error err = {0};

    enum sidestep_status status = cli_verify_path(cli, entry->path, 0, &report, &err);
    if (status != SIDESTEP_OK)
        find(look, CLI_HEALTH_UNKNOWN, "'%s' cannot be verified: %s", entry->name, err.message);
    else if (!report.is_ok)
        find(look, report.status == SIDESTEP_ECORRUPT ? CLI_HEALTH_WARNING : CLI_HEALTH_UNKNOWN,
             "'%s' does not verify: file '%s': %s", entry->name,
             sidestep_verify_report_problem(&report, 0)->file,
             sidestep_verify_report_problem(&report, 0)->message);
    sidestep_verify_report_release(&report);
}

/* Where each node has a directory for itself, take the newest part: each node is looked at, and
 * none can tell whether a step is whole. */
static bool take_newest_part(const struct cli *cli, struct cli_health_look *look, bool reads)
{
    for (size_t i = look->list.count; i-- > 0;) {
        const struct sidestep_listed *entry = sidestep_list_entry(&look->list, i);
        if (entry->state != SIDESTEP_PART || !is_choice(entry))
            continue;
        look->newest = cli_memory_copy(entry->path, strlen(entry->path));
        look->step = entry->step;
        look->saved_at = entry->saved_at;
        look->has_parts = true;
        if (reads)
            verify_one(cli, look, entry);
        return true;
    }
    return false;
}

static void look_for_newest(const struct cli *cli, const struct cli_health_limits *limits,
                            struct cli_health_look *look)
{
    bool reads = limits->verify != CLI_HEALTH_STRUCTURE;
    struct sidestep_verify_options options = SIDESTEP_VERIFY_OPTIONS_INIT;
    struct sidestep_latest_report report = {0};
    struct sidestep_error err = {0};

    options.cancel = cli_interrupt_flag();
    enum sidestep_status status =
        sidestep_look(look->place, reads ? SIDESTEP_VERIFY_READ : SIDESTEP_VERIFY_STRUCTURE,
                      &options, &look->list, &report, &err);
    look->is_up = look->list.owner != NULL;
    if (!look->is_up)
        look->unlisted = err;
    if (status == SIDESTEP_OK) {
        look->newest = cli_memory_copy(report.path, strlen(report.path));
        look->step = report.step;
        look->saved_at = report.saved_at;
        for (size_t i = 0; i < report.passed_count; i++) {
            const struct sidestep_passed_over *passed = sidestep_latest_report_passed(&report, i);
            if (passed->status == SIDESTEP_ECORRUPT)
                find(look, CLI_HEALTH_WARNING, "'%s' is damaged, so a resume takes '%s': %s",
                     passed->path, report.path, passed->reason);
        }
    } else if (!look->is_up) {
        find(look, CLI_HEALTH_UNKNOWN, "%s", err.message);
    } else if (status == SIDESTEP_ENOTFOUND) {
        find(look, CLI_HEALTH_CRITICAL, "there is no checkpoint yet");
    } else if (status != SIDESTEP_EMISMATCH || !take_newest_part(cli, look, reads)) {
        find(look, health_of_status(status), "%s", err.message);
    }
    sidestep_latest_report_release(&report);
}

static bool is_older(const struct cli_health_look *look, const struct sidestep_listed *entry)
{
    return is_choice(entry) && (look->newest == NULL || strcmp(entry->path, look->newest) != 0);
}

/* Read older checkpoints, too.  A sample is one of them, another one each hour: so each one is read
 * in time, whatever the number of looks. */
static void verify_older(const struct cli *cli, struct cli_health_look *look,
                         const struct sidestep_list *list, bool all)
{
    uint64_t older = 0, turn;

    for (size_t i = 0; i < list->count; i++)
        older += is_older(look, sidestep_list_entry(list, i));
    if (older == 0)
        return;
    turn = (uint64_t)look->now / 3600 % older;
    for (size_t i = 0; i < list->count && !cli_interrupt_received(); i++) {
        if (!is_older(look, sidestep_list_entry(list, i)))
            continue;
        if (all || turn == 0)
            verify_one(cli, look, sidestep_list_entry(list, i));
        turn--;
    }
}

static void look_at(const struct cli *cli, const struct cli_health_limits *limits,
                    struct cli_health_look *look)
{
    look_for_newest(cli, limits, look);
    count_entries(look, &look->list);
    judge_entries(look, &look->list);
    if (look->newest != NULL) {
        judge_age(look, limits);
        judge_space(look);
    }
    if (look->newest != NULL && look->kept < limits->min_kept)
        find(look, CLI_HEALTH_WARNING, "%llu checkpoint%s, and at least %llu should be kept",
             (unsigned long long)look->kept, look->kept == 1 ? "" : "s",
             (unsigned long long)limits->min_kept);
    if (limits->verify == CLI_HEALTH_ALL || limits->verify == CLI_HEALTH_SAMPLE)
        verify_older(cli, look, &look->list, limits->verify == CLI_HEALTH_ALL);
    if (cli_interrupt_received())
        find(look, CLI_HEALTH_UNKNOWN, "interrupted");
}

static struct cli_health_look begin(const char *root, const char *level)
{
    return (struct cli_health_look){.root = root,
                                    .level = level,
                                    .place = root,
                                    .step = -1,
                                    .saved_at = -1,
                                    .now = (int64_t)time(NULL)};
}

/* A mirror that cannot be found is unknown, and not an empty one. */
static void look_at_mirror(const struct cli *cli, const struct cli_health_limits *limits,
                           struct cli_health_look *look)
{
    struct sidestep_error err = {0};
    struct cli_levels levels;
    enum sidestep_status status = cli_levels_find(cli, look->root, &levels, &err);

    look->mirror = levels.mirror;
    if (look->mirror != NULL)
        look->place = look->mirror;
    if (status != SIDESTEP_OK) {
        find(look, CLI_HEALTH_UNKNOWN, "%s", err.message);
        return;
    }
    if (levels.is_outdated)
        find(look, CLI_HEALTH_WARNING, "'%s' is outdated: the run went on elsewhere", look->root);
    look_at(cli, limits, look);
}

size_t cli_health_look_all(const struct cli *cli, const struct cli_health_limits *limits,
                           struct cli_health_look *looks)
{
    bool has_levels = cli_has_option(cli, CLI_OPTION_MIRROR);
    size_t count = 0;

    for (size_t i = 0; i < cli->operand_count; i++) {
        looks[count] = begin(cli->operands[i], has_levels ? "near" : NULL);
        look_at(cli, limits, &looks[count++]);
        if (!has_levels)
            continue;
        looks[count] = begin(cli->operands[i], "mirror");
        look_at_mirror(cli, limits, &looks[count++]);
    }
    return count;
}

void cli_health_release(struct cli_health_look *look)
{
    free(look->newest);
    free(look->mirror);
    look->newest = look->mirror = NULL;
    sidestep_list_release(&look->list);
}
