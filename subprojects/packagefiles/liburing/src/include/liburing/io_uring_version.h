/* SPDX-License-Identifier: BSD-3-Clause */
/* io_uring_version.h -- what liburing's configure writes. */
#ifndef LIBURING_VERSION_H
#define LIBURING_VERSION_H
#define IO_URING_VERSION_MAJOR 2
#define IO_URING_VERSION_MINOR 9
#endif
