/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * train.c -- a training that can be killed at any moment and resumed. It trains a small language
 * model (model.h) to predict the next byte of a text, on any number of MPI ranks (optimizer.h), and
 * saves a checkpoint in the background every few steps (checkpoint.h).
 *
 *      mpicc.openmpi -O2 -ffp-contract=off train.c model.c optimizer.c checkpoint.c -lsidestep -lm
 *      mpirun -n 4 ./a.out --text book.txt --root checkpoints --resume
 *
 * The losses in the log depend neither on the number of ranks nor on kills and resumes. They are
 * printed as hexadecimal floats, so that they can be compared bit for bit.
 */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "checkpoint.h"

enum { MICRO_BATCHES = 8, LANES = MICRO_BATCHES * MODEL_LANES, WARM_UP_STEPS = 10 };

struct flags {
    const char *text, *root, *log, *events, *size;
    uint64_t steps, save_every;
    uint32_t keep;
    bool resume;
};

static const char usage[] =
    "usage: train --text FILE --root DIRECTORY [options]\n"
    "  --steps N          train up to step N (80)\n"
    "  --save-every N     save a checkpoint every N steps (10)\n"
    "  --keep N           keep only the N newest checkpoints (all)\n"
    "  --resume           continue from the newest valid checkpoint\n"
    "  --log FILE         write losses and costs of checkpoints (standard output)\n"
    "  --events FILE      append sidestep's events, one line of JSON each\n"
    "  --size small|demo  size of the state: 1.4 MB or 55 MB (demo)\n";

static double now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* End all ranks because of an error on this rank. */
_Noreturn static void abort_all_ranks(int rank, const char *doing, const char *what,
                                      const char *why)
{
    fprintf(stderr, "train: rank %d: %s '%s': %s\n", rank, doing, what, why);
    MPI_Abort(MPI_COMM_WORLD, 1);
    abort();
}

/* Parse a positive integer; 0: it is none. */
static uint64_t parse_number(const char *text)
{
    char *end;
    long long value;

    errno = 0;
    value = strtoll(text, &end, 10);
    return errno || end == text || *end || value < 1 ? 0 : (uint64_t)value;
}

static bool parse_flags(struct flags *flags, int argc, char **argv)
{
    static const struct option known[] = {
        {"text", required_argument, NULL, 't'},  {"root", required_argument, NULL, 'd'},
        {"steps", required_argument, NULL, 'n'}, {"save-every", required_argument, NULL, 'k'},
        {"keep", required_argument, NULL, 'p'},  {"resume", no_argument, NULL, 'r'},
        {"log", required_argument, NULL, 'l'},   {"events", required_argument, NULL, 'e'},
        {"size", required_argument, NULL, 's'},  {NULL, 0, NULL, 0},
    };
    int letter;

    *flags = (struct flags){.size = "demo", .steps = 80, .save_every = 10};
    while ((letter = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (letter) {
        case 't':
            flags->text = optarg;
            break;
        case 'd':
            flags->root = optarg;
            break;
        case 'n':
            flags->steps = parse_number(optarg);
            break;
        case 'k':
            flags->save_every = parse_number(optarg);
            break;
        case 'p':
            flags->keep = (uint32_t)parse_number(optarg);
            break;
        case 'r':
            flags->resume = true;
            break;
        case 'l':
            flags->log = optarg;
            break;
        case 'e':
            flags->events = optarg;
            break;
        case 's':
            flags->size = optarg;
            break;
        default:
            return false;
        }
    }
    return optind == argc && flags->text && flags->root && flags->steps && flags->save_every &&
           (strcmp(flags->size, "small") == 0 || strcmp(flags->size, "demo") == 0);
}

static unsigned char *read_text(int rank, const char *path, uint64_t *bytes)
{
    FILE *file = fopen(path, "rb");
    unsigned char *text = NULL;
    long end;

    if (!file || fseek(file, 0, SEEK_END) || (end = ftell(file)) < 0 || fseek(file, 0, SEEK_SET))
        abort_all_ranks(rank, "read the text", path, strerror(errno));
    if (end < MODEL_ORDERS + LANES * (MODEL_LENGTH + 1))
        abort_all_ranks(rank, "read the text", path, "it is too short");
    text = malloc((size_t)end);
    if (!text)
        abort_all_ranks(rank, "read the text", path, "out of memory");
    if (fread(text, 1, (size_t)end, file) != (size_t)end)
        abort_all_ranks(rank, "read the text", path,
                        ferror(file) ? strerror(errno) : "it became shorter");
    fclose(file);
    *bytes = (uint64_t)end;
    return text;
}

/* Compute the loss of one micro-batch, and its gradient in the model. */
static double train_micro_batch(struct training *t, const unsigned char *text, int index,
                                uint64_t seed)
{
    const unsigned char *lanes[MODEL_LANES];
    uint64_t part = (t->text_bytes - MODEL_ORDERS) / LANES;

    for (int i = 0; i < MODEL_LANES; i++) {
        uint64_t lane = (uint64_t)(index * MODEL_LANES + i);

        lanes[i] = text + MODEL_ORDERS + lane * part + t->position;
    }
    /* Each micro-batch has its own sequence, whichever rank computes it. */
    seed += (uint64_t)index;
    return model_backward(&t->model, lanes, random_next(&seed));
}

/* Train ${optimizer.size} micro-batches at a time, one on each rank. Returns the mean loss. */
static double train_step(struct training *t, const unsigned char *text)
{
    struct optimizer *o = &t->optimizer;
    uint64_t seed = random_next(&t->random);
    double total = 0;

    for (int first = 0; first < MICRO_BATCHES; first += o->size) {
        int left = MICRO_BATCHES - first, active = left < o->size ? left : o->size;
        double losses[MICRO_BATCHES] = {0};

        if (o->rank < active)
            losses[first + o->rank] = train_micro_batch(t, text, first + o->rank, seed);
        /* In each sum all terms but one are zero, so their order does not matter. */
        MPI_Allreduce(MPI_IN_PLACE, losses, MICRO_BATCHES, MPI_DOUBLE, MPI_SUM, o->comm);
        for (int i = first; i < first + active; i++)
            total += losses[i];
        optimizer_add_gradients(o, active);
    }

    t->step++;
    t->rate = t->step <= WARM_UP_STEPS ? 0.006 * (double)t->step / WARM_UP_STEPS : t->rate * 0.99;
    optimizer_step(o, t->step, t->rate, MICRO_BATCHES);
    t->position += MODEL_LENGTH;
    if (t->position + MODEL_LENGTH > (t->text_bytes - MODEL_ORDERS) / LANES)
        t->position = 0;
    return total / MICRO_BATCHES;
}

static void train(struct training *t, struct checkpoints *checkpoints, const struct flags *flags,
                  const unsigned char *text)
{
    while (t->step < flags->steps && !checkpoints->stopping) {
        double start = now_ms(), loss = train_step(t, text);

        if (checkpoints->log)
            fprintf(checkpoints->log, "step %llu loss %a nats %.4f ms %.0f\n",
                    (unsigned long long)t->step, loss, loss, now_ms() - start);
        if (checkpoints_due(checkpoints, t->step) || t->step == flags->steps)
            checkpoints_save(checkpoints, t);
    }
}

/* Returns the exit status of the program. */
static int run(struct training *t, const struct flags *flags, const unsigned char *text, FILE *log)
{
    struct checkpoints checkpoints;
    enum sidestep_status status;
    unsigned failed;

    status = checkpoints_open(&checkpoints, t, flags->root, flags->save_every, flags->keep,
                              flags->events, log);
    if (status)
        return sidestep_status_exit(status);
    if (flags->resume)
        status = checkpoints_resume(&checkpoints, t);
    if (!status)
        train(t, &checkpoints, flags, text);
    failed = checkpoints_close(&checkpoints);
    return status ? sidestep_status_exit(status) : failed ? 1 : 0;
}

int main(int argc, char **argv)
{
    struct training training = {.random = 1};
    struct flags flags;
    unsigned char *text;
    FILE *log = NULL;
    bool small;
    int rank, provided, status;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (!parse_flags(&flags, argc, argv)) {
        if (rank == 0)
            fputs(usage, stderr);
        MPI_Finalize();
        return 2;
    }
    if (rank == 0) {
        log = flags.log ? fopen(flags.log, "w") : stdout;
        if (!log)
            abort_all_ranks(rank, "open the log", flags.log, strerror(errno));
        setvbuf(log, NULL, _IOLBF, 0); /* write whole lines, so that a kill truncates none */
    }
    text = read_text(rank, flags.text, &training.text_bytes);
    small = strcmp(flags.size, "small") == 0;
    if (model_init(&training.model, small ? 512 : 8192, small ? 16 : 64, small ? 128 : 512) ||
        optimizer_init(&training.optimizer, &training.model, MPI_COMM_WORLD))
        abort_all_ranks(rank, "create a model of size", flags.size, "out of memory");

    status = run(&training, &flags, text, log);

    if (log && (ferror(log) || fclose(log))) {
        fprintf(stderr, "train: rank 0: write the log: %s\n", strerror(errno));
        status = 1;
    }
    optimizer_release(&training.optimizer);
    model_release(&training.model);
    free(text);
    MPI_Finalize();
    return status;
}
