/* SPDX-License-Identifier: BSD-3-Clause */
/* unit.h -- cmocka, the headers that it needs before it, and those that nearly every test uses. */
#ifndef SUPPORT_UNIT_H
#define SUPPORT_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#endif
