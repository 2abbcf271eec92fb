/* SPDX-License-Identifier: BSD-3-Clause */
/* credentials_source.h -- the sources of credentials; for credentials*.c only. */
#ifndef OBJECT_CREDENTIALS_SOURCE_H
#define OBJECT_CREDENTIALS_SOURCE_H

#include "object/credentials.h"

/* Wipe it after use. */
struct credentials_set {
    char access_key[CREDENTIALS_KEY_BYTES];
    char secret[CREDENTIALS_KEY_BYTES];
    char token[CREDENTIALS_TOKEN_BYTES]; /* "": none */
    int64_t ends;                        /* expiration, seconds since 1970; 0: never */
};

/* A source: a function, and what it needs.  Texts are in ${arena}. */
struct credentials_source {
    enum sidestep_status (*fetch)(const struct credentials_source *source,
                                  struct credentials_set *set, struct sidestep_error *err);
    bool is_renewable;
    const char *origin;
    const char *profile;            /* of keys in files */
    const char *process;            /* credential_process */
    const char *url;                /* container, machine, token service */
    const char *token, *token_file; /* for the container's service; of the web identity */
    const char *role_arn, *role_session_name;
    struct transport *transport;
    bool is_short_of_memory; /* a text could not be copied */
    struct arena arena;
};

enum sidestep_status credentials_from_environment(const struct credentials_source *source,
                                                  struct credentials_set *set,
                                                  struct sidestep_error *err);
enum sidestep_status credentials_from_profile(const struct credentials_source *source,
                                              struct credentials_set *set,
                                              struct sidestep_error *err);
enum sidestep_status credentials_from_process(const struct credentials_source *source,
                                              struct credentials_set *set,
                                              struct sidestep_error *err);
enum sidestep_status credentials_from_container(const struct credentials_source *source,
                                                struct credentials_set *set,
                                                struct sidestep_error *err);
enum sidestep_status credentials_from_machine(const struct credentials_source *source,
                                              struct credentials_set *set,
                                              struct sidestep_error *err);
enum sidestep_status credentials_from_web_identity(const struct credentials_source *source,
                                                   struct credentials_set *set,
                                                   struct sidestep_error *err);

/* Copy a text that goes into a header.  EINVAL: it is empty (unless ${optional}), does not fit, or
 * has bytes that a header cannot have.  The message names ${what}, and
 * does not quote the text. */
enum sidestep_status credentials_put(char *to, size_t size, const char *text, bool optional,
                                     const char *what, struct sidestep_error *err);
/* Read {"AccessKeyId": ..., "SecretAccessKey": ..., "Token" or "SessionToken": ..., "Expiration":
 * ...}.  Wipes ${text}. */
enum sidestep_status credentials_parse_json(char *text, size_t length, struct credentials_set *set,
                                            struct sidestep_error *err);
/* May a token be sent to ${url}: TLS, this machine, or an address of a container service? */
bool credentials_url_is_local(const char *url);
/* Run a program, and read its output.  Arguments are split as by a shell with quotes and
 * backslashes; nothing else is special. */
enum sidestep_status credentials_run(const char *command, struct buffer *output,
                                     struct sidestep_error *err);

#endif
