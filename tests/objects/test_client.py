# SPDX-License-Identifier: BSD-3-Clause
"""The client, where nothing fails: every request, over http and TLS, at two servers."""

import client_checks
import pytest
import servers
from client_checks import KEYS, keys_of
from tool import Tool


@pytest.fixture(params=["http", "https"])
def tool(request, store):
    with Tool(store, tls=request.param == "https") as tool:
        yield tool


def test_put_and_get(tool, store):
    put = tool.ok("put", "k", 5000, 7)
    head = tool.ok("head", "k")["info"]
    assert (head["bytes"], head["tag"]) == (5000, put["tag"])
    assert abs(head["modified"] - head["now"]) < 60 and head["now"] > 1 << 30
    got = tool.ok("get", "k", 0, 5000)
    assert got["crc"] == put["crc"] and got["info"]["bytes"] == 5000
    assert tool.ok("get", "k", 0, 5000, put["tag"])["crc"] == put["crc"]
    assert tool.ok("get", "k", 17, 100)["info"]["bytes"] == 5000
    all_of_it = tool.ok("get_all", "k", 5000)
    assert all_of_it["crc"] == put["crc"] and all_of_it["length"] == 5000
    assert {entry["status"] for entry in store.log()} == {200, 206}


def test_nothing_in_it(tool):
    assert tool.ok("put", "empty", 0, 0)["crc"] == 0
    assert tool.ok("head", "empty")["info"]["bytes"] == 0
    assert tool.ok("get_all", "empty", 10)["length"] == 0
    assert "is shorter" in tool.fails("ECORRUPT", "get", "empty", 0, 1)


def test_what_is_not_there(tool):
    assert "NoSuchKey" in tool.fails("ENOTFOUND", "head", "k")
    assert tool.fails("ENOTFOUND", "get", "k", 0, 1).startswith("read s3://b/k: 404 NoSuchKey")
    tool.fails("ENOTFOUND", "get_all", "k", 1)
    tool.ok("delete", "k")
    tool.ok("delete", "k", "l", "m")
    tool.ok("abort", "k", "no-such-upload")
    assert keys_of(tool.ok("list", "", "", "", 0)) == []


def test_head_learns_that_the_bucket_is_there(tool, store):
    """HEAD has no body, so the first 404 is asked about; later ones are the key's."""
    for _ in range(3):
        tool.fails("ENOTFOUND", "head", "k")
    assert [entry["operation"] for entry in store.log()].count("GetObject") == 1


def test_beyond_the_end(tool):
    tool.ok("put", "k", 100, 1)
    assert "has 100 bytes, not the 101" in tool.fails("ECORRUPT", "get", "k", 50, 51)
    assert "is shorter" in tool.fails("ECORRUPT", "get", "k", 100, 1)
    assert "more than 99 bytes" in tool.fails("ECORRUPT", "get_all", "k", 99)


def test_conditions(tool):
    first = tool.ok("put", "k", 10, 1, "absent")["tag"]
    assert "the object exists, or was changed" in tool.fails("EEXISTS", "put", "k", 10, 2, "absent")
    second = tool.ok("put", "k", 10, 2, "tag", first)["tag"]
    tool.fails("EEXISTS", "put", "k", 10, 3, "tag", first)
    tool.fails("EEXISTS", "get", "k", 0, 10, first)
    assert tool.ok("head", "k")["info"]["tag"] == second


def test_a_store_that_compares_tags_without_quotes(tool, store):
    store.control(settings={"conditions": "bare"})
    tag = tool.ok("put", "k", 10, 1, "absent")["tag"]
    tag = tool.ok("put", "k", 10, 2, "tag", tag)["tag"]
    codes = [(line["operation"], line["status"]) for line in store.log()]
    assert codes[1:] == [("PutObject", 412), ("HeadObject", 200), ("PutObject", 200)]
    store.control(clear=["log"])
    latest = tool.ok("put", "k", 10, 3, "tag", tag)["tag"]
    assert len(store.log()) == 1  # the client has learnt it
    tool.fails("EEXISTS", "put", "k", 10, 4, "tag", tag)
    assert tool.ok("head", "k")["info"]["tag"] == latest
    store.control(settings={"conditions": "honoured"})
    tool.ok("put", "k", 10, 5, "tag", latest)


def test_delete_version(tool, store):
    first = tool.ok("put", "k", 10, 1)["tag"]
    second = tool.ok("put", "k", 10, 2)["tag"]
    tool.fails("EEXISTS", "delete_version", "k", first)
    assert tool.ok("head", "k")["info"]["tag"] == second
    store.control(settings={"conditions": "501"})
    tool.fails("EUNSUPPORTED", "delete_version", "k", second)
    tool.ok("head", "k")
    store.control(settings={"conditions": "honoured"})
    tool.ok("delete_version", "k", second)
    tool.fails("ENOTFOUND", "head", "k")
    tool.ok("delete_version", "k", second)


def test_list(tool, store):
    names = ["a", "a/1", "a/2", "a0", "b/x/1", "b/y", "c", "ü", "z z+%"]
    for name in reversed(names):
        tool.ok("put", name, 3, 1)
    for page in (1, 2, 3, 1000):
        store.control(settings={"page": page})
        assert keys_of(tool.ok("list", "", "", "", 0)) == sorted(names)
        assert keys_of(tool.ok("list", "", "/", "", 0)) == [
            "a",
            "a/",
            "a0",
            "b/",
            "c",
            "z z+%",
            "ü",
        ]
        assert keys_of(tool.ok("list", "b/", "/", "", 0)) == ["b/x/", "b/y"]
        assert keys_of(tool.ok("list", "a", "", "a/1", 0)) == ["a/2", "a0"]
        assert keys_of(tool.ok("list", "", "", "", 4)) == sorted(names)[:4]
    entry = tool.ok("list", "c", "", "", 0)["list"][0]
    assert entry["bytes"] == 3 and entry["tag"].startswith('"') and entry["modified"] > 1 << 30


def test_delete_many(tool, store):
    names = [f"d/{number:04}" for number in range(1000)]
    store.control(put=[{"bucket": "b", "key": name} for name in names])
    tool.ok("delete", *names[:999])
    assert keys_of(tool.ok("list", "", "", "", 0)) == [names[999]]
    assert "too many" in tool.fails("EINVAL", "delete", *names, "one more")


def test_delete_many_refused(tool, store):
    store.control(put=[{"bucket": "b", "key": name} for name in ("a", "keep", "z")])
    store.control(settings={"undeletable": "k*"})
    assert "delete s3://b/keep: AccessDenied" in tool.fails("EPERM", "delete", "a", "keep", "z")
    assert keys_of(tool.ok("list", "", "", "", 0)) == ["keep"]


def test_upload(tool, store):
    done = tool.upload("up", (100, 300, 7))
    assert done["info"]["bytes"] == 407
    assert [thing["key"] for thing in store.control()["objects"]] == ["up"]
    assert store.control()["uploads"] == []


def test_upload_in_any_order(tool, store):
    name = tool.ok("begin", "up")["upload"]
    for number in (3, 1, 2, 1):
        tool.ok("part", "up", name, number, 100, number)
    assert tool.ok("complete", "up", name, 300)["info"]["bytes"] == 300
    assert store.control()["uploads"] == []


def test_uploads_are_listed_and_aborted(tool, store):
    begun = {key: tool.ok("begin", key)["upload"] for key in ("a/1", "a/2", "b")}
    again = tool.ok("begin", "a/1")["upload"]
    store.control(settings={"page": 1})
    listed = [entry for entry in tool.ok("uploads", "a/")["list"] if entry]
    assert [entry["key"] for entry in listed] == ["a/1", "a/1", "a/2"]
    assert {entry["upload"] for entry in listed} == {begun["a/1"], again, begun["a/2"]}
    for entry in listed:
        tool.ok("abort", entry["key"], entry["upload"])
    assert [upload["key"] for upload in store.control()["uploads"]] == ["b"]


def test_mistakes_of_an_upload(tool):
    name = tool.ok("begin", "up")["upload"]
    assert "0 parts" in tool.fails("EINVAL", "complete", "up", name, 0)
    tool.ok("part", "up", name, 2, 100, 1)
    assert "part 1 was not sent" in tool.fails("EINVAL", "complete", "up", name, 100)
    assert "numbered from 1" in tool.fails("EINVAL", "part", "up", name, 10001, 1, 1)
    tool.ok("part", "up", name, 1, 50, 1)
    assert "EntityTooSmall" in tool.fails("EIO", "complete", "up", name, 150)
    tool.ok("part", "up", name, 1, 100, 1)
    assert "has 200 bytes instead of 201" in tool.fails("ECORRUPT", "complete", "up", name, 201)


def test_keys(tool, store):
    client_checks.check_keys(tool, KEYS)
    assert {entry["key"] for entry in store.log(operation="PutObject")} == set(KEYS)


def test_prefixes_and_upload_keys(tool):
    """What goes into a query is escaped, too."""
    for key in KEYS[:-1]:
        tool.ok("put", key, 1, 1)
        assert key in keys_of(tool.ok("list", key, "", "", 0))
        tool.upload(key, (100, 1))


@pytest.mark.parametrize("key", ["", "x" * 1025, "a\x01b", "a\x7fb", "a\udcffb"])
def test_impossible_keys(tool, store, key):
    for words in (["head"], ["get", 0, 1], ["get_all", 1], ["put", 1, 1], ["delete"], ["begin"]):
        tool.fails("EINVAL", words[0], key, *words[1:])
    tool.fails("EINVAL", "delete", "fine", key)
    assert store.log() == []


def test_many_at_once(store):
    with Tool(store, environment={"SIDESTEP_OBJECT_REQUESTS": "4"}) as tool:
        tool.ok("many", 64, 100000)
        assert len(keys_of(tool.ok("list", "many/", "", "", 0))) == 64


def test_a_session_token(store):
    more = {
        "AWS_ACCESS_KEY_ID": "temporary",
        "AWS_SECRET_ACCESS_KEY": "its-secret",
        "AWS_SESSION_TOKEN": "its-token",
    }
    with Tool(store, environment=more) as tool:
        tool.ok("put", "k", 1, 1)
        tool.upload("up")


def test_secrets_would_be_found(store):
    """The control of Tool.check_secrets()."""
    with Tool(store) as tool:
        tool.heard.append("x test-secret y")
        with pytest.raises(AssertionError):
            tool.check_secrets()
        tool.heard.clear()


def test_describe(store):
    with Tool(store) as tool:
        assert tool.ok("describe")["describe"] == f"{store.endpoint} (region us-east-1)"


def test_a_forked_child(store):
    with Tool(store, fork=True) as tool:
        text = tool.fails("EFORKED", "put", "k", 1, 1)
        assert "belong to the process that forked" in text
    assert store.log() == []


def test_cancelled(store):
    store.control(rules=[{"fault": "status", "status": 503}])
    with Tool(store, deadline_ms=60000) as tool:
        tool.ok("cancel")
        assert "cancelled" in tool.fails("EABORTED", "put", "k", 1, 1)


def test_a_limit_of_bytes(store):
    """Bodies wait for their turn: the third one begins when two have had their time."""
    with Tool(store, environment={"SIDESTEP_OBJECT_BYTES_PER_SECOND": "200000"}) as tool:
        for number in range(3):
            tool.ok("put", f"k{number}", 40000, number)
    log = store.log(operation="PutObject")
    assert [entry["status"] for entry in log] == [200, 200, 200]


@pytest.mark.parametrize("name", ["SIDESTEP_OBJECT_REQUESTS", "SIDESTEP_OBJECT_BYTES_PER_SECOND"])
@pytest.mark.parametrize("value", ["0", "-1", "x", "1x", " 1", "99999999999999999999"])
def test_wrong_settings(store, name, value):
    with Tool(store, environment={name: value}) as tool:
        assert tool.opened["status"] == "EINVAL" and name in tool.opened["text"]


def test_virtual_hosts(store):
    """A bucket in the host name, as AWS has it, is where a redirect can lead."""
    location = store.tls_endpoint.replace("localhost", "b.localhost")
    store.control(rules=[{"fault": "redirect", "status": 307, "location": location, "at": 1}])
    with Tool(store, tls=True) as tool:
        tool.ok("put", "k", 10, 1)
        assert tool.ok("head", "k")["info"]["bytes"] == 10


def test_another_server():
    """moto, which others wrote."""
    with servers.moto() as store:
        client_checks.check_all(store)
        with Tool(store) as tool:
            client_checks.check_conditions(tool)
