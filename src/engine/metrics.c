/* SPDX-License-Identifier: BSD-3-Clause */
/* metrics.c -- see metrics.h.  The text is what Prometheus calls its text format, which its node
 * exporter reads from files. */
#include "engine/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BOUNDS 8u

/* In seconds; the same for ever, so that old and new values can be added. */
static const double bounds[BOUNDS] = {0.001, 0.01, 0.1, 1, 10, 60, 600, 3600};

struct histogram {
    uint64_t counts[BOUNDS + 1]; /* the last: above all bounds */
    double sum;
};

struct metrics {
    char *path;
    char *root; /* the label; NULL: not known yet */
    uint64_t started, committed, skipped, resumes, lost_steps;
    uint64_t failed[ERROR_STATUS_COUNT]; /* by status */
    struct histogram blocked, waited, background;
};

/* ---- counting ---- */

static void observe(struct histogram *h, double seconds)
{
    size_t i = 0;

    while (i < BOUNDS && seconds > bounds[i])
        i++;
    h->counts[i]++;
    h->sum += seconds;
}

static double seconds_of(const json_t *line, const char *key)
{
    return (double)json_integer_value(json_object_get(line, key)) / 1e9;
}

/* The root of the first series; without one, where the first save is. */
static void set_root(struct metrics *m, const char *event, const json_t *line)
{
    const char *path = json_string_value(json_object_get(line, "path"));

    if (m->root != NULL || path == NULL)
        return;
    m->root = memory_strdup(path);
    char *slash = m->root != NULL && strcmp(event, "opened") != 0 ? strrchr(m->root, '/') : NULL;
    if (slash != NULL && slash != m->root)
        *slash = '\0';
}

static void count_end(struct metrics *m, const json_t *line)
{
    observe(&m->blocked, seconds_of(line, "call_ns"));
    observe(&m->waited, seconds_of(line, "wait_ns"));
    observe(&m->background, seconds_of(line, "write_ns") + seconds_of(line, "commit_ns"));
}

static enum sidestep_status status_of(const json_t *line)
{
    const char *name = json_string_value(json_object_get(line, "status"));

    for (int status = 1; name != NULL && status < ERROR_STATUS_COUNT; status++)
        if (strcmp(name, error_status_name((enum sidestep_status)status)) == 0)
            return (enum sidestep_status)status;
    return SIDESTEP_EIO;
}

bool metrics_count(struct metrics *m, const char *event, const json_t *line)
{
    set_root(m, event, line);
    if (strcmp(event, "started") == 0) {
        m->started++;
        return false; /* its end is written */
    }
    if (strcmp(event, "committed") == 0) {
        m->committed++;
        count_end(m, line);
    } else if (strcmp(event, "aborted") == 0 || strcmp(event, "unknown") == 0) {
        m->failed[status_of(line)]++;
        count_end(m, line);
    } else if (strcmp(event, "skipped") == 0) {
        m->skipped++;
    } else if (strcmp(event, "resumed") == 0) {
        json_int_t lost = json_integer_value(json_object_get(line, "lost_steps"));
        m->resumes++;
        m->lost_steps += lost > 0 ? (uint64_t)lost : 0;
    } else {
        return strcmp(event, "opened") == 0 || strcmp(event, "closed") == 0;
    }
    return true;
}

/* ---- writing ---- */

static void put_name(struct buffer *text, const struct metrics *m, const char *name)
{
    buffer_printf(text, "sidestep_%s{root=\"", name);
    for (const char *c = m->root; *c != '\0'; c++) {
        if (*c == '\\' || *c == '"' || *c == '\n')
            buffer_put_u8(text, '\\');
        buffer_put_u8(text, *c == '\n' ? 'n' : (uint8_t)*c);
    }
    buffer_put_u8(text, '"');
}

static void put_family(struct buffer *text, const char *name, const char *type, const char *help)
{
    buffer_printf(text, "# HELP sidestep_%s %s\n# TYPE sidestep_%s %s\n", name, help, name, type);
}

static void put_counter(struct buffer *text, const struct metrics *m, const char *name,
                        const char *help, uint64_t value)
{
    put_family(text, name, "counter", help);
    put_name(text, m, name);
    buffer_printf(text, "} %llu\n", (unsigned long long)value);
}

static void put_failures(struct buffer *text, const struct metrics *m)
{
    put_family(text, "saves_failed_total", "counter", "Saves that ended without a checkpoint.");
    for (int status = 1; status < ERROR_STATUS_COUNT; status++) {
        if (m->failed[status] == 0 && status != SIDESTEP_EIO) /* one, so that there is a zero */
            continue;
        put_name(text, m, "saves_failed_total");
        buffer_printf(text, ",status=\"%s\"} %llu\n",
                      error_status_name((enum sidestep_status)status),
                      (unsigned long long)m->failed[status]);
    }
}

static void put_histogram(struct buffer *text, const struct metrics *m, const char *name,
                          const char *help, const struct histogram *h)
{
    char part[64];
    uint64_t below = 0;

    put_family(text, name, "histogram", help);
    snprintf(part, sizeof(part), "%s_bucket", name);
    for (size_t i = 0; i <= BOUNDS; i++) {
        below += h->counts[i];
        put_name(text, m, part);
        if (i < BOUNDS)
            buffer_printf(text, ",le=\"%llu.%03llu\"} %llu\n", (unsigned long long)bounds[i],
                          (unsigned long long)(bounds[i] * 1000 + 0.5) % 1000,
                          (unsigned long long)below);
        else
            buffer_printf(text, ",le=\"+Inf\"} %llu\n", (unsigned long long)below);
    }
    snprintf(part, sizeof(part), "%s_sum", name);
    put_name(text, m, part);
    /* Not %f: the decimal point depends on the locale. */
    buffer_printf(text, "} %llu.%06llu\n", (unsigned long long)h->sum,
                  (unsigned long long)((h->sum - (double)(unsigned long long)h->sum) * 1e6));
    snprintf(part, sizeof(part), "%s_count", name);
    put_name(text, m, part);
    buffer_printf(text, "} %llu\n", (unsigned long long)below);
}

void metrics_format(const struct metrics *m, uint64_t retries, struct buffer *text)
{
    if (m->root == NULL) /* nothing has happened yet */
        return;
    put_counter(text, m, "saves_started_total", "Saves that have begun.", m->started);
    put_counter(text, m, "saves_committed_total", "Saves whose checkpoint exists.", m->committed);
    put_failures(text, m);
    put_counter(text, m, "saves_skipped_total", "Saves left out because of the one before.",
                m->skipped);
    put_counter(text, m, "resumes_total", "Resumes from a checkpoint.", m->resumes);
    put_counter(text, m, "lost_steps_total", "Steps that resumes have to repeat.", m->lost_steps);
    put_counter(text, m, "object_retries_total", "Repeated requests to object stores.", retries);
    put_histogram(text, m, "save_blocked_seconds", "How long a save stopped the training.",
                  &m->blocked);
    put_histogram(text, m, "save_waited_seconds", "Of this, for the save before.", &m->waited);
    put_histogram(text, m, "save_background_seconds", "From the call to the commit or failure.",
                  &m->background);
}

enum sidestep_status metrics_write(const struct metrics *m, const struct buffer *text,
                                   struct sidestep_error *err)
{
    size_t bytes = strlen(m->path) + sizeof(".XXXXXX");
    OWNED char *other = memory_new(bytes, 1);

    if (other == NULL)
        return FAIL_NOMEM(err, bytes);
    snprintf(other, bytes, "%s.XXXXXX", m->path);
    int fd = mkostemp(other, O_CLOEXEC);
    if (fd < 0)
        return FAIL_SYS(err, "write the metrics file '%s'", m->path);
    bool done = write(fd, text->bytes, text->length) == (ssize_t)text->length &&
                fchmod(fd, 0644) == 0 && rename(other, m->path) == 0;
    enum sidestep_status status =
        done ? SIDESTEP_OK : FAIL_SYS(err, "write the metrics file '%s'", m->path);
    if (!done)
        (void)unlink(other);
    (void)close(fd);
    return status;
}

enum sidestep_status metrics_new(const char *path, struct metrics **out, struct sidestep_error *err)
{
    struct metrics *m = memory_new(1, sizeof(*m));
    const struct buffer nothing = {0};

    if (m == NULL)
        return FAIL_NOMEM(err, sizeof(*m));
    *m = (struct metrics){.path = memory_strdup(path)};
    enum sidestep_status status =
        m->path != NULL ? metrics_write(m, &nothing, err) : FAIL_NOMEM(err, strlen(path));
    if (status != SIDESTEP_OK)
        metrics_free(&m);
    *out = m;
    return status;
}

void metrics_free(struct metrics **metrics)
{
    struct metrics *m = TAKE(*metrics);

    if (m == NULL)
        return;
    free(m->path);
    free(m->root);
    free(m);
}
