# SPDX-License-Identifier: BSD-3-Clause
"""The library as Python sees it: the header (`abi`, which tools/make-abi writes), calls, errors."""
