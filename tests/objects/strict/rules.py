# SPDX-License-Identifier: BSD-3-Clause
"""Rules, which say what request meets what fault.

A rule is a JSON object: "fault" (a name of faults.py) and its parameters, what it matches
("operation": one, or a list; "method", "bucket", "key": a pattern of the shell, "header": one that
must be there), and when: "at": the n-th request that matches, from 1; "from": the n-th and all
after it; "every": each n-th; "times": at most so often.  Each rule counts for itself, from the
moment when it is set.
"""

import fnmatch
import inspect

from .faults import FAULTS

MATCHING = ("operation", "method", "bucket", "key", "header")
TIMING = ("at", "from", "every", "times")


class Rule:
    def __init__(self, description):
        self.description = dict(description)
        name = self.description.get("fault")
        if name not in FAULTS:
            raise ValueError(f"no fault is called {name!r}; there are: {' '.join(FAULTS)}")
        own = {
            key: value
            for key, value in description.items()
            if key not in (*MATCHING, *TIMING, "fault")
        }
        try:
            inspect.signature(FAULTS[name]).bind(**own)
        except TypeError as error:
            raise ValueError(f"{name}: {error}") from None
        self.name = name
        self.fault = FAULTS[name](**own)
        self.seen = self.fired = 0

    def matches(self, request):
        rule = self.description
        wanted = rule.get("operation", request.operation)
        if request.operation not in (wanted if isinstance(wanted, list) else [wanted]):
            return False
        if rule.get("method", request.method) != request.method:
            return False
        if rule.get("bucket", request.bucket) != request.bucket:
            return False
        if "header" in rule and request.header(rule["header"].lower()) is None:
            return False
        return fnmatch.fnmatchcase(request.key or "", rule.get("key", "*"))

    def is_due(self, request):
        """Counts the request, and says whether it meets the fault."""
        rule = self.description
        if not self.matches(request):
            return False
        self.seen += 1
        if "at" in rule and self.seen != rule["at"]:
            return False
        if self.seen < rule.get("from", 1):
            return False
        if "every" in rule and self.seen % rule["every"]:
            return False
        return self.fired < rule.get("times", self.fired + 1)


class Rules:
    def __init__(self):
        self.rules = []

    def choose(self, request):
        """The first rule that is due, if one is.  The others count the request all the same."""
        due = [rule for rule in self.rules if rule.is_due(request)]
        if not due:
            return None
        due[0].fired += 1
        return due[0]

    def report(self):
        return [{**rule.description, "seen": rule.seen, "fired": rule.fired} for rule in self.rules]
