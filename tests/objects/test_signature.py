# SPDX-License-Identifier: BSD-3-Clause
"""The strict server refuses what is not signed as it has to be: botocore signs, a test spoils it.

test_what_botocore_signs_is_taken is the control of all the others.
"""

import datetime
import hashlib

import botocore.auth
import pytest
import raw

BODY = b"hello"
PATHS = ["/b/k", "/b/a%20b", "/b/a%2Bb", "/b/a%3Ab%3D", "/b/%C3%BC", "/b/a//b", "/b/..", "/b/~_-."]


def spoil(name, old, new):
    def change(headers):
        assert old in headers[name]
        return {**headers, name: headers[name].replace(old, new)}

    return change


@pytest.mark.parametrize("path", PATHS)
def test_what_botocore_signs_is_taken(store, path):
    assert raw.ask(store, "PUT", path, body=BODY).status == 200
    assert raw.ask(store, "GET", path).body == BODY
    assert raw.ask(store, "GET", "/b?list-type=2&prefix=a%2Fb%3D&start-after=").status == 200


@pytest.mark.parametrize("target", ["/b/a+b", "/b/a:b", "/b/a=b", "/b/a*b", "/b/%c3%bc", "/b/a'b"])
def test_path_that_is_signed_as_it_is_sent_but_not_escaped(store, target):
    assert raw.ask(store, "GET", target).code == "SignatureDoesNotMatch"


@pytest.mark.parametrize("query", ["prefix=a/b", "prefix=%2f", "prefix=a%20b&list-type=2"])
def test_query_that_is_signed_wrongly(store, query, monkeypatch):
    """As some signers do: they neither sort nor escape."""
    monkeypatch.setattr(botocore.auth.SigV4Auth, "canonical_query_string",
                        lambda self, request: "list-type=2&" + query)  # fmt: skip
    code = raw.ask(store, "GET", "/b?list-type=2&" + query).code
    assert code in ("SignatureDoesNotMatch", "InvalidArgument")


def test_plus_in_a_query_is_a_blank(store):
    store.control(put=[{"bucket": "b", "key": "a b"}, {"bucket": "b", "key": "a+b"}])
    reply = raw.ask(store, "GET", "/b?list-type=2&prefix=a%2Bb")
    assert b"<Key>a+b</Key>" in reply.body and b"<Key>a b</Key>" not in reply.body


def test_no_signature(store):
    def change(headers):
        return {name: value for name, value in headers.items() if name != "authorization"}

    assert raw.ask(store, "GET", "/b/k", change=change).code == "AccessDenied"


def test_wrong_secret(store):
    reply = raw.ask(store, "GET", "/b/k", secret="wrong")
    assert (reply.status, reply.code) == (403, "SignatureDoesNotMatch")
    assert b"<CanonicalRequest>GET\n" in reply.body


def test_unknown_key(store):
    assert raw.ask(store, "GET", "/b/k", key="unknown").code == "InvalidAccessKeyId"


@pytest.mark.parametrize(
    ("name", "old", "new", "code"),
    [
        ("authorization", "AWS4-HMAC-SHA256", "AWS", "InvalidRequest"),
        ("authorization", "/s3/", "/ec2/", "AuthorizationHeaderMalformed"),
        ("authorization", "us-east-1", "eu-west-1", "AuthorizationHeaderMalformed"),
        ("authorization", "aws4_request", "aws5", "AuthorizationHeaderMalformed"),
        ("authorization", "SignedHeaders=host;", "SignedHeaders=", "AccessDenied"),
        ("authorization", ";x-amz-date", "", "AccessDenied"),
        ("authorization", "host;", "host;a;", "AuthorizationHeaderMalformed"),
        ("authorization", "host;", "host;range;", "SignatureDoesNotMatch"),
        ("authorization", "Signature=", "Signature=0", "SignatureDoesNotMatch"),
        ("host", "127.0.0.1", "127.0.0.2", "SignatureDoesNotMatch"),
    ],
)
def test_spoilt_header(store, name, old, new, code):
    assert raw.ask(store, "GET", "/b/k", change=spoil(name, old, new)).code == code


def test_header_that_is_not_signed(store):
    def change(headers):
        return {**headers, "x-amz-meta-new": "1"}

    assert raw.ask(store, "PUT", "/b/k", body=BODY, change=change).code == "AccessDenied"


def test_changed_header_that_is_signed(store):
    reply = raw.ask(store, "PUT", "/b/k", {"x-amz-meta-a": "1"}, BODY,
                    spoil("x-amz-meta-a", "1", "2"))  # fmt: skip
    assert reply.code == "SignatureDoesNotMatch"


def test_blanks_in_a_signed_header_count_once(store):
    reply = raw.ask(store, "PUT", "/b/k", {"x-amz-meta-a": "b   c"}, BODY)
    assert reply.status == 200


def test_changed_method_or_target(store):
    headers = raw.signed(store, "GET", "/b/k")
    assert raw.send(store, "DELETE", "/b/k", headers).code == "SignatureDoesNotMatch"
    assert raw.send(store, "GET", "/b/l", headers).code == "SignatureDoesNotMatch"
    assert raw.send(store, "GET", "/b/k?x-id=a", headers).code == "SignatureDoesNotMatch"


def test_changed_body(store):
    headers = raw.signed(store, "PUT", "/b/k", body=BODY)
    reply = raw.send(store, "PUT", "/b/k", headers, b"hellO")
    assert (reply.status, reply.code) == (400, "XAmzContentSHA256Mismatch")
    assert store.control()["objects"] == []
    assert raw.send(store, "PUT", "/b/k", headers, BODY).status == 200


def test_body_whose_hash_is_missing(store):
    def change(headers):
        del headers["x-amz-content-sha256"]

    # It is still in SignedHeaders; without it there, the payload could be anything.
    assert raw.ask(store, "GET", "/b/k", change=change).code == "SignatureDoesNotMatch"

    def change_both(headers):
        change(headers)
        return spoil("authorization", ";x-amz-content-sha256", "")(headers)

    assert raw.ask(store, "GET", "/b/k", change=change_both).code == "InvalidRequest"


def test_unsigned_payload_over_plain_http(store):
    payload = "UNSIGNED-PAYLOAD"
    assert raw.ask(store, "PUT", "/b/k", body=BODY, payload=payload).code == "InvalidRequest"
    store.control(settings={"strict": False})
    assert raw.ask(store, "PUT", "/b/k", body=BODY, payload=payload).status == 200


def test_signed_chunks_are_not_implemented(store):
    reply = raw.ask(store, "PUT", "/b/k", body=BODY, payload="STREAMING-AWS4-HMAC-SHA256-PAYLOAD")
    assert reply.code == "NotImplemented"


SKEWED = "RequestTimeTooSkewed"


@pytest.mark.parametrize(
    ("skew", "code"), [(-800, None), (800, None), (-1000, SKEWED), (1000, SKEWED)]
)
def test_clock(store, skew, code):
    store.control(put=[{"bucket": "b", "key": "k"}], settings={"skew": skew})
    reply = raw.ask(store, "GET", "/b/k")
    assert reply.code == code
    told = datetime.datetime.strptime(reply.headers["date"], "%a, %d %b %Y %H:%M:%S GMT")
    now = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)
    assert abs((told - now).total_seconds() - skew) < 300


def test_day_of_the_scope(store):
    day = raw.stamp(0)[:8]
    change = spoil("authorization", f"/{day}/", "/20200101/")
    assert raw.ask(store, "GET", "/b/k", change=change).code == "SignatureDoesNotMatch"


def test_session_token(store):
    store.control(put=[{"bucket": "b", "key": "k"}])
    temporary = {"key": "temporary", "secret": "its-secret"}
    assert raw.ask(store, "GET", "/b/k", token="its-token", **temporary).status == 200
    assert raw.ask(store, "GET", "/b/k", token="other", **temporary).code == "InvalidToken"
    assert raw.ask(store, "GET", "/b/k", **temporary).code == "InvalidAccessKeyId"
    assert raw.ask(store, "GET", "/b/k", token="its-token").code == "InvalidToken"


def test_expired_credentials(store):
    store.control(settings={"expired": ["its-token", store.access_key]})
    reply = raw.ask(store, "GET", "/b/k", key="temporary", secret="its-secret", token="its-token")
    assert (reply.status, reply.code) == (400, "ExpiredToken")
    assert raw.ask(store, "GET", "/b/k").code == "ExpiredToken"


@pytest.mark.parametrize(
    ("headers", "body", "code"),
    [
        ({"x-amz-checksum-crc32": "AAAAAA=="}, BODY, "BadDigest"),
        ({"x-amz-checksum-crc32": "AA=="}, BODY, "InvalidRequest"),
        ({"x-amz-checksum-sha256": "AAAAAA=="}, BODY, "InvalidRequest"),
        ({"x-amz-checksum-none": "AAAAAA=="}, BODY, "InvalidRequest"),
        ({"x-amz-checksum-crc32": "AAAAAA==", "x-amz-checksum-crc32c": "AAAAAA=="}, b"",
         "InvalidRequest"),
        ({"x-amz-sdk-checksum-algorithm": "CRC32C"}, BODY, "InvalidRequest"),
        ({"content-md5": hashlib.md5(BODY).hexdigest()}, BODY, "InvalidDigest"),
        ({"if-none-match": '"a tag"'}, BODY, "NotImplemented"),
        ({"x-amz-meta-large": "x" * 3000}, BODY, "MetadataTooLarge"),
    ],
)  # fmt: skip
def test_put_that_is_refused(store, headers, body, code):
    assert raw.ask(store, "PUT", "/b/k", headers, body).code == code
    assert store.control()["objects"] == []


@pytest.mark.parametrize(
    ("method", "target", "code"),
    [
        ("GET", "/", "NotImplemented"),
        ("GET", "/b", "NotImplemented"),  # a listing of version 1
        ("GET", "/b/k?acl=", "NotImplemented"),
        ("GET", "/b?list-type=3", "InvalidArgument"),
        ("GET", "/b?list-type=2&max-keys=x", "InvalidArgument"),
        ("GET", "/b?list-type=2&encoding-type=x", "InvalidArgument"),
        ("GET", "/b?list-type=2&list-type=2", "InvalidArgument"),
        ("GET", "/b/" + "k" * 1025, "KeyTooLongError"),
        ("GET", "/b/%FF", "InvalidURI"),
        ("PUT", "/b/k?partNumber=x&uploadId=y", "InvalidArgument"),
    ],
)
def test_request_that_means_nothing(store, method, target, code):
    assert raw.ask(store, method, target).code == code


def test_put_without_a_length(store):
    headers = raw.signed(store, "PUT", "/b/k")
    headers["transfer-encoding"] = "chunked"
    reply = raw.send(store, "PUT", "/b/k", headers, b"0\r\n\r\n")
    assert (reply.status, reply.code) == (411, "MissingContentLength")


def test_delete_many_without_a_digest(store):
    body = b"<Delete><Object><Key>k</Key></Object></Delete>"
    assert raw.ask(store, "POST", "/b?delete=", body=body).code == "InvalidRequest"


@pytest.mark.parametrize("body", [b"", b"<Delete>", b"<Other/>", b"<Delete/>"])
def test_delete_many_that_is_malformed(store, body):
    headers = {"content-md5": raw.md5(body)}
    assert raw.ask(store, "POST", "/b?delete=", headers, body).code == "MalformedXML"
