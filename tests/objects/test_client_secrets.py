# SPDX-License-Identifier: BSD-3-Clause
"""Stores, services and libcurl that repeat our secrets: no message and no trace does."""

import subprocess
import urllib.parse

import pytest
import servers
from services import Services
from test_client_credentials import opened, refused, write
from test_client_errors import EVERY
from tool import ROOT, Tool, program

TOKEN = "IQoJb3JpZ2luX2VjEJr//////////" + "wEaCXVzLWVhc3QtMSJHMEUCIQDk+" * 40 + "dGVzdA=="
SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
PART = 8  # characters in a row that nobody shall see


HOLDER = {
    "AWS_ACCESS_KEY_ID": "holder", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_SESSION_TOKEN": TOKEN,
}  # fmt: skip


@pytest.fixture(scope="module")
def place():
    with servers.strict("--no-tls", "--credential", f"holder:{SECRET}:{TOKEN}", bucket="b") as made:
        yield made


def shows(text, secret):
    """Does a text show a part of a secret, also as a URL has it?"""
    parts = [secret[at : at + PART] for at in range(len(secret) - PART + 1)]
    return any(part in text or part in urllib.parse.unquote(text) for part in parts)


def check(tool, *secrets):
    for secret in secrets:
        assert not shows("".join(tool.heard) + tool.said, secret)


def test_the_check():
    """It finds what it is there for."""
    assert shows("the token " + TOKEN[300:310], TOKEN) and not shows(TOKEN[:7], TOKEN)
    assert shows("x" + urllib.parse.quote(SECRET[:12], safe=""), SECRET)


WAYS = {
    "message": lambda said: {"text": error("AccessDenied", said), "status": 403},
    "expired": lambda said: {"text": error("ExpiredToken", "it was " + said), "status": 400},
    "code": lambda said: {"text": error(said[:60], "no"), "status": 400},
    "request": lambda said: {
        "fault": "raw", "text": f"HTTP/1.1 403 No\r\nx-amz-request-id: {said[:70]}\r\n"
                                "Content-Length: 0\r\n\r\n",
    },
    "location": lambda said: {
        "text": "", "status": 307,
        "headers": {"location": "http://elsewhere/?X-Amz-Security-Token="
                    + urllib.parse.quote(said[:60], safe="")},
    },
    "place": lambda said: {
        "text": "", "status": 307,
        "headers": {"location": "http://elsewhere/" + urllib.parse.quote(said[:60], safe="")},
    },
    "busy": lambda said: {"text": error("SlowDown", said), "status": 503},
}  # fmt: skip


def error(code, message):
    return f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"


@pytest.mark.parametrize("secret", ["token", "key"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["head", "get", "put", "delete_many", "list", "part"])
def test_a_store_that_repeats_them(place, name, way, secret):
    said = TOKEN if secret == "token" else SECRET
    place.control(clear=True, rules=[{"fault": "body"} | WAYS[way](said)])
    with Tool(place, environment=HOLDER, deadline_ms=700) as tool:
        answer = tool(*EVERY[name])
    assert answer["status"] != "OK"
    quotes_nothing = way == "location" or (name == "head" and way not in ("request", "place"))
    assert quotes_nothing or "***" in answer["text"], answer
    check(tool, TOKEN, SECRET)


def test_some_keys_that_were_not_deleted(place):
    text = f"<Key>k</Key><Code>AccessDenied</Code><Message>no {TOKEN[:140]}</Message>"
    rule = {"fault": "body", "text": f"<DeleteResult><Error>{text}</Error></DeleteResult>"}
    place.control(clear=True, rules=[rule])
    with Tool(place, environment=HOLDER) as tool:
        assert "no ***" in tool.fails("EPERM", "delete", "k", "l")
    check(tool, TOKEN)


def test_the_credentials_before_a_renewal(place):
    """What a store says of those that have ended."""
    rule = {"fault": "body", "text": error("ExpiredToken", TOKEN), "status": 400}
    place.control(clear=True, rules=[rule])
    with Services(key="holder", secret=SECRET, token=TOKEN) as services:
        with opened(place, AWS_CONTAINER_CREDENTIALS_FULL_URI=services.url) as tool:
            services.key, services.secret, services.token = "test-key", "test-secret", ""
            assert "***" in tool.fails("EPERM", "put", "k", 1, 1)
    check(tool, TOKEN)


def test_services_that_repeat_them(store, tmp_path):
    token = write(tmp_path / "web", TOKEN)
    with Services() as services:
        services.failures = [(403, f"<E><Error><Code>{TOKEN[:60]}</Code></Error></E>")]
        more = {"AWS_WEB_IDENTITY_TOKEN_FILE": token, "AWS_ROLE_ARN": "arn:aws:iam::1:role/r"}
        with opened(store, AWS_ENDPOINT_URL_STS=services.url, **more) as tool:
            assert "HTTP status 403 ***" in refused(tool)
        check(tool, TOKEN)
        services.role = (200, "imds-session")
        services.failures = [(200, "imds-session"), (200, "imds-session"), (404, "")]
        machine = {"AWS_EC2_METADATA_DISABLED": None, "HOME": "/nowhere"}
        with opened(store, AWS_EC2_METADATA_SERVICE_ENDPOINT=services.url, **machine) as tool:
            assert "%2A%2A%2A" in refused(tool)


@pytest.mark.parametrize("variable", [
    "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_EC2_METADATA_SERVICE_ENDPOINT",
])  # fmt: skip
def test_a_service_with_a_password(store, variable):
    with Services() as services:
        services.failures = [(403, "")] * 3
        url = services.url.replace("://", "://somebody:its-secret@")
        more = {"AWS_EC2_METADATA_DISABLED": None, variable: url}
        with opened(store, **more) as tool:
            assert "127.0.0.1" in refused(tool, tool.opened["status"])


PASSWORD = "correct horse/battery"


@pytest.mark.parametrize("proxy", [
    f"http://somebody:{PASSWORD}@127.0.0.1:1",
    f"http://somebody:{PASSWORD}@127.0.0.1:99999",
    f"nonsense://somebody:{PASSWORD}@127.0.0.1",
    f"somebody:{PASSWORD}@127.0.0.1:x",
    f"http://somebody:{PASSWORD * 12}@127.0.0.1:x",
    f"http://somebody:{PASSWORD}:x",
    "http://somebody:pw@127.0.0.1:x",
])  # fmt: skip
@pytest.mark.parametrize("variable", ["http_proxy", "all_proxy"])
def test_a_proxy_with_a_password(store, variable, proxy):
    with Tool(store, environment={variable: proxy}, deadline_ms=500) as tool:
        assert tool("head", "k")["status"] != "OK"
    check(tool, PASSWORD, "somebody:pw")


@pytest.mark.parametrize("url", [
    "s3://AKIAEXAMPLE:its-secret@bucket/x", "s3://AKIAEXAMPLE:it/s+secret@bucket/x",
    "s3://AKIAEXAMPLE:" + "its-secret/" * 100 + "@bucket/x",
])  # fmt: skip
@pytest.mark.parametrize("command", ["ls", "show", "verify", "latest", "gc", "doctor", "bench"])
def test_keys_in_a_url(command, url):
    """Other tools take them there; messages end up in logs."""
    words = [program().parent.parent / "sidestep", command, url]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode != 0 and "s3://***" in done.stderr, done.stderr
    for secret in ("its-secret", "s+secret"):
        assert secret not in done.stdout + done.stderr
