/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mirror.c -- `sidestep mirror`: calls sidestep_mirror(), once or again and again, and prints what
 * was sent.
 *
 * With --follow, it lists the root at each interval, and calls only if something has changed there,
 * or the last call has failed. What it remembers saves requests, and decides nothing. With --after,
 * it calls until everything is sent.
 */
#include "arguments.h"
#include "detach.h"
#include "escape.h"
#include "format_units.h"
#include "json.h"
#include "output.h"
#include "parse_units.h"
#include "progress.h"
#include "verify_path.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define MAX_THREADS 64
#define NS_PER_S 1000000000ull
#define INTERVAL_NS (10 * NS_PER_S)
#define MAX_TRIES 4u                         /* a second apart */
#define MAX_TRIES_AFTER 10u                  /* at growing intervals: 8 minutes */
#define MOST_AFTER_NS (24 * 3600 * NS_PER_S) /* so long a place may be away */
#define MOST_INTERVAL_NS (300 * NS_PER_S)    /* between attempts that fail */

struct mirroring {
    const struct cli *cli;
    const char *root, *mirror;
    struct sidestep_mirror_options options;
    struct sidestep_retention retention;
    uint64_t interval_ns;
    struct stat place; /* with --after: of the root when the call began */
    uint64_t seen;     /* what the root looked like when the mirror was last brought up to date */
    char complaint[sizeof(((struct sidestep_error *)0)->message)]; /* the last one printed */
};

/* ---- arguments */

static int parse_times(struct mirroring *m)
{
    const struct cli *cli = m->cli;
    double seconds;

    m->interval_ns = INTERVAL_NS;
    if (cli_has_option(cli, CLI_OPTION_RATE) &&
        !cli_parse_units_size(cli->options[CLI_OPTION_RATE], &m->options.bytes_per_second))
        return cli_output_usage(cli, "mirror: --bytes-per-second: not a size");
    if (!cli_has_option(cli, CLI_OPTION_INTERVAL))
        return 0;
    if (!cli_has_option(cli, CLI_OPTION_FOLLOW))
        return cli_output_usage(cli, "mirror: --interval needs --follow");
    if (!cli_parse_units_time(cli->options[CLI_OPTION_INTERVAL], &seconds) || seconds < 0.01 ||
        seconds > 86400)
        return cli_output_usage(cli, "mirror: --interval: not a time from 0.01s to 24h");
    m->interval_ns = (uint64_t)(seconds * (double)NS_PER_S);
    return 0;
}

static int parse(struct mirroring *m)
{
    const struct cli *cli = m->cli;
    uint64_t threads = 0, last = 0;
    int wrong = cli_arguments_number(cli, CLI_OPTION_THREADS, 1, MAX_THREADS, &threads);

    m->options = (struct sidestep_mirror_options)SIDESTEP_MIRROR_OPTIONS_INIT;
    m->retention = (struct sidestep_retention)SIDESTEP_RETENTION_INIT;
    if (wrong == 0)
        wrong = cli_arguments_number(cli, CLI_OPTION_EVERY, 1, INT64_MAX, &m->options.every);
    if (wrong == 0)
        wrong = cli_arguments_number(cli, CLI_OPTION_KEEP_LAST, 0, UINT32_MAX, &last);
    if (wrong == 0)
        wrong = cli_arguments_number(cli, CLI_OPTION_KEEP_EVERY, 1, INT64_MAX,
                                     &m->retention.keep_every);
    if (wrong == 0 && cli_has_option(cli, CLI_OPTION_KEEP_EVERY) &&
        !cli_has_option(cli, CLI_OPTION_KEEP_LAST))
        wrong = cli_output_usage(cli, "mirror: --keep-every needs --keep-last");
    if (wrong != 0)
        return wrong;
    m->retention.keep_last = (uint32_t)last;
    m->options.threads = (uint32_t)threads;
    m->options.cancel = cli_interrupt_flag();
    if (cli_has_option(cli, CLI_OPTION_KEEP_LAST))
        m->options.retention = &m->retention;
    if (cli_has_option(cli, CLI_OPTION_AFTER) && cli_has_option(cli, CLI_OPTION_FOLLOW))
        return cli_output_usage(cli, "mirror: --after and --follow exclude each other");
    return parse_times(m);
}

/* ---- output */

static void print_json(const struct mirroring *m, const struct sidestep_mirror_report *report)
{
    struct cli_json json = cli_json_begin(m->cli->out);

    cli_json_text(&json, "root", m->root);
    cli_json_text(&json, "mirror", m->mirror);
    cli_json_known(&json, "step", report->step >= 0, report->step);
    cli_json_known(&json, "mirrored_step", report->mirrored_step >= 0, report->mirrored_step);
    cli_json_texts(&json, "sent", report->sent, report->sent_count);
    cli_json_uint(&json, "bytes", report->bytes);
    cli_json_texts(&json, "passed", report->passed, report->passed_count);
    cli_json_texts(&json, "removed", report->removed, report->removed_count);
    cli_json_end(&json);
}

static void print_lines(FILE *out, const char *verb, const char *const *texts, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "%s ", verb);
        cli_escape_write(out, texts[i], strlen(texts[i]));
        fputc('\n', out);
    }
}

static void print_text(const struct mirroring *m, const struct sidestep_mirror_report *report)
{
    print_lines(m->cli->out, "sent", report->sent, report->sent_count);
    print_lines(m->cli->out, "removed", report->removed, report->removed_count);
    for (size_t i = 0; i < report->passed_count; i++)
        cli_output_note(m->cli, "not sent: %s", report->passed[i]);
    if (report->sent_count == 0 && report->step < 0)
        cli_output_note(m->cli, "there is no checkpoint yet");
    else if (report->sent_count == 0 && report->passed_status == SIDESTEP_OK)
        cli_output_note(m->cli, "nothing to send: step %lld is at the mirror",
                        (long long)report->mirrored_step);
}

static void print(const struct mirroring *m, const struct sidestep_mirror_report *report)
{
    bool follows = cli_has_option(m->cli, CLI_OPTION_FOLLOW);

    if (follows && report->sent_count + report->removed_count == 0)
        return;
    if (cli_has_option(m->cli, CLI_OPTION_JSON))
        print_json(m, report);
    else
        print_text(m, report);
    fflush(m->cli->out);
}

/* ---- once */

/* ${is_last}: also print why parts of a run that goes on were passed over. */
static enum sidestep_status update(struct mirroring *m, bool is_last, enum sidestep_status *passed,
                                   struct sidestep_error *err)
{
    struct sidestep_mirror_report report = {0};
    struct cli_progress progress;

    cli_progress_begin(&progress, m->cli, m->mirror);
    m->options.on_progress = cli_progress_update;
    m->options.context = &progress;
    enum sidestep_status status = sidestep_mirror(m->root, m->mirror, &m->options, &report, err);
    cli_progress_end(&progress);
    *passed = report.passed_status;
    if ((status == SIDESTEP_OK && (is_last || *passed != SIDESTEP_EMISMATCH)) ||
        report.sent_count + report.removed_count != 0)
        print(m, &report);
    sidestep_mirror_report_release(&report);
    return status;
}

/* A signal ends it soon: SA_RESTART does not go on with nanosleep(). */
static void sleep_for(uint64_t ns)
{
    struct timespec time = {.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};

    if (!cli_interrupt_received())
        (void)nanosleep(&time, NULL);
}

/* Does the failure last until somebody changes something, so that it is of no use to go on? */
static bool is_final(enum sidestep_status status)
{
    return status == SIDESTEP_EINVAL || status == SIDESTEP_EMISMATCH ||
           status == SIDESTEP_EABORTED || status == SIDESTEP_EUNSUPPORTED;
}

/* Say it once, however often it is tried. */
static void complain(struct mirroring *m, const char *message)
{
    if (strcmp(m->complaint, message) != 0)
        cli_output_warning(m->cli, "%s; trying again", message);
    snprintf(m->complaint, sizeof(m->complaint), "%s", message);
}

static uint64_t longer(uint64_t pause_ns)
{
    return pause_ns >= MOST_INTERVAL_NS / 2 ? MOST_INTERVAL_NS : 2 * pause_ns;
}

/* With --after: is the root no longer the directory that it was? */
static bool is_replaced(const struct mirroring *m)
{
    struct stat now = {0};

    if (!cli_has_option(m->cli, CLI_OPTION_AFTER) || strstr(m->root, "://") != NULL)
        return false;
    return stat(m->root, &now) != 0
               ? errno == ENOENT
               : now.st_dev != m->place.st_dev || now.st_ino != m->place.st_ino;
}

static int fail_replaced(const struct mirroring *m)
{
    struct sidestep_error err = {.rank = -1};

    cli_error_set(&err, SIDESTEP_ENOTFOUND,
                  "mirror: '%s' is gone, or is another directory now: nothing was sent", m->root);
    return cli_output_error(m->cli, &err);
}

/* A run that was killed a moment ago may not have gone yet, and other nodes wait for this one. */
static int run_once(struct mirroring *m)
{
    struct sidestep_error err = {0};
    bool is_after = cli_has_option(m->cli, CLI_OPTION_AFTER);
    unsigned most_tries = is_after ? MAX_TRIES_AFTER : MAX_TRIES, tries = 1;
    enum sidestep_status passed = SIDESTEP_OK, status;

    for (uint64_t pause_ns = NS_PER_S, waited_ns = 0;; waited_ns += pause_ns) {
        if (is_replaced(m))
            return fail_replaced(m);
        status = update(m, tries == most_tries, &passed, &err);
        bool again = status == SIDESTEP_OK
                         ? passed == SIDESTEP_EMISMATCH && tries++ < most_tries
                         : is_after && !is_final(status) && waited_ns < MOST_AFTER_NS;
        if (!again || cli_interrupt_received())
            break;
        if (status != SIDESTEP_OK)
            complain(m, err.message);
        sleep_for(pause_ns);
        pause_ns = is_after ? longer(pause_ns) : pause_ns;
    }
    if (status == SIDESTEP_ECANCELLED)
        cli_output_note(m->cli, "the same command goes on from here");
    return status == SIDESTEP_OK ? sidestep_status_exit(passed) : cli_output_error(m->cli, &err);
}

/* ---- again and again */

static uint64_t digest_bytes(uint64_t digest, const void *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++) /* FNV-1a */
        digest = (digest ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3ull;
    return digest;
}

static uint64_t digest_text(uint64_t digest, const char *text)
{
    return digest_bytes(digest, text != NULL ? text : "", text != NULL ? strlen(text) + 1 : 1);
}

static uint64_t digest_entry(uint64_t digest, const struct sidestep_listed *entry)
{
    const unsigned facts[] = {entry->state, entry->is_pinned, entry->is_abandoned};

    digest = digest_bytes(digest_text(digest_text(digest, entry->name), entry->save_id), facts,
                          sizeof(facts));
    for (uint32_t i = 0; i < entry->tag_count; i++)
        digest = digest_text(digest, entry->tags[i]);
    for (uint32_t i = 0; i < entry->metric_count; i++)
        digest = digest_bytes(digest_text(digest, entry->metrics[i].name), &entry->metrics[i].value,
                              sizeof(entry->metrics[i].value));
    return digest;
}

/* A number that changes with the root; 0: it cannot be listed, and the next call says why. */
static uint64_t look(const struct mirroring *m)
{
    struct sidestep_list list = {0};
    uint64_t digest = 0xcbf29ce484222325ull;

    if (sidestep_list_root(m->root, &list, NULL) != SIDESTEP_OK)
        return 0;
    for (size_t i = 0; i < list.count; i++)
        digest = digest_entry(digest, sidestep_list_entry(&list, i));
    sidestep_list_release(&list);
    return digest | 1;
}

/* Bring the mirror up to date, if there is a reason. */
static enum sidestep_status follow_once(struct mirroring *m, struct sidestep_error *err)
{
    uint64_t now = look(m);
    enum sidestep_status passed = SIDESTEP_OK;

    if (now != 0 && now == m->seen)
        return SIDESTEP_OK;
    enum sidestep_status status = update(m, true, &passed, err);
    /* EMISMATCH: the run goes on, and sends its parts itself. Nothing shows when it ends. */
    m->seen = status == SIDESTEP_OK && passed != SIDESTEP_EMISMATCH ? now : 0;
    if (status == SIDESTEP_OK)
        m->complaint[0] = '\0';
    else if (!is_final(status) && !cli_interrupt_received())
        complain(m, err->message);
    return status;
}

static int follow(struct mirroring *m)
{
    struct sidestep_error err = {0};
    uint64_t pause_ns = m->interval_ns;

    for (;;) {
        enum sidestep_status status = follow_once(m, &err);
        if (cli_interrupt_received()) /* the normal end */
            return 0;
        if (is_final(status))
            return cli_output_error(m->cli, &err);
        pause_ns = status == SIDESTEP_OK ? m->interval_ns : longer(pause_ns);
        sleep_for(pause_ns);
    }
}

/* ${*goes_on}: this process is to send. Returns 0, or the exit status. */
static int detach(const struct cli *cli, bool *goes_on)
{
    uint64_t pid = 0;
    int wrong = cli_arguments_number(cli, CLI_OPTION_AFTER, 1, INT32_MAX, &pid);

    *goes_on = pid == 0;
    return wrong != 0 || *goes_on ? wrong : cli_detach_until_end(cli, (pid_t)pid, goes_on);
}

int cli_mirror_run(const struct cli *cli)
{
    struct mirroring m = {.cli = cli, .root = cli->operands[0], .mirror = cli->operands[1]};
    bool goes_on;
    int wrong = parse(&m);

    if (wrong != 0)
        return wrong;
    cli_interrupt_watch();
    if (cli_has_option(cli, CLI_OPTION_AFTER))
        (void)stat(m.root, &m.place);
    wrong = detach(cli, &goes_on);
    if (wrong != 0 || !goes_on || cli_interrupt_received())
        return wrong;
    return cli_has_option(cli, CLI_OPTION_FOLLOW) ? follow(&m) : run_once(&m);
}
