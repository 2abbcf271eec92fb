/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * commands.h -- the table of all commands and options.  Parsing, help, man pages and shell
 * completion are all made from it, so they cannot differ.
 */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include <stdbool.h>
#include <stddef.h>

struct cli;

/* Ends a table of options. */
#define CLI_END_OPTIONS                                                                            \
    {                                                                                              \
        .name = NULL                                                                               \
    }

enum cli_option_id {
    CLI_OPTION_JSON,
    CLI_OPTION_COLOR,
    CLI_OPTION_QUIET,
    CLI_OPTION_VERBOSE,
    CLI_OPTION_HELP,
    CLI_OPTION_VERSION,
    CLI_OPTION_ALL,
    CLI_OPTION_TREE,
    CLI_OPTION_CHUNKS,
    CLI_OPTION_VERIFY,
    CLI_OPTION_THREADS,
    CLI_OPTION_NPY,
    CLI_OPTION_VALUE,
    CLI_OPTION_FILE,
    CLI_OPTION_FORCE,
    CLI_OPTION_DRY_RUN,
    CLI_OPTION_YES,
    CLI_OPTION_KEEP_LAST,
    CLI_OPTION_KEEP_EVERY,
    CLI_OPTION_KEEP_BEST,
    CLI_OPTION_METRIC,
    CLI_OPTION_MAX,
    CLI_OPTION_REMOVE,
    CLI_OPTION_MAN,
    CLI_OPTION_SIZE,
    CLI_OPTION_STATE,
    CLI_OPTION_RUNS,
    CLI_OPTION_MTBF,
    CLI_OPTION_INTERVAL,
    CLI_OPTION_ONCE,
    CLI_OPTION_TO,
    CLI_OPTION_INCLUDE,
    CLI_OPTION_EXCLUDE,
    CLI_OPTION_RENAME,
    CLI_OPTION_MAPPING,
    CLI_OPTION_DTYPE,
    CLI_OPTION_MAX_SHARD_SIZE,
    CLI_OPTION_MODEL_ONLY,
    CLI_OPTION_OBJECTS,
    CLI_OPTION_PARTIAL,
    CLI_OPTION_RANKS,
    CLI_OPTION_COMPRESS,
    CLI_OPTION_STATS,
    CLI_OPTION_REPLACE,
    CLI_OPTION_MAX_AGE,
    CLI_OPTION_MIN_KEPT,
    CLI_OPTION_OUT,
    CLI_OPTION_EVERY,
    CLI_OPTION_FOLLOW,
    CLI_OPTION_RATE,
    CLI_OPTION_MIRROR,
    CLI_OPTION_AFTER,
    CLI_OPTION_LISTEN,
    CLI_OPTION_COUNT
};

#define CLI_MAX_OPERANDS 2        /* kinds of operands of a command */
#define CLI_MAX_GIVEN_OPERANDS 64 /* in one call */
#define CLI_MAX_CHOICES 4
#define CLI_MAX_EXAMPLES 4
#define CLI_MAX_PARAGRAPHS 4
#define CLI_MAX_COMMAND_OPTIONS 15

/* The option of the commands whose output may become a file: see cli_output_document(). */
#define CLI_OUT_OPTION(what)                                                                       \
    {                                                                                              \
        .id = CLI_OPTION_OUT, .letter = 'o', .name = "out", .argument = "FILE",                    \
        .text = "Write to FILE instead, by a rename" what                                          \
    }

/* The option of the commands that look at both levels: see levels.h. */
#define CLI_MIRROR_OPTION(what)                                                                    \
    {                                                                                              \
        .id = CLI_OPTION_MIRROR, .name = "mirror", .argument = "PLACE", .optional = true,          \
        .text = what " PLACE is its path or URL. Default: the mirror that ROOT remembers, which "  \
                     "its run has recorded there."                                                 \
    }

struct cli_option {
    enum cli_option_id id;
    char letter;          /* "-a"; 0: none */
    bool hidden;          /* parsed, but not in help */
    bool many;            /* may be given several times: see cli_option_values() */
    const char *name;     /* "all" for "--all"; NULL ends a list */
    const char *argument; /* "WHEN"; NULL: the option takes none */
    bool optional;        /* "--name" or "--name=argument"; no next word is its argument */
    const char *choices[CLI_MAX_CHOICES];
    bool more_choices; /* there are others, which the command parses */
    const char *text;
};

/** What a shell should offer for an operand. */
enum cli_operand_kind {
    CLI_OPERAND_DIRECTORY,
    CLI_OPERAND_PATH,
    CLI_OPERAND_TEXT,
    CLI_OPERAND_COMMAND,
    CLI_OPERAND_SHELL,
};

struct cli_operand {
    const char *name; /* "CKPT"; NULL ends the list */
    enum cli_operand_kind kind;
    bool optional;
    bool repeated; /* the last one: more of the same may follow */
};

struct cli_example {
    const char *command;
    const char *text;
};

/* Exit statuses that a command lists in its help, as bits; all commands have 0, 1 and 2. */
#define CLI_EXIT_DAMAGE 1u
#define CLI_EXIT_UNCOMMITTED 2u
#define CLI_EXIT_UNSUPPORTED 4u
#define CLI_EXIT_NOT_FOUND 8u
#define CLI_EXIT_LOCKED 16u
#define CLI_EXIT_PERMISSION 32u
#define CLI_EXIT_SPACE 64u
#define CLI_EXIT_INTERRUPTED 128u
#define CLI_EXIT_DIFFERENT 256u /* 1 and 2 are those of diff(1) */
#define CLI_EXIT_MONITOR 512u   /* 0 to 3 are those of monitoring plug-ins */

struct cli_exit {
    int status; /* -1 ends the list */
    unsigned bit;
    const char *text;
};

struct cli_command {
    const char *name; /* NULL ends the list */
    const char *summary;
    struct cli_operand operands[CLI_MAX_OPERANDS + 1];
    struct cli_example examples[CLI_MAX_EXAMPLES + 1];
    const char *description[CLI_MAX_PARAGRAPHS + 1];
    const char *json; /* what --json prints */
    struct cli_option options[CLI_MAX_COMMAND_OPTIONS + 1];
    unsigned exits;                 /* CLI_EXIT_* */
    int (*run)(const struct cli *); /* the process's exit status */
};

extern const struct cli_command *const cli_commands[]; /* NULL ends it */
/** cli_commands_operand(command, i): the kind of the operand given as the ${i}-th, counted from 0;
 * its name is NULL if there may be none. */
const struct cli_operand *cli_commands_operand(const struct cli_command *command, size_t i);

extern const struct cli_command cli_command_ls, cli_command_show, cli_command_latest,
    cli_command_verify, cli_command_cat, cli_command_diff, cli_command_convert, cli_command_cp,
    cli_command_mirror, cli_command_gc, cli_command_prune, cli_command_watch, cli_command_pin,
    cli_command_unpin, cli_command_tag, cli_command_rebuild, cli_command_doctor, cli_command_bench,
    cli_command_check, cli_command_metrics, cli_command_events, cli_command_trace,
    cli_command_report, cli_command_completion, cli_command_help, cli_command_version;
extern const struct cli_option cli_commands_global_options[];
extern const struct cli_exit cli_commands_exits[];
/** The shells for which there is completion; NULL ends the list. */
extern const char *const cli_commands_shells[];

/** cli_commands_find(name): NULL if there is no such command. */
const struct cli_command *cli_commands_find(const char *name);

/* The commands, one file each. */
int cli_check_run(const struct cli *cli);
int cli_metrics_run(const struct cli *cli);
int cli_events_run(const struct cli *cli);
int cli_trace_run(const struct cli *cli);
int cli_report_run(const struct cli *cli);
int cli_ls_run(const struct cli *cli);
int cli_show_run(const struct cli *cli);
int cli_latest_run(const struct cli *cli);
int cli_verify_run(const struct cli *cli);
int cli_cat_run(const struct cli *cli);
int cli_diff_run(const struct cli *cli);
int cli_convert_run(const struct cli *cli);
int cli_cp_run(const struct cli *cli);
int cli_mirror_run(const struct cli *cli);
int cli_gc_run(const struct cli *cli);
int cli_prune_run(const struct cli *cli);
int cli_pin_run(const struct cli *cli);
int cli_watch_run(const struct cli *cli);
int cli_unpin_run(const struct cli *cli);
int cli_tag_run(const struct cli *cli);
int cli_rebuild_run(const struct cli *cli);
int cli_doctor_run(const struct cli *cli);
int cli_bench_run(const struct cli *cli);
int cli_completion_run(const struct cli *cli);
int cli_help_run(const struct cli *cli);
int cli_version_run(const struct cli *cli);

#endif
