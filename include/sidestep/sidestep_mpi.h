/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sidestep_mpi.h -- the collectives of sidestep.h over MPI.
 *
 * Header-only: your program compiles it with its own MPI, so one libsidestep serves every MPI.  C11
 * or C++11; MPI 3.0 or later.
 *
 *      struct sidestep_comm comm;
 *      struct sidestep_engine_options options = SIDESTEP_ENGINE_OPTIONS_INIT;
 *
 *      if (sidestep_mpi_comm(MPI_COMM_WORLD, &comm) != MPI_SUCCESS)
 *              ...
 *      options.comm = &comm;
 *      sidestep_engine_open(&engine, &options, &err);
 *      ...
 *      sidestep_engine_close(&engine, &err);
 *      sidestep_mpi_comm_free(&comm);
 *
 * Only the thread that calls a collective function of sidestep.h calls MPI, never a background
 * thread.  MPI_THREAD_FUNNELED suffices if that thread has initialized MPI.
 *
 * Over RDMA (InfiniBand, RoCE, EFA), MPI registers the memory that it sends from and receives into,
 * and keeps it registered.  A network card writes there without a page fault.  So asynchronous
 * saves copy the state while the process has registered memory (VmPin in /proc/self/status is not
 * zero; copy_reason of struct sidestep_save_info reports it).  Give tensors into which MPI never
 * receives the flag SIDESTEP_TENSOR_CPU_WRITES: they are write-protected nevertheless.
 */
#ifndef SIDESTEP_MPI_H
#define SIDESTEP_MPI_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "sidestep.h"

/* MPI counts in int, so larger messages are sent in pieces.  At most 1 GiB. */
#ifndef SIDESTEP_MPI_PIECE_BYTES
#define SIDESTEP_MPI_PIECE_BYTES 1073741824
#endif

/* What struct sidestep_comm.context points to. */
struct sidestep_mpi_context {
    MPI_Comm comm; /* the duplicate */
    int rank;
    int size;
};

/* Names that end in "_" are private to this header. */

/* sidestep_mpi_piece_(): how many of ${bytes} to send next. */
static inline int sidestep_mpi_piece_(size_t bytes)
{
    return bytes < (size_t)SIDESTEP_MPI_PIECE_BYTES ? (int)bytes : (int)SIDESTEP_MPI_PIECE_BYTES;
}

/* The first failure of two results, for calls that must be made even after a failure. */
static inline int sidestep_mpi_first_(int earlier, int later)
{
    return earlier != MPI_SUCCESS ? earlier : later;
}

/* Tell all ranks whether one of them failed. */
static inline int sidestep_mpi_agree_(const struct sidestep_mpi_context *mpi, int failure)
{
    int failed = failure != MPI_SUCCESS;
    int result = MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, mpi->comm);

    if (result != MPI_SUCCESS)
        return result;
    if (failure != MPI_SUCCESS)
        return failure;
    return failed ? MPI_ERR_OTHER : MPI_SUCCESS;
}

/* Map the order of unsigned numbers to that of signed ones, and back. */
static inline void sidestep_mpi_flip_(uint64_t *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] ^= (uint64_t)1 << 63;
}

/* sidestep_mpi_all_reduce_max_(): see struct sidestep_comm.  It does not use MPI_UINT64_T, because
 * MPICH 4.0 compares those as signed numbers. */
static inline int sidestep_mpi_all_reduce_max_(void *context, uint64_t *values, size_t count)
{
    const struct sidestep_mpi_context *mpi = (const struct sidestep_mpi_context *)context;
    const size_t most = ((size_t)SIDESTEP_MPI_PIECE_BYTES + sizeof(*values) - 1) / sizeof(*values);
    int result = MPI_SUCCESS;

    while (count != 0 && result == MPI_SUCCESS) {
        size_t piece = count < most ? count : most;
        sidestep_mpi_flip_(values, piece);
        result = MPI_Allreduce(MPI_IN_PLACE, values, (int)piece, MPI_INT64_T, MPI_MAX, mpi->comm);
        sidestep_mpi_flip_(values, piece);
        values += piece;
        count -= piece;
    }
    return result;
}

/* sidestep_mpi_broadcast_(): see struct sidestep_comm. */
static inline int sidestep_mpi_broadcast_(void *context, void *buffer, size_t bytes, int32_t root)
{
    const struct sidestep_mpi_context *mpi = (const struct sidestep_mpi_context *)context;
    char *next = (char *)buffer;
    int result = MPI_SUCCESS;

    while (bytes != 0 && result == MPI_SUCCESS) {
        int piece = sidestep_mpi_piece_(bytes);
        result = MPI_Bcast(next, piece, MPI_BYTE, root, mpi->comm);
        next += piece;
        bytes -= (size_t)piece;
    }
    return result;
}

/* sidestep_mpi_send_(): send any number of bytes to one rank.  It goes on after a failure, as the
 * receiver does, so that neither waits for ever. */
static inline int sidestep_mpi_send_(const struct sidestep_mpi_context *mpi, const char *from,
                                     size_t bytes, int to)
{
    int result = MPI_SUCCESS;

    while (bytes != 0) {
        int piece = sidestep_mpi_piece_(bytes);
        result = sidestep_mpi_first_(result, MPI_Send(from, piece, MPI_BYTE, to, 0, mpi->comm));
        from += piece;
        bytes -= (size_t)piece;
    }
    return result;
}

/* sidestep_mpi_receive_(): the counterpart of sidestep_mpi_send_(). */
static inline int sidestep_mpi_receive_(const struct sidestep_mpi_context *mpi, char *to,
                                        size_t bytes, int from)
{
    int result = MPI_SUCCESS;

    while (bytes != 0) {
        int piece = sidestep_mpi_piece_(bytes);
        result = sidestep_mpi_first_(
            result, MPI_Recv(to, piece, MPI_BYTE, from, 0, mpi->comm, MPI_STATUS_IGNORE));
        to += piece;
        bytes -= (size_t)piece;
    }
    return result;
}

/* How the parts of all ranks are sent: in one MPI call if all of them together fit an int. */
#define SIDESTEP_MPI_FAILED_ 0
#define SIDESTEP_MPI_AT_ONCE_ 1
#define SIDESTEP_MPI_ONE_BY_ONE_ 2

/*
 * Rank 0, which alone knows all sizes, decides and tells the others.  For AT_ONCE it gets
 * ${*counts}, with the displacements after the counts, and frees it.  Otherwise ${*counts} is NULL.
 */
static inline int sidestep_mpi_way_(const struct sidestep_mpi_context *mpi, const size_t *bytes,
                                    int **counts)
{
    int way = SIDESTEP_MPI_AT_ONCE_;
    size_t total = 0;

    *counts = NULL;
    for (int i = 0; mpi->rank == 0 && i < mpi->size && way == SIDESTEP_MPI_AT_ONCE_; i++) {
        if (bytes[i] > (size_t)SIDESTEP_MPI_PIECE_BYTES - total)
            way = SIDESTEP_MPI_ONE_BY_ONE_;
        else
            total += bytes[i];
    }
    if (mpi->rank == 0 && way == SIDESTEP_MPI_AT_ONCE_) {
        *counts = (int *)malloc(2 * (size_t)mpi->size * sizeof(**counts));
        if (*counts == NULL)
            way = SIDESTEP_MPI_FAILED_;
        total = 0;
        for (int i = 0; *counts != NULL && i < mpi->size; i++) {
            (*counts)[i] = (int)bytes[i];
            (*counts)[mpi->size + i] = (int)total;
            total += bytes[i];
        }
    }
    return MPI_Bcast(&way, 1, MPI_INT, 0, mpi->comm) == MPI_SUCCESS ? way : SIDESTEP_MPI_FAILED_;
}

/* sidestep_mpi_gather_(): see struct sidestep_comm. */
static inline int sidestep_mpi_gather_(void *context, const void *send, size_t send_bytes,
                                       void *recv, const size_t *recv_bytes)
{
    const struct sidestep_mpi_context *mpi = (const struct sidestep_mpi_context *)context;
    int *counts;
    int way = sidestep_mpi_way_(mpi, recv_bytes, &counts);
    int result = MPI_SUCCESS;

    if (way == SIDESTEP_MPI_FAILED_) {
        result = MPI_ERR_OTHER;
    } else if (way == SIDESTEP_MPI_AT_ONCE_) {
        result = MPI_Gatherv(send, (int)send_bytes, MPI_BYTE, recv, counts,
                             counts != NULL ? counts + mpi->size : NULL, MPI_BYTE, 0, mpi->comm);
    } else if (mpi->rank != 0) {
        result = sidestep_mpi_send_(mpi, (const char *)send, send_bytes, 0);
    } else {
        char *next = (char *)recv;
        if (send_bytes != 0)
            memcpy(next, send, send_bytes);
        for (int i = 1; i < mpi->size; i++) {
            next += recv_bytes[i - 1];
            result =
                sidestep_mpi_first_(result, sidestep_mpi_receive_(mpi, next, recv_bytes[i], i));
        }
    }
    free(counts);
    return sidestep_mpi_agree_(mpi, result);
}

/* sidestep_mpi_scatter_(): see struct sidestep_comm. */
static inline int sidestep_mpi_scatter_(void *context, const void *send, const size_t *send_bytes,
                                        void *recv, size_t recv_bytes)
{
    const struct sidestep_mpi_context *mpi = (const struct sidestep_mpi_context *)context;
    int *counts;
    int way = sidestep_mpi_way_(mpi, send_bytes, &counts);
    int result = MPI_SUCCESS;

    if (way == SIDESTEP_MPI_FAILED_) {
        result = MPI_ERR_OTHER;
    } else if (way == SIDESTEP_MPI_AT_ONCE_) {
        result = MPI_Scatterv(send, counts, counts != NULL ? counts + mpi->size : NULL, MPI_BYTE,
                              recv, (int)recv_bytes, MPI_BYTE, 0, mpi->comm);
    } else if (mpi->rank != 0) {
        result = sidestep_mpi_receive_(mpi, (char *)recv, recv_bytes, 0);
    } else {
        const char *next = (const char *)send;
        if (recv_bytes != 0)
            memcpy(recv, next, recv_bytes);
        for (int i = 1; i < mpi->size; i++) {
            next += send_bytes[i - 1];
            result = sidestep_mpi_first_(result, sidestep_mpi_send_(mpi, next, send_bytes[i], i));
        }
    }
    free(counts);
    return sidestep_mpi_agree_(mpi, result);
}

/**
 * sidestep_mpi_comm(comm, &out): fill ${out} for sidestep_engine_options.comm.  Collective over
 * ${comm}, which must be an intra-communicator.  It uses a duplicate, so its messages never mix
 * with yours; errors on the duplicate are returned, not fatal.  MPI_SUCCESS or an MPI error code.
 * Release ${out} with sidestep_mpi_comm_free(), after sidestep_engine_close().
 */
static inline int sidestep_mpi_comm(MPI_Comm comm, struct sidestep_comm *out)
{
    struct sidestep_mpi_context mpi = {MPI_COMM_NULL, 0, 0};
    struct sidestep_mpi_context *context = NULL;
    int is_initialized = 0, is_finalized = 0, is_inter = 0, result;

    if (MPI_Initialized(&is_initialized) != MPI_SUCCESS || !is_initialized ||
        MPI_Finalized(&is_finalized) != MPI_SUCCESS || is_finalized)
        return MPI_ERR_OTHER;
    if (comm == MPI_COMM_NULL || MPI_Comm_test_inter(comm, &is_inter) != MPI_SUCCESS || is_inter)
        return MPI_ERR_COMM;
    result = MPI_Comm_dup(comm, &mpi.comm);
    if (result != MPI_SUCCESS)
        return result;
    result = MPI_Comm_set_errhandler(mpi.comm, MPI_ERRORS_RETURN);
    result = sidestep_mpi_first_(result, MPI_Comm_rank(mpi.comm, &mpi.rank));
    result = sidestep_mpi_first_(result, MPI_Comm_size(mpi.comm, &mpi.size));
    context = (struct sidestep_mpi_context *)malloc(sizeof(*context));
    if (context == NULL)
        result = sidestep_mpi_first_(result, MPI_ERR_NO_MEM);
    result = sidestep_mpi_agree_(&mpi, result);
    if (result != MPI_SUCCESS) {
        (void)MPI_Comm_free(&mpi.comm);
        free(context);
        return result;
    }
    *context = mpi;
    memset(out, 0, sizeof(*out));
    out->struct_size = sizeof(*out);
    out->context = context;
    out->rank = mpi.rank;
    out->size = mpi.size;
    out->all_reduce_max = sidestep_mpi_all_reduce_max_;
    out->broadcast = sidestep_mpi_broadcast_;
    out->gather = sidestep_mpi_gather_;
    out->scatter = sidestep_mpi_scatter_;
    return MPI_SUCCESS;
}

/**
 * sidestep_mpi_comm_free(comm): release what sidestep_mpi_comm() filled.  Collective; before
 * MPI_Finalize().  Accepts NULL, and a ${comm} that was released already.
 */
static inline void sidestep_mpi_comm_free(struct sidestep_comm *comm)
{
    struct sidestep_mpi_context *context;
    int is_finalized = 0;

    if (comm == NULL || comm->context == NULL)
        return;
    context = (struct sidestep_mpi_context *)comm->context;
    if (MPI_Finalized(&is_finalized) == MPI_SUCCESS && !is_finalized)
        (void)MPI_Comm_free(&context->comm);
    free(context);
    memset(comm, 0, sizeof(*comm));
}

#endif
