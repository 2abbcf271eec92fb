# SPDX-License-Identifier: BSD-3-Clause
"""The C library for Python: the header (`abi`, which tools/make-abi writes), calls, errors."""

from importlib.util import find_spec

if find_spec(f"{__name__}.abi") is None:
    raise ImportError(
        "in this source tree of sidestep the module sidestep._c.abi was not made yet: type `make` "
        "there, or `pip install pycparser && python tools/make-abi`, or install the package "
        "with `pip install .`.",
        name=f"{__name__}.abi",
    )
