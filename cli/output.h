/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * output.h -- the ways out of the process: results on standard output, all else on standard
 * error, and one exit status.
 */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include "cli.h"
#include "json.h"

/**
 * cli_output_open(): the stream for results.  A write to it that fails ends the process: quietly
 * where the reader went away, else with a message and the status of the reason.
 */
FILE *cli_output_open(void);

/** cli_output_close(out, status): flush and close the results; ${status} if that worked. */
int cli_output_close(FILE *out, int status);

/** cli_output_wants_color(choice): whether to colour standard output; ${choice} as --color has
 * it, or NULL. */
bool cli_output_wants_color(const char *choice);

/** cli_error_set(err, status, format, ...): fill ${err} as the library would; returns ${status}. */
enum sidestep_status cli_error_set(struct sidestep_error *err, enum sidestep_status status,
                                   const char *format, ...) __attribute__((format(printf, 3, 4)));

/** cli_output_error(cli, err): print ${err}; returns the exit status that goes with it. */
int cli_output_error(const struct cli *cli, const struct sidestep_error *err);

/** cli_output_usage(cli, format, ...): a mistake of the user's, beyond what the table knows. */
int cli_output_usage(const struct cli *cli, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** cli_output_note(cli, format, ...): one line on standard error, unless --quiet or --json. */
void cli_output_note(const struct cli *cli, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** cli_output_warning(cli, format, ...): the same of what nobody may miss, so --quiet as well. With
 * --json, it is for the document to say. */
void cli_output_warning(const struct cli *cli, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** cli_output_json_error(json, err): the member "error" of an open object. */
void cli_output_json_error(struct cli_json *json, const struct sidestep_error *err);

#endif
