/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * save_load.c -- the shortest program that saves a checkpoint and loads it: one process, one
 * tensor, one number.
 *
 *      cc save_load.c -lsidestep && ./a.out DIRECTORY
 */
#include <sidestep/sidestep.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 1024, COLUMNS = 1024, COUNT = ROWS * COLUMNS, STEP = 100 };

/* Describe the state to save, or the memory to load to. A load needs only the number's name, so
 * ${step} is NULL. */
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
        sidestep_value_free(&step); /* otherwise the state owns it */
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

/* Returns the exit status of the program. */
static int run(const char *path, float *weight, float *loaded)
{
    struct sidestep_error err = {0};
    int64_t step = 0;
    size_t same = 0;

    for (size_t i = 0; i < COUNT; i++)
        weight[i] = (float)i;
    if (save_and_load(path, weight, loaded, &step, &err)) {
        fprintf(stderr, "save_load: %s\n", err.message);
        return sidestep_status_exit((enum sidestep_status)err.status);
    }
    while (same < COUNT && loaded[same] == weight[same])
        same++;
    if (step != STEP || same != COUNT) {
        fprintf(stderr, "save_load: the loaded state differs from the saved one\n");
        return 1;
    }
    printf("saved and loaded %s: step %d, %d x %d floats\n", path, STEP, ROWS, COLUMNS);
    return 0;
}

int main(int argc, char **argv)
{
    float *weight = calloc(COUNT, sizeof *weight);
    float *loaded = calloc(COUNT, sizeof *loaded);
    int status = 2;

    if (argc != 2)
        fprintf(stderr, "usage: save_load DIRECTORY\n");
    else if (weight && loaded)
        status = run(argv[1], weight, loaded);
    else
        fprintf(stderr, "save_load: out of memory\n");
    free(weight);
    free(loaded);
    return status;
}
