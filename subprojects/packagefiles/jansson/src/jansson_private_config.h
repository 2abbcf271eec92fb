/* SPDX-License-Identifier: BSD-3-Clause */
/* jansson_private_config.h -- empty: meson.build defines what is asked for. */
