/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm_mpi_test.c -- tests sidestep_mpi.h with a real MPI, called as the library calls it. A rank
 * that finds an error prints it; if one does, all exit with a failure. Compiles as C and as C++.
 */
#include <stdio.h>

#include "sidestep/sidestep_mpi.h"

static int failures;

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "rank %d, line %d: %s\n", comm->rank, __LINE__, #condition);           \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

/* Rank r has this many bytes, all equal to value_of(r). */
static size_t bytes_of(int rank, size_t unit)
{
    return rank % 3 == 1 ? 0 : unit * (size_t)(rank + 1);
}
static int value_of(int rank)
{
    return rank * 37 % 250 + 1;
}

static void test_values(struct sidestep_comm *comm)
{
    uint64_t values[100];

    for (int i = 0; i < 100; i++)
        values[i] = comm->rank == i % comm->size ? (uint64_t)i << 57 | 7 : 0;
    EXPECT(comm->all_reduce_max(comm->context, values, 100) == 0);
    for (int i = 0; i < 100; i++)
        EXPECT(values[i] == ((uint64_t)i << 57 | 7));
    EXPECT(comm->all_reduce_max(comm->context, NULL, 0) == 0);
    for (int root = 0; root < comm->size; root++) {
        char text[200];
        memset(text, value_of(comm->rank), sizeof(text));
        EXPECT(comm->broadcast(comm->context, text, sizeof(text), root) == 0);
        for (size_t i = 0; i < sizeof(text); i++)
            EXPECT((unsigned char)text[i] == value_of(root));
    }
    EXPECT(comm->broadcast(comm->context, NULL, 0, 0) == 0);
}

static void test_parts(struct sidestep_comm *comm, size_t unit)
{
    size_t mine = bytes_of(comm->rank, unit), total = 0;
    size_t *sizes = NULL;
    unsigned char *all = NULL, *part = (unsigned char *)malloc(mine + 1);

    memset(part, value_of(comm->rank), mine + 1);
    if (comm->rank == 0) {
        sizes = (size_t *)calloc((size_t)comm->size, sizeof(*sizes));
        for (int r = 0; r < comm->size; r++)
            total += sizes[r] = bytes_of(r, unit);
        all = (unsigned char *)calloc(total + 1, 1);
    }
    EXPECT(comm->gather(comm->context, part, mine, all, sizes) == 0);
    size_t at = 0;
    for (int r = 0; comm->rank == 0 && r < comm->size; r++)
        for (size_t i = 0; i < sizes[r]; i++)
            EXPECT(all[at++] == value_of(r));
    EXPECT(comm->rank != 0 || all[total] == 0);
    memset(part, 0, mine + 1);
    EXPECT(comm->scatter(comm->context, all, sizes, part, mine) == 0);
    for (size_t i = 0; i < mine; i++)
        EXPECT(part[i] == value_of(comm->rank));
    EXPECT(part[mine] == 0);
    free(part);
    free(all);
    free(sizes);
}

/* A wildcard receive of the program, posted first, must not take our messages. */
static void test_separation(struct sidestep_comm *comm)
{
    int said = 42, heard = 0;
    MPI_Request request;

    if (comm->rank == 0)
        MPI_Irecv(&heard, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &request);
    test_parts(comm, 1000);
    if (comm->rank == comm->size - 1)
        MPI_Send(&said, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    if (comm->rank == 0) {
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        EXPECT(heard == 42);
    }
}

static void test_refusals(struct sidestep_comm *comm)
{
    struct sidestep_comm none;
    MPI_Errhandler handler;

    EXPECT(sidestep_mpi_comm(MPI_COMM_NULL, &none) == MPI_ERR_COMM);
    EXPECT(comm->broadcast(comm->context, &none, 1, comm->size) != 0);
    /* The program's own communicator keeps its error handler. */
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &handler);
    EXPECT(handler == MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler_free(&handler);
}

int main(int argc, char **argv)
{
    struct sidestep_comm storage, *comm = &storage;
    int provided;

    storage.rank = -1;
    EXPECT(sidestep_mpi_comm(MPI_COMM_WORLD, comm) == MPI_ERR_OTHER);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    EXPECT(sidestep_mpi_comm(MPI_COMM_WORLD, comm) == MPI_SUCCESS);
    EXPECT(comm->struct_size == sizeof(*comm));
    test_values(comm);
    test_parts(comm, 0);
    test_parts(comm, 13);
    test_parts(comm, 100000);
    test_separation(comm);
    test_refusals(comm);
    if (argc > 1 && strcmp(argv[1], "fail") == 0)
        EXPECT(comm->rank != comm->size - 1); /* the control of the script */
    uint64_t all_failures = (uint64_t)failures;
    if (comm->all_reduce_max(comm->context, &all_failures, 1) != 0)
        all_failures = 1;
    sidestep_mpi_comm_free(comm);
    sidestep_mpi_comm_free(comm);
    sidestep_mpi_comm_free(NULL);
    MPI_Finalize();
    EXPECT(sidestep_mpi_comm(MPI_COMM_WORLD, comm) == MPI_ERR_OTHER);
    return all_failures != 0 || failures != 0;
}
