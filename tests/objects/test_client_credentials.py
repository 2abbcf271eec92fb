# SPDX-License-Identifier: BSD-3-Clause
"""Where the client finds credentials, what it does when they end, and what it says about them."""

import sys

import pytest
from services import Services, ends_in
from tool import Tool

NONE = {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None}
SECRETS = ("its-secret", "its-token", "test-secret", "imds-session", "web-token")


def write(path, text):
    path.write_text(text)
    return str(path)


def opened(store, deadline_ms=20000, **environment):
    return Tool(store, environment={**NONE, **environment}, deadline_ms=deadline_ms)


def works(tool):
    assert tool.opened["status"] == "OK", tool.opened
    tool.ok("put", "k", 10, 1)
    tool.ok("head", "k")


def refused(tool, status="EPERM"):
    assert tool.opened["status"] == status, tool.opened
    for secret in SECRETS:
        assert secret not in tool.opened["text"]
    return tool.opened["text"]


def test_profile(store, tmp_path):
    credentials = write(tmp_path / "credentials", """
# a comment
[other]
aws_access_key_id = nobody
aws_secret_access_key = nothing

[default]
aws_access_key_id=test-key
aws_secret_access_key   =   test-secret
""")  # fmt: skip
    with opened(store, AWS_SHARED_CREDENTIALS_FILE=credentials) as tool:
        works(tool)
    with opened(store, AWS_SHARED_CREDENTIALS_FILE=credentials, AWS_PROFILE="other") as tool:
        assert "profile 'other'" in tool.fails("EPERM", "put", "k", 1, 1)
    with opened(store, AWS_SHARED_CREDENTIALS_FILE=credentials, AWS_PROFILE="gone") as tool:
        assert "profile 'gone' is neither in" in refused(tool, "EINVAL")


def test_config_file(store, tmp_path):
    config = write(tmp_path / "config", f"""
[default]
region = eu-west-1
[profile test]
region = us-east-1
s3 =
    addressing_style = path
endpoint_url = {store.endpoint}
aws_access_key_id = temporary
aws_secret_access_key = its-secret
aws_session_token = its-token
[services test]
region = nowhere
""")  # fmt: skip
    more = {"AWS_ENDPOINT_URL_S3": None, "AWS_REGION": None, "AWS_PROFILE": "test"}
    with opened(store, AWS_CONFIG_FILE=config, **more) as tool:
        works(tool)
        assert tool.ok("describe")["describe"] == f"{store.endpoint} (region us-east-1)"


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("signs", ["false", "true", None])
def test_bodies_without_a_hash(store, tmp_path, signs, strict):
    """A store that refuses them gets the hash, and each body has a checksum or a hash."""
    setting = f"    payload_signing_enabled = {signs}\n" if signs else ""
    config = write(tmp_path / "config", f"[default]\ns3 =\n{setting}")
    store.control(clear=True, settings={"strict": strict})
    with Tool(store, environment={"AWS_CONFIG_FILE": config}) as tool:
        works(tool)
    puts = [line["headers"] for line in store.log(operation="PutObject", status=200)]
    unsigned = [put["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD" for put in puts]
    assert unsigned == [signs == "false" and not strict]
    assert all("x-amz-checksum-crc32c" in put for put, bare in zip(puts, unsigned) if bare)


def test_home(store, tmp_path):
    (tmp_path / ".aws").mkdir()
    text = "[default]\naws_access_key_id = test-key\naws_secret_access_key = test-secret\n"
    write(tmp_path / ".aws/credentials", text)
    with opened(store, HOME=str(tmp_path)) as tool:
        works(tool)


def test_none(store):
    with opened(store, HOME="/nowhere") as tool:
        text = refused(tool)
    for part in ("AWS_ACCESS_KEY_ID", "/nowhere/.aws/credentials", "AWS_EC2_METADATA_DISABLED"):
        assert part in text


@pytest.mark.parametrize("name", NONE)
def test_half(store, name):
    with Tool(store, environment={name: None}) as tool:
        assert f"{name} is missing" in refused(tool, "EINVAL")


@pytest.mark.parametrize("value", ["with blank", "line\u00e9", "x" * 300, "tab\t"])
def test_keys_that_are_none(store, value):
    with Tool(store, environment={"AWS_SECRET_ACCESS_KEY": value}) as tool:
        text = refused(tool, "EINVAL")
        assert "AWS_SECRET_ACCESS_KEY has" in text and value not in text


def test_file_that_cannot_be_read(store, tmp_path):
    with opened(store, AWS_SHARED_CREDENTIALS_FILE=str(tmp_path)) as tool:
        assert "it is not a file" in refused(tool, "EINVAL")
    large = write(tmp_path / "large", "#" * (1 << 21))
    with opened(store, AWS_CONFIG_FILE=large) as tool:
        assert "has more than" in refused(tool, "EINVAL")


@pytest.mark.parametrize("setting", ["role_arn = a\nsource_profile = b", "sso_session = x"])
def test_settings_that_we_do_not_know(store, tmp_path, setting):
    config = write(tmp_path / "config", f"[profile p]\n{setting}\n")
    with opened(store, AWS_CONFIG_FILE=config, AWS_PROFILE="p") as tool:
        assert "aws configure export-credentials --profile p" in refused(tool, "EUNSUPPORTED")


PROCESS = """
import json, sys
with open(sys.argv[1], "a") as file:
    file.write("called\\n")
print(json.dumps({{"Version": 1, "AccessKeyId": "temporary", "SecretAccessKey": "its-secret",
                  "SessionToken": "its-token", "Expiration": "{ends}"}}))
"""


def with_process(store, tmp_path, command):
    config = write(tmp_path / "config", f"[default]\ncredential_process = {command}\n")
    return opened(store, AWS_CONFIG_FILE=config)


def test_process(store, tmp_path):
    program = write(tmp_path / "its program.py", PROCESS.format(ends=ends_in(3600)))
    log = tmp_path / "log"
    with with_process(store, tmp_path, f'{sys.executable} "{program}" {log}') as tool:
        works(tool)
    assert log.read_text() == "called\n"


def test_process_again_when_they_end(store, tmp_path):
    """Credentials that are nearly over are renewed before each use."""
    program = write(tmp_path / "program.py", PROCESS.format(ends=ends_in(5)))
    log = tmp_path / "log"
    with with_process(store, tmp_path, f"{sys.executable} '{program}' {log}") as tool:
        works(tool)
    assert len(log.read_text().splitlines()) == 3


@pytest.mark.parametrize(("command", "problem"), [
    ("/nonexistent/program", "No such file"),
    ("false", "exit status 1"),
    ("echo", "not JSON"),
    ("echo []", "not a JSON object"),
    ("echo {}", "AccessKeyId is missing"),
    ("echo '{\"AccessKeyId\": \"its-secret\", 7}'", "not JSON"),
    ("echo 'open", "a quote that is not closed"),
    ("cat /dev/zero", "prints more than"),
    ("sh -c 'kill -9 $$'", "exit status 137"),
])  # fmt: skip
def test_process_that_fails(store, tmp_path, command, problem):
    with with_process(store, tmp_path, command) as tool:
        assert tool.opened["status"] in ("EPERM", "EINVAL")
        assert problem in refused(tool, tool.opened["status"])


def test_machine(store):
    with Services() as services:
        more = {"AWS_EC2_METADATA_DISABLED": None}
        url = services.url + "/"
        with opened(store, AWS_EC2_METADATA_SERVICE_ENDPOINT=url, **more) as tool:
            works(tool)
        assert [entry[0] for entry in services.log] == ["PUT", "GET", "GET"]
        assert services.log[2][1] == "/latest/meta-data/iam/security-credentials/a-role"


def test_machine_without_role(store):
    with Services() as services:
        services.role = (404, "")
        more = {"AWS_EC2_METADATA_DISABLED": None}
        with opened(store, AWS_EC2_METADATA_SERVICE_ENDPOINT=services.url, **more) as tool:
            assert "this machine has no role" in refused(tool)


def test_machine_that_is_none(store):
    nobody = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:1"}
    with opened(store, AWS_EC2_METADATA_DISABLED=None, **nobody) as tool:
        assert "there are no credentials" in refused(tool)


def test_container(store, tmp_path):
    token = write(tmp_path / "token", "its-token\n")
    with Services() as services:
        more = {"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": token}
        with opened(store, AWS_CONTAINER_CREDENTIALS_FULL_URI=services.url + "/x", **more) as tool:
            works(tool)
        headers = {name.lower(): value for name, value in services.log[0][2].items()}
        assert headers["authorization"] == "its-token" and services.log[0][1] == "/x"


def test_container_elsewhere(store):
    """A token is not sent in the clear to just anybody."""
    for host in ("example.com", "127.0.0.1.example.com", "169.254.170.20", "10.0.0.1"):
        more = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://{host}/x"}
        with opened(store, **more) as tool:
            assert "neither https nor" in refused(tool, "EINVAL")


def test_service_that_fails_for_a_while(store):
    with Services() as services:
        services.failures = [(500, ""), (503, "")]
        with opened(store, AWS_CONTAINER_CREDENTIALS_FULL_URI=services.url) as tool:
            works(tool)
        services.failures = [(500, "")] * 3
        with opened(store, AWS_CONTAINER_CREDENTIALS_FULL_URI=services.url) as tool:
            assert "HTTP status 500" in refused(tool)
        for text in ("", "{", '{"AccessKeyId": "its-secret"}', "x" * 100000):
            services.failures = [(200, text)] * 3
            with opened(store, AWS_CONTAINER_CREDENTIALS_FULL_URI=services.url) as tool:
                assert "credentials from the container's service" in refused(
                    tool, tool.opened["status"]
                )


def web_identity(store, tmp_path, services):
    token = write(tmp_path / "web", "web-token\n")
    return opened(
        store, AWS_WEB_IDENTITY_TOKEN_FILE=token, AWS_ROLE_ARN="arn:aws:iam::1:role/r",
        AWS_ENDPOINT_URL_STS=services.url,
    )  # fmt: skip


def test_web_identity(store, tmp_path):
    with Services() as services:
        with web_identity(store, tmp_path, services) as tool:
            works(tool)
        assert "WebIdentityToken=web-token" in services.log[0][3]
        assert "RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr" in services.log[0][3]


@pytest.mark.parametrize(("answer", "problem"), [
    ((403, "<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>"),
     "HTTP status 403 AccessDenied"),
    ((200, "<Nothing/>"), "has no credentials"),
    ((200, "its-token"), "not well-formed"),
])  # fmt: skip
def test_web_identity_refused(store, tmp_path, answer, problem):
    with Services() as services:
        services.failures = [answer]
        with web_identity(store, tmp_path, services) as tool:
            assert problem in refused(tool, tool.opened["status"])


def test_ended_in_the_environment(store):
    """Nothing can be done, but to say so; HEAD hears of it, too."""
    store.control(rules=[{"fault": "expired", "at": 1}])
    with Tool(store) as tool:
        tool("put", "k", 1, 1)
        for words in (["put", "k", 1, 1], ["head", "k"], ["list", "", "", "", 0]):
            text = tool.fails("EPERM", *words)
            assert "ExpiredToken" in text and "(from the environment) is no longer valid" in text


def test_ended_in_a_profile(store, tmp_path):
    """Somebody writes new ones to the file, and they are taken."""
    old = "[default]\naws_access_key_id = test-key\naws_secret_access_key = test-secret\n"
    new = "[default]\naws_access_key_id = temporary\naws_secret_access_key = its-secret\n"
    path = tmp_path / "credentials"
    with opened(store, AWS_SHARED_CREDENTIALS_FILE=write(path, old)) as tool:
        works(tool)
        store.control(settings={"expired": ["test-key"]})
        assert "ExpiredToken" in tool.fails("EPERM", "head", "k")
        write(path, new + "aws_session_token = its-token\n")
        works(tool)
        path.unlink()
        store.control(settings={"expired": ["test-key", "its-token"]})
        assert "ExpiredToken" in tool.fails("EPERM", "head", "k")


def test_ended_at_a_service(store):
    with Services(key="test-key", secret="test-secret", token="") as services:
        with opened(store, AWS_CONTAINER_CREDENTIALS_FULL_URI=services.url) as tool:
            works(tool)
            store.control(settings={"expired": ["test-key"]})
            services.key, services.secret, services.token = "temporary", "its-secret", "its-token"
            tool.ok("many", 20, 10)
        assert len(services.log) == 2  # one renewal for all
