# SPDX-License-Identifier: BSD-3-Clause
"""Each fault of the strict server is seen by a client that tries once, and hits what it is to hit.

Each test says what the client sees, and what the server holds afterwards.
"""

import http.client
import threading
import time

import pytest
import raw
import servers
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionClosedError,
    EndpointConnectionError,
    FlexibleChecksumError,
    IncompleteReadError,
    ReadTimeoutError,
    ResponseStreamingError,
)

BODY = bytes(range(256)) * 40
PLACE = {"Bucket": "b", "Key": "k"}


def put_past_the_protocol(store, *rules, text="x" * 1000):
    store.control(put=[{"bucket": "b", "key": "k", "text": text}], rules=list(rules))


def error_of(call, *args, **kwargs):
    with pytest.raises(ClientError) as caught:
        call(*args, **kwargs)
    return caught.value.response


def keys(store):
    return [item["key"] for item in store.control()["objects"]]


def read(client, **how):
    return client.get_object(**PLACE, **how)["Body"].read()


@pytest.mark.parametrize(
    ("status", "code"),
    [(503, "SlowDown"), (500, "InternalError"), (429, "TooManyRequests"),
     (502, "ServiceUnavailable"), (409, "ConditionalRequestConflict")],
)  # fmt: skip
def test_status(client, store, status, code):
    rule = {"fault": "status", "status": status, "code": code, "retry_after": 7, "times": 1}
    store.control(rules=[rule])
    answer = error_of(client.put_object, **PLACE, Body=BODY)
    assert (answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]) == (code, status)
    assert answer["ResponseMetadata"]["HTTPHeaders"]["retry-after"] == "7"
    assert keys(store) == []
    client.put_object(**PLACE, Body=BODY)
    assert keys(store) == ["k"]
    assert [line["fault"] for line in store.log()] == ["status", None]


def test_status_before_the_body_is_read(store):
    store.control(rules=[{"fault": "status", "drain": False}])
    headers = raw.signed(store, "PUT", "/b/k", body=BODY)
    reply = raw.send(store, "PUT", "/b/k", {**headers, "expect": "100-continue"})
    assert (reply.status, reply.code) == (503, "SlowDown")
    assert store.log()[0]["request_bytes"] < 2000


@pytest.mark.parametrize("after", [0, 1, 5000, len(BODY)])
@pytest.mark.parametrize("how", ["reset", "close"])
def test_cut_of_the_request(client, store, after, how):
    store.control(rules=[{"fault": "cut", "where": "request", "after": after, "how": how}])
    with pytest.raises(BotoCoreError):
        client.put_object(**PLACE, Body=BODY)
    assert keys(store) == []


@pytest.mark.parametrize("how", ["reset", "close"])
def test_cut_of_the_answer(client, store, how):
    put_past_the_protocol(store, {"fault": "cut", "after": 700, "how": how})
    with pytest.raises((ResponseStreamingError, IncompleteReadError)):
        read(client)


def test_cut_in_the_head_of_the_answer(client, store):
    put_past_the_protocol(store, {"fault": "cut", "after": 5})
    with pytest.raises(BotoCoreError):
        read(client)


def test_lost_answer(client, store):
    store.control(rules=[{"fault": "lost", "operation": "PutObject"}])
    with pytest.raises(ConnectionClosedError):
        client.put_object(**PLACE, Body=BODY)
    assert keys(store) == ["k"]
    assert read(client) == BODY
    assert (store.log()[0]["done"], store.log()[0]["answer_bytes"]) == (True, 0)


def wait_for_the_end(store):
    """Until no request is under way any more."""
    deadline = time.monotonic() + 60
    while any(not line["ended"] for line in store.log()):
        assert time.monotonic() < deadline


def test_stall_ends_when_the_client_goes(store):
    put_past_the_protocol(store, {"fault": "stall", "after": 700})
    client = store.client(config={"read_timeout": 0.2})
    with pytest.raises(ReadTimeoutError):
        read(client)
    client.close()
    wait_for_the_end(store)


def test_stall_ends_when_it_is_released(store, clients):
    put_past_the_protocol(store, {"fault": "stall", "where": "request"})

    def release():
        while not store.log(ended=True):
            store.control(release=True)

    helper = threading.Thread(target=release)
    helper.start()
    with pytest.raises(ConnectionClosedError):
        clients["http"].put_object(**PLACE, Body=BODY)
    helper.join()
    assert store.log()[0]["done"] is False


def test_error_in_a_body_of_status_200(store, clients):
    client = clients["http"]
    store.control(rules=[{"fault": "error_body", "code": "SlowDown", "spaces": 3, "at": 1},
                         {"fault": "error_body", "done": True, "at": 2}])  # fmt: skip
    for expected in ([], ["k"]):
        reply = raw.ask(store, "PUT", "/b/k", body=BODY)
        assert (reply.status, b"<Error>" in reply.body) == (200, True)
        assert keys(store) == expected
    store.control(rules=[{"fault": "error_body", "operation": "CompleteMultipartUpload"}])
    name = client.create_multipart_upload(**PLACE, ChecksumAlgorithm="CRC32")["UploadId"]
    part = client.upload_part(**PLACE, UploadId=name, PartNumber=1, Body=BODY)
    parts = [{"PartNumber": 1, "ETag": part["ETag"], "ChecksumCRC32": part["ChecksumCRC32"]}]
    error_of(client.complete_multipart_upload, **PLACE, UploadId=name,
             MultipartUpload={"Parts": parts})  # fmt: skip
    assert len(store.control()["uploads"]) == 1


def test_late_deed(client, store):
    store.control(rules=[{"fault": "late", "after": 2, "operation": "PutObject", "at": 1}])
    with pytest.raises(BotoCoreError):
        client.put_object(**PLACE, Body=b"late")
    for _ in range(2):
        assert error_of(client.get_object, **PLACE)["Error"]["Code"] == "NoSuchKey"
    assert store.control()["late"] == [1]
    assert read(client) == b"late"
    assert (store.log()[0]["landed"], store.control()["late"]) == (4, [])


def test_late_deed_meets_the_conditions_of_its_time(client, store):
    store.control(rules=[{"fault": "late", "after": 9, "at": 1}])
    with pytest.raises(BotoCoreError):
        client.put_object(**PLACE, Body=b"late", IfNoneMatch="*")
    client.put_object(**PLACE, Body=b"now", IfNoneMatch="*")
    store.control(land=True)
    assert read(client) == b"now"
    assert store.log()[0]["code"] == "PreconditionFailed"


def test_late_deed_whose_signature_is_too_old(client, store):
    store.control(rules=[{"fault": "late", "at": 1}])
    with pytest.raises(BotoCoreError):
        client.put_object(**PLACE, Body=b"late")
    store.control(settings={"skew": 1000}, land=True)
    assert (keys(store), store.log()[0]["code"]) == ([], "RequestTimeTooSkewed")


def test_truncated_body(client, store):
    put_past_the_protocol(store, {"fault": "truncate", "bytes": 10})
    with pytest.raises((ResponseStreamingError, IncompleteReadError)):
        read(client, Range="bytes=0-99")


def test_short_range(client, store):
    put_past_the_protocol(store, {"fault": "short_range", "bytes": 10})
    got = client.get_object(**PLACE, Range="bytes=5-99")
    assert (got["ContentRange"], len(got["Body"].read())) == ("bytes 5-14/1000", 10)


def test_wrong_range(client, store):
    put_past_the_protocol(store, {"fault": "wrong_range", "at": 1},
                          {"fault": "wrong_range", "shift": 2, "moves": True, "at": 2},
                          {"fault": "wrong_range", "text": "bytes */*", "at": 3},
                          text="abcdefgh")  # fmt: skip
    seen = []
    for _ in range(3):
        got = client.get_object(**PLACE, Range="bytes=1-3")
        seen.append((got["ContentRange"], got["Body"].read()))
    assert seen == [("bytes 2-4/8", b"bcd"), ("bytes 3-5/8", b"def"), ("bytes */*", b"bcd")]


def test_whole_object_instead_of_a_range(client, store):
    put_past_the_protocol(store, {"fault": "whole"})
    got = client.get_object(**PLACE, Range="bytes=5-99")
    assert (got["ResponseMetadata"]["HTTPStatusCode"], len(got["Body"].read())) == (200, 1000)
    assert "ContentRange" not in got


def test_flipped_bit_of_the_answer(client, store):
    client.put_object(**PLACE, Body=BODY)
    store.control(rules=[{"fault": "flip"}])
    with pytest.raises(FlexibleChecksumError):
        read(client)
    assert read(client, Range="bytes=0-99") != BODY[:100]


def test_flipped_bit_of_the_request(client, store):
    store.control(rules=[{"fault": "flip", "side": "request", "offset": 3}])
    code = error_of(client.put_object, **PLACE, Body=BODY)["Error"]["Code"]
    assert code in ("XAmzContentSHA256Mismatch", "BadDigest")
    assert keys(store) == []


def test_flipped_bit_at_rest(client, store):
    store.control(rules=[{"fault": "flip", "side": "rest", "offset": 3, "at": 1}])
    client.put_object(**PLACE, Body=BODY)
    assert read(client, Range="bytes=0-3") == bytes([0, 1, 2, 2])
    store.control(flip=[{"bucket": "b", "key": "k", "offset": 3}])
    assert read(client) == BODY


@pytest.mark.parametrize("status", [301, 307])
def test_redirect(store, status):
    rule = {"fault": "redirect", "status": status, "region": "eu-west-1",
            "location": "http://b.other.example/k"}  # fmt: skip
    store.control(rules=[rule])
    reply = raw.ask(store, "GET", "/b/k")
    assert (reply.status, reply.headers["x-amz-bucket-region"]) == (status, "eu-west-1")
    assert reply.headers["location"] == "http://b.other.example/k"
    assert b"<Endpoint>b.other.example</Endpoint>" in reply.body


def test_settings_that_change_at_a_request(client, store):
    store.control(rules=[{"fault": "set", "settings": {"skew": 2000}, "at": 2}])
    client.put_object(**PLACE, Body=b"")
    assert error_of(client.get_object, **PLACE)["Error"]["Code"] == "RequestTimeTooSkewed"
    assert store.control()["settings"]["skew"] == 2000


def test_credentials_that_end(client, store):
    store.control(rules=[{"fault": "expired", "at": 2}])
    client.put_object(**PLACE, Body=b"")
    for _ in range(2):
        assert error_of(client.get_object, **PLACE)["Error"]["Code"] == "ExpiredToken"
    reply = raw.ask(store, "GET", "/b/k", key="temporary", secret="its-secret", token="its-token")
    assert reply.status == 200
    store.control(rules=[{"fault": "expired"}], settings={"expired": []})
    raw.ask(store, "GET", "/b/k", key="temporary", secret="its-secret", token="its-token")
    assert store.control()["settings"]["expired"] == ["its-token"]


def test_endless_xml(store):
    store.control(rules=[{"fault": "endless", "bytes": 100000}])
    assert raw.ask(store, "GET", "/b?list-type=2").body.count(b"<Prefix>") > 3000
    store.control(rules=[{"fault": "endless", "head": "", "piece": "<a>"}])
    headers = raw.signed(store, "GET", "/b?list-type=2")
    reply = raw.send(store, "GET", "/b?list-type=2", headers, most=2000000)
    assert reply.body.count(b"<a>") > 600000
    wait_for_the_end(store)


@pytest.mark.parametrize("kind", ["bomb", "external"])
def test_entities(store, kind):
    store.control(rules=[{"fault": "entities", "kind": kind}])
    body = raw.ask(store, "GET", "/b?list-type=2").body
    assert b"<!DOCTYPE" in body and b"&a9;" in body and b"<!ENTITY a9" in body


def test_any_body(client, store):
    store.control(rules=[{"fault": "body", "text": "<html>", "status": 502}])
    assert error_of(client.put_object, **PLACE, Body=b"")["Error"]["Code"] == "502"
    assert keys(store) == []


def test_headers_of_the_answer(store):
    lines = ["X-Injected: a\r\nSet-Cookie: b", "X-Large: " + "x" * 100]
    rule = {"fault": "headers", "set": {"ETag": '"\\u0001"', "Server": None}, "lines": lines}
    put_past_the_protocol(store, {**rule, "repeat": 5})
    reply = raw.ask(store, "GET", "/b/k")
    assert (reply.headers["set-cookie"], reply.headers["etag"]) == ("b", '"\\u0001"')
    assert len(reply.headers["x-large"]) == 100


def test_raw_bytes_instead_of_an_answer(client, store):
    store.control(rules=[{"fault": "raw", "text": "SSH-2.0-hello\r\n"}])
    with pytest.raises(BotoCoreError):
        client.put_object(**PLACE, Body=b"")
    assert keys(store) == []


def test_listing_in_circles(client, store):
    store.control(put=[{"bucket": "b", "key": key} for key in "abc"], settings={"page": 2},
                  rules=[{"fault": "circle"}])  # fmt: skip
    first = client.list_objects_v2(Bucket="b")
    token = first["NextContinuationToken"]
    second = client.list_objects_v2(Bucket="b", ContinuationToken=token)
    for page in (first, second):
        assert [item["Key"] for item in page["Contents"]] == ["a", "b"]
        assert (page["IsTruncated"], page["NextContinuationToken"]) == (True, token)
    for operation in (client.list_multipart_uploads,):
        assert operation(Bucket="b")["IsTruncated"] is True


def test_answer_in_chunks(store, clients):
    client = clients["http"]
    put_past_the_protocol(store, {"fault": "chunked", "spaces": 300})
    answer = client.list_objects_v2(Bucket="b")
    assert [item["Key"] for item in answer["Contents"]] == ["k"]
    headers = answer["ResponseMetadata"]["HTTPHeaders"]
    assert headers["transfer-encoding"] == "chunked" and "content-length" not in headers
    assert len(read(client)) == 1000


@pytest.mark.parametrize("how", ["close", "reset"])
def test_connection_that_ends_after_the_answer(store, how):
    put_past_the_protocol(store, {"fault": "hang_up", "how": how})
    headers = raw.signed(store, "GET", "/b/k")
    connection = http.client.HTTPConnection(store.endpoint.removeprefix("http://"))
    connection.request("GET", "/b/k", headers=headers)
    answer = connection.getresponse()
    assert len(answer.read()) == 1000 and answer.headers["connection"] is None
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        wait_for_the_end(store)
        connection.request("GET", "/b/k", headers=headers)
        connection.getresponse()
    connection.close()


def test_refused_connections(store):
    client = store.client()
    store.control(put=[{"bucket": "b", "key": "k"}], listen=False)
    try:
        with pytest.raises(EndpointConnectionError):
            read(client)
        store.control(listen=False)
    finally:
        store.control(listen=True)
    assert read(client) == b""


def test_new_credentials(store):
    known = {"key": "new", "secret": "new-secret", "token": "new-token"}
    assert raw.ask(store, "GET", "/b/k", **known).code == "InvalidAccessKeyId"
    item = {"access_key": "new", "secret_key": "new-secret", "token": "new-token"}
    store.control(credentials=[item])
    assert raw.ask(store, "GET", "/b/k", **known).code == "NoSuchKey"


def test_slow_answer(client, store):
    put_past_the_protocol(store, {"fault": "slow", "delay": 0.05, "bytes": 100, "seconds": 0.01})
    begin = time.monotonic()
    assert len(read(client)) == 1000
    assert time.monotonic() - begin >= 0.13


def test_which_request_meets_a_fault(client, store):
    put_past_the_protocol(store, {"fault": "status", "method": "GET", "key": "k*", "every": 3,
                                  "times": 2})  # fmt: skip
    codes = []
    for _ in range(10):
        client.head_object(**PLACE)
        reply = raw.ask(store, "GET", "/b/k")
        codes.append(reply.status)
    assert codes == [200, 200, 503, 200, 200, 503, 200, 200, 200, 200]
    rule = store.control()["rules"][0]
    assert (rule["seen"], rule["fired"]) == (10, 2)


def test_fault_for_requests_with_a_header(client, store):
    store.control(rules=[{"fault": "status", "header": "If-None-Match"}])
    client.put_object(**PLACE, Body=b"")
    error_of(client.put_object, **PLACE, Body=b"", IfNoneMatch="*")


def upload_of_two(client):
    name = client.create_multipart_upload(**PLACE, ChecksumAlgorithm="CRC32")["UploadId"]
    parts = []
    for number in (1, 2):
        part = client.upload_part(**PLACE, UploadId=name, PartNumber=number, Body=BODY)
        parts.append({"PartNumber": number, "ETag": part["ETag"],
                      "ChecksumCRC32": part["ChecksumCRC32"]})  # fmt: skip
    client.complete_multipart_upload(**PLACE, UploadId=name, MultipartUpload={"Parts": parts})


@pytest.mark.parametrize("fault", ["status", "reset", "lost"])
def test_sweep_over_every_request(store, clients, fault):
    """As tests of a client do it: count the requests of an operation, then fail each in turn."""

    def act():
        upload_of_two(clients["http"])

    count = 0
    for line in store.sweep(act, fault=fault):
        count += 1
        with pytest.raises((ClientError, BotoCoreError)):
            act()
        state = store.control()
        assert [line["fault"] for line in state["log"]] == [None] * (count - 1) + [fault]
        is_there = line["operation"] == "CompleteMultipartUpload" and fault == "lost"
        is_begun = line["operation"] != "CreateMultipartUpload" or fault == "lost"
        assert len(state["objects"]) == int(is_there)
        assert len(state["uploads"]) == int(is_begun and not is_there)
    assert count == 4


def test_sweep_from_a_state_that_was_prepared(store, clients):
    def prepare():
        clients["http"].put_object(**PLACE, Body=b"")

    lines = store.sweep(lambda: read(clients["http"]), prepare, fault="status")
    for line in lines:
        assert (line["number"], line["operation"]) == (1, "GetObject")
        error_of(clients["http"].get_object, **PLACE)


@pytest.mark.parametrize(
    "order",
    [{"rules": [{"fault": "none"}]}, {"rules": [{"fault": "status", "stat": 5}]},
     {"settings": {"conditions": "x"}}, {"settings": {"x": 1}}, {"settings": {"page": "x"}},
     {"x": 1}, {"clear": ["x"]}, {"rules": [{"fault": "cut", "how": "x"}]}],
)  # fmt: skip
def test_orders_that_mean_nothing(store, order):
    before = store.control()
    with pytest.raises(ValueError):
        store.control(**order)
    assert store.control() == before


def test_rules_and_settings_by_command_line():
    with servers.strict("--no-tls", "--rule", '{"fault": "status"}', "--set", "conditions=501",
                        "--set", "page=7") as store:  # fmt: skip
        assert raw.ask(store, "GET", "/b/k").code == "SlowDown"
        settings = store.control()["settings"]
        assert (settings["conditions"], settings["page"]) == ("501", 7)
