# SPDX-License-Identifier: BSD-3-Clause
"""What the client says when a person has to act: each sentence says what to do."""

import pytest
import servers
from tool import Tool

EVERY = {
    "head": ["head", "k"],
    "get": ["get", "k", 0, 1],
    "get_all": ["get_all", "k", 10],
    "put": ["put", "k", 1, 1],
    "delete": ["delete", "k"],
    "delete_many": ["delete", "k", "l"],
    "list": ["list", "", "", "", 0],
    "begin": ["begin", "k"],
    "part": ["part", "k", "id", 1, 1, 1],
    "abort": ["abort", "k", "id"],
    "uploads": ["uploads", ""],
}
every_request = pytest.mark.parametrize("name", EVERY)


@every_request
def test_wrong_secret(store, name):
    with Tool(store, environment={"AWS_SECRET_ACCESS_KEY": "of-somebody-else"}) as tool:
        text = tool.fails("EPERM", *EVERY[name])
    assert "403 SignatureDoesNotMatch" in text and "check AWS_SECRET_ACCESS_KEY" in text
    assert "(from the environment)" in text and "(request " in text and "s3://b" in text


@every_request
def test_unknown_key(store, name):
    with Tool(store, environment={"AWS_ACCESS_KEY_ID": "nobody"}) as tool:
        text = tool.fails("EPERM", *EVERY[name])
    assert "403 InvalidAccessKeyId" in text and "check AWS_ACCESS_KEY_ID" in text


ACTIONS = {
    "head": "s3:GetObject", "get": "s3:GetObject", "get_all": "s3:GetObject",
    "put": "s3:PutObject", "delete": "s3:DeleteObject", "delete_many": "s3:DeleteObject",
    "list": "s3:ListBucket", "begin": "s3:PutObject", "part": "s3:PutObject",
    "abort": "s3:AbortMultipartUpload", "uploads": "s3:ListBucketMultipartUploads",
}  # fmt: skip


@every_request
def test_no_permission(store, name):
    store.control(rules=[{"fault": "status", "status": 403, "code": "AccessDenied"}])
    with Tool(store) as tool:
        text = tool.fails("EPERM", *EVERY[name])
    assert "403 AccessDenied" in text and f"allow {ACTIONS[name]}" in text
    assert ("looks like this" in text) == (ACTIONS[name] == "s3:GetObject")


@every_request
def test_no_bucket(store, name):
    with Tool(store, bucket="no-such-bucket") as tool:
        text = tool.fails("EINVAL", *EVERY[name])
    assert "404 NoSuchBucket" in text and "sidestep does not create buckets" in text


@every_request
def test_another_region(store, name):
    """The store says where the bucket is, and the request goes there."""
    store.control(settings={"region": "eu-west-1"})
    with Tool(store) as tool:
        answer = tool(*EVERY[name])
        assert answer["status"] in ("OK", "ENOTFOUND"), answer
        before = len(store.log())
        tool(*EVERY[name])
        later = store.log()[before:]
    assert all(entry["status"] not in (301, 400) for entry in later)


@every_request
def test_regions_in_circles(store, name):
    """One redirect is followed, a second one is not."""
    store.control(rules=[{"fault": "redirect", "region": "eu-west-1"}])
    with Tool(store) as tool:
        text = tool.fails("EINVAL", *EVERY[name])
    assert "region" in text
    assert len(store.log()) <= 3


@every_request
def test_redirected_to_somebody_else(store, name):
    with servers.strict("--no-tls", bucket="b") as other:
        location = other.endpoint + "/b/k"
        store.control(rules=[{"fault": "redirect", "status": 307, "location": location}])
        with Tool(store) as tool:
            text = tool.fails("EINVAL", *EVERY[name])
        assert other.log() == []
    assert "correct AWS_ENDPOINT_URL_S3" in text and other.endpoint in text


@every_request
def test_redirected_to_less_safety(store, name):
    """From TLS to plain http."""
    location = store.endpoint.replace("127.0.0.1", "b.localhost")
    store.control(rules=[{"fault": "redirect", "status": 307, "location": location}])
    with Tool(store, tls=True) as tool:
        tool.fails("EINVAL", *EVERY[name])
    assert all(entry["status"] == 307 for entry in store.log())


@pytest.mark.parametrize("skew", [-7200, 7200])
@every_request
def test_clocks_that_differ(store, name, skew):
    """The store's time is taken, once for all requests."""
    store.control(settings={"skew": skew})
    with Tool(store) as tool:
        answer = tool(*EVERY[name])
        assert answer["status"] in ("OK", "ENOTFOUND"), answer
        before = len(store.log())
        tool.ok("put", "k", 1, 1)
        assert [entry["status"] for entry in store.log()[before:]] == [200]


@pytest.mark.parametrize(("skew", "words"), [(-7200, "7200 s ahead of"), (7200, "7200 s behind")])
def test_clocks_that_cannot_agree(store, skew, words):
    store.control(settings={"skew": skew})
    rule = {"fault": "status", "status": 403, "code": "RequestTimeTooSkewed"}
    store.control(rules=[rule])
    with Tool(store) as tool:
        text = tool.fails("EPERM", "put", "k", 1, 1)
    assert "RequestTimeTooSkewed" in text and "this machine's clock is" in text
    assert len(store.log()) == 2


@every_request
def test_not_a_store(store, name):
    """Some other web server says 404."""
    store.control(rules=[{"fault": "body", "status": 404, "text": "<html>Not Found</html>"}])
    with Tool(store) as tool:
        text = tool.fails("EINVAL", *EVERY[name])
    assert "does not answer like an S3 store: check AWS_ENDPOINT_URL_S3" in text


@every_request
def test_full(store, name):
    store.control(rules=[{"fault": "status", "status": 507, "code": "XMinioStorageFull"}])
    with Tool(store) as tool:
        assert "the store is full" in tool.fails("ENOSPC", *EVERY[name])


@every_request
def test_unknown_errors(store, name):
    store.control(rules=[{"fault": "status", "status": 418, "code": "Teapot", "message": "I am"}])
    with Tool(store) as tool:
        assert '418 Teapot "I am" (request ' in tool.fails("EIO", *EVERY[name])


def test_messages_are_only_shown(store):
    """Neither escape sequences nor lines of their own."""
    message = "a\u001b]0;x\u0007\nb\u00e4" + "x" * 5000
    text = f"<Error><Code>Bad\nCode</Code><Message>{message}</Message></Error>"
    text = text.replace("\u001b", "?").replace("\u0007", "?")  # no XML has those
    rule = {"fault": "body", "status": 400, "text": text, "headers": {"x-amz-request-id": "\u00e4"}}
    store.control(rules=[rule])
    with Tool(store) as tool:
        found = tool.fails("EIO", "put", "k", 1, 1)
    assert found.isascii() and found.isprintable()


def test_a_certificate_that_nobody_signed(store):
    with Tool(store, tls=True, environment={"AWS_CA_BUNDLE": None}) as tool:
        text = tool.fails("EINVAL", "put", "k", 1, 1)
    assert "cannot prove who it is" in text and "AWS_CA_BUNDLE" in text
    with Tool(store, tls=True, environment={"AWS_CA_BUNDLE": "/nonexistent"}) as tool:
        assert "AWS_CA_BUNDLE" in tool.fails("EINVAL", "put", "k", 1, 1)
    assert store.log() == []


def test_a_certificate_of_somebody_else(store):
    wrong = store.tls_endpoint.replace("localhost", "nobody.localhost")
    with Tool(store, tls=True, environment={"AWS_ENDPOINT_URL_S3": wrong}) as tool:
        tool.fails("EINVAL", "put", "k", 1, 1)
    assert store.log() == []


def test_no_such_host(store):
    nowhere = {"AWS_ENDPOINT_URL_S3": "http://nowhere.invalid"}
    with Tool(store, environment=nowhere, deadline_ms=3000) as tool:
        assert "there is no host nowhere.invalid" in tool.fails("EINVAL", "put", "k", 1, 1)


@pytest.mark.parametrize("url", ["127.0.0.1", "ftp://h", "https://", "https://h/path", "http://a b",
                                 "https://h?x", "http://h\x01"])  # fmt: skip
def test_no_endpoint(url):
    more = {
        "AWS_ENDPOINT_URL_S3": url,
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "secret-of-a",
    }
    with Tool(environment=more) as tool:
        assert tool.opened["status"] == "EINVAL"
        assert "is not the URL of a store" in tool.opened["text"]


def test_a_password_in_the_endpoint_is_not_quoted():
    with Tool(environment={"AWS_ENDPOINT_URL_S3": "https://user:secret@host"}) as tool:
        assert tool.opened["status"] == "EINVAL"
        assert "AWS_SECRET_ACCESS_KEY" in tool.opened["text"]
        assert "secret@" not in tool.opened["text"]


@pytest.mark.parametrize("bucket", ["", "a/b", "-a", "a b", "ä", "x" * 256])
def test_no_bucket_name(store, bucket):
    with Tool(bucket=bucket) as tool:
        assert "is not a bucket name" in tool.opened["text"]


def test_no_region(store):
    with Tool(store, environment={"AWS_REGION": "a/b"}) as tool:
        assert "is not a region" in tool.opened["text"]


def test_aws():
    more = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "secret-of-a"}
    for region, bucket, expected in [
        ("eu-west-1", "my-bucket", "https://my-bucket.s3.eu-west-1.amazonaws.com"),
        ("eu-west-1", "my.bucket", "https://s3.eu-west-1.amazonaws.com"),
        ("cn-north-1", "b", "https://b.s3.cn-north-1.amazonaws.com.cn"),
    ]:
        with Tool(bucket=bucket, environment={**more, "AWS_REGION": region}) as tool:
            assert tool.ok("describe")["describe"] == f"{expected} (region {region})"


def test_https_of_a_plain_endpoint(store):
    endpoint = store.endpoint.replace("http://", "https://")
    with Tool(store, deadline_ms=3000, environment={"AWS_ENDPOINT_URL_S3": endpoint}) as tool:
        text = tool.fails("ETIMEDOUT", *EVERY["head"])
    assert "speaks plain http, not TLS: write http://" in text
