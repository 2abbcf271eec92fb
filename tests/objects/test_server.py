# SPDX-License-Identifier: BSD-3-Clause
"""The strict server does what S3 does: every operation, by boto3, which knows nothing of it."""

import base64
import concurrent.futures
import hashlib
import re
import socket
import ssl
import zlib

import pytest
import raw
import servers
from botocore.exceptions import ClientError, SSLError

BODY = bytes(range(256)) * 4
# What is hard to escape, in a path or in a query.
KEYS = [
    "plain", "a b", "a+b", "a%20b", "a%2Fb", "ü/ñ/日本", "q?x=1&y#z", "=,;:@!$'()*[]", "..",
    "a/../b", "a//b", "/leading", "trailing/", "tilde~_-.", "quote\"<>\\^`{|}",
]  # fmt: skip


def code_of(call, *args, **kwargs):
    """The code of the error that a call has to raise, and its status."""
    with pytest.raises(ClientError) as caught:
        call(*args, **kwargs)
    answer = caught.value.response
    return answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]


def keys_of(answer):
    return [item["Key"] for item in answer.get("Contents", [])]


def upload(client, key, parts, algorithm="CRC32", **how):
    """A multipart upload; returns the answer of Complete."""
    name = client.create_multipart_upload(Bucket="b", Key=key, ChecksumAlgorithm=algorithm)
    place = {"Bucket": "b", "Key": key, "UploadId": name["UploadId"]}
    done = []
    for number, part in enumerate(parts, 1):
        answer = client.upload_part(
            **place, PartNumber=number, Body=part, ChecksumAlgorithm=algorithm
        )
        field = "Checksum" + algorithm
        done.append({"PartNumber": number, "ETag": answer["ETag"], field: answer[field]})
    return client.complete_multipart_upload(**place, MultipartUpload={"Parts": done}, **how)


@pytest.mark.parametrize("key", KEYS)
def test_keys_are_kept_as_they_are(client, key):
    client.put_object(Bucket="b", Key=key, Body=key.encode())
    assert client.get_object(Bucket="b", Key=key)["Body"].read() == key.encode()
    assert keys_of(client.list_objects_v2(Bucket="b", Prefix=key)) == [key]
    client.delete_object(Bucket="b", Key=key)
    assert keys_of(client.list_objects_v2(Bucket="b")) == []


def test_put_and_get(client, store):
    tag = client.put_object(Bucket="b", Key="k", Body=BODY, Metadata={"x": "y"})["ETag"]
    assert tag == f'"{hashlib.md5(BODY).hexdigest()}"'
    got = client.get_object(Bucket="b", Key="k")
    assert got["Body"].read() == BODY
    assert (got["ETag"], got["Metadata"], got["ContentLength"]) == (tag, {"x": "y"}, len(BODY))
    head = client.head_object(Bucket="b", Key="k")
    assert (head["ETag"], head["ContentLength"]) == (tag, len(BODY))
    assert [line["operation"] for line in store.log()] == ["PutObject", "GetObject", "HeadObject"]


def test_empty_object(client):
    client.put_object(Bucket="b", Key="k", Body=b"")
    assert client.get_object(Bucket="b", Key="k")["Body"].read() == b""
    assert client.head_object(Bucket="b", Key="k")["ContentLength"] == 0
    assert code_of(client.get_object, Bucket="b", Key="k", Range="bytes=0-0") == (
        "InvalidRange", 416)  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "first", "last"),
    [("bytes=0-0", 0, 0), ("bytes=5-9", 5, 9), ("bytes=1000-", 1000, 1023),
     ("bytes=-3", 1021, 1023), ("bytes=1020-5000", 1020, 1023), ("bytes=-5000", 0, 1023)],
)  # fmt: skip
def test_ranges(client, asked, first, last):
    client.put_object(Bucket="b", Key="k", Body=BODY)
    got = client.get_object(Bucket="b", Key="k", Range=asked)
    assert got["ResponseMetadata"]["HTTPStatusCode"] == 206
    assert got["ContentRange"] == f"bytes {first}-{last}/{len(BODY)}"
    assert got["Body"].read() == BODY[first : last + 1]


def test_range_behind_the_end(client):
    client.put_object(Bucket="b", Key="k", Body=BODY)
    assert code_of(client.get_object, Bucket="b", Key="k", Range="bytes=1024-") == (
        "InvalidRange", 416)  # fmt: skip


def test_what_is_not_there(client):
    assert code_of(client.get_object, Bucket="b", Key="k") == ("NoSuchKey", 404)
    assert code_of(client.get_object, Bucket="none", Key="k") == ("NoSuchBucket", 404)
    assert code_of(client.head_object, Bucket="b", Key="k") == ("404", 404)
    assert code_of(client.head_bucket, Bucket="none") == ("404", 404)
    assert code_of(client.list_parts, Bucket="b", Key="k", UploadId="u") == ("NoSuchUpload", 404)
    assert code_of(client.abort_multipart_upload, Bucket="b", Key="k", UploadId="u") == (
        "NoSuchUpload", 404)  # fmt: skip
    client.delete_object(Bucket="b", Key="k")


def test_bucket(client, store):
    client.head_bucket(Bucket="b")
    assert client.get_bucket_location(Bucket="b")["LocationConstraint"] is None
    assert code_of(client.create_bucket, Bucket="new") == ("AccessDenied", 403)
    store.control(settings={"region": "eu-west-1"})
    # boto3 reads the region out of the refusal, and asks again.
    assert code_of(client.get_object, Bucket="b", Key="k") == ("NoSuchKey", 404)
    codes = [line["code"] for line in store.log(operation="GetObject")]
    assert codes == ["AuthorizationHeaderMalformed", "NoSuchKey"]


def test_conditions(client):
    client.put_object(Bucket="b", Key="k", Body=b"1", IfNoneMatch="*")
    put = {"Bucket": "b", "Key": "k", "Body": b"2"}
    refused = ("PreconditionFailed", 412)
    assert code_of(client.put_object, **put, IfNoneMatch="*") == refused
    tag = client.head_object(Bucket="b", Key="k")["ETag"]
    assert code_of(client.put_object, **put, IfMatch='"0"') == refused
    client.put_object(**put, IfMatch=tag)
    assert code_of(client.get_object, Bucket="b", Key="k", IfMatch=tag) == refused
    assert code_of(client.delete_object, Bucket="b", Key="k", IfMatch=tag) == refused
    assert client.get_object(Bucket="b", Key="k")["Body"].read() == b"2"
    put["Key"] = "none"
    assert code_of(client.put_object, **put, IfMatch=tag) == ("NoSuchKey", 404)


def test_conditions_of_complete(client):
    upload(client, "k", [BODY], IfNoneMatch="*")
    assert code_of(upload, client, "k", [b"2"], IfNoneMatch="*") == ("PreconditionFailed", 412)
    assert client.get_object(Bucket="b", Key="k")["Body"].read() == BODY
    tag = client.head_object(Bucket="b", Key="k")["ETag"]
    upload(client, "k", [b"3"], IfMatch=tag)
    assert client.get_object(Bucket="b", Key="k")["Body"].read() == b"3"


def test_conditions_that_are_ignored_or_unknown(client, store):
    client.put_object(Bucket="b", Key="k", Body=b"1")
    store.control(settings={"conditions": "ignored"})
    client.put_object(Bucket="b", Key="k", Body=b"2", IfNoneMatch="*")
    assert client.get_object(Bucket="b", Key="k")["Body"].read() == b"2"
    store.control(settings={"conditions": "501"})
    assert code_of(client.put_object, Bucket="b", Key="n", Body=b"", IfNoneMatch="*") == (
        "NotImplemented", 501)  # fmt: skip
    assert keys_of(client.list_objects_v2(Bucket="b")) == ["k"]


def test_conditions_as_old_ceph_keeps_them(client, store):
    tag = client.put_object(Bucket="b", Key="k", Body=b"1")["ETag"]
    store.control(settings={"conditions": "bare"})
    put = {"Bucket": "b", "Key": "k", "Body": b"2"}
    refused = ("PreconditionFailed", 412)
    assert code_of(client.put_object, **put, IfNoneMatch="*") == refused
    assert code_of(client.put_object, **put, IfMatch=tag) == refused
    client.put_object(**put, IfMatch=tag.strip('"'))
    assert code_of(client.put_object, **put, IfMatch=tag.strip('"')) == refused
    client.delete_object(Bucket="b", Key="k", IfMatch=tag)
    assert keys_of(client.list_objects_v2(Bucket="b")) == []


def test_checksums_are_kept_and_told(client):
    value = base64.b64encode(zlib.crc32(BODY).to_bytes(4, "big")).decode()
    assert client.put_object(Bucket="b", Key="k", Body=BODY)["ChecksumCRC32"] == value
    assert client.head_object(Bucket="b", Key="k", ChecksumMode="ENABLED")["ChecksumCRC32"] == value


@pytest.mark.parametrize("algorithm", ["CRC32", "SHA1", "SHA256"])
def test_checksums_of_uploads(client, algorithm):
    answer = upload(client, "k", [BODY, b"last"], algorithm)
    assert answer["Checksum" + algorithm].endswith("-2")
    assert client.get_object(Bucket="b", Key="k")["Body"].read() == BODY + b"last"


# "123456789" has these in every list of CRCs.
@pytest.mark.parametrize(("name", "value"), [("CRC32", 0xCBF43926), ("CRC32C", 0xE3069283)])
def test_checksum_values(client, name, value):
    right = base64.b64encode(value.to_bytes(4, "big")).decode()
    wrong = base64.b64encode((value ^ 1).to_bytes(4, "big")).decode()
    put = {"Bucket": "b", "Key": "k", "Body": b"123456789"}
    assert client.put_object(**put, **{"Checksum" + name: right})["Checksum" + name] == right
    put["Key"] = "wrong"
    assert code_of(client.put_object, **put, **{"Checksum" + name: wrong}) == ("BadDigest", 400)
    assert keys_of(client.list_objects_v2(Bucket="b")) == ["k"]


def test_crc32c_in_python_is_that_of_the_library():
    from strict import checksums

    if checksums._crc32_iscsi is None:
        pytest.skip("ISA-L is not installed")
    view = memoryview(bytearray(BODY))
    assert checksums._crc32c_slow(view, 7) == checksums._crc32c_fast(view, 7)
    assert checksums._crc32c_slow(view, 7) == checksums._crc32c_fast(memoryview(BODY), 7)


def test_content_md5(client):
    put = {"Bucket": "b", "Key": "k", "Body": BODY}
    right = base64.b64encode(hashlib.md5(BODY).digest()).decode()
    client.put_object(**put, ContentMD5=right)
    wrong = base64.b64encode(bytes(16)).decode()
    assert code_of(client.put_object, **put, ContentMD5=wrong) == ("BadDigest", 400)
    assert code_of(client.put_object, **put, ContentMD5="AA==") == ("InvalidDigest", 400)


def test_checksums_that_are_ignored_or_refused(client, store):
    value = base64.b64encode(bytes(4)).decode()
    put = {"Bucket": "b", "Key": "k", "Body": BODY, "ChecksumCRC32": value}
    store.control(settings={"checksums": "ignored"})
    assert "ChecksumCRC32" not in client.put_object(**put)
    store.control(settings={"checksums": "refused"})
    assert code_of(client.put_object, **put) == ("NotImplemented", 501)
    store.control(settings={"checksums": "invalid"})
    assert code_of(client.put_object, **put) == ("InvalidArgument", 400)


def test_parts_have_the_checksum_that_the_upload_began_with(client):
    place = {"Bucket": "b", "Key": "k"}
    place["UploadId"] = client.create_multipart_upload(**place)["UploadId"]
    assert code_of(client.upload_part, **place, PartNumber=1, Body=b"x") == ("InvalidRequest", 400)
    place["UploadId"] = client.create_multipart_upload(
        Bucket="b", Key="k", ChecksumAlgorithm="CRC32"
    )["UploadId"]
    tag = client.upload_part(**place, PartNumber=1, Body=b"x")["ETag"]
    parts = {"Parts": [{"PartNumber": 1, "ETag": tag}]}
    assert code_of(client.complete_multipart_upload, **place, MultipartUpload=parts) == (
        "InvalidRequest", 400)  # fmt: skip


class Parts:
    """An upload without checksums, so that a test can say what is in it."""

    def __init__(self, store, bodies, key="k"):
        self.client = store.client(config={"request_checksum_calculation": "when_required"})
        self.place = {"Bucket": "b", "Key": key}
        self.place["UploadId"] = self.client.create_multipart_upload(**self.place)["UploadId"]
        self.tags = {number: self.put(number, body) for number, body in bodies.items()}

    def put(self, number, body):
        return self.client.upload_part(**self.place, PartNumber=number, Body=body)["ETag"]

    def complete(self, numbers, **tags):
        parts = [{"PartNumber": n, "ETag": tags.get(f"tag{n}", self.tags.get(n, '"0"'))}
                 for n in numbers]  # fmt: skip
        return self.client.complete_multipart_upload(**self.place, MultipartUpload={"Parts": parts})


def test_upload(store):
    parts = Parts(store, {1: BODY, 2: b"old", 7: b"last"})
    parts.tags[2] = parts.put(2, BODY)
    tag = parts.complete([1, 2, 7])["ETag"]
    joined = b"".join(bytes.fromhex(parts.tags[n].strip('"')) for n in (1, 2, 7))
    assert tag == f'"{hashlib.md5(joined).hexdigest()}-3"'
    got = parts.client.get_object(Bucket="b", Key="k", Range="bytes=1000-2050")
    assert got["Body"].read() == (BODY + BODY + b"last")[1000:2051]
    assert code_of(parts.complete, [1]) == ("NoSuchUpload", 404)
    assert store.control()["uploads"] == []


def test_uploads_that_are_refused(store):
    parts = Parts(store, {1: BODY, 2: b"small", 3: BODY})
    assert code_of(parts.complete, [1, 2, 3]) == ("EntityTooSmall", 400)
    assert code_of(parts.complete, [3, 1]) == ("InvalidPartOrder", 400)
    assert code_of(parts.complete, [1, 1]) == ("InvalidPartOrder", 400)
    assert code_of(parts.complete, [1, 4]) == ("InvalidPart", 400)
    assert code_of(parts.complete, [1, 3], tag3=parts.tags[1][:-3] + '00"') == ("InvalidPart", 400)
    assert code_of(parts.complete, []) == ("MalformedXML", 400)
    assert code_of(parts.put, 0, b"") == ("InvalidArgument", 400)
    assert code_of(parts.put, 10001, b"") == ("InvalidArgument", 400)
    assert keys_of(parts.client.list_objects_v2(Bucket="b")) == []
    parts.complete([1, 3])


def test_least_size_of_a_part(store):
    store.control(settings={"part_bytes": 5 << 20})
    parts = Parts(store, {1: bytes((5 << 20) - 1), 2: b"x"})
    assert code_of(parts.complete, [1, 2]) == ("EntityTooSmall", 400)
    parts.tags[1] = parts.put(1, bytes(5 << 20))
    parts.complete([1, 2])


def test_abort_and_lists_of_uploads(store):
    first, second = Parts(store, {1: b"1"}, key="a"), Parts(store, {1: b"x", 3: b"yz"}, key="b+c")
    client = first.client
    listed = client.list_multipart_uploads(Bucket="b")["Uploads"]
    assert [item["UploadId"] for item in listed] == [first.place["UploadId"],
                                                     second.place["UploadId"]]  # fmt: skip
    page = client.list_multipart_uploads(Bucket="b", MaxUploads=1)
    rest = client.list_multipart_uploads(
        Bucket="b", KeyMarker=page["NextKeyMarker"], UploadIdMarker=page["NextUploadIdMarker"]
    )
    assert [item["Key"] for item in rest["Uploads"]] == ["b+c"]
    assert "Uploads" not in client.list_multipart_uploads(Bucket="b", Prefix="c")
    listed = client.list_parts(**second.place)["Parts"]
    assert [(item["PartNumber"], item["Size"]) for item in listed] == [(1, 1), (3, 2)]
    page = client.list_parts(**second.place, MaxParts=1)
    assert (page["IsTruncated"], page["NextPartNumberMarker"]) == (True, 1)
    client.abort_multipart_upload(**first.place)
    client.abort_multipart_upload(**second.place)
    assert store.control()["uploads"] == []


def test_listing_by_pages(client, store):
    keys = [*sorted(f"p/{n % 3}/{n:02}" for n in range(20)), "q+ &<>"]
    store.control(put=[{"bucket": "b", "key": key} for key in keys], settings={"page": 3})
    found = []
    for page in client.get_paginator("list_objects_v2").paginate(Bucket="b"):
        assert page["KeyCount"] <= 3
        found += keys_of(page)
    assert found == keys
    assert store.log(operation="ListObjectsV2")[-1]["number"] == 7


def test_listing_with_prefix_delimiter_and_start(client, store):
    keys = ["a/1", "a/2", "b", "c/d/1", "c/e", "d"]
    store.control(put=[{"bucket": "b", "key": key} for key in keys])
    page = client.list_objects_v2(Bucket="b", Delimiter="/")
    assert (keys_of(page), [item["Prefix"] for item in page["CommonPrefixes"]]) == (
        ["b", "d"], ["a/", "c/"])  # fmt: skip
    page = client.list_objects_v2(Bucket="b", Delimiter="/", Prefix="c/")
    assert (keys_of(page), page["CommonPrefixes"]) == (["c/e"], [{"Prefix": "c/d/"}])
    assert keys_of(client.list_objects_v2(Bucket="b", StartAfter="b")) == ["c/d/1", "c/e", "d"]
    found = []
    pages = client.get_paginator("list_objects_v2").paginate(
        Bucket="b", Delimiter="/", PaginationConfig={"PageSize": 1}
    )
    for page in pages:
        found += keys_of(page) + [item["Prefix"] for item in page.get("CommonPrefixes", [])]
    assert found == ["a/", "b", "c/", "d"]


def test_listing_that_is_late(client, store):
    store.control(settings={"late_listing": 2})
    client.put_object(Bucket="b", Key="k", Body=b"")
    assert keys_of(client.list_objects_v2(Bucket="b")) == []
    assert keys_of(client.list_objects_v2(Bucket="b")) == ["k"]
    client.delete_object(Bucket="b", Key="k")
    assert keys_of(client.list_objects_v2(Bucket="b")) == ["k"]
    assert keys_of(client.list_objects_v2(Bucket="b")) == []


def test_bad_continuation_token(client):
    assert code_of(client.list_objects_v2, Bucket="b", ContinuationToken="x") == (
        "InvalidArgument", 400)  # fmt: skip


def test_delete_many(client, store):
    keys = ["a", "b&c", "d"]
    store.control(put=[{"bucket": "b", "key": key} for key in [*keys, "e"]])
    order = {"Objects": [{"Key": key} for key in [*keys, "none"]]}
    answer = client.delete_objects(Bucket="b", Delete=order)
    assert [item["Key"] for item in answer["Deleted"]] == [*keys, "none"]
    assert keys_of(client.list_objects_v2(Bucket="b")) == ["e"]
    answer = client.delete_objects(Bucket="b", Delete={"Objects": [{"Key": "e"}], "Quiet": True})
    assert "Deleted" not in answer


def test_delete_many_of_which_some_stay(client, store):
    store.control(put=[{"bucket": "b", "key": key} for key in ["a1", "a2", "b1"]],
                  settings={"undeletable": "a*"})  # fmt: skip
    order = {"Objects": [{"Key": key} for key in ["a1", "a2", "b1"]], "Quiet": True}
    errors = client.delete_objects(Bucket="b", Delete=order)["Errors"]
    assert [(item["Key"], item["Code"]) for item in errors] == [("a1", "AccessDenied"),
                                                                ("a2", "AccessDenied")]  # fmt: skip
    assert keys_of(client.list_objects_v2(Bucket="b")) == ["a1", "a2"]


def test_copies(client, store):
    client.put_object(Bucket="b", Key="a b+c", Body=BODY, Metadata={"x": "y"})
    source = {"Bucket": "b", "Key": "a b+c"}
    client.copy_object(Bucket="other", Key="k", CopySource=source)
    got = client.get_object(Bucket="other", Key="k")
    assert (got["Body"].read(), got["Metadata"]) == (BODY, {"x": "y"})
    assert code_of(client.copy_object, Bucket="b", Key="a b+c", CopySource=source) == (
        "InvalidRequest", 400)  # fmt: skip
    missing = {"Bucket": "b", "Key": "none"}
    assert code_of(client.copy_object, Bucket="b", Key="k", CopySource=missing) == (
        "NoSuchKey", 404)  # fmt: skip


def test_part_by_copy(store):
    parts = Parts(store, {})
    parts.client.put_object(Bucket="b", Key="source", Body=BODY)
    copied = parts.client.upload_part_copy(
        **parts.place, PartNumber=1, CopySource="b/source", CopySourceRange="bytes=10-999"
    )
    parts.tags = {1: copied["CopyPartResult"]["ETag"], 2: parts.put(2, b"end")}
    parts.complete([1, 2])
    got = parts.client.get_object(Bucket="b", Key="k")["Body"].read()
    assert got == BODY[10:1000] + b"end"


def test_tags_that_are_no_md5(client, store):
    store.control(settings={"tags": "opaque"})
    tag = client.put_object(Bucket="b", Key="k", Body=BODY)["ETag"]
    assert re.fullmatch('"[0-9a-f]{32}"', tag) and tag != f'"{hashlib.md5(BODY).hexdigest()}"'
    assert client.get_object(Bucket="b", Key="k", IfMatch=tag)["Body"].read() == BODY


def test_clock(client, store):
    store.control(settings={"skew": 300})
    client.put_object(Bucket="b", Key="k", Body=b"")
    modified = client.head_object(Bucket="b", Key="k")["LastModified"].timestamp()
    store.control(settings={"skew": 0})
    client.put_object(Bucket="b", Key="k", Body=b"")
    # Between the two puts less than 200 s go by.
    assert modified - client.head_object(Bucket="b", Key="k")["LastModified"].timestamp() > 100


def test_clock_that_stands_still(store):
    store.control(settings={"clock": 1000000000}, put=[{"bucket": "b", "key": "k"}])
    assert store.control()["objects"][0]["modified"] == 1000000000
    assert raw.ask(store, "GET", "/b/k").code == "RequestTimeTooSkewed"


def test_virtual_hosts(store):
    port = store.endpoint.rsplit(":", 1)[1]
    store.control(put=[{"bucket": "b", "key": "a/k", "text": "hello"}])
    headers = raw.signed(store, "GET", "/a/k", {"host": f"b.localhost:{port}"})
    headers["host"] = f"b.localhost:{port}"
    reply = raw.send(store, "GET", "/a/k", headers)
    assert (reply.status, reply.body) == (200, b"hello")


def test_bodies_in_files(tmp_path):
    with servers.strict("--directory", str(tmp_path), "--no-tls") as store:
        store.control(settings={"part_bytes": 100})
        large = BODY * 3000
        client = store.client()
        upload(client, "k", [large, large, BODY])
        got = client.get_object(Bucket="b", Key="k", Range="bytes=3000000-")["Body"].read()
        assert got == (large + large + BODY)[3000000:]
        assert len(list(tmp_path.glob("*/*"))) == 2
        client.delete_object(Bucket="b", Key="k")
        # With the next answer, nothing is left of the requests before it.
        client.head_bucket(Bucket="b")
        assert list(tmp_path.glob("*/*")) == []
    assert list(tmp_path.iterdir()) == []


def test_many_requests_on_one_connection(store):
    client = store.client(config={"max_pool_connections": 1})
    for number in range(50):
        client.put_object(Bucket="b", Key=str(number), Body=b"x")
    assert len(store.log(operation="PutObject", status=200)) == 50


def test_only_one_of_many_conditional_puts_wins(store):
    headers = raw.signed(store, "PUT", "/b/k", {"if-none-match": "*"})
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        replies = pool.map(lambda _: raw.send(store, "PUT", "/b/k", headers), range(24))
    assert sorted(reply.status for reply in replies) == [200] + [412] * 23


def test_certificate_is_for_its_names_only(store):
    with pytest.raises(SSLError):
        store.client(tls=True, verify=True).head_bucket(Bucket="b")
    address = ("127.0.0.1", int(store.tls_endpoint.rsplit(":", 1)[1]))
    context = ssl.create_default_context(cafile=store.ca_file)
    for name in ("localhost", "b.localhost", "127.0.0.1"):
        with socket.create_connection(address) as sock:
            context.wrap_socket(sock, server_hostname=name).close()
    with socket.create_connection(address) as sock, pytest.raises(ssl.SSLCertVerificationError):
        context.wrap_socket(sock, server_hostname="elsewhere")


@pytest.mark.parametrize(
    "garbage",
    [b"hello\r\n\r\n", b"GET / HTTP/1.0\r\n\r\n", b"GET /b/k HTTP/1.1\r\nno colon\r\n\r\n",
     b"GET /b/k HTTP/1.1\r\nHost : x\r\n\r\n", b"\x16\x03\x01\r\n\r\n", b"x" * 100000],
)  # fmt: skip
def test_what_is_no_request(store, garbage):
    address = ("127.0.0.1", int(store.endpoint.rsplit(":", 1)[1]))
    with socket.create_connection(address) as sock:
        sock.sendall(garbage)
        assert sock.recv(100).startswith(b"HTTP/1.1 400 ")
    store.control(put=[{"bucket": "b", "key": "k"}])
    assert raw.ask(store, "GET", "/b/k").status == 200
