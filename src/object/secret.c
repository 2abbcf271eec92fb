/* SPDX-License-Identifier: BSD-3-Clause */
/* secret.c -- takes secrets out of texts that others wrote. */
#include "object/secret.h"

#include <string.h>

#define SHORTEST_SECRET 4u /* a shorter one is part of too many words */

/* How many characters of ${text} stand for ${wanted}: 1, 3 for "%2F", 0 for none. */
static size_t character_of(const char *text, char wanted)
{
    if (text[0] == wanted)
        return 1;
    if (text[0] != '%' || utf8_hex_digit(text[1]) < 0 || utf8_hex_digit(text[2]) < 0)
        return 0;
    return utf8_hex_digit(text[1]) * 16 + utf8_hex_digit(text[2]) == (unsigned char)wanted ? 3 : 0;
}

/* The length of ${text}'s beginning that is a part of the secret with at least ${least} characters;
 * 0: none is. */
static size_t part_at(const char *text, const char *secret, size_t least)
{
    size_t longest = 0;

    for (; *secret != '\0'; secret++) {
        size_t used = 0, count = 0, step;
        for (; secret[count] != '\0' && (step = character_of(text + used, secret[count])) != 0;
             count++)
            used += step;
        if (count >= least && used > longest)
            longest = used;
    }
    return longest;
}

/* Blank the parts of at least ${least} characters, which are 3 or more. */
static void blank(char *text, const char *secret, size_t least)
{
    char *to = text;

    for (const char *from = text; *from != '\0';) {
        size_t length = part_at(from, secret, least);
        if (length == 0) {
            *to++ = *from++;
            continue;
        }
        memcpy(to, "***", 3);
        to += 3;
        from += length;
    }
    *to = '\0';
}

void secret_blank(char *text, const char *secret)
{
    size_t length = secret != NULL ? strlen(secret) : 0;

    if (length >= SHORTEST_SECRET)
        blank(text, secret, length < SECRET_RUN ? length : SECRET_RUN);
}

static void blank_proxy(char *text, const char *url)
{
    const char *scheme = strstr(url, "://");
    const char *user = scheme != NULL ? scheme + 3 : url;
    const char *at = strrchr(user, '@');
    size_t length = strlen(url);

    if (length >= SHORTEST_SECRET)
        blank(text, url, length);
    if (at == NULL)
        return;
    OWNED char *secret = memory_strdup(user);
    if (secret == NULL) {
        text[0] = '\0'; /* better no reason than one with a password */
        return;
    }
    secret[at - user] = '\0';
    secret_blank(text, secret);
}

void secret_blank_proxies(char *text)
{
    static const char *const names[] = {"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy",
                                        "ALL_PROXY"};

    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        const char *url = getenv(names[i]);
        if (url != NULL)
            blank_proxy(text, url);
    }
}
