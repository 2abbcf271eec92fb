/* SPDX-License-Identifier: BSD-3-Clause */
/* credentials_source.h -- the places that credentials come from; for credentials.c alone. */
#ifndef OBJECT_CREDENTIALS_SOURCE_H
#define OBJECT_CREDENTIALS_SOURCE_H

#include "object/credentials.h"

/* One set.  Wiped after use. */
struct credentials_set {
    char access_key[CREDENTIALS_KEY_BYTES];
    char secret[CREDENTIALS_KEY_BYTES];
    char token[CREDENTIALS_TOKEN_BYTES]; /* "": none */
    int64_t ends;                        /* seconds since 1970; 0: never */
};

/* Where they come from: a function, and what it needs.  Texts lie in ${arena}. */
struct credentials_source {
    enum sidestep_status (*fetch)(const struct credentials_source *source,
                                  struct credentials_set *set, struct sidestep_error *err);
    bool is_renewable;
    const char *origin;
    const char *profile;            /* keys in files: their profile */
    const char *process;            /* credential_process */
    const char *url;                /* container, machine, token service */
    const char *token, *token_file; /* for the container's service; of the web identity */
    const char *role_arn, *role_session_name;
    struct transport *transport;
    bool is_short_of_memory; /* a text is missing for that reason */
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
 * has bytes that a header cannot have.  ${what} is named, never the text. */
enum sidestep_status credentials_put(char *to, size_t size, const char *text, bool optional,
                                     const char *what, struct sidestep_error *err);
/* Read {"AccessKeyId": ..., "SecretAccessKey": ..., "Token" or "SessionToken": ..., "Expiration":
 * ...}.  Wipes ${text}. */
enum sidestep_status credentials_parse_json(char *text, size_t length, struct credentials_set *set,
                                            struct sidestep_error *err);
/* Is ${url} one that a token may be sent to: TLS, this machine, or the addresses of container
 * services? */
bool credentials_url_is_local(const char *url);
/* Run a program with arguments as a shell would split them (quotes, backslashes; no variables, no
 * other meaning of anything), and read what it prints. */
enum sidestep_status credentials_run(const char *command, struct buffer *output,
                                     struct sidestep_error *err);

#endif
