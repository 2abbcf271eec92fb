# SPDX-License-Identifier: BSD-3-Clause
"""What a request to the strict server can meet, and which requests of an action a test tries."""

import os

LONG = bool(os.environ.get("SIDESTEP_LONG"))

# One request meets it, and the next one does not.
ONCE = {
    "503": {"fault": "status", "status": 503, "retry_after": 0},
    "403": {"fault": "status", "status": 403, "code": "AccessDenied"},
    "lost": {"fault": "lost"},
    "late": {"fault": "late", "after": 2},
    "reset": {"fault": "reset", "where": "request", "after": 60},
    "cut": {"fault": "cut", "after": 25, "how": "close"},
    "truncated": {"fault": "truncate"},
    "an error with 200": {"fault": "error_body"},
    "a bit of the answer": {"fault": "flip"},
    "a bit of the request": {"fault": "flip", "side": "request"},
    "a bit at rest": {"fault": "flip", "side": "rest"},
    "half a range": {"fault": "short_range", "bytes": 10},
    "another range": {"fault": "wrong_range", "shift": 1, "moves": True},
    "the whole object": {"fault": "whole"},
    "nothing": {"fault": "body", "text": ""},
    "no HTTP": {"fault": "raw", "text": "hello\r\n\r\n"},
    "chunked": {"fault": "chunked"},
    "hung up": {"fault": "hang_up"},
    "expired": {"fault": "expired"},
}
# The store answers no request from this one on.
GONE = {
    "refused": {"fault": "status", "status": 403, "code": "AccessDenied"},
    "silent, but done": {"fault": "lost"},
    "silent": {"fault": "reset", "where": "request"},
}
DAMAGES = ("a bit at rest",)  # no client can know better than to find it when it reads

# A load may end with these: no store gives them to what it can answer.
FATAL = ("403", "expired", "a bit of the answer", "an error with 200", "nothing")


def stride(requests, index, step=4):
    """Every request in a long run; else every fourth, a different one for each fault."""
    return range(1, requests + 1) if LONG else range(1 + index % step, requests + 1, step)
