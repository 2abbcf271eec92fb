/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * checkpoint.c -- saves and loads the state of the example's training with sidestep. Copy it into
 * your trainer.
 *
 * In Python, the checkpoint is
 *      {"model": {"ngram.weight": ..., ...},
 *       "optimizer": {"exp_avg": {"ngram.weight": ..., ...}, "exp_avg_sq": {...}},
 *       "step": 20, "rate": 0.0051, "random": {...}, "data": {...}, "config": {...}}
 */
#include "checkpoint.h"

#include <signal.h>
#include <string.h>
#include <time.h>

#include <sidestep/sidestep_mpi.h>

#include "sidestep/sidestep_series.h"

static double now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void print_error(const struct checkpoints *c, const char *doing,
                        const struct sidestep_error *err)
{
    fprintf(stderr, "train: rank %d: %s: %s (%s)\n", c->rank, doing, err->message, err->where);
}

/* ---------------------------------------------------------------- the state */

/* dict[key] = value; a NULL ${value} means out of memory. */
static enum sidestep_status set(struct sidestep_value *dict, const char *key,
                                struct sidestep_value *value, struct sidestep_error *err)
{
    return sidestep_value_set(dict, sidestep_value_str(key), value, err);
}

static const struct sidestep_value *get(const struct sidestep_value *dict, const char *key)
{
    for (size_t i = 0; i < sidestep_value_count(dict); i++) {
        const char *name = sidestep_value_get_bytes(sidestep_value_key(dict, i), NULL);

        if (name && strcmp(name, key) == 0)
            return sidestep_value_item(dict, i);
    }
    return NULL;
}

static enum sidestep_status fill_random(struct sidestep_value *dict, const struct training *t,
                                        struct sidestep_error *err)
{
    enum sidestep_status status = set(dict, "generator", sidestep_value_str("splitmix64"), err);

    return status ? status : set(dict, "state", sidestep_value_int((int64_t)t->random), err);
}

static enum sidestep_status fill_data(struct sidestep_value *dict, const struct training *t,
                                      struct sidestep_error *err)
{
    enum sidestep_status status =
        set(dict, "position", sidestep_value_int((int64_t)t->position), err);

    return status ? status
                  : set(dict, "text_bytes", sidestep_value_int((int64_t)t->text_bytes), err);
}

static enum sidestep_status fill_config(struct sidestep_value *dict, const struct training *t,
                                        struct sidestep_error *err)
{
    const struct {
        const char *key;
        size_t value;
    } sizes[] = {{"orders", MODEL_ORDERS},
                 {"table_rows", t->model.table_rows},
                 {"width", t->model.width},
                 {"hidden", t->model.hidden}};
    struct sidestep_value *model = sidestep_value_dict();
    enum sidestep_status status = SIDESTEP_OK;

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0] && !status; i++)
        status = set(model, sizes[i].key, sidestep_value_int((int64_t)sizes[i].value), err);
    if (status) {
        sidestep_value_free(&model);
        return status;
    }
    return set(dict, "model", model, err); /* takes ownership of ${model}, also on failure */
}

static enum sidestep_status add_value(struct sidestep_state_dict *state, const char *name,
                                      struct sidestep_value *value, struct sidestep_error *err)
{
    enum sidestep_status status = sidestep_state_dict_add_value(state, name, NULL, 0, value, err);

    if (status)
        sidestep_value_free(&value);
    return status;
}

/* Add the objects. For a load, only their names are given. */
static enum sidestep_status add_objects(struct sidestep_state_dict *state, const struct training *t,
                                        bool loading, struct sidestep_error *err)
{
    const struct {
        const char *name;
        enum sidestep_status (*fill)(struct sidestep_value *dict, const struct training *t,
                                     struct sidestep_error *err);
    } dicts[] = {{"random", fill_random}, {"data", fill_data}, {"config", fill_config}};
    enum sidestep_status status;

    status = add_value(state, "step", loading ? NULL : sidestep_value_int((int64_t)t->step), err);
    if (!status)
        status = add_value(state, "rate", loading ? NULL : sidestep_value_float(t->rate), err);
    for (size_t i = 0; i < sizeof dicts / sizeof dicts[0] && !status; i++) {
        struct sidestep_value *dict = loading ? NULL : sidestep_value_dict();

        if (!loading)
            status = dicts[i].fill(dict, t, err);
        if (!status)
            status = add_value(state, dicts[i].name, dict, err);
        else
            sidestep_value_free(&dict);
    }
    return status;
}

/* Add one parameter, or the ${slice} of one of its moments on this rank. */
static enum sidestep_status add_tensor(struct sidestep_state_dict *state, const char *group,
                                       const char *moment, const struct model_tensor *tensor,
                                       const struct slice *slice, float *data,
                                       struct sidestep_error *err)
{
    struct sidestep_path_item path[3] = {{.key = group}, {.key = moment}, {.key = tensor->name}};
    int64_t shape[2] = {(int64_t)tensor->rows, (int64_t)tensor->columns};
    int64_t offsets[2] = {slice ? (int64_t)slice->first_row : 0, 0};
    int64_t lengths[2] = {slice ? (int64_t)slice->rows : shape[0], shape[1]};
    struct sidestep_tensor entry = SIDESTEP_TENSOR_INIT;
    char name[100];

    snprintf(name, sizeof name, "%s.%s%s%s", group, moment ? moment : "", moment ? "." : "",
             tensor->name);
    if (!moment)
        path[1] = path[2];
    entry.name = name;
    entry.path = path;
    entry.path_length = moment ? 3 : 2;
    entry.dtype = SIDESTEP_FLOAT32;
    entry.ndim = tensor->columns == 1 ? 1 : 2;
    entry.shape = shape;
    entry.offsets = offsets;
    entry.lengths = lengths;
    entry.data = data;
    entry.flags = slice ? 0 : SIDESTEP_TENSOR_REPLICATED;
    return sidestep_state_dict_add_tensor(state, &entry, err);
}

static enum sidestep_status add_tensors(struct sidestep_state_dict *state, struct training *t,
                                        struct sidestep_error *err)
{
    enum sidestep_status status = SIDESTEP_OK;

    for (int id = 0; id < MODEL_TENSORS && !status; id++) {
        const struct model_tensor *tensor = &t->model.tensors[id];
        const struct slice *slice = &t->optimizer.slices[id];
        const struct optimizer *o = &t->optimizer;

        status = add_tensor(state, "model", NULL, tensor, NULL,
                            t->model.parameters + tensor->offset, err);
        if (!status)
            status = add_tensor(state, "optimizer", "exp_avg", tensor, slice,
                                o->first_moment + slice->offset, err);
        if (!status)
            status = add_tensor(state, "optimizer", "exp_avg_sq", tensor, slice,
                                o->second_moment + slice->offset, err);
    }
    return status;
}

/* Describe the current state or, if ${loading}, the memory to load to. It fails only if this rank
 * is out of memory, and then ends all ranks. */
static struct sidestep_state_dict *describe(const struct checkpoints *c, struct training *t,
                                            bool loading)
{
    struct sidestep_error err = {0};
    struct sidestep_state_dict *state = NULL;
    enum sidestep_status status = sidestep_state_dict_new(&state, &err);

    if (!status)
        status = add_tensors(state, t, &err);
    if (!status)
        status = add_objects(state, t, loading, &err);
    if (status) {
        print_error(c, "describe the state", &err);
        MPI_Abort(c->mpi, sidestep_status_exit(status));
    }
    return state;
}

/* ---------------------------------------------------------------- opening and resuming */

/* Global, because a signal handler has no context. */
static struct sidestep_series *signalled_series;

static void on_sigterm(int number)
{
    (void)number;
    sidestep_series_request(signalled_series, SIDESTEP_DUE_STOP);
}

static void set_sigterm_handler(struct sidestep_series *series)
{
    struct sigaction action = {.sa_handler = series ? on_sigterm : SIG_DFL, .sa_flags = SA_RESTART};

    signalled_series = series;
    sigemptyset(&action.sa_mask);
    (void)sigaction(SIGTERM, &action, NULL);
}

static enum sidestep_status open_series(struct checkpoints *c, const char *root, uint64_t interval,
                                        uint32_t keep, struct sidestep_error *err)
{
    struct sidestep_retention retention = SIDESTEP_RETENTION_INIT;
    struct sidestep_series_options options = SIDESTEP_SERIES_OPTIONS_INIT;

    retention.keep_last = keep;
    options.retention = keep ? &retention : NULL;
    options.interval_steps = interval;
    options.flags = SIDESTEP_SERIES_REQUESTS;
    return sidestep_series_open(c->engine, root, &options, &c->series, err);
}

enum sidestep_status checkpoints_open(struct checkpoints *checkpoints, struct training *training,
                                      const char *root, uint64_t interval, uint32_t keep,
                                      const char *events, FILE *log)
{
    struct checkpoints *c = checkpoints;
    struct sidestep_error err = {0};
    struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
    struct sidestep_state_dict *state = NULL;
    enum sidestep_status status;

    *c = (struct checkpoints){
        .mpi = training->optimizer.comm, .rank = training->optimizer.rank, .log = log};
    if (sidestep_mpi_comm(c->mpi, &c->comm)) {
        fprintf(stderr, "train: rank %d: cannot duplicate the MPI communicator\n", c->rank);
        MPI_Abort(c->mpi, 1);
    }
    options.comm = &c->comm;
    options.event_path = events;
    status = sidestep_engine_open(&c->engine, &options, &err);
    if (!status)
        status = open_series(c, root, interval, keep, &err);
    if (status) {
        print_error(c, "open the checkpoints", &err);
        (void)sidestep_engine_close(&c->engine, NULL);
        sidestep_mpi_comm_free(&c->comm);
        return status;
    }

    set_sigterm_handler(c->series);
    /* Prepare memory now, so that the first save takes less time. This is optional. */
    state = describe(c, training, false);
    if (sidestep_engine_prepare(c->engine, state, &err))
        print_error(c, "prepare (ignored)", &err);
    sidestep_state_dict_free(&state);
    return SIDESTEP_OK;
}

/* Read the objects of a loaded ${state}; its tensors are loaded in place. */
static enum sidestep_status read_objects(const struct checkpoints *c, struct training *t,
                                         const struct sidestep_state_dict *state)
{
    const struct sidestep_value *data = sidestep_state_dict_value(state, "data");
    const struct sidestep_value *random = sidestep_state_dict_value(state, "random");
    int64_t text_bytes = sidestep_value_get_int(get(data, "text_bytes"));

    if ((uint64_t)text_bytes != t->text_bytes) {
        fprintf(stderr, "train: rank %d: resume: the text had %lld bytes; it now has %llu\n",
                c->rank, (long long)text_bytes, (unsigned long long)t->text_bytes);
        return SIDESTEP_EMISMATCH;
    }
    t->step = (uint64_t)sidestep_value_get_int(sidestep_state_dict_value(state, "step"));
    t->rate = sidestep_value_get_float(sidestep_state_dict_value(state, "rate"));
    t->random = (uint64_t)sidestep_value_get_int(get(random, "state"));
    t->position = (uint64_t)sidestep_value_get_int(get(data, "position"));
    return SIDESTEP_OK;
}

enum sidestep_status checkpoints_resume(struct checkpoints *checkpoints, struct training *training)
{
    struct checkpoints *c = checkpoints;
    struct sidestep_error err = {0};
    struct sidestep_state_dict *state = describe(c, training, true);
    char rejected[2048] = "";
    uint64_t step = 0;
    double start = now_ms();
    enum sidestep_status status =
        sidestep_series_load(c->series, state, NULL, &step, NULL, rejected, &err);

    if (c->log && rejected[0])
        fprintf(c->log, "rejected %s\n", rejected);
    if (status == SIDESTEP_OK) {
        status = read_objects(c, training, state);
        if (c->log)
            fprintf(c->log, "resume %llu ms %.1f\n", (unsigned long long)step, now_ms() - start);
    } else if (status == SIDESTEP_ENOTFOUND) {
        if (c->log)
            fprintf(c->log, "fresh 0\n");
        status = SIDESTEP_OK;
    } else {
        print_error(c, "resume", &err);
    }
    sidestep_state_dict_free(&state);
    return status;
}

/* ---------------------------------------------------------------- saving */

/* Wait until ${*save} (NULL: none) is committed or has failed, on all ranks. Log what it cost rank
 * 0.
 */
static void finish(struct checkpoints *c, struct sidestep_save **save, uint64_t step)
{
    struct sidestep_error err = {0};
    struct sidestep_save_info info = SIDESTEP_SAVE_INFO_INIT;
    char doing[40];

    if (!*save)
        return;
    bool failed = sidestep_save_finish(save, &info, &err) != SIDESTEP_OK;
    if (failed) {
        snprintf(doing, sizeof doing, "save step %llu", (unsigned long long)step);
        print_error(c, doing, &err);
    }
    c->failed += failed;
    if (c->log)
        fprintf(c->log, "save %llu %s stall_ms %.2f waited_ms %.2f background_ms %.1f bytes %llu\n",
                (unsigned long long)step, failed ? "failed" : "committed",
                (double)info.call_ns / 1e6, (double)info.wait_ns / 1e6,
                (double)(info.write_ns + info.commit_ns) / 1e6,
                (unsigned long long)info.bytes_written);
}

bool checkpoints_due(struct checkpoints *checkpoints, uint64_t step)
{
    struct sidestep_error err = {0};
    uint32_t due = 0;

    if (sidestep_series_should_save(checkpoints->series, step, &due, &err))
        print_error(checkpoints, "agree on a save", &err);
    checkpoints->stopping = due & SIDESTEP_DUE_STOP;
    return due != 0;
}

void checkpoints_save(struct checkpoints *checkpoints, struct training *training)
{
    struct checkpoints *c = checkpoints;
    struct sidestep_error err = {0};
    struct sidestep_state_dict *state = describe(c, training, false);
    struct sidestep_save *before = c->save;

    c->save = NULL;
    if (sidestep_series_save_async(c->series, training->step, state, NULL, &c->save, &err)) {
        print_error(c, "save", &err);
        c->failed++;
    }
    sidestep_state_dict_free(&state);
    finish(c, &before, c->saved_step); /* the new save has waited for it */
    c->saved_step = training->step;
}

unsigned checkpoints_close(struct checkpoints *checkpoints)
{
    struct checkpoints *c = checkpoints;
    struct sidestep_error err = {0};

    finish(c, &c->save, c->saved_step);
    set_sigterm_handler(NULL);
    if (sidestep_series_close(&c->series, &err)) {
        print_error(c, "close the series", &err);
        c->failed++;
    }
    if (sidestep_engine_close(&c->engine, &err)) {
        print_error(c, "close the engine", &err);
        c->failed++;
    }
    sidestep_mpi_comm_free(&c->comm);
    return c->failed;
}
