# SPDX-License-Identifier: BSD-3-Clause
"""A strict, fault-injecting S3 server for tests.  ../server.py starts it."""
