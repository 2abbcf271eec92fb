/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * metrics.c -- `sidestep metrics`: what is in roots, as OpenMetrics text (OpenMetrics 1.0, which
 * Prometheus and its node exporter read).
 *
 * Values come from storage at each call.  A root that cannot be read has sidestep_up 0 and nothing
 * else: an old value that stays would hide that.
 */
#include "escape.h"
#include "health.h"
#include "levels.h"
#include "listen.h"
#include "memory.h"
#include "output.h"

#include <inttypes.h>
#include <stdlib.h>

struct metrics {
    FILE *out;
    const struct cli_health_look *looks;
    size_t count;
};

static void print_family(FILE *out, const char *name, const char *unit, const char *help)
{
    fprintf(out, "# TYPE sidestep_%s gauge\n", name);
    if (unit != NULL)
        fprintf(out, "# UNIT sidestep_%s %s\n", name, unit);
    fprintf(out, "# HELP sidestep_%s %s\n", name, help);
}

/* The value of a label.  What is not UTF-8 becomes "?". */
static void print_value(FILE *out, const char *text)
{
    size_t left = strlen(text);

    while (left != 0) {
        uint32_t character;
        size_t length = cli_escape_decode_utf8(text, left, &character);

        if (length == 0)
            fputc('?', out);
        else if (*text == '\\' || *text == '"')
            fprintf(out, "\\%c", *text);
        else if (*text == '\n')
            fputs("\\n", out);
        else
            fwrite(text, 1, length, out);
        text += length != 0 ? length : 1;
        left -= length != 0 ? length : 1;
    }
}

static void print_sample(FILE *out, const char *name, const struct cli_health_look *look,
                         const char *state)
{
    fprintf(out, "sidestep_%s{root=\"", name);
    print_value(out, look->root);
    fputc('"', out);
    if (look->level != NULL)
        fprintf(out, ",level=\"%s\"", look->level);
    if (state != NULL)
        fprintf(out, ",state=\"%s\"", state);
    fputs("} ", out);
}

static void print_states(const struct metrics *m)
{
    print_family(m->out, "entries", NULL, "Entries of the root, by state; see sidestep-ls(1).");
    for (size_t i = 0; i < m->count; i++)
        for (size_t state = 0; m->looks[i].is_up && state < SIDESTEP_PRESENCE_END; state++) {
            print_sample(m->out, "entries", &m->looks[i], sidestep_presence_name(state));
            fprintf(m->out, "%" PRIu64 "\n", m->looks[i].counts[state]);
        }
}

#define PRINT_GAUGE(m, name, unit, help, known, value, format)                                     \
    do {                                                                                           \
        print_family((m)->out, name, unit, help);                                                  \
        for (size_t i = 0; i < (m)->count; i++) {                                                  \
            const struct cli_health_look *look = &(m)->looks[i];                                   \
            if (!(known))                                                                          \
                continue;                                                                          \
            print_sample((m)->out, name, look, NULL);                                              \
            fprintf((m)->out, "%" format "\n", (value));                                           \
        }                                                                                          \
    } while (0)

static void print_metrics(const struct metrics *m)
{
    PRINT_GAUGE(m, "up", NULL, "1 if the root could be listed, 0 if not.", true,
                look->is_up ? 1 : 0, "d");
    PRINT_GAUGE(m, "health", NULL, "0 ok, 1 warning, 2 critical, 3 unknown; see sidestep-check(1).",
                true, (int)cli_health_of(look), "d");
    PRINT_GAUGE(m, "last_committed_timestamp_seconds", "seconds",
                "When the checkpoint was saved that a resume takes.",
                look->newest != NULL && look->saved_at >= 0, look->saved_at, PRId64);
    PRINT_GAUGE(m, "last_committed_step", NULL, "Its step.",
                look->newest != NULL && look->step >= 0, look->step, PRId64);
    PRINT_GAUGE(m, "last_committed_bytes", "bytes", "Its size.", look->newest != NULL,
                look->newest_bytes, PRIu64);
    PRINT_GAUGE(m, "kept_checkpoints", NULL, "Checkpoints from which a resume may choose.",
                look->is_up, look->kept, PRIu64);
    PRINT_GAUGE(m, "stored_bytes", "bytes", "All checkpoints and leftovers of saves.", look->is_up,
                look->bytes, PRIu64);
    PRINT_GAUGE(m, "free_bytes", "bytes", "Free space of the root's file system.", look->has_space,
                look->free_bytes, PRIu64);
    print_states(m);
    fprintf(m->out,
            "# TYPE sidestep_build_info gauge\n# HELP sidestep_build_info What made this.\n"
            "sidestep_build_info{version=\"%s\"} 1\n# EOF\n",
            sidestep_version());
}

static char *look(const struct cli *cli, size_t *length)
{
    static struct cli_health_look looks[CLI_HEALTH_MAX_LOOKS];
    const struct cli_health_limits limits = {.min_kept = 1};
    struct metrics m = {.looks = looks};
    char *text = NULL;

    m.count = cli_health_look_all(cli, &limits, looks);
    m.out = cli_memory_stream(&text, length);
    print_metrics(&m);
    cli_memory_stream_close(m.out);
    for (size_t i = 0; i < m.count; i++)
        cli_health_release(&looks[i]);
    return text;
}

int cli_metrics_run(const struct cli *cli)
{
    bool listens = cli_has_option(cli, CLI_OPTION_LISTEN);
    int status = 0;

    if (cli_levels_check_options(cli) != 0)
        return sidestep_status_exit(SIDESTEP_EINVAL);
    if (!listens || cli_has_option(cli, CLI_OPTION_OUT)) {
        size_t length = 0;
        char *text = look(cli, &length);

        status = cli_output_document(cli, text, length);
        free(text);
    }
    return listens && status == 0 ? cli_listen_run(cli, look) : status;
}
