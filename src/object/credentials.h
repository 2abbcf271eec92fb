/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * credentials.h -- who we are: access key, secret key and session token, found where AWS tools find
 * them, and renewed before they end.
 *
 * Looked for in this order: the environment; a web identity (AWS_WEB_IDENTITY_TOKEN_FILE); the
 * profile (keys, web identity, credential_process); the container's service
 * (AWS_CONTAINER_CREDENTIALS_FULL_URI, ..._RELATIVE_URI); the machine's (IMDSv2, unless
 * AWS_EC2_METADATA_DISABLED is "true").  A profile that the caller chose comes first.
 *
 * Secrets lie in memory that core dumps and forked children do not get, are wiped when they are of
 * no use, and are part of no message.
 *
 * Threads: any.  One thread renews; the others go on with what is still valid, or wait.
 */
#ifndef OBJECT_CREDENTIALS_H
#define OBJECT_CREDENTIALS_H

#include "object/profile.h"
#include "object/transport.h"

#define CREDENTIALS_KEY_BYTES 257u
#define CREDENTIALS_TOKEN_BYTES 8193u

struct credentials_config {
    const struct profile *profile; /* only looked at in credentials_new() */
    bool profile_first;            /* the caller chose it: ignore the environment */
    const char *region;            /* of the token service */
    struct transport *transport;   /* outlives the credentials */
};

/* What a request needs to be signed.  Wipe it after use. */
struct credentials_identity {
    char access_key[CREDENTIALS_KEY_BYTES];
    char token[CREDENTIALS_TOKEN_BYTES]; /* "": none */
    uint8_t key[SIGN_KEY_BYTES];
    uint64_t generation; /* counts renewals */
};

struct credentials;

/* Find credentials, and ask for them where they are served.  EPERM: there are none; the message
 * says where they were looked for. */
enum sidestep_status credentials_new(const struct credentials_config *config,
                                     struct credentials **out, struct sidestep_error *err);
void credentials_free(struct credentials *credentials);

/* Renews first, if they end soon.  ${time}: of sign_time(). */
enum sidestep_status credentials_identify(struct credentials *credentials, const char *time,
                                          const char *region, struct credentials_identity *identity,
                                          struct sidestep_error *err);
/* The store does not take those of ${generation} any more.  EPERM: there are no newer ones. */
enum sidestep_status credentials_renew(struct credentials *credentials, uint64_t generation,
                                       struct sidestep_error *err);
/* Can they be renewed?  Those of the environment cannot. */
bool credentials_are_renewable(const struct credentials *credentials);
/* Where they come from, for messages: "the environment", "profile 'x' in '/root/.aws/config'". */
const char *credentials_origin(const struct credentials *credentials);

#endif
