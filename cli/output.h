/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * output.h -- prints results on standard output, and everything else on standard error, and chooses
 * the exit status.
 */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include "cli.h"
#include "json.h"

/**
 * cli_output_open(): the stream for results.  If a write to it fails, the process ends: silently if
 * the reader has gone, else with a message and the status of the reason.
 */
FILE *cli_output_open(void);

/** cli_output_close(out, status): flush and close the results; returns ${status} on success. */
int cli_output_close(FILE *out, int status);

/** cli_output_wants_color(choice): should standard output be coloured?  ${choice}: the argument of
 * --color, or NULL. */
bool cli_output_wants_color(const char *choice);

/** cli_error_set(err, status, format, ...): fill ${err} as the library would; returns ${status}. */
enum sidestep_status cli_error_set(struct sidestep_error *err, enum sidestep_status status,
                                   const char *format, ...) __attribute__((format(printf, 3, 4)));

/** cli_error_append(err, advice): append ${advice} to the message. */
void cli_error_append(struct sidestep_error *err, const char *advice);

/** cli_output_error(cli, err): print ${err}; returns its exit status. */
int cli_output_error(const struct cli *cli, const struct sidestep_error *err);

/** cli_output_usage(cli, format, ...): report a usage error that parsing does not find. */
int cli_output_usage(const struct cli *cli, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** cli_output_note(cli, format, ...): one line on standard error, unless --quiet or --json. */
void cli_output_note(const struct cli *cli, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** cli_output_warning(cli, format, ...): the same, also with --quiet.  With --json, the document
 * must contain it instead. */
void cli_output_warning(const struct cli *cli, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** cli_output_document(cli, text, length): write ${text} to the file of --out, else to the results.
 * The file is replaced in one step: whoever reads it finds the old or the new.  Returns the exit
 * status, after it has printed an error. */
int cli_output_document(const struct cli *cli, const char *text, size_t length);

/** cli_output_json_error(json, err): the member "error" of an open object. */
void cli_output_json_error(struct cli_json *json, const struct sidestep_error *err);

#endif
