# SPDX-License-Identifier: BSD-3-Clause
"""Every request of the client meets every fault: what passes is survived, what stays is told."""

import pytest
from tool import Tool

KEY = "dir/key"


class Case:
    """One request: what it needs, how it is made, and what has to be true afterwards."""

    def __init__(self, operation, call, check=None, writes=False, body=False):
        self.operation, self.call, self.check = operation, call, check
        self.writes, self.body = writes, body  # it changes something; its answer has a body


def prepare(tool):
    """An object, and an upload with its parts."""
    crc = tool.ok("put", KEY, 1000, 1)["crc"]
    name = tool.ok("begin", "up")["upload"]
    for number in (1, 2):
        tool.ok("part", "up", name, number, 100, number)
    return {"crc": crc, "upload": name}


def keys_of(listed):
    return [entry["key"] for entry in listed["list"] if entry]


CASES = {
    "head": Case("HeadObject", lambda made: ["head", KEY],
                 lambda made, got: got["info"]["bytes"] == 1000),
    "get": Case("GetObject", lambda made: ["get", KEY, 0, 1000],
                lambda made, got: got["crc"] == made["crc"], body=True),
    "get_all": Case("GetObject", lambda made: ["get_all", KEY, 1000],
                    lambda made, got: got["crc"] == made["crc"], body=True),
    "put": Case("PutObject", lambda made: ["put", KEY, 5000, 2], writes=True),
    "delete": Case("DeleteObject", lambda made: ["delete", KEY], writes=True),
    "delete_many": Case("DeleteObjects", lambda made: ["delete", KEY, "other"], writes=True,
                        body=True),
    "list": Case("ListObjectsV2", lambda made: ["list", "", "", "", 0],
                 lambda made, got: keys_of(got) == [KEY], body=True),
    "begin": Case("CreateMultipartUpload", lambda made: ["begin", "new"],
                  lambda made, got: got["upload"], writes=True, body=True),
    "part": Case("UploadPart", lambda made: ["part", "up", made["upload"], 2, 100, 9], writes=True),
    "complete": Case("CompleteMultipartUpload",
                     lambda made: ["complete", "up", made["upload"], 200],
                     lambda made, got: got["info"]["bytes"] == 200, writes=True, body=True),
    "abort": Case("AbortMultipartUpload", lambda made: ["abort", "up", made["upload"]],
                  writes=True),
    "uploads": Case("ListMultipartUploads", lambda made: ["uploads", ""],
                    lambda made, got: keys_of(got) == ["up"], body=True),
}  # fmt: skip
WITH_XML = [
    name for name, case in CASES.items() if case.body and name not in ("get", "get_all")
]  # fmt: skip

# What passes: one attempt meets it, and the next one succeeds.
PASSING = {
    "500": {"fault": "status", "status": 500},
    "502": {"fault": "status", "status": 502, "code": "BadGateway"},
    "503": {"fault": "status", "status": 503, "retry_after": 0},
    "504": {"fault": "status", "status": 504},
    "429": {"fault": "status", "status": 429},
    "503, connection closed": {"fault": "status", "status": 503, "drain": False},
    "timeout of the service": {"fault": "status", "status": 400, "code": "RequestTimeout"},
    "reset before the body": {"fault": "reset", "where": "request", "after": 0},
    "reset in the body": {"fault": "reset", "where": "request", "after": 60},
    "closed before the answer": {"fault": "cut", "after": 0, "how": "close"},
    "reset in the head": {"fault": "cut", "after": 25},
    "closed in the head": {"fault": "cut", "after": 25, "how": "close"},
    "answer lost": {"fault": "lost"},
    "not HTTP": {"fault": "raw", "text": "hello\r\n\r\n"},
    "a long head": {"fault": "headers", "lines": ["X-A: " + "a" * 1000], "repeat": 70},
    "a NUL in the head": {"fault": "raw", "text": "HTTP/1.1 200 OK\r\nETag: \x00\r\n\r\n"},
    "a wrong length": {"fault": "headers", "set": {"Content-Length": "-5"}},
}
PASSING_WITH_BODY = {
    "truncated": {"fault": "truncate"},
    "closed in the body": {"fault": "truncate", "bytes": 1},
    "no length": {"fault": "raw", "text": "HTTP/1.1 200 OK\r\n\r\n<"},
}
PASSING_WITH_XML = {
    "200 with an error": {"fault": "error_body"},
    "200 with an error after blanks": {"fault": "error_body", "spaces": 100},
    "200 with SlowDown": {"fault": "error_body", "code": "SlowDown"},
    "200 with an error, but done": {"fault": "error_body", "done": True},
    "nothing in it": {"fault": "body", "text": ""},
    "no XML": {"fault": "body", "text": "<html>hello"},
    "other XML": {"fault": "body", "text": "<Hello/>"},
    "half of it": {"fault": "body", "text": '<?xml version="1.0"?><ListBucketResult><Cont'},
    "no UTF-8": {"fault": "raw", "text": "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n<\xff/>"},
    "a bomb of entities": {"fault": "entities"},
    "an entity from a file": {"fault": "entities", "kind": "external"},
    "endless": {"fault": "endless"},
    "endless and deep": {"fault": "endless", "piece": "<a>"},
    "an endless name": {"fault": "endless", "piece": "a" * 100, "head": "<"},
    "an endless text": {"fault": "endless", "piece": "a" * 100, "head": "<ListBucketResult>"},
}
PASSING_GET = {
    "another range": {"fault": "wrong_range", "shift": 1},
    "another range and its bytes": {"fault": "wrong_range", "shift": 1, "moves": True},
    "half the range": {"fault": "short_range", "bytes": 10},
    "the whole object": {"fault": "whole"},
    "no range": {"fault": "headers", "set": {"Content-Range": None}},
    "a range that is none": {"fault": "wrong_range", "text": "bytes 9-1/x"},
}


def survive(store, name, fault, **more):
    case = CASES[name]
    with Tool(store, **more) as tool:
        made = prepare(tool)
        store.control(clear=["log"], rules=[{**fault, "operation": case.operation, "times": 1}])
        got = tool.ok(*case.call(made))
        assert case.check is None or case.check(made, got), got
    state = store.control()
    assert state["rules"][0]["fired"] == 1
    check_after(name, state)


def check_after(name, state):
    """A write that was repeated has done its work once."""
    sizes = {thing["key"]: thing["size"] for thing in state["objects"]}
    if name == "put":
        assert sizes == {KEY: 5000}
    if name.startswith("delete"):
        assert sizes == {}
    if name == "complete":
        assert sizes == {KEY: 1000, "up": 200}
    if name in ("complete", "abort"):
        assert state["uploads"] == []


@pytest.mark.parametrize("fault", PASSING)
@pytest.mark.parametrize("name", CASES)
def test_passing(store, name, fault):
    survive(store, name, PASSING[fault])


@pytest.mark.parametrize("fault", PASSING_WITH_BODY)
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.body])
def test_passing_with_a_body(store, name, fault):
    survive(store, name, PASSING_WITH_BODY[fault])


@pytest.mark.parametrize("fault", PASSING_WITH_XML)
@pytest.mark.parametrize("name", WITH_XML)
def test_passing_with_xml(store, name, fault):
    survive(store, name, PASSING_WITH_XML[fault])


@pytest.mark.parametrize("fault", PASSING_GET)
def test_passing_get(store, fault):
    with Tool(store) as tool:
        tool.ok("put", KEY, 1000, 1)
        whole = tool.ok("get", KEY, 100, 500)["crc"]
        store.control(rules=[{**PASSING_GET[fault], "operation": "GetObject", "times": 1}])
        assert tool.ok("get", KEY, 100, 500)["crc"] == whole
    assert store.control()["rules"][0]["fired"] == 1


STALLS = [("answer", name) for name in CASES] + [("request", "put"), ("request", "part")]


@pytest.mark.parametrize(("where", "name"), STALLS)
def test_stall(store, name, where):
    """Nobody says anything for a second."""
    survive(store, name, {"fault": "stall", "where": where}, stall_seconds=1)
    store.control(release=True)


def test_staying(store):
    """Nothing else comes: the deadline ends it, and the sentence says what it was."""
    store.control(rules=[{"fault": "status"}])
    with Tool(store, deadline_ms=2000) as tool:
        text = tool.fails("ETIMEDOUT", "put", KEY, 1, 1)
    assert "no usable answer from 127.0.0.1" in text and "s3://b/dir/key" in text
    assert '503 SlowDown "Please try again."' in text and "may have carried it out" in text
    assert len(store.log()) > 1


@pytest.mark.parametrize("name", CASES)
def test_staying_nonsense(store, name):
    """An answer that cannot be used is asked for four times, not until the deadline."""
    case = CASES[name]
    with Tool(store) as tool:
        made = prepare(tool)
        fault = {"fault": "headers", "lines": ["X-A: " + "a" * 1000], "repeat": 70}
        store.control(clear=["log"], rules=[{**fault, "operation": case.operation}])
        if name == "complete":  # the object is there, and that decides
            tool.ok(*case.call(made))
            return
        text = tool.fails("ECORRUPT", *case.call(made))
    assert "cannot be used, 4 times" in text and "its headers are too long" in text
    assert len(store.log(operation=case.operation)) == 4


@pytest.mark.parametrize("name", CASES)
def test_retry_after(store, name):
    """It asks for more time than there is: then nobody waits for it."""
    case = CASES[name]
    with Tool(store, deadline_ms=30000) as tool:
        made = prepare(tool)
        rule = {"fault": "status", "operation": case.operation, "retry_after": 100}
        store.control(clear=["log"], rules=[rule])
        text = tool.fails("ETIMEDOUT", *case.call(made))
    assert len(store.log(operation=case.operation)) == 1
    assert "no usable answer from 127.0.0.1" in text and "s3://b" in text
    assert "503" in text and ("SlowDown" in text or name == "head")
    assert ("may have carried it out" in text) == case.writes


def test_nobody_listens(store):
    nobody = {"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1"}
    with Tool(store, environment=nobody, deadline_ms=2000) as tool:
        text = tool.fails("ETIMEDOUT", "put", "k", 1, 1)
        assert "127.0.0.1:1" in text and "onnect" in text
        assert "may have" not in text  # nothing was sent


def test_a_damaged_body_is_sent_again(store):
    for name in ("put", "part"):
        store.control(clear=True, settings={"part_bytes": 100})
        survive(store, name, {"fault": "flip", "side": "request"})


def test_a_damaged_body_is_found_over_tls(store):
    """There only the checksum tells."""
    store.control(settings={"part_bytes": 100})
    with Tool(store, tls=True) as tool:
        store.control(rules=[{"fault": "flip", "side": "request", "times": 1}])
        crc = tool.ok("put", "k", 1000, 1)["crc"]
        assert tool.ok("get", "k", 0, 1000)["crc"] == crc
        store.control(clear=["log"], rules=[{"fault": "flip", "side": "request"}])
        assert "BadDigest" in tool.fails("ECORRUPT", "put", "k", 1000, 1)
        assert len(store.log()) == 4


def test_a_damaged_answer_is_found_by_its_checksum(store):
    """Of a whole object; ranges have hashes of our own."""
    with Tool(store) as tool:
        crc = tool.ok("put", "k", 1000, 1)["crc"]
        store.control(rules=[{"fault": "flip", "operation": "GetObject", "times": 1}])
        assert tool.ok("get_all", "k", 1000)["crc"] == crc
        store.control(rules=[{"fault": "flip", "operation": "GetObject"}])
        assert "x-amz-checksum-crc32c" in tool.fails("ECORRUPT", "get_all", "k", 1000)
        store.control(rules=[])
        assert "more than 99 bytes" in tool.fails("ECORRUPT", "get_all", "k", 99)


def test_conditional_put_whose_answer_was_lost(store):
    """The 412 may be due to that attempt, or to another object: the caller reads back."""
    store.control(rules=[{"fault": "lost", "operation": "PutObject", "times": 1}])
    with Tool(store) as tool:
        text = tool.fails("EIO", "put", "k", 10, 1, "absent")
        assert "an earlier attempt may have been carried out" in text
        assert tool.ok("head", "k")["info"]["bytes"] == 10


def test_conflict(store):
    """409: another conditional request is under way."""
    rule = {"fault": "status", "status": 409, "code": "ConditionalRequestConflict", "times": 2}
    store.control(rules=[rule])
    with Tool(store) as tool:
        tool.ok("put", "k", 10, 1, "absent")


def test_upload_whose_answers_are_all_lost(store):
    """No answer ever comes, and the object decides."""
    with Tool(store, deadline_ms=3000) as tool:
        name = tool.ok("begin", "up")["upload"]
        tool.ok("part", "up", name, 1, 100, 1)
        store.control(rules=[{"fault": "lost", "operation": "CompleteMultipartUpload"}])
        assert tool.ok("complete", "up", name, 100)["info"]["bytes"] == 100


def test_upload_that_vanished(store):
    """Nothing lies there, or something else: then the error is that of the request."""
    for first in (None, 99):
        with Tool(store) as tool:
            if first:
                tool.ok("put", "up", first, 1)
            name = tool.ok("begin", "up")["upload"]
            tool.ok("part", "up", name, 1, 100, 1)
            tool.ok("abort", "up", name)
            text = tool.fails("ENOTFOUND", "complete", "up", name, 100)
            assert "completed, aborted or swept" in text


def test_delete_many_is_repeated_for_one_key(store):
    text = (
        "<DeleteResult><Error><Key>a</Key><Code>InternalError</Code><Message>x</Message></Error>"
        "</DeleteResult>"
    )
    store.control(rules=[{"fault": "body", "text": text, "operation": "DeleteObjects", "times": 2}])
    with Tool(store) as tool:
        tool.ok("delete", "a", "b")
    assert len(store.log(operation="DeleteObjects")) == 3


def test_circles(store):
    store.control(settings={"page": 1})
    with Tool(store) as tool:
        for key in "abc":
            tool.ok("put", key, 1, 1)
            tool.ok("begin", key)
        store.control(rules=[{"fault": "circle"}])
        text = tool.fails("ECORRUPT", "list", "", "", "", 0)
        assert "not in order, or repeat" in text
        tool.fails("ECORRUPT", "uploads", "")


LISTING = (
    "<ListBucketResult><IsTruncated>{cut}</IsTruncated>{token}"
    "<EncodingType>url</EncodingType>{keys}</ListBucketResult>"
)
ENTRY = "<Contents><Key>{}</Key><Size>1</Size></Contents>"


def listing(*keys, cut="false", token=""):
    return LISTING.format(cut=cut, token=token, keys="".join(ENTRY.format(key) for key in keys))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (listing("p/b", "p/a"), "not in order"),
        (listing("p/a", "p/a"), "not in order"),
        (listing("a"), "does not start with the prefix"),
        (listing("p/%zz"), "not escaped correctly"),
        (listing("p/%00"), "not escaped correctly"),
        (listing("p/" + "x" * 1023), "too long"),
        (listing("p/a", cut="true"), "has no token of the next page"),
        (listing(*[f"p/{number:05}" for number in range(1001)]), "more entries"),
        (listing("p/a").replace("<Size>1", "<Size>x"), "not a number"),
        (listing("p/a").replace("<Key>p/a</Key>", ""), "has no key"),
        (listing().replace("ListBucketResult", "Hello"), "not a listing"),
        (listing("p/a").replace("Size>1<", "ETag>" + "a" * 200 + "<", 1), "well-formed"),
        (
            listing("p/a").replace("Size>", "ETag>").replace(">1<", ">" + "a" * 200 + "<"),
            "too long",
        ),
    ],
)
def test_wrong_listings(store, text, problem):
    store.control(rules=[{"fault": "body", "text": text}])
    with Tool(store) as tool:
        assert problem in tool.fails("ECORRUPT", "list", "p/", "", "", 0)


def test_pages_without_end(store):
    """Empty pages, each with the same token."""
    text = listing(cut="true", token="<NextContinuationToken>t</NextContinuationToken>")
    store.control(rules=[{"fault": "body", "text": text}])
    with Tool(store) as tool:
        assert "repeat" in tool.fails("ECORRUPT", "list", "p/", "", "", 0)
    assert len(store.log()) == 2


@pytest.mark.parametrize(
    ("kind", "words", "problem", "pages"),
    [
        ("empty", ("list", "p/", "", "", 0), "does not end: after 1001 pages, 1001", 1001),
        ("uploads", ("uploads", "p/"), "repeats itself: page 4 ", 4),
        ("keys", ("list", "p/", "", "", 0), "does not end: after 20000 pages, 0", 20000),
    ],
)
def test_listings_without_end(store, kind, words, problem, pages):
    """Each page is right, and there is always another one."""
    store.control(rules=[{"fault": "unending", "kind": kind}])
    with Tool(store, environment={"SIDESTEP_TRACE": None}) as tool:
        assert problem in tool.fails("ECORRUPT", *words)
    assert store.control(log=0)["number"] >= pages
    store.control(clear=["log", "rules"])


def test_checksums_that_are_not_known(store):
    store.control(settings={"checksums": "refused"})
    with Tool(store) as tool:
        tool.ok("put", "k", 10, 1)
        tool.upload("up")
        refused = [entry for entry in store.log() if entry["status"] >= 400]
        assert len(refused) == 1  # it is asked once, and then knows


def test_checksums_are_sent(store):
    with Tool(store) as tool:
        tool.ok("put", "k", 10, 1)
        tool.upload("up")
    assert [list(thing["checksums"]) for thing in store.control()["objects"]] == [["crc32c"]] * 2


@pytest.mark.parametrize(("conditions", "status"), [("ignored", "OK"), ("501", "EUNSUPPORTED")])
def test_conditions_that_are_not_known(store, conditions, status):
    store.control(settings={"conditions": conditions})
    with Tool(store) as tool:
        tool.ok("put", "k", 10, 1)
        answer = tool("put", "k", 10, 2, "absent")
        assert answer["status"] == status
        assert ("does not support that" in answer["text"]) == (status != "OK")
