/* SPDX-License-Identifier: BSD-3-Clause */
/* compat.h -- what liburing's configure writes. */
#ifndef LIBURING_COMPAT_H
#define LIBURING_COMPAT_H
#if __has_include(<linux/blkdev.h>) /* Linux 6.12 */
#include <linux/blkdev.h>
#endif
#include <linux/ioctl.h>
#include <linux/openat2.h>
#include <linux/time_types.h>
#define UAPI_LINUX_IO_URING_H_SKIP_LINUX_TIME_TYPES_H 1
#ifndef BLOCK_URING_CMD_DISCARD
#define BLOCK_URING_CMD_DISCARD _IO(0x12, 0)
#endif
#endif
