/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * save_load.c -- the shortest program that saves a checkpoint and loads it again: one process, one
 * tensor, one number.
 *
 *      cc save_load.c -lsidestep && ./a.out DIRECTORY
 */
#include <sidestep/sidestep.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 1024, COLUMNS = 1024, STEP = 100 };

/* What to save, or where to load it to; for loading, the number is only named. */
static enum sidestep_status describe(struct sidestep_state_dict **state, float *weight,
                                     struct sidestep_value *step, struct sidestep_error *err)
{
    int64_t shape[] = {ROWS, COLUMNS};
    struct sidestep_tensor tensor = SIDESTEP_TENSOR_INIT;
    enum sidestep_status status;

    tensor.name = "model.weight";
    tensor.dtype = SIDESTEP_FLOAT32;
    tensor.ndim = 2;
    tensor.shape = shape;
    tensor.data = weight;
    status = sidestep_state_dict_new(state, err);
    if (!status)
        status = sidestep_state_dict_add_tensor(*state, &tensor, err);
    if (!status)
        status = sidestep_state_dict_add_value(*state, "step", NULL, 0, step, err);
    if (status)
        sidestep_value_free(&step); /* else the state has it */
    return status;
}

static enum sidestep_status save(struct sidestep_engine *engine, const char *path, float *weight,
                                 struct sidestep_error *err)
{
    struct sidestep_state_dict *state = NULL;
    enum sidestep_status status = describe(&state, weight, sidestep_value_int(STEP), err);

    if (!status)
        status = sidestep_save(engine, path, state, NULL, NULL, err);
    sidestep_state_dict_free(&state);
    return status;
}

static enum sidestep_status load(struct sidestep_engine *engine, const char *path, float *weight,
                                 int64_t *step, struct sidestep_error *err)
{
    struct sidestep_state_dict *state = NULL;
    enum sidestep_status status = describe(&state, weight, NULL, err);

    if (!status)
        status = sidestep_load(engine, path, state, NULL, NULL, err);
    if (!status)
        *step = sidestep_value_get_int(sidestep_state_dict_value(state, "step"));
    sidestep_state_dict_free(&state);
    return status;
}

static enum sidestep_status save_and_load(const char *path, float *weight, float *loaded,
                                          int64_t *step, struct sidestep_error *err)
{
    struct sidestep_engine *engine = NULL;
    enum sidestep_status status = sidestep_engine_open(&engine, NULL, err), closed;

    if (status)
        return status;
    status = save(engine, path, weight, err);
    if (!status)
        status = load(engine, path, loaded, step, err);
    closed = sidestep_engine_close(&engine, status ? NULL : err);
    return status ? status : closed;
}

int main(int argc, char **argv)
{
    float *weight = calloc((size_t)ROWS * COLUMNS, sizeof *weight);
    float *loaded = calloc((size_t)ROWS * COLUMNS, sizeof *loaded);
    struct sidestep_error err = {0};
    enum sidestep_status status = SIDESTEP_ENOMEM;
    int64_t step = 0;
    size_t same = 0;

    if (argc != 2) {
        fprintf(stderr, "usage: save_load DIRECTORY\n");
        status = SIDESTEP_EINVAL;
    } else if (!weight || !loaded) {
        fprintf(stderr, "save_load: out of memory\n");
    } else {
        for (size_t i = 0; i < (size_t)ROWS * COLUMNS; i++)
            weight[i] = (float)i;
        status = save_and_load(argv[1], weight, loaded, &step, &err);
        while (same < (size_t)ROWS * COLUMNS && loaded[same] == weight[same])
            same++;
        if (status)
            fprintf(stderr, "save_load: %s\n", err.message);
        else if (step != STEP || same != (size_t)ROWS * COLUMNS)
            fprintf(stderr, "save_load: what was loaded differs\n"), status = SIDESTEP_ECORRUPT;
        else
            printf("saved and loaded %s: step %d, %d x %d floats\n", argv[1], STEP, ROWS, COLUMNS);
    }
    free(weight);
    free(loaded);
    return sidestep_status_exit(status);
}
