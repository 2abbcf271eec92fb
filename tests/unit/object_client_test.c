/* SPDX-License-Identifier: BSD-3-Clause */
/* object_client_test.c -- a client of a store that does not answer: every failure on the way there
 * is told, nothing is left behind, nothing hangs. tests/objects has the tests with stores. */
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/fault.h"
#include "object/client_internal.h"
#include "support/one_scratch.h"

#define SECRET "a-secret-of-tests"

static void write_file(const char *name, const char *text)
{
    FILE *file = fopen(scratch_path(&scratch, name), "w");

    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

static int set_up(void **state)
{
    static const char *const unset[] = {"AWS_ACCESS_KEY_ID",
                                        "AWS_SECRET_ACCESS_KEY",
                                        "AWS_SESSION_TOKEN",
                                        "AWS_PROFILE",
                                        "AWS_ENDPOINT_URL",
                                        "AWS_ENDPOINT_URL_S3",
                                        "AWS_REGION",
                                        "AWS_DEFAULT_REGION",
                                        "AWS_WEB_IDENTITY_TOKEN_FILE",
                                        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                                        "AWS_CA_BUNDLE",
                                        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(unset); i++)
        unsetenv(unset[i]);
    assert_true(scratch_make(&scratch, NULL));
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    setenv("AWS_CONFIG_FILE", scratch_path(&scratch, "config"), 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", scratch_path(&scratch, "credentials"), 1);
    write_file("credentials", "[default]\naws_access_key_id = a\naws_secret_access_key = " SECRET
                              "\n[process]\nregion = r\n");
    write_file("config", "[profile process]\ncredential_process = echo '{\"AccessKeyId\": \"a\", "
                         "\"SecretAccessKey\": \"" SECRET "\"}'\n");
    return 0;
}

/* A port of this machine at which nobody listens: bound, so that nobody will. */
static void take_port(int *fd, char endpoint[64])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);

    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(*fd >= 0);
    assert_int_equal(bind(*fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(getsockname(*fd, (struct sockaddr *)&address, &length), 0);
    snprintf(endpoint, 64, "http://127.0.0.1:%u", ntohs(address.sin_port));
}

/* Make a client, put, end it. */
static enum sidestep_status put_once(const struct object_config *config, struct sidestep_error *err)
{
    OWNED_BY(object_client_free) struct object_client *client = NULL;
    struct object_condition condition = {.if_absent = true};
    char tag[OBJECT_TAG_BYTES];

    TRY(object_client_new("bucket", config, &client, err));
    return client->ops->put(client, "key", "bytes", 5, &condition, tag, err);
}

/* Whatever fails on the way, the first failure is the one that is told. */
static void every_failure(const char *profile)
{
    char endpoint[64];
    OWNED_FD port = -1;
    unsigned long n = 0;

    take_port(&port, endpoint);
    struct object_config config = {
        .endpoint = endpoint, .profile = profile, .deadline_ns = 1000000};
    for (bool fired = true; fired;) {
        struct sidestep_error err = {0};
        fault_arm("memory|curl|thread|open|read|pipe|spawn|xml", ++n, false, 12);
        enum sidestep_status status = put_once(&config, &err);
        const char *point = fault_fired();
        fired = point != NULL;
        fault_arm("", 0, false, 0);
        assert_int_equal(status, err.status);
        assert_null(strstr(err.message, SECRET));
        if (status != (fired ? SIDESTEP_ENOMEM : SIDESTEP_ETIMEDOUT) &&
            (!fired || strcmp(point, "spawn") != 0))
            fail_msg("%lu, %s: %s", n, point != NULL ? point : "nothing", err.message);
    }
    assert_true(n > 20);
}

TEST(every_failure_with_files)
{
    every_failure(NULL);
}

TEST(every_failure_with_a_program)
{
    every_failure("process");
}

/* The sentence says what is missing and how to get it; the next try succeeds. */
TEST(libcurl_may_be_missing)
{
    struct object_config config = {.endpoint = "http://127.0.0.1:1", .deadline_ns = 1000000};
    struct object_client *client = NULL;
    struct sidestep_error err;

    fault_arm("libcurl", 1, false, ENOENT);
    assert_int_equal(object_client_new("bucket", &config, &client, &err), SIDESTEP_EUNSUPPORTED);
    fault_arm("", 0, false, 0);
    assert_non_null(strstr(err.message, "install the system's (libcurl4"));
    assert_non_null(strstr(err.message, "'pip install pycurl'"));
    assert_null(client);
    assert_int_equal(object_client_new("bucket", &config, &client, &err), SIDESTEP_OK);
    object_client_free(&client);
}

/* Quick answers count more: a store that is near may be busy for a while. */
TEST(reads_at_once)
{
    OWNED_BY(object_client_free) struct object_client *client = NULL;
    struct object_config config = {.endpoint = "http://127.0.0.1:1"};

    assert_int_equal(object_client_new("bucket", &config, &client, NULL), SIDESTEP_OK);
    assert_int_equal(client->ops->reads(client), 16);
    client_record_latency(client_of(client), 0);
    assert_int_equal(client->ops->reads(client), 16);
    client_record_latency(client_of(client), 20000000);
    assert_int_equal(client->ops->reads(client), 64);
    client_record_latency(client_of(client), 1000000);
    assert_int_equal(client->ops->reads(client), 16);
    client_record_latency(client_of(client), 16000000);
    assert_int_equal(client->ops->reads(client), 16);
    client_record_latency(client_of(client), 16000000);
    assert_int_equal(client->ops->reads(client), 64);
    object_client_free(&client);
    config.max_requests = 5;
    assert_int_equal(object_client_new("bucket", &config, &client, NULL), SIDESTEP_OK);
    assert_int_equal(client->ops->reads(client), 5);
    client_record_latency(client_of(client), 20000000);
    assert_int_equal(client->ops->reads(client), 5);
}

TEST(a_flag_ends_it)
{
    atomic_bool cancelled = true;
    char endpoint[64];
    OWNED_FD port = -1;
    struct sidestep_error err;

    take_port(&port, endpoint);
    struct object_config config = {.endpoint = endpoint, .cancelled = &cancelled};
    assert_int_equal(put_once(&config, &err), SIDESTEP_EABORTED);
    assert_non_null(strstr(err.message, "write s3://bucket/key: cancelled"));
}

/* Somebody sets the flag while the server is silent. */
static void *set_flag(void *argument)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof(address);
    struct {
        int fd;
        atomic_bool *cancelled;
    } *given = argument;
    int fd = accept(given->fd, (struct sockaddr *)&address, &length);
    char first;

    assert_int_equal(recv(fd, &first, 1, 0), 1); /* the request is under way */
    atomic_store(given->cancelled, true);
    return (void *)(intptr_t)fd;
}

TEST(a_flag_ends_what_is_under_way)
{
    atomic_bool cancelled = false;
    char endpoint[64];
    OWNED_FD port = -1;
    pthread_t thread;
    void *connection;
    struct sidestep_error err;

    take_port(&port, endpoint);
    assert_int_equal(listen(port, 1), 0);
    struct {
        int fd;
        atomic_bool *cancelled;
    } given = {port, &cancelled};
    struct object_config config = {.endpoint = endpoint, .cancelled = &cancelled};
    assert_int_equal(pthread_create(&thread, NULL, set_flag, &given), 0);
    assert_int_equal(put_once(&config, &err), SIDESTEP_EABORTED);
    assert_non_null(strstr(err.message, "the store may have carried it out"));
    assert_int_equal(pthread_join(thread, &connection), 0);
    (void)close((int)(intptr_t)connection);
}

/* A child of a fork neither hangs nor speaks on its parent's connections. */
TEST(a_fork)
{
    char endpoint[64];
    OWNED_FD port = -1;
    OWNED_BY(object_client_free) struct object_client *client = NULL;
    struct object_info info;
    int status;

    take_port(&port, endpoint);
    struct object_config config = {.endpoint = endpoint, .deadline_ns = 1000000};
    assert_int_equal(object_client_new("bucket", &config, &client, NULL), SIDESTEP_OK);
    pid_t child = fork();
    if (child == 0) {
        enum sidestep_status found = client->ops->head(client, "key", &info, NULL);
        object_client_free(&client);
        _exit(found == SIDESTEP_EFORKED ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(client->ops->head(client, "key", &info, NULL), SIDESTEP_ETIMEDOUT);
}

TEST(checksums)
{
    char text[CLIENT_CRC32C_CHARACTERS];

    /* RFC 3720, B.4: 32 bytes of zeroes; and the check value of the catalogue of CRCs. */
    assert_int_equal(client_crc32c((const char[32]){0}, 32), 0x8a9136aa);
    assert_int_equal(client_crc32c("123456789", 9), 0xe3069283);
    assert_int_equal(client_crc32c(NULL, 0), 0);
    client_crc32c_text(0xe3069283, text);
    assert_string_equal(text, "4waSgw==");
}

ALL_TESTS(set_up, scratch_teardown);
