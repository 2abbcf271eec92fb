/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * credentials.h -- access key, secret key and session token, found where AWS tools find them, and
 * renewed before they expire.
 *
 * Looked for in this order: the environment; a web identity (AWS_WEB_IDENTITY_TOKEN_FILE); the
 * profile (keys, web identity, credential_process); the container's service
 * (AWS_CONTAINER_CREDENTIALS_FULL_URI, ..._RELATIVE_URI); the machine's service (IMDSv2, unless
 * AWS_EC2_METADATA_DISABLED is "true").  A profile that the caller chose comes first.
 *
 * Secrets are in memory that core dumps and forked children do not get, are wiped after use, and
 * are in no message.
 *
 * Threads: any.  One thread renews; the others use the valid credentials, or wait.
 */
#ifndef OBJECT_CREDENTIALS_H
#define OBJECT_CREDENTIALS_H

#include "object/profile.h"
#include "object/transport.h"

#define CREDENTIALS_KEY_BYTES 257u
#define CREDENTIALS_TOKEN_BYTES 8193u

struct credentials_config {
    const struct profile *profile; /* only used by credentials_new() */
    bool profile_first;            /* the caller chose it: ignore the environment */
    const char *region;            /* of the token service */
    struct transport *transport;   /* outlives the credentials */
};

/* What is needed to sign a request.  Wipe it after use. */
struct credentials_identity {
    char access_key[CREDENTIALS_KEY_BYTES];
    char token[CREDENTIALS_TOKEN_BYTES]; /* "": none */
    uint8_t key[SIGN_KEY_BYTES];
    uint64_t generation; /* counts renewals */
};

struct credentials;

/* Find credentials, and request them if a service has them.  EPERM: there are none; the message
 * says where they were looked for. */
enum sidestep_status credentials_new(const struct credentials_config *config,
                                     struct credentials **out, struct sidestep_error *err);
void credentials_free(struct credentials *credentials);

/* Renews first, if they expire soon.  ${time}: from sign_time(). */
enum sidestep_status credentials_identify(struct credentials *credentials, const char *time,
                                          const char *region, struct credentials_identity *identity,
                                          struct sidestep_error *err);
/* Renew, because the store refused those of ${generation}.  EPERM: there are no newer ones. */
enum sidestep_status credentials_renew(struct credentials *credentials, uint64_t generation,
                                       struct sidestep_error *err);
/* Can they be renewed?  Those of the environment cannot. */
bool credentials_are_renewable(const struct credentials *credentials);
/* Take the secrets, also those before the last renewal, out of a text in which a store may repeat
 * them. */
void credentials_blank(struct credentials *credentials, char *text);
/* Where they come from, for messages: "the environment", "profile 'x' in '/root/.aws/config'". */
const char *credentials_origin(const struct credentials *credentials);

#endif
