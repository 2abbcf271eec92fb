# SPDX-License-Identifier: BSD-3-Clause
"""Requests as boto3 would never send them: signed by botocore, then changed, sent byte by byte."""

import base64
import datetime
import hashlib
import http.client
import re
import urllib.parse

import botocore.auth
import botocore.awsrequest
import botocore.credentials


class Reply:
    def __init__(self, answer, most):
        self.status = answer.status
        self.headers = {name.lower(): value for name, value in answer.getheaders()}
        self.body = answer.read(most)
        code = re.search(rb"<Code>([^<]*)</Code>", self.body)
        self.code = code.group(1).decode() if code else None


def signed(store, method, target, headers=None, body=b"", region=None, secret=None, key=None,
           token=None, payload=None):  # fmt: skip
    """The headers of a request that botocore signed."""
    url = store.endpoint + target
    request = botocore.awsrequest.AWSRequest(method, url, dict(headers or {}), body)
    if payload:
        request.headers["X-Amz-Content-SHA256"] = payload
    credentials = botocore.credentials.Credentials(
        key or store.access_key, secret or store.secret_key, token or store.session_token
    )
    signer = botocore.auth.S3SigV4Auth(credentials, "s3", region or store.region)
    if payload:
        signer.payload = lambda request: payload
    signer.add_auth(request)
    found = {"host": urllib.parse.urlsplit(url).netloc}
    found.update({name.lower(): value for name, value in request.headers.items()})
    return found


def send(store, method, target, headers, body=b"", most=None):
    """Exactly these headers; a Content-Length is added if none is there."""
    address = urllib.parse.urlsplit(store.endpoint)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=10)
    try:
        connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        if "content-length" not in headers and "transfer-encoding" not in headers:
            headers = {**headers, "content-length": str(len(body))}
        for name, value in headers.items():
            for one in value if isinstance(value, list) else [value]:
                connection.putheader(name, one)
        connection.endheaders(body)
        return Reply(connection.getresponse(), most)
    finally:
        connection.close()


def ask(store, method, target, headers=None, body=b"", change=None, **how):
    """Signs, lets change(headers) spoil it, and sends."""
    found = signed(store, method, target, headers, body, **how)
    if change:
        found = change(found) or found
    return send(store, method, target, found, body)


def md5(body):
    return base64.b64encode(hashlib.md5(body).digest()).decode()


def stamp(seconds):
    moment = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
    return moment.strftime("%Y%m%dT%H%M%SZ")
