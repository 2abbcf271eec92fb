# SPDX-License-Identifier: BSD-3-Clause
"""What tests ask of every object store, whoever wrote it: by boto3, without retries."""

import pytest
from botocore.exceptions import ClientError

BUCKET = "bucket"
BODY = bytes(range(256)) * 40


def refused_with(status, call, *args, **kwargs):
    with pytest.raises(ClientError) as caught:
        call(*args, **kwargs)
    return caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == status


def check_plain_operations(client):
    client.put_object(Bucket=BUCKET, Key="p/a b+c", Body=BODY)
    got = client.get_object(Bucket=BUCKET, Key="p/a b+c", Range="bytes=10-99")
    assert got["Body"].read() == BODY[10:100]
    assert client.head_object(Bucket=BUCKET, Key="p/a b+c")["ContentLength"] == len(BODY)
    listed = client.list_objects_v2(Bucket=BUCKET, Prefix="p/")["Contents"]
    assert [item["Key"] for item in listed] == ["p/a b+c"]
    client.delete_object(Bucket=BUCKET, Key="p/a b+c")
    assert refused_with(404, client.get_object, Bucket=BUCKET, Key="p/a b+c")


def check_upload(client):
    place = {"Bucket": BUCKET, "Key": "m"}
    place["UploadId"] = client.create_multipart_upload(**place)["UploadId"]
    parts = []
    for number, part in ((1, bytes(5 << 20)), (2, BODY)):
        tag = client.upload_part(**place, PartNumber=number, Body=part)["ETag"]
        parts.append({"PartNumber": number, "ETag": tag})
    client.complete_multipart_upload(**place, MultipartUpload={"Parts": parts})
    got = client.get_object(Bucket=BUCKET, Key="m", Range=f"bytes={5 << 20}-")
    assert got["Body"].read() == BODY
    assert "Uploads" not in client.list_multipart_uploads(Bucket=BUCKET)


def check_all(store):
    client = store.client(config={"request_checksum_calculation": "when_required"})
    check_plain_operations(client)
    check_upload(client)


def check_wrong_secret(store):
    client = store.client(aws_secret_access_key="wrong")
    assert refused_with(403, client.put_object, Bucket=BUCKET, Key="k", Body=b"")


def check_condition(store):
    client = store.client()
    client.put_object(Bucket=BUCKET, Key="c", Body=b"1", IfNoneMatch="*")
    assert refused_with(412, client.put_object, Bucket=BUCKET, Key="c", Body=b"2", IfNoneMatch="*")


def check_no_condition(store):
    """It says so: a client must not take the put for a conditional one."""
    client = store.client()
    assert refused_with(501, client.put_object, Bucket=BUCKET, Key="c", Body=b"", IfNoneMatch="*")
    assert refused_with(404, client.head_object, Bucket=BUCKET, Key="c")
