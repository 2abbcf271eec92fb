/* SPDX-License-Identifier: BSD-3-Clause */
/* credentials_remote.c -- requests credentials from the service of a container, of the machine, or
 * of AWS for a web identity. */
#include "object/credentials_source.h"

#include <stdio.h>
#include <strings.h>

#include "object/escape.h"
#include "object/secret.h"
#include "object/xml.h"

#define MAX_ATTEMPTS 3u
#define ATTEMPT_SECONDS 5u
#define TOKEN_SERVICE_SECONDS 20u
#define MAX_ANSWER_BYTES ((size_t)64 << 10)

/* One request to such a service. */
struct question {
    const char *method;
    const char *url;
    struct sign_pair header; /* name NULL: none */
    const char *body;        /* NULL: none */
    unsigned connect_seconds, seconds;
    bool no_proxy;
};

static void wipe_answer(struct answer *answer)
{
    buffer_wipe(&answer->text);
}

static enum transport_outcome ask_once(struct transport *transport, const struct question *question,
                                       struct answer *answer, char reason[160])
{
    struct sign_pair headers[2];
    struct transport_call call = {
        .method = question->method,
        .url = question->url,
        .headers = headers,
        .body = question->body,
        .body_length = question->body != NULL ? strlen(question->body) : 0,
        .has_body = strcmp(question->method, "GET") != 0,
        .no_proxy = question->no_proxy,
        .deadline_ns = clock_now(clock_system()) + (uint64_t)question->seconds * 1000000000u,
        .connect_seconds = question->connect_seconds,
        .answer = answer,
    };

    if (question->header.name != NULL)
        headers[call.header_count++] = question->header;
    if (question->body != NULL)
        headers[call.header_count++] =
            (struct sign_pair){"content-type", "application/x-www-form-urlencoded"};
    enum transport_outcome outcome = transport_perform(transport, &call);
    snprintf(reason, 160, "%s", call.reason);
    return outcome;
}

/* Send a request up to ${attempts} times, until the answer is not a temporary error. */
static enum sidestep_status ask(struct transport *transport, const struct question *question,
                                unsigned attempts, struct answer *answer,
                                struct sidestep_error *err)
{
    char reason[160];

    answer->body = ANSWER_TEXT;
    answer->text_limit = MAX_ANSWER_BYTES;
    /* Extended once, so that it leaves no copy of a secret. */
    (void)buffer_extend(&answer->text, MAX_ANSWER_BYTES);
    TRY(buffer_check(&answer->text, err));
    for (unsigned attempt = 1;; attempt++) {
        enum transport_outcome outcome = ask_once(transport, question, answer, reason);
        bool is_final =
            outcome == TRANSPORT_CANCELLED || outcome == TRANSPORT_NO_MEMORY || attempt == attempts;
        if (outcome == TRANSPORT_ANSWERED && answer->status < 500 && answer->status != 429)
            return SIDESTEP_OK;
        if (!is_final) {
            clock_system()->sleep_ms(clock_system(), 100u * attempt);
            continue;
        }
        if (outcome == TRANSPORT_CANCELLED)
            return FAIL(err, SIDESTEP_EABORTED, "cancelled");
        if (outcome == TRANSPORT_NO_MEMORY)
            return FAIL_NOMEM(err, MAX_ANSWER_BYTES);
        if (outcome == TRANSPORT_ANSWERED)
            return FAIL(err, SIDESTEP_EPERM, "%s: the answer has HTTP status %d", question->url,
                        answer->status);
        return FAIL(err, SIDESTEP_EPERM, "%s: %s", question->url,
                    answer->problem != NULL ? answer->problem : reason);
    }
}

static enum sidestep_status expect_success(const struct question *question,
                                           const struct answer *answer, struct sidestep_error *err)
{
    if (answer->status != 200)
        return FAIL(err, SIDESTEP_EPERM, "%s: the answer has HTTP status %d", question->url,
                    answer->status);
    return SIDESTEP_OK;
}

static enum sidestep_status parse_json_of(const struct question *question, struct answer *answer,
                                          struct credentials_set *set, struct sidestep_error *err)
{
    TRY(expect_success(question, answer, err));
    enum sidestep_status status =
        credentials_parse_json((char *)answer->text.bytes, answer->text.length, set, err);
    if (status != SIDESTEP_OK)
        error_wrap(err, "the answer of %s", question->url);
    return status;
}

bool credentials_url_is_local(const char *url)
{
    static const char *const hosts[] = {"localhost",     "127.0.0.1",      "[::1]",
                                        "169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"};

    if (strncasecmp(url, "https://", 8) == 0)
        return true;
    if (strncasecmp(url, "http://", 7) != 0)
        return false;
    const char *host = url + 7;
    for (size_t i = 0; i < ARRAY_LENGTH(hosts); i++) {
        size_t length = strlen(hosts[i]);
        if (strncmp(host, hosts[i], length) == 0 && strchr("/:?", host[length]) != NULL)
            return true; /* strchr() also finds the NUL */
    }
    return false;
}

/* Read a token from a file. */
static enum sidestep_status read_token(const char *path, struct buffer *token,
                                       struct sidestep_error *err)
{
    TRY(profile_read_file(path, CREDENTIALS_TOKEN_BYTES, token, err));
    char *text = (char *)token->bytes;
    size_t length = strlen(text);
    while (length > 0 && strchr(" \t\r\n", text[length - 1]) != NULL)
        text[--length] = '\0';
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] < 0x20 || (unsigned char)text[i] > 0x7e)
            return FAIL(err, SIDESTEP_EINVAL, "'%s' does not contain a token", path);
    return SIDESTEP_OK;
}

enum sidestep_status credentials_from_container(const struct credentials_source *source,
                                                struct credentials_set *set,
                                                struct sidestep_error *err)
{
    OWNED_BY(wipe_answer) struct answer answer = {0};
    OWNED_BY(buffer_wipe) struct buffer token = {0};
    struct question question = {
        .method = "GET",
        .url = source->url,
        .header = {source->token != NULL ? "authorization" : NULL, source->token},
        .connect_seconds = 2,
        .seconds = ATTEMPT_SECONDS,
        .no_proxy = true,
    };

    if (!credentials_url_is_local(source->url))
        return FAIL(err, SIDESTEP_EINVAL,
                    "AWS_CONTAINER_CREDENTIALS_FULL_URI is neither https nor an address of this "
                    "machine: '%.200s'",
                    source->url);
    if (source->token_file != NULL) {
        TRY(read_token(source->token_file, &token, err));
        question.header = (struct sign_pair){"authorization", (const char *)token.bytes};
    }
    TRY(ask(source->transport, &question, MAX_ATTEMPTS, &answer, err));
    return parse_json_of(&question, &answer, set, err);
}

/* Get the name of the machine's role, and append the URL of its credentials to ${url}. */
static enum sidestep_status find_role(const struct credentials_source *source,
                                      const struct sign_pair *header, struct buffer *url,
                                      struct sidestep_error *err)
{
    OWNED_BY(wipe_answer) struct answer answer = {0};
    OWNED_BUFFER list = {0};

    buffer_printf(&list, "%s/latest/meta-data/iam/security-credentials/", source->url);
    buffer_put_u8(&list, '\0');
    TRY(buffer_check(&list, err));
    struct question question = {"GET", (const char *)list.bytes, *header, NULL,
                                1,     ATTEMPT_SECONDS,          true};
    TRY(ask(source->transport, &question, MAX_ATTEMPTS, &answer, err));
    if (answer.status == 404)
        return FAIL(err, SIDESTEP_EPERM, "this machine has no role");
    TRY(expect_success(&question, &answer, err));
    buffer_put_u8(&answer.text, '\0');
    TRY(buffer_check(&answer.text, err));
    char *role = (char *)answer.text.bytes;
    role[strcspn(role, "\r\n")] = '\0';
    secret_blank(role, header->value); /* messages quote the URL */
    buffer_put(url, list.bytes, list.length - 1);
    escape_put(url, role, false);
    buffer_put_u8(url, '\0');
    return buffer_check(url, err);
}

enum sidestep_status credentials_from_machine(const struct credentials_source *source,
                                              struct credentials_set *set,
                                              struct sidestep_error *err)
{
    OWNED_BY(wipe_answer) struct answer session = {0}, answer = {0};
    OWNED_BUFFER url = {0}, role_url = {0};

    buffer_printf(&url, "%s/latest/api/token", source->url);
    buffer_put_u8(&url, '\0');
    TRY(buffer_check(&url, err));
    struct question question = {
        .method = "PUT",
        .url = (const char *)url.bytes,
        .header = {"x-aws-ec2-metadata-token-ttl-seconds", "21600"},
        .connect_seconds = 1, /* outside of AWS, no host has that address */
        .seconds = 2,
        .no_proxy = true,
    };
    TRY(ask(source->transport, &question, 1, &session, err));
    TRY(expect_success(&question, &session, err));
    buffer_put_u8(&session.text, '\0');
    TRY(buffer_check(&session.text, err));
    struct sign_pair header = {"x-aws-ec2-metadata-token", (const char *)session.text.bytes};
    if (strpbrk(header.value, "\r\n") != NULL)
        return FAIL(err, SIDESTEP_EPERM, "%s: the answer is not a token", question.url);
    TRY(find_role(source, &header, &role_url, err));
    question = (struct question){
        "GET", (const char *)role_url.bytes, header, NULL, 1, ATTEMPT_SECONDS, true};
    TRY(ask(source->transport, &question, MAX_ATTEMPTS, &answer, err));
    return parse_json_of(&question, &answer, set, err);
}

struct token_service_answer {
    struct xml_reader reader;
    struct credentials_set *set;
    enum sidestep_status status;
    struct sidestep_error why;
    char code[64];
};

/* The last name in a path of XML elements. */
static const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

static bool take_element(struct xml_reader *reader, const char *path, char *text)
{
    struct token_service_answer *a = (struct token_service_answer *)reader;
    const char *name = last_name(path);
    struct credentials_set *set = a->set;
    enum sidestep_status status = SIDESTEP_OK;

    reader->problem = "it contains no credentials";
    if (strcmp(name, "AccessKeyId") == 0)
        status =
            credentials_put(set->access_key, sizeof(set->access_key), text, false, name, &a->why);
    else if (strcmp(name, "SecretAccessKey") == 0)
        status = credentials_put(set->secret, sizeof(set->secret), text, false, name, &a->why);
    else if (strcmp(name, "SessionToken") == 0)
        status = credentials_put(set->token, sizeof(set->token), text, false, name, &a->why);
    else if (strcmp(name, "Expiration") == 0)
        set->ends = answer_date(text);
    else if (strcmp(name, "Code") == 0)
        (void)credentials_put(a->code, sizeof(a->code), text, false, name, NULL);
    return status == SIDESTEP_OK;
}

/* ${token} is what the question proved itself with. */
static enum sidestep_status parse_token_service(const struct answer *answer, const char *token,
                                                struct credentials_set *set,
                                                struct sidestep_error *err)
{
    struct token_service_answer a = {.reader = {.element = take_element}, .set = set};
    struct sidestep_error why;
    enum sidestep_status status =
        xml_read(answer->text.bytes, answer->text.length, &a.reader, &why);

    secret_blank(a.code, token);
    if (answer->status != 200)
        return FAIL(err, SIDESTEP_EPERM, "the token service refused: HTTP status %d %s",
                    answer->status, a.code);
    if (status != SIDESTEP_OK) {
        error_copy(err, &why);
        error_wrap(err, "the token service");
        return status;
    }
    if (set->access_key[0] == '\0' || set->secret[0] == '\0' || set->token[0] == '\0')
        return FAIL(err, SIDESTEP_EPERM, "the answer of the token service has no credentials");
    return SIDESTEP_OK;
}

enum sidestep_status credentials_from_web_identity(const struct credentials_source *source,
                                                   struct credentials_set *set,
                                                   struct sidestep_error *err)
{
    OWNED_BY(wipe_answer) struct answer answer = {0};
    OWNED_BY(buffer_wipe) struct buffer token = {0}, body = {0};
    const char *session = source->role_session_name;

    TRY(read_token(source->token_file, &token, err));
    /* Extended once, so that it leaves no copy of the token. */
    (void)buffer_extend(&body, CREDENTIALS_TOKEN_BYTES * 3 + 4096);
    body.length = 0;
    buffer_put_text(&body, "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleSessionName=");
    escape_put(&body, session != NULL ? session : "sidestep", false);
    buffer_put_text(&body, "&RoleArn=");
    escape_put(&body, source->role_arn, false);
    buffer_put_text(&body, "&WebIdentityToken=");
    escape_put(&body, (const char *)token.bytes, false);
    buffer_put_u8(&body, '\0');
    TRY(buffer_check(&body, err));
    struct question question = {
        .method = "POST",
        .url = source->url,
        .body = (const char *)body.bytes,
        .connect_seconds = ATTEMPT_SECONDS,
        .seconds = TOKEN_SERVICE_SECONDS,
    };
    TRY(ask(source->transport, &question, MAX_ATTEMPTS, &answer, err));
    return parse_token_service(&answer, (const char *)token.bytes, set, err);
}
