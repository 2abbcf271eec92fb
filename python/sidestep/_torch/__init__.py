# SPDX-License-Identifier: BSD-3-Clause
"""Between torch's objects and the library: state dicts, tensors, objects, metadata, planners."""
