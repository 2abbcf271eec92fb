/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * object_tool.c BUCKET [DEADLINE_MS [STALL_SECONDS [FORK]]] -- runs one client of src/object/,
 * which carries out the commands on its standard input, for tests in Python
 * (tests/objects/tool.py).
 *
 * A command is a line of words separated by tabs. The response is one line of JSON: "status" (a
 * number), "text" (of the error), "sent" (requests so far), and results. Bodies are generated from
 * a seed and reported by their CRC-32C, so that none passes through the pipe.
 *
 *      head KEY                         get KEY OFFSET LENGTH [TAG]     get_all KEY MOST
 *      put KEY LENGTH SEED [absent|tag TAG]                             delete KEY...
 *      delete_version KEY TAG
 *      list PREFIX DELIMITER AFTER MOST begin KEY                       uploads PREFIX
 *      part KEY ID NUMBER LENGTH SEED   complete KEY ID LENGTH          abort KEY ID
 *      cancel (all later requests)                                      describe
 *      many COUNT LENGTH (puts of COUNT threads at once)
 *
 * With FORK, the client is created before a fork, and the child carries out the commands.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "object/client_internal.h"

static struct object_client *client;
static atomic_bool cancelled;
static struct object_part parts[OBJECT_MAX_PARTS];
static unsigned part_count;

static void put_text(struct buffer *out, const char *text)
{
    buffer_put_u8(out, '"');
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++) {
        if (*c < 0x20 || *c == '"' || *c == '\\')
            buffer_printf(out, "\\u%04x", *c);
        else
            buffer_put_u8(out, *c);
    }
    buffer_put_u8(out, '"');
}

static void put_info(struct buffer *out, const struct object_info *info)
{
    buffer_put_text(out, "{\"key\": ");
    put_text(out, info->key);
    buffer_put_text(out, ", \"tag\": ");
    put_text(out, info->tag);
    buffer_printf(out, ", \"bytes\": %llu, \"modified\": %lld, \"now\": %lld",
                  (unsigned long long)info->bytes, (long long)info->modified, (long long)info->now);
}

static void put_one_info(struct buffer *out, const struct object_info *info)
{
    buffer_put_text(out, ", \"info\": ");
    put_info(out, info);
    buffer_put_u8(out, '}');
}

static unsigned char *make_body(size_t length, unsigned seed)
{
    unsigned char *body = malloc(length + 1);
    unsigned state = seed * 2654435761u + 1;

    for (size_t i = 0; body != NULL && i < length; i++) {
        state = state * 1664525u + 1013904223u;
        body[i] = (unsigned char)(state >> 24);
    }
    return body;
}

static const char *word(char *const words[], int count, int at)
{
    return at < count ? words[at] : "";
}

static unsigned long long number(char *const words[], int count, int at)
{
    return strtoull(word(words, count, at), NULL, 10);
}

static enum sidestep_status do_get(char *const w[], int n, struct buffer *out,
                                   struct sidestep_error *err)
{
    size_t length = number(w, n, 3);
    OWNED unsigned char *body = malloc(length + 1);
    struct object_info info;

    const struct store_place place = {body, length};
    const struct store_places to = {.list = &place, .count = 1};
    TRY(client->ops->get(client, w[1], number(w, n, 2), &to, n > 4 ? w[4] : NULL, &info, err));
    buffer_printf(out, ", \"crc\": %u", client_crc32c(body, length));
    put_one_info(out, &info);
    return SIDESTEP_OK;
}

static enum sidestep_status do_get_all(char *const w[], int n, struct buffer *out,
                                       struct sidestep_error *err)
{
    OWNED_BUFFER body = {0};
    struct object_info info;

    TRY(client->ops->get_all(client, w[1], number(w, n, 2), &body, &info, err));
    buffer_printf(out, ", \"length\": %zu, \"crc\": %u", body.length,
                  client_crc32c(body.bytes, body.length));
    put_one_info(out, &info);
    return SIDESTEP_OK;
}

static enum sidestep_status do_put(char *const w[], int n, struct buffer *out,
                                   struct sidestep_error *err)
{
    size_t length = number(w, n, 2);
    OWNED unsigned char *body = make_body(length, (unsigned)number(w, n, 3));
    struct object_condition condition = {.if_absent = strcmp(word(w, n, 4), "absent") == 0,
                                         .if_tag = strcmp(word(w, n, 4), "tag") == 0 ? w[5] : NULL};
    char tag[OBJECT_TAG_BYTES];

    TRY(client->ops->put(client, w[1], body, length, n > 4 ? &condition : NULL, tag, err));
    buffer_put_text(out, ", \"tag\": ");
    put_text(out, tag);
    buffer_printf(out, ", \"crc\": %u", client_crc32c(body, length));
    return SIDESTEP_OK;
}

static bool list_one(void *context, const struct object_info *info)
{
    struct buffer *out = context;

    put_info(out, info);
    buffer_put_text(out, "}, ");
    return true;
}

static bool list_upload(void *context, const struct object_info *info, const char *upload_id)
{
    struct buffer *out = context;

    put_info(out, info);
    buffer_put_text(out, ", \"upload\": ");
    put_text(out, upload_id);
    buffer_put_text(out, "}, ");
    return true;
}

static enum sidestep_status do_list(char *const w[], int n, struct buffer *out,
                                    struct sidestep_error *err)
{
    buffer_put_text(out, ", \"list\": [");
    enum sidestep_status status =
        strcmp(w[0], "list") == 0
            ? client->ops->list(client, word(w, n, 1), word(w, n, 2)[0],
                                word(w, n, 3)[0] != '\0' ? w[3] : NULL, (unsigned)number(w, n, 4),
                                list_one, out, err)
            : client->ops->upload_list(client, word(w, n, 1), list_upload, out, err);
    buffer_put_text(out, "null]");
    return status;
}

static enum sidestep_status do_part(char *const w[], int n, struct sidestep_error *err)
{
    unsigned at = (unsigned)number(w, n, 3);
    size_t length = number(w, n, 4);
    OWNED unsigned char *body = make_body(length, (unsigned)number(w, n, 5));
    struct object_part part;

    TRY(client->ops->upload_part(client, w[1], w[2], at, body, length, &part, err));
    parts[at - 1] = part;
    if (at > part_count)
        part_count = at;
    return SIDESTEP_OK;
}

static enum sidestep_status do_upload(char *const w[], int n, struct buffer *out,
                                      struct sidestep_error *err)
{
    char id[OBJECT_UPLOAD_ID_BYTES];
    struct object_info info;

    if (strcmp(w[0], "part") == 0)
        return do_part(w, n, err);
    if (strcmp(w[0], "abort") == 0)
        return client->ops->upload_abort(client, w[1], w[2], err);
    if (strcmp(w[0], "complete") == 0) {
        TRY(client->ops->upload_complete(client, w[1], w[2], parts, part_count, number(w, n, 3),
                                         NULL, &info, err));
        put_one_info(out, &info);
        return SIDESTEP_OK;
    }
    TRY(client->ops->upload_begin(client, w[1], NULL, id, err));
    part_count = 0;
    buffer_put_text(out, ", \"upload\": ");
    put_text(out, id);
    return SIDESTEP_OK;
}

struct put_thread {
    pthread_t thread;
    unsigned number;
    size_t length;
    struct sidestep_error err;
};

static void *put_one(void *argument)
{
    struct put_thread *one = argument;
    OWNED unsigned char *body = make_body(one->length, one->number);
    char key[32];

    snprintf(key, sizeof(key), "many/%05u", one->number);
    one->err.status = (int)client->ops->put(client, key, body, one->length, NULL, NULL, &one->err);
    return NULL;
}

static enum sidestep_status do_many(char *const w[], int n, struct sidestep_error *err)
{
    unsigned count = (unsigned)number(w, n, 1);
    OWNED struct put_thread *put_thread = calloc(count, sizeof(*put_thread));
    enum sidestep_status status = SIDESTEP_OK;

    for (unsigned i = 0; i < count; i++) {
        put_thread[i].number = i;
        put_thread[i].length = number(w, n, 2);
        pthread_create(&put_thread[i].thread, NULL, put_one, &put_thread[i]);
    }
    for (unsigned i = 0; i < count; i++) {
        pthread_join(put_thread[i].thread, NULL);
        if (put_thread[i].err.status != SIDESTEP_OK) {
            *err = put_thread[i].err;
            status = (enum sidestep_status)err->status;
        }
    }
    return status;
}

static enum sidestep_status run_command(char *const w[], int n, struct buffer *out,
                                        struct sidestep_error *err)
{
    struct object_info info;

    if (strcmp(w[0], "head") == 0) {
        TRY(client->ops->head(client, word(w, n, 1), &info, err));
        put_one_info(out, &info);
        return SIDESTEP_OK;
    }
    if (strcmp(w[0], "get") == 0)
        return do_get(w, n, out, err);
    if (strcmp(w[0], "get_all") == 0)
        return do_get_all(w, n, out, err);
    if (strcmp(w[0], "put") == 0)
        return do_put(w, n, out, err);
    if (strcmp(w[0], "delete_version") == 0)
        return client->ops->delete_version(client, w[1], w[2], err);
    if (strcmp(w[0], "delete") == 0)
        return client->ops->delete_keys(client, (const char *const *)&w[1], (size_t)n - 1, err);
    if (strcmp(w[0], "list") == 0 || strcmp(w[0], "uploads") == 0)
        return do_list(w, n, out, err);
    if (strcmp(w[0], "many") == 0)
        return do_many(w, n, err);
    if (strcmp(w[0], "cancel") == 0) {
        atomic_store(&cancelled, true);
        return SIDESTEP_OK;
    }
    if (strcmp(w[0], "describe") == 0) {
        buffer_put_text(out, ", \"describe\": ");
        put_text(out, client->ops->describe(client));
        return SIDESTEP_OK;
    }
    return do_upload(w, n, out, err);
}

static void answer(char *line)
{
    OWNED_BUFFER out = {0};
    struct sidestep_error err = {0};
    char *words[2048];
    int count = 0;

    line[strcspn(line, "\n")] = '\0';
    for (char *rest = line; count < (int)ARRAY_LENGTH(words) && rest != NULL;)
        words[count++] = strsep(&rest, "\t");
    words[count < (int)ARRAY_LENGTH(words) ? count : count - 1] = NULL;
    buffer_put_text(&out, "{\"result\": 0");
    enum sidestep_status status = run_command(words, count, &out, &err);
    buffer_printf(&out, ", \"status\": %d, \"sent\": %llu, \"text\": ", (int)status,
                  (unsigned long long)client->ops->request_count(client));
    put_text(&out, status != SIDESTEP_OK ? err.message : "");
    buffer_put_text(&out, "}\n");
    fwrite(out.bytes, 1, out.length, stdout);
    fflush(stdout);
}

static int serve(void)
{
    char *line = NULL;
    size_t size = 0;

    while (getline(&line, &size, stdin) > 0)
        answer(line);
    free(line);
    object_client_free(&client);
    return 0;
}

int main(int argc, char **argv)
{
    struct object_config config = {.cancelled = &cancelled};
    struct sidestep_error err = {0};

    trace_init();
    if (argc > 2)
        config.deadline_ns = strtoull(argv[2], NULL, 10) * 1000000u;
    if (argc > 3)
        config.stall_seconds = (unsigned)strtoul(argv[3], NULL, 10);
    enum sidestep_status status =
        object_client_new(argc > 1 ? argv[1] : "", &config, &client, &err);
    OWNED_BUFFER out = {0};
    buffer_printf(&out, "{\"result\": 0, \"status\": %d, \"text\": ", (int)status);
    put_text(&out, err.message);
    buffer_put_text(&out, "}\n");
    fwrite(out.bytes, 1, out.length, stdout);
    fflush(stdout);
    if (status != SIDESTEP_OK)
        return 0;
    if (argc > 4 && fork() != 0) {
        int ended;
        (void)wait(&ended);
        return ended != 0;
    }
    return serve();
}
