/* SPDX-License-Identifier: BSD-3-Clause */
/* expat_config.h -- empty: meson.build defines what is asked for. */
