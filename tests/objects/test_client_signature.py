# SPDX-License-Identifier: BSD-3-Clause
"""What the client signs, beside what botocore signs for the same request."""

import http.server
import threading

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from client_checks import KEYS
from tool import Tool

NOT_SIGNED = {"authorization", "user-agent", "accept", "content-length"}
REFUSAL = b"<Error><Code>NoSuchKey</Code></Error>"


class Recorder(http.server.BaseHTTPRequestHandler):
    """Remembers each request as it came, and refuses it."""

    protocol_version = "HTTP/1.1"

    def take(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.seen.append((self.command, self.path, self.headers.items(), body))
        self.send_response(404)
        self.send_header("Content-Length", str(len(REFUSAL)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(REFUSAL)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = take

    def log_message(self, format, *args):
        pass


@pytest.fixture(scope="module")
def recorder():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def signed_by_botocore(credentials, region, method, url, headers, body):
    request = AWSRequest(method, url, headers=headers, data=body)
    request.context["timestamp"] = headers["x-amz-date"]
    auth = S3SigV4Auth(credentials, "s3", region)
    scope = auth.credential_scope(request)
    text = auth.string_to_sign(request, auth.canonical_request(request))
    names = auth.signed_headers(auth.headers_to_sign(request))
    return (
        f"AWS4-HMAC-SHA256 Credential={credentials.access_key}/{scope}, SignedHeaders={names}, "
        f"Signature={auth.signature(text, request)}"
    )


REQUESTS = [
    ["head", "{key}"], ["get", "{key}", 5, 10], ["get", "{key}", 5, 10, '"a+b/c"'],
    ["get_all", "{key}", 10], ["put", "{key}", 100, 1], ["put", "{key}", 0, 1, "absent"],
    ["put", "{key}", 1, 1, "tag", '"t"'], ["delete", "{key}"], ["delete", "{key}", "other"],
    ["list", "{key}", "/", "{key}", 7], ["list", "", "", "", 0], ["begin", "{key}"],
    ["part", "{key}", "{key}", 7, 100, 1], ["abort", "{key}", "{key}"], ["uploads", "{key}"],
]  # fmt: skip


def compare(recorder, words, keys, secret, token):
    """The client makes the request for each key; botocore signs what came."""
    region = "eu-central-1"
    credentials = Credentials("AKID", secret, token or None)
    endpoint = f"http://127.0.0.1:{recorder.server_address[1]}"
    environment = {
        "AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": secret, "AWS_SESSION_TOKEN": token,
        "AWS_REGION": region, "AWS_ENDPOINT_URL_S3": endpoint,
    }  # fmt: skip
    recorder.seen = []
    with Tool(environment=environment) as tool:
        for key in keys:
            tool(*(str(word).replace("{key}", key) for word in words))
    assert len(recorder.seen) >= 2
    for method, path, headers, body in recorder.seen:
        headers = {name.lower(): value for name, value in headers}
        signed = {name: value for name, value in headers.items() if name not in NOT_SIGNED}
        wanted = signed_by_botocore(credentials, region, method, endpoint + path, signed, body)
        assert headers["authorization"] == wanted, path


@pytest.mark.parametrize("words", REQUESTS, ids=lambda words: f"{words[0]}-{len(words)}")
def test_requests_and_keys(recorder, words):
    compare(recorder, words, KEYS, "a+secret/", "its/token+with=signs")


@pytest.mark.parametrize("token", ["", "tiny-t", "t" * 8192])
@pytest.mark.parametrize("secret", ["tiny-s", "x" * 60, "x" * 61, "long" * 50])
def test_secrets_and_tokens(recorder, secret, token):
    compare(recorder, ["put", "{key}", 100, 1], KEYS[:2], secret, token)


def test_a_wrong_signature_would_be_seen():
    headers = {"host": "h", "x-amz-date": "20130524T000000Z", "x-amz-content-sha256": "e3"}
    made = [
        signed_by_botocore(Credentials("AKID", secret), "r", "GET", f"http://h/{key}", headers, b"")
        for secret, key in [("a", "k"), ("b", "k"), ("a", "l")]
    ]
    assert len(set(made)) == 3
