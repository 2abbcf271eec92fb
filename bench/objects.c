/* SPDX-License-Identifier: BSD-3-Clause */
/* objects.c -- measures saves to and loads from an object store in memory (object_server.h). */
#include "curl_loop.h"
#include "sidestep/sidestep_tools.h"

#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PART_BYTES ((uint64_t)8 << 20)
#define UPLOADS 8u /* connections that upload one file */
#define READS 16u  /* requests of a load in flight */
#define LISTED 1000u
#define DELAY_MS 20u

extern char **environ;

struct server {
    pid_t process;
    int input; /* its standard input; the server ends when this is closed */
    char endpoint[128];
};

struct objects_bench {
    const struct bench *bench;
    struct server server;
    struct bench_state state;
    struct sidestep_engine *engine;
    char url[256]; /* of the bucket, for ${loop} */
    struct curl_loop loop;
};

static const char checkpoint[] = "s3://bench/run/checkpoint";

static void start_server(struct server *server, const char *program)
{
    char *arguments[] = {(char *)(uintptr_t)program, NULL};
    posix_spawn_file_actions_t actions;
    int input[2], output[2];
    char line[256];

    if (pipe(input) != 0 || pipe(output) != 0)
        bench_die("cannot make a pipe");
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, input[1]);
    if (posix_spawn(&server->process, program, &actions, NULL, arguments, environ) != 0)
        bench_die("cannot start '%s'", program);
    posix_spawn_file_actions_destroy(&actions);
    (void)close(input[0]);
    (void)close(output[1]);
    ssize_t length = read(output[0], line, sizeof(line) - 1);
    (void)close(output[0]);
    line[length > 0 ? length : 0] = '\0';
    if (sscanf(line, "{\"endpoint\": \"%127[^\"]\"", server->endpoint) != 1)
        bench_die("'%s' does not print its endpoint", program);
    server->input = input[1];
}

static void stop_server(struct server *server)
{
    (void)close(server->input);
    (void)waitpid(server->process, NULL, 0);
}

static uint64_t get_request_count(const struct objects_bench *o)
{
    char url[160], text[32];

    snprintf(url, sizeof(url), "%s/!requests", o->server.endpoint);
    curl_loop_text(url, text, sizeof(text));
    return strtoull(text, NULL, 10);
}

static void set_delay(const struct objects_bench *o, unsigned ms)
{
    char url[160], text[32];

    snprintf(url, sizeof(url), "%s/!delay?ms=%u", o->server.endpoint, ms);
    curl_loop_text(url, text, sizeof(text));
}

/* ---- saves */

static double save(struct objects_bench *o, const char *path, struct bench_samples *cpu)
{
    struct sidestep_error err = {0};

    bench_touch(o->state.memory, o->state.bytes);
    double before = bench_cpu(), began = bench_now();
    bench_check(sidestep_save(o->engine, path, o->state.dict, NULL, NULL, &err), &err);
    double seconds = bench_now() - began;
    bench_add(cpu, bench_cpu_per_gib(before, o->state.bytes));
    return seconds;
}

/* Returns the seconds of the call. ${all}: the seconds of the whole save. */
static double save_async(struct objects_bench *o, const char *path, double *all,
                         struct bench_samples *cpu)
{
    struct sidestep_error err = {0};
    struct sidestep_save *handle = NULL;

    bench_touch(o->state.memory, o->state.bytes);
    double before = bench_cpu(), began = bench_now();
    bench_check(sidestep_save_async(o->engine, path, o->state.dict, NULL, &handle, &err), &err);
    double seconds = bench_now() - began;
    bench_check(sidestep_save_finish(&handle, NULL, &err), &err);
    *all = bench_now() - began;
    bench_add(cpu, bench_cpu_per_gib(before, o->state.bytes));
    return seconds;
}

static double put_plain(struct objects_bench *o, bool hashes, struct bench_samples *cpu)
{
    struct curl_loop loop = o->loop;

    loop.hashes = hashes;
    bench_touch(o->state.memory, o->state.bytes);
    double before = bench_cpu();
    double seconds = curl_loop_put(&loop, "plain", o->state.memory, o->state.bytes);
    bench_add(cpu, bench_cpu_per_gib(before, o->state.bytes));
    return seconds;
}

static void measure_saves(struct objects_bench *o)
{
    struct bench_row speed = {.what = "objects: blocking save",
                              .reference = "curl loop",
                              .kind = BENCH_SPEED,
                              .goal = 0.9,
                              .bytes = o->state.bytes};
    struct bench_row signing = {.what = "objects: blocking save",
                                .reference = "curl loop with SHA-256",
                                .kind = BENCH_SPEED,
                                .bytes = o->state.bytes};
    struct bench_row background = {.what = "objects: async save, until committed",
                                   .reference = "curl loop with SHA-256",
                                   .kind = BENCH_SPEED,
                                   .goal = 0.9,
                                   .bytes = o->state.bytes};
    struct bench_row call = {.what = "objects: async call",
                             .reference = "to a file system",
                             .kind = BENCH_STALL,
                             .goal = 1.15};
    struct bench_row cpu = {.what = "objects: async save, processor time a GiB",
                            .reference = "curl loop with SHA-256",
                            .kind = BENCH_CPU};
    struct bench_samples blocking_cpu = {0}, unused = {0};
    char local[4200];
    double all;

    snprintf(local, sizeof(local), "%s/checkpoint", o->bench->dir);
    for (unsigned i = 0; i < o->bench->runs; i++) {
        unused.count = 0;
        bench_add(&speed.ours, save(o, checkpoint, &blocking_cpu));
        bench_add(&speed.theirs, put_plain(o, false, &unused));
        bench_add(&call.ours, save_async(o, checkpoint, &all, &cpu.ours));
        bench_add(&background.ours, all);
        bench_add(&signing.theirs, put_plain(o, true, &cpu.theirs));
        bench_add(&call.theirs, save_async(o, local, &all, &unused));
        bench_remove(local);
    }
    signing.ours = speed.ours;
    background.theirs = signing.theirs;
    bench_report(&speed);
    bench_report(&signing);
    bench_report(&background);
    bench_report(&call);
    bench_report(&cpu);
    cpu.what = "objects: blocking save, processor time a GiB";
    cpu.ours = blocking_cpu;
    bench_report(&cpu);
}

static void measure_memory(struct objects_bench *o)
{
    struct bench_row row = {.what = "objects: memory of an async save beyond the pool",
                            .kind = BENCH_MEMORY,
                            .goal = 64 << 20};
    struct bench_samples unused = {0};
    double all;

    uint64_t before = bench_resident_bytes();
    bench_peak_reset();
    (void)save_async(o, checkpoint, &all, &unused);
    uint64_t peak = bench_peak_bytes();
    bench_add(&row.ours, (double)(peak > before ? peak - before : 0));
    bench_report(&row);
}

/* ---- loads */

static double load(struct objects_bench *o, struct bench_state *target, struct bench_samples *cpu)
{
    struct sidestep_error err = {0};

    memset(target->memory, 0, target->bytes);
    double before = bench_cpu(), began = bench_now();
    bench_check(sidestep_load(o->engine, checkpoint, target->dict, NULL, NULL, &err), &err);
    double seconds = bench_now() - began;
    bench_add(cpu, bench_cpu_per_gib(before, target->bytes));
    if (memcmp(target->memory, o->state.memory, o->state.bytes) != 0)
        bench_die("the loaded state differs from the saved one");
    return seconds;
}

static void measure_loads(struct objects_bench *o, uint64_t bytes)
{
    struct bench_state target;
    struct curl_loop loop = o->loop;
    struct bench_row speed = {.what = "objects: load, verified",
                              .reference = "curl ranges",
                              .kind = BENCH_SPEED,
                              .goal = 0.9,
                              .bytes = o->state.bytes};
    struct bench_row cpu = {.what = "objects: load, processor time a GiB",
                            .reference = "curl ranges",
                            .kind = BENCH_CPU};
    struct bench_row far = speed;
    struct bench_samples unused = {0};

    bench_state_make(&target, bytes, BENCH_WHOLE, 1, 0);
    loop.connections = READS;
    loop.piece_bytes = (uint64_t)8 << 20;
    for (unsigned i = 0; i < o->bench->runs; i++) {
        bench_add(&speed.ours, load(o, &target, &cpu.ours));
        double before = bench_cpu();
        bench_add(&speed.theirs, curl_loop_get(&loop, "plain", target.memory, o->state.bytes));
        bench_add(&cpu.theirs, bench_cpu_per_gib(before, o->state.bytes));
        unused.count = 0;
        set_delay(o, DELAY_MS);
        bench_add(&far.ours, load(o, &target, &unused));
        bench_add(&far.theirs, curl_loop_get(&loop, "plain", target.memory, o->state.bytes));
        set_delay(o, 0);
    }
    far.what = "objects: load, verified, answers after 20 ms";
    bench_report(&speed);
    bench_report(&far);
    bench_report(&cpu);
    bench_state_free(&target);
}

/* ---- listings */

static void save_small(struct objects_bench *o, unsigned step)
{
    struct sidestep_error err = {0};
    struct sidestep_state_dict *dict = NULL;
    float value = (float)step;
    struct sidestep_tensor tensor = {.struct_size = sizeof(tensor),
                                     .name = "weight",
                                     .dtype = SIDESTEP_FLOAT32,
                                     .ndim = 1,
                                     .shape = (int64_t[]){1},
                                     .offsets = (int64_t[]){0},
                                     .lengths = (int64_t[]){1},
                                     .data = &value};
    char path[64];

    snprintf(path, sizeof(path), "s3://bench/many/step-%u", step);
    bench_check(sidestep_state_dict_new(&dict, &err), &err);
    bench_check(sidestep_state_dict_add_tensor(dict, &tensor, &err), &err);
    bench_check(sidestep_save(o->engine, path, dict, NULL, NULL, &err), &err);
    sidestep_state_dict_free(&dict);
}

static void measure_listing(struct objects_bench *o)
{
    struct bench_row count = {.what = "objects: requests of a listing of 1,000 checkpoints",
                              .kind = BENCH_COUNT,
                              .goal = 6}; /* the checkpoints have 3,000 names */
    struct bench_row time = {.what = "objects: time of that listing", .kind = BENCH_DURATION};
    struct sidestep_error err = {0};
    struct sidestep_gc_report pruned;
    struct sidestep_list found;
    struct sidestep_retention keep_all = SIDESTEP_RETENTION_INIT;

    for (unsigned step = 1; step <= LISTED; step++)
        save_small(o, step);
    keep_all.keep_last = LISTED;
    /* Prune also writes the index of the series. */
    bench_check(sidestep_prune("s3://bench/many", &keep_all, 0, &pruned, &err), &err);
    sidestep_gc_report_release(&pruned);
    for (unsigned i = 0; i < o->bench->runs; i++) {
        uint64_t before = get_request_count(o);
        double began = bench_now();
        bench_check(sidestep_list_root("s3://bench/many", &found, &err), &err);
        bench_add(&time.ours, bench_now() - began);
        bench_add(&count.ours, (double)(get_request_count(o) - before));
        if (found.count != LISTED)
            bench_die("the listing has %zu entries", found.count);
        sidestep_list_release(&found);
    }
    bench_report(&count);
    bench_report(&time);
}

static void set_environment(struct objects_bench *o)
{
    (void)setenv("AWS_ENDPOINT_URL_S3", o->server.endpoint, 1);
    (void)setenv("AWS_ACCESS_KEY_ID", "bench", 1);
    (void)setenv("AWS_SECRET_ACCESS_KEY", "bench", 1);
    (void)setenv("AWS_REGION", "us-east-1", 1);
    snprintf(o->url, sizeof(o->url), "%s/bench", o->server.endpoint);
    o->loop = (struct curl_loop){.url = o->url, .connections = UPLOADS, .piece_bytes = PART_BYTES};
}

void bench_objects(const struct bench *bench, uint64_t bytes)
{
    struct objects_bench o = {.bench = bench};
    struct sidestep_error err = {0};
    struct bench_samples unused = {0};

    if (bench->object_server == NULL)
        bench_die("objects: --object-server=PROGRAM must precede it");
    start_server(&o.server, bench->object_server);
    set_environment(&o);
    bench_state_make(&o.state, bytes, BENCH_WHOLE, 1, 0);
    bench_state_fill(&o.state, 1);
    bench_check(sidestep_engine_open(&o.engine, NULL, &err), &err);
    bench_check(sidestep_engine_prepare(o.engine, o.state.dict, &err), &err);
    (void)save(&o, checkpoint, &unused); /* the first save plans */
    (void)put_plain(&o, false, &unused);
    measure_memory(&o);
    measure_saves(&o);
    measure_loads(&o, bytes);
    measure_listing(&o);
    bench_check(sidestep_engine_close(&o.engine, &err), &err);
    bench_state_free(&o.state);
    stop_server(&o.server);
}
