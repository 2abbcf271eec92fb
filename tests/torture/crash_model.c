/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * crash_model.c -- crash_model [--states N] [--workload W [--seed S]] [--mutant M] [--necessity]:
 * explores the states that a kill or a power loss during the commit protocol leaves, and whether
 * each step of the protocol is needed (model.h). Prints TAP.
 */
#include "model.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/owned.h"

#define DEFAULT_STATES 50000
#define MUTANT_STATES 150000
#define SPARE_MUTANT_STATES 5000

/* A constant, because a state must not depend on the time at which it is reached. */
time_t time(time_t *out)
{
    if (out != NULL)
        *out = 1700000000;
    return 1700000000;
}

ssize_t getrandom(void *to, size_t bytes, unsigned flags)
{
    uint8_t *at = to;

    (void)flags;
    for (size_t i = 0; i < bytes; i++)
        at[i] = (uint8_t)(model.random = model.random * UINT64_C(6364136223846793005) + 1) ^ 0x5a;
    return (ssize_t)bytes;
}

int gethostname(char *name, size_t bytes)
{
    (void)snprintf(name, bytes, "host");
    return 0;
}

struct options {
    uint64_t states;
    const char *workload;
    const char *mutant;
    bool has_seed;
    uint64_t seed;
    bool necessity;
};

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static const struct workload *find_workload(const char *name)
{
    for (size_t i = 0; i < model_workload_count; i++)
        if (strcmp(model_workloads[i].name, name) == 0)
            return &model_workloads[i];
    return NULL;
}

/* Explore runs ${*run}, ${*run} + 1 ... until there are ${states} more states, or nothing new is
 * found. */
static bool explore_workload(struct explore *x, const struct workload *workload, uint64_t states,
                             uint64_t *run)
{
    uint64_t begin = x->states;
    unsigned idle = 0;

    x->limit = begin + states;
    while (x->states < x->limit && idle < 40) {
        uint64_t before = x->states;
        if (!explore_run(x, workload, (*run)++))
            return false;
        idle = x->states != before ? 0 : idle + 1;
    }
    return true;
}

struct progress {
    uint64_t run;
    uint64_t states;
    struct counts plain;
    double seconds;
    bool failed;
};

/* Explore the workloads in turns, so that states that small workloads do not need go to others. */
static void explore_turn(struct explore *x, struct progress *progress, uint64_t states)
{
    for (size_t i = 0; i < model_workload_count; i++) {
        struct progress *p = &progress[i];
        uint64_t before = x->states;
        double began = seconds();
        if (p->failed)
            continue;
        x->plain = p->plain;
        p->failed = !explore_workload(x, &model_workloads[i], states, &p->run);
        x->failed = false;
        p->plain = x->plain;
        p->states += x->states - before;
        p->seconds += seconds() - began;
    }
}

static unsigned report(const struct explore *x, const struct progress *progress)
{
    unsigned violations = 0;

    printf("1..%zu\n", model_workload_count + 1);
    for (size_t i = 0; i < model_workload_count; i++) {
        violations += progress[i].failed;
        printf("%s %zu - crash states of '%s': %llu runs, %llu states, %.1f s\n",
               progress[i].failed ? "not ok" : "ok", i + 1, model_workloads[i].name,
               (unsigned long long)progress[i].run, (unsigned long long)progress[i].states,
               progress[i].seconds);
    }
    printf("%s %zu - crash states: %zu workloads, %llu schedules, %llu steps, %llu crash images; "
           "%llu distinct states recovered from, %u violations\n",
           violations == 0 ? "ok" : "not ok", model_workload_count + 1, model_workload_count,
           (unsigned long long)x->runs, (unsigned long long)x->steps, (unsigned long long)x->images,
           (unsigned long long)x->states, violations);
    return violations;
}

static int explore_all(const struct options *options)
{
    struct progress *progress = calloc(model_workload_count, sizeof(*progress));
    struct explore x;
    uint64_t before = UINT64_MAX;
    double began = seconds();

    if (progress == NULL)
        return 2;
    explore_init(&x);
    while (x.states < options->states && x.states != before) {
        before = x.states;
        explore_turn(&x, progress, (options->states - x.states) / model_workload_count + 1);
    }
    unsigned violations = report(&x, progress);
    double took = seconds() - began;
    printf("# %.1f s, %.0f states/s\n", took, (double)x.states / took);
    explore_release(&x);
    free(progress);
    return violations == 0 ? 0 : 1;
}

static const struct mutant *find_mutant(const char *name)
{
    for (size_t i = 0; i < model_mutant_count; i++)
        if (strcmp(model_mutants[i].name, name) == 0)
            return &model_mutants[i];
    return NULL;
}

static int explore_one(const struct options *options)
{
    const struct workload *workload = find_workload(options->workload);
    struct explore x;
    uint64_t run = 0;
    bool good;

    if (workload == NULL) {
        fprintf(stderr, "no workload is called '%s'\n", options->workload);
        return 2;
    }
    explore_init(&x);
    if (options->has_seed) {
        x.limit = 0; /* run 0 only counts the steps */
        good = explore_run(&x, workload, 0);
        x.limit = UINT64_MAX;
        x.is_thorough = true;
        good = good && explore_run(&x, workload, options->seed);
    } else {
        good = explore_workload(&x, workload, options->states, &run);
    }
    printf("%s 1 - %s: %llu runs, %llu states, %llu images%s\n1..1\n", good ? "ok" : "not ok",
           workload->name, (unsigned long long)x.runs, (unsigned long long)x.states,
           (unsigned long long)x.images, good ? "" : ": VIOLATION");
    explore_release(&x);
    return good ? 0 : 1;
}

/* Leave out one step of the protocol, and check whether that is detected, as it should be. */
static bool try_mutant(size_t number)
{
    const struct mutant *mutant = &model_mutants[number];
    struct explore x;
    uint64_t run = 0;

    explore_init(&x);
    x.quiet = true;
    model.mutant = mutant;
    bool caught =
        !explore_workload(&x, find_workload(mutant->workload),
                          mutant->spare == NULL ? MUTANT_STATES : SPARE_MUTANT_STATES, &run);
    model.mutant = NULL;
    bool good = caught == (mutant->spare == NULL);
    printf("%s %zu - without %s (%s): %s after %llu states%s%s\n", good ? "ok" : "not ok",
           number + 1, mutant->name, mutant->workload, caught ? "caught" : "not caught",
           (unsigned long long)x.states, mutant->spare != NULL ? "; defence in depth: " : ": ",
           mutant->spare != NULL ? mutant->spare
           : caught              ? x.problem.text
                                 : "");
    explore_release(&x);
    return good;
}

static int try_mutants(void)
{
    bool good = true;

    printf("1..%zu\n", model_mutant_count);
    for (size_t i = 0; i < model_mutant_count; i++)
        good &= try_mutant(i);
    return good ? 0 : 1;
}

static int usage(void)
{
    fprintf(stderr, "usage: crash_model [--states N] [--workload W [--seed S]] [--mutant M] "
                    "[--necessity]\n");
    return 2;
}

int main(int argc, char **argv)
{
    struct options options = {.states = DEFAULT_STATES};

    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--necessity") == 0) {
            options.necessity = true;
            continue;
        }
        if (i + 1 == argc)
            return usage();
        if (strcmp(argv[i], "--states") == 0)
            options.states = strtoull(value, NULL, 0);
        else if (strcmp(argv[i], "--workload") == 0)
            options.workload = value;
        else if (strcmp(argv[i], "--mutant") == 0)
            options.mutant = value;
        else if (strcmp(argv[i], "--seed") == 0) {
            options.has_seed = true;
            options.seed = strtoull(value, NULL, 0);
        } else
            return usage();
        i++;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    mallopt(M_TRIM_THRESHOLD, 64 << 20); /* arenas are made and freed often */
    if (options.mutant != NULL && (model.mutant = find_mutant(options.mutant)) == NULL)
        return usage();
    if (options.necessity)
        return try_mutants();
    return options.workload != NULL ? explore_one(&options) : explore_all(&options);
}
