/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpi_asleep.h -- makes a program sleep while it waits in a call of MPI. MPI itself spins, which
 * takes processor time from other ranks if a machine has fewer processors than ranks. The header
 * defines the blocking calls that sidestep_mpi.h uses, by MPI's profiling interface. One file of a
 * program includes it.
 */
#ifndef SUPPORT_MPI_ASLEEP_H
#define SUPPORT_MPI_ASLEEP_H

#include <mpi.h>
#include <time.h>

#define MPI_LONGEST_SLEEP_NS 1000000

static int wait_asleep(int result, MPI_Request *request, MPI_Status *status)
{
    struct timespec pause = {.tv_nsec = 10000};
    int done = 0;

    while (result == MPI_SUCCESS && !done) {
        result = PMPI_Test(request, &done, status);
        if (done)
            break;
        (void)nanosleep(&pause, NULL);
        if (pause.tv_nsec < MPI_LONGEST_SLEEP_NS)
            pause.tv_nsec *= 2;
    }
    return result;
}

int MPI_Allreduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm comm)
{
    MPI_Request request;
    int result = PMPI_Iallreduce(from, to, count, type, op, comm, &request);

    return wait_asleep(result, &request, MPI_STATUS_IGNORE);
}

int MPI_Bcast(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
    MPI_Request request;
    int result = PMPI_Ibcast(buffer, count, type, root, comm, &request);

    return wait_asleep(result, &request, MPI_STATUS_IGNORE);
}

int MPI_Gatherv(const void *from, int count, MPI_Datatype type, void *to, const int *counts,
                const int *places, MPI_Datatype to_type, int root, MPI_Comm comm)
{
    MPI_Request request;
    int result =
        PMPI_Igatherv(from, count, type, to, counts, places, to_type, root, comm, &request);

    return wait_asleep(result, &request, MPI_STATUS_IGNORE);
}

int MPI_Scatterv(const void *from, const int *counts, const int *places, MPI_Datatype type,
                 void *to, int count, MPI_Datatype to_type, int root, MPI_Comm comm)
{
    MPI_Request request;
    int result =
        PMPI_Iscatterv(from, counts, places, type, to, count, to_type, root, comm, &request);

    return wait_asleep(result, &request, MPI_STATUS_IGNORE);
}

int MPI_Send(const void *from, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm)
{
    MPI_Request request;
    int result = PMPI_Isend(from, count, type, to, tag, comm, &request);

    return wait_asleep(result, &request, MPI_STATUS_IGNORE);
}

int MPI_Recv(void *to, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
             MPI_Status *status)
{
    MPI_Request request;
    int result = PMPI_Irecv(to, count, type, from, tag, comm, &request);

    return wait_asleep(result, &request, status);
}

#endif
