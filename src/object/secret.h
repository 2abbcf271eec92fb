/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * secret.h -- takes secrets out of texts that others wrote: what a store, a service or libcurl says
 * may repeat a key, a token or a password.  Pure.
 *
 * base/error.c takes users and passwords out of the URLs in every message.
 */
#ifndef OBJECT_SECRET_H
#define OBJECT_SECRET_H

#include "base/base.h"

/* Replace each part of ${secret} in ${text} by "***": whole, or at least SECRET_RUN characters of
 * it, because texts are cut.  "%2F" in the text counts as '/'.  ${secret} may be NULL. */
#define SECRET_RUN 8u
void secret_blank(char *text, const char *secret);
/* The same with the proxies of the environment: their users and passwords, and whole values, which
 * libcurl quotes if it cannot parse them. */
void secret_blank_proxies(char *text);

#endif
