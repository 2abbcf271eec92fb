/* SPDX-License-Identifier: BSD-3-Clause */
/* event_log_test.c -- the events of a series that are kept beside its checkpoints. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/event_log.h"
#include "support/one_series.h"
#include "support/unit.h"

EACH_TEST(one_rank_setup, one_rank_teardown);

#define LINE "{\"event\":\"test\"}"

static const char *path_of(const char *name)
{
    static char path[256];

    snprintf(path, sizeof(path), "%s/.sidestep/%s", scratch.path, name);
    return path;
}

static off_t size_of(const char *path)
{
    struct stat stat;

    return lstat(path, &stat) == 0 ? stat.st_size : -1;
}

/* The text of a file of the root's log; valid until the next call. */
static const char *text_of(const char *name)
{
    static char text[65536];
    FILE *file = fopen(path_of(name), "r");

    assert_non_null(file);
    size_t length = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[length] = '\0';
    return text;
}

static void make_root(void)
{
    assert_int_equal(mkdir(path_of(""), 0777), 0);
}

/* A log whose files are full after a few lines. */
static struct event_log *open_small(int32_t rank)
{
    struct event_log *log = event_log_open(scratch.path, NULL, 7, rank, 2);

    assert_non_null(log);
    log->limit = 4 * sizeof(LINE);
    return log;
}

TEST(what_a_series_does_is_kept_beside_it)
{
    static const char *const events[] = {"opened", "started", "committed",
                                         "closed", "opened",  "resumed"};
    struct sidestep_series *series = open_with(NULL);
    char word[32];

    save_step(series, 1);
    close_series(&series);
    series = open_with(NULL);
    expect_resume(series, 1);
    close_series(&series);
    const char *text = text_of("events.rank-0");
    for (size_t i = 0; i < ARRAY_LENGTH(events); i++) {
        snprintf(word, sizeof(word), "\"%s\"", events[i]);
        text = strstr(text, word);
        if (text == NULL)
            fail_msg("%s in %s", word, text_of("events.rank-0"));
    }
    assert_non_null(strstr(text, "\"incarnation\":2"));
}

/* A kill between two pages of a write leaves a part of a line. */
TEST(a_line_that_a_kill_has_cut_takes_no_other_along)
{
    make_root();
    for (int whole = 0; whole < 2; whole++) {
        FILE *file = fopen(path_of("events.rank-0"), "w");
        assert_non_null(file);
        fputs(whole ? LINE "\n" : "{\"event\":\"ope", file);
        fclose(file);
        struct event_log *log = event_log_open(scratch.path, NULL, 7, 0, 2);
        assert_non_null(log);
        event_log_write(log, LINE);
        event_log_write(log, LINE);
        event_log_close(log);
        assert_string_equal(text_of("events.rank-0"), whole ? LINE "\n" LINE "\n" LINE "\n"
                                                            : "{\"event\":\"ope\n" LINE "\n" LINE
                                                              "\n");
    }
}

TEST(its_size_is_bounded)
{
    make_root();
    struct event_log *log = open_small(0);

    for (int i = 0; i < 100; i++)
        event_log_write(log, LINE);
    event_log_write(log, "{\"event\":\"last\"}");
    assert_in_range(size_of(path_of("events.rank-0")), 1, log->limit + sizeof(LINE));
    assert_in_range(size_of(path_of("events.rank-0.old")), log->limit, log->limit + sizeof(LINE));
    event_log_close(log);
    assert_non_null(strstr(text_of("events.rank-0"), "last"));
}

/* When one of them begins a new file, the other one goes on there, and nothing is lost. */
TEST(ranks_of_one_host_share_a_file)
{
    make_root();
    struct event_log *one = open_small(1), *other = open_small(2);

    assert_string_equal(one->name, other->name);
    for (int i = 0; i < 4; i++)
        event_log_write(other, LINE);
    event_log_write(one, "{\"event\":\"one\"}");
    event_log_write(other, "{\"event\":\"other\"}");
    assert_string_equal(text_of(one->name), "{\"event\":\"one\"}\n{\"event\":\"other\"}\n");
    event_log_close(one);
    event_log_close(other);
}

/* What others have put at its name is not written to. */
TEST(a_link_or_a_fifo_is_left_alone)
{
    char target[256];

    make_root();
    snprintf(target, sizeof(target), "%s/theirs", scratch.path);
    FILE *file = fopen(target, "w");
    assert_non_null(file);
    fclose(file);
    assert_int_equal(symlink(target, path_of("events.rank-0")), 0);
    assert_null(event_log_open(scratch.path, NULL, 1, 0, 1));
    assert_int_equal(unlink(path_of("events.rank-0")), 0);
    assert_int_equal(link(target, path_of("events.rank-0")), 0);
    assert_null(event_log_open(scratch.path, NULL, 1, 0, 1));
    assert_int_equal(unlink(path_of("events.rank-0")), 0);
    assert_int_equal(mkfifo(path_of("events.rank-0"), 0666), 0);
    assert_null(event_log_open(scratch.path, NULL, 1, 0, 1));
    struct sidestep_series *series = open_with(NULL);
    save_step(series, 1);
    close_series(&series);
    assert_int_equal(size_of(target), 0);
}

/* Paths of saves are absolute, also where the program runs in "/", as in many containers. */
TEST(a_relative_root_covers_its_saves)
{
    static const char *const places[] = {".", "/"};
    int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char *absolute = realpath(scratch.path, NULL), save[512];

    assert_true(here >= 0 && absolute != NULL);
    make_root();
    snprintf(save, sizeof(save), "%s/step-1", absolute);
    for (size_t i = 0; i < ARRAY_LENGTH(places); i++) {
        assert_int_equal(chdir(places[i]), 0);
        struct event_log *log = event_log_open(i == 0 ? scratch.path : absolute + 1, NULL, 1, 0, 1);
        assert_int_equal(fchdir(here), 0);
        assert_non_null(log);
        assert_true(event_log_covers(log, save));
        assert_false(event_log_covers(log, "/elsewhere/step-1"));
        event_log_close(log);
    }
    free(absolute);
    (void)close(here);
}
