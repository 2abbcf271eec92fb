# SPDX-License-Identifier: BSD-3-Clause
"""What the client does at every object store, whoever wrote it."""

from tool import Tool

# Keys that others escape, cut, sort or normalize in their own way (objects of ours have none).
KEYS = [
    "plain", "a b", "a+b", "a%b", "a%2Fb", "a%20b", "a?b", "a#b", "a&b=c", "a;b", "a:b", "a@b",
    "a=b", "a,b", "a$b", "a!b", "a*b", "a'b", "a(b)", "a[b]", "a{b}", "a|b", "a\\b", "a^b", "a`b",
    'a"b', "a<b>c", "a~b", "a-b_c.d", "ä", "日本", "😀", "a//b", "/a", "a/", "a/./b", "a/../b",
    "..", ".a", "x" * 1024,
]  # fmt: skip
LARGE = 5 << 20  # the least that a part has


def keys_of(listed):
    return [entry["key"] for entry in listed["list"] if entry]


def check_objects(tool):
    put = tool.ok("put", "p/a b", 1000, 1)
    assert tool.ok("head", "p/a b")["info"]["bytes"] == 1000
    assert tool.ok("get", "p/a b", 10, 90)["info"]["bytes"] == 1000
    assert tool.ok("get_all", "p/a b", 1000)["crc"] == put["crc"]
    assert "has 1000 bytes" in tool.fails("ECORRUPT", "get", "p/a b", 990, 11)
    tool.fails("ECORRUPT", "get", "p/a b", 1000, 1)
    tool.fails("ENOTFOUND", "head", "nothing")
    tool.fails("ENOTFOUND", "get", "nothing", 0, 1)
    assert keys_of(tool.ok("list", "p/", "/", "", 0)) == ["p/a b"]
    assert keys_of(tool.ok("list", "", "/", "", 0)) == ["p/"]
    tool.ok("delete", "p/a b")
    tool.ok("delete", "p/a b")
    assert keys_of(tool.ok("list", "", "", "", 0)) == []


def check_uploads(tool):
    assert tool.upload("up", (LARGE, 100))["info"]["bytes"] == LARGE + 100
    tool.ok("get", "up", LARGE - 10, 20)
    name = tool.ok("begin", "up2")["upload"]
    assert [entry["upload"] for entry in tool.ok("uploads", "up")["list"] if entry] == [name]
    tool.ok("part", "up2", name, 1, 100, 1)
    tool.ok("abort", "up2", name)
    tool.ok("abort", "up2", name)
    assert keys_of(tool.ok("uploads", "")) == []
    tool.ok("delete", "up", "nothing")


def check_many(tool):
    tool.ok("many", 30, 1000)
    listed = keys_of(tool.ok("list", "many/", "", "", 0))
    assert listed == [f"many/{number:05}" for number in range(30)]
    assert keys_of(tool.ok("list", "many/", "", listed[9], 5)) == listed[10:15]
    tool.ok("delete", *listed)
    assert keys_of(tool.ok("list", "", "", "", 0)) == []


def check_keys(tool, keys):
    for number, key in enumerate(keys):
        put = tool.ok("put", key, 100 + number, number)
        assert tool.ok("get", key, 0, 100 + number)["crc"] == put["crc"], key
    assert keys_of(tool.ok("list", "", "", "", 0)) == sorted(keys, key=str.encode)
    for key in keys[::2]:
        tool.ok("delete", key)
    tool.ok("delete", *keys[1::2])
    assert keys_of(tool.ok("list", "", "", "", 0)) == []


def check_conditions(tool):
    first = tool.ok("put", "c", 10, 1, "absent")["tag"]
    tool.fails("EEXISTS", "put", "c", 10, 2, "absent")
    tool.fails("EEXISTS", "get", "c", 0, 10, '"another"')
    assert tool.ok("get", "c", 0, 10, first)
    tool.ok("delete", "c")


def check_refusals(store):
    with Tool(store, environment={"AWS_SECRET_ACCESS_KEY": "of-somebody-else"}) as tool:
        for words in (["head", "k"], ["put", "k", 1, 1], ["list", "", "", "", 0]):
            assert "SignatureDoesNotMatch" in tool.fails("EPERM", *words)
    with Tool(store, environment={"AWS_ACCESS_KEY_ID": "nobody"}) as tool:
        tool.fails("EPERM", "head", "k")
    with Tool(store, bucket="no-such-bucket") as tool:
        assert "NoSuchBucket" in tool.fails("EINVAL", "head", "k")


def check_all(store, keys=KEYS):
    with Tool(store, deadline_ms=60000) as tool:
        check_objects(tool)
        check_uploads(tool)
        check_many(tool)
        check_keys(tool, keys)
