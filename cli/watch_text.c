/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * watch_text.c -- prints what `sidestep watch` sees as text.
 *
 * On a terminal, a frame is drawn over the one before: a line with a bar for each save, and below
 * it its ranks, the slowest first, as many as there is room for.  The terminal itself cuts long
 * lines (DECAWM is off while a frame is drawn), so a frame has as many lines as it seems to have.
 * Elsewhere each look is a few lines, and none if it shows nothing.
 */
#include "watch.h"

#include "escape.h"
#include "format_units.h"
#include "memory.h"
#include "output.h"
#include "table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define BAR_CELLS 24u
#define DEFAULT_ROWS 24u

/* A frame while it is made. */
struct frame {
    FILE *out;
    const char *red, *green; /* NULL: no colours */
    size_t lines;
};

static void end_line(struct frame *f)
{
    fputc('\n', f->out);
    f->lines++;
}

static size_t terminal_rows(void)
{
    struct winsize size;

    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 3 ? size.ws_row
                                                                           : DEFAULT_ROWS;
}

static double share_of(uint64_t written, uint64_t total)
{
    return total == 0 ? 0 : written >= total ? 1 : (double)written / (double)total;
}

/* "[#########---------------] " */
static void put_bar(FILE *out, double share)
{
    unsigned full = (unsigned)(share * BAR_CELLS);

    fputc('[', out);
    for (unsigned i = 0; i < BAR_CELLS; i++)
        fputc(i < full ? '#' : '-', out);
    fputs("] ", out);
}

/* ---- a save */

/* "step-12  45 %  1.2 GiB of 2.6 GiB  310 MiB/s  0:05 left  3 ranks, 1 done" */
static void print_saving(struct frame *f, const struct sidestep_saving *saving,
                         const struct cli_watched *w, bool draws)
{
    char done[CLI_FORMAT_UNITS_BYTES], all[CLI_FORMAT_UNITS_BYTES], rate[CLI_FORMAT_UNITS_BYTES],
        left[CLI_FORMAT_UNITS_BYTES];
    uint64_t total = cli_watch_total_bytes(saving);
    double seconds = cli_watch_time_left(w, saving);

    cli_format_units_size(done, saving->written_bytes);
    cli_format_units_size(all, total);
    cli_escape_write(f->out, w->name, strlen(w->name));
    fputs("  ", f->out);
    if (draws)
        put_bar(f->out, share_of(saving->written_bytes, total));
    fprintf(f->out, "%3.0f %%  %s of %s",
            total != 0 ? 100 * (double)saving->written_bytes / (double)total : 0.0, done, all);
    if (w->rate >= 0 && !saving->is_dead) {
        cli_format_units_size(rate, (uint64_t)w->rate);
        fprintf(f->out, "  %s/s", rate);
    }
    if (seconds >= 0) {
        cli_format_units_duration(left, (uint64_t)seconds);
        fprintf(f->out, "  %s left", left);
    }
    fprintf(f->out, "  %" PRIu32 " rank%s", saving->rank_count, saving->rank_count == 1 ? "" : "s");
    if (saving->done_count != 0)
        fprintf(f->out, ", %" PRIu32 " done", saving->done_count);
    if (saving->failed_count != 0)
        fprintf(f->out, ", %" PRIu32 " failed", saving->failed_count);
    if (saving->is_dead)
        cli_table_style(f->out, f->red, "  dead: its owner has ended ('sidestep gc' removes it)");
    end_line(f);
}

/* ---- its ranks */

static int compare_ranks(const void *a, const void *b)
{
    const struct sidestep_writer *x = *(const struct sidestep_writer *const *)a;
    const struct sidestep_writer *y = *(const struct sidestep_writer *const *)b;
    double share_x = share_of(x->written_bytes, x->bytes);
    double share_y = share_of(y->written_bytes, y->bytes);
    int by_state = (strcmp(x->state_name, "done") == 0) - (strcmp(y->state_name, "done") == 0);

    if (by_state != 0)
        return by_state;
    if (share_x != share_y)
        return share_x < share_y ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static void print_rank(struct frame *f, const struct sidestep_writer *writer)
{
    char done[CLI_FORMAT_UNITS_BYTES], all[CLI_FORMAT_UNITS_BYTES], state[16];
    double share = share_of(writer->written_bytes, writer->bytes);

    cli_format_units_size(done, writer->written_bytes);
    cli_format_units_size(all, writer->bytes);
    fprintf(f->out, "  rank %-5" PRIu32 " ", writer->rank);
    put_bar(f->out, share);
    fprintf(f->out, "%3.0f %%  ", 100 * share);
    snprintf(state, sizeof(state), "%-7.12s", writer->state_name);
    cli_table_style(f->out,
                    strcmp(writer->state_name, "failed") == 0 ? f->red
                    : strcmp(writer->state_name, "done") == 0 ? f->green
                                                              : NULL,
                    state);
    fprintf(f->out, "  %s of %s", done, all);
    end_line(f);
}

/* The slowest first; in ${room} lines. */
static void print_ranks(struct frame *f, const struct sidestep_saving *saving, size_t room)
{
    size_t count = saving->rank_count;
    const struct sidestep_writer **writers = cli_memory_alloc((count + 1) * sizeof(*writers));

    for (size_t i = 0; i < count; i++)
        writers[i] = sidestep_saving_writer(saving, i);
    qsort(writers, count, sizeof(*writers), compare_ranks);
    size_t shown = count <= room ? count : room > 0 ? room - 1 : 0;
    for (size_t i = 0; i < shown; i++)
        print_rank(f, writers[i]);
    if (shown < count && room > 0) {
        fprintf(f->out, "  and %zu more rank%s, which are further", count - shown,
                count - shown == 1 ? "" : "s");
        end_line(f);
    }
    free(writers);
}

/* ---- all of them */

static void print_ended(struct frame *f, const struct cli_watch_root *root)
{
    for (const struct cli_watched *w = root->saves; w != NULL; w = w->next) {
        const struct sidestep_listed *found;
        char size[CLI_FORMAT_UNITS_BYTES];

        if (w->is_seen)
            continue;
        cli_escape_write(f->out, w->name, strlen(w->name));
        switch (cli_watch_outcome(w, &root->entries, &found)) {
        case CLI_WATCH_COMMITTED:
            cli_format_units_size(size, found->bytes);
            cli_table_style(f->out, f->green, "  committed");
            fprintf(f->out, ", %s\n", size);
            break;
        case CLI_WATCH_ABORTED:
            cli_table_style(f->out, f->red, "  aborted");
            fputc('\n', f->out);
            break;
        case CLI_WATCH_UNKNOWN:
            fputs("  ended; its outcome cannot be read\n", f->out);
            break;
        }
    }
}

/* What goes on in a root.  On a terminal: in ${room} lines. */
static void print_root(struct cli_watch *watch, struct cli_watch_root *root, struct frame *f,
                       size_t room)
{
    size_t count = root->list.count, until = f->lines + room;

    for (size_t i = 0; i < count && (!watch->draws || f->lines < until); i++) {
        const struct sidestep_saving *saving = sidestep_saving_list_entry(&root->list, i);
        if (watch->root_count > 1) {
            cli_escape_write(f->out, root->path, strlen(root->path));
            fputs(": ", f->out);
        }
        print_saving(f, saving, cli_watch_find(root, saving), watch->draws);
        if (watch->draws)
            print_ranks(f, saving, (until - f->lines) / (count - i));
    }
    bool is_news = watch->draws || !root->has_printed_none;
    root->has_printed_none = count == 0;
    if (count != 0 || !is_news || (watch->draws && room == 0))
        return;
    if (watch->root_count > 1) {
        cli_escape_write(f->out, root->path, strlen(root->path));
        fputs(": ", f->out);
    }
    if (root->err.status != SIDESTEP_OK)
        cli_escape_write(f->out, root->err.message, strlen(root->err.message));
    else
        fputs(root->list.unread_count == 0 ? "nothing is being saved"
                                           : "nothing that can be seen is being saved",
              f->out);
    end_line(f);
}

static void draw(struct cli_watch *watch, struct frame *f)
{
    size_t rows = terminal_rows() - 1, used = 0;

    fputs("\033[?7l", f->out);
    for (size_t i = 0; i < watch->root_count; i++) {
        size_t before = f->lines, room = (rows - used) / (watch->root_count - i);
        print_root(watch, &watch->roots[i], f, room);
        used += f->lines - before;
    }
    fputs("\033[?7h", f->out);
}

void cli_watch_print_text(struct cli_watch *watch)
{
    const struct cli *cli = watch->cli;
    struct frame f = {.out = cli->out,
                      .red = cli->color ? CLI_STYLE_RED : NULL,
                      .green = cli->color ? CLI_STYLE_GREEN : NULL};

    if (watch->drawn_lines != 0)
        fprintf(f.out, "\033[%zuA\033[J", watch->drawn_lines);
    for (size_t i = 0; i < watch->root_count; i++)
        print_ended(&f, &watch->roots[i]);
    f.lines = 0;
    if (watch->draws)
        draw(watch, &f);
    else
        for (size_t i = 0; i < watch->root_count; i++)
            print_root(watch, &watch->roots[i], &f, 0);
    watch->drawn_lines = watch->draws ? f.lines : 0;
}
