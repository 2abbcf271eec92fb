# SPDX-License-Identifier: BSD-3-Clause
"""Object stores for tests, each a context manager that starts one and ends it.

with servers.strict("--set", "page=2") as store:
    client = store.client()
    store.control(rules=[{"fault": "lost", "operation": "PutObject", "at": 1}])
"""

import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

import ceph_store
import daemons
import swift_store

HERE = pathlib.Path(__file__).resolve().parent
START_SECONDS = 60


class Store:
    """Where a store is, and how to speak to it."""

    def __init__(self, endpoint, bucket, access_key, secret_key, **more):
        self.endpoint = endpoint
        self.bucket = bucket
        self.access_key = access_key
        self.secret_key = secret_key
        self.session_token = more.get("session_token")
        self.region = more.get("region") or "us-east-1"
        self.tls_endpoint = more.get("tls_endpoint")
        self.ca_file = more.get("ca_file")
        self.control_url = more.get("control")
        self.clients = {}  # by how they were asked for: to make one takes longer than most requests

    def environment(self, tls=False):
        """What a program gets that finds its store by the usual variables."""
        found = {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": self.region,
            "AWS_ENDPOINT_URL_S3": self.tls_endpoint if tls else self.endpoint,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        if self.session_token:
            found["AWS_SESSION_TOKEN"] = self.session_token
        if tls:
            found["AWS_CA_BUNDLE"] = self.ca_file
        return found

    def client(self, **how):
        """A client of boto3 that tries each request once; the same for the same arguments."""
        key = repr(sorted(how.items()))
        if key not in self.clients:
            self.clients[key] = self._client(**how)
        return self.clients[key]

    def _client(self, tls=False, style="path", config=None, **more):
        import boto3
        from botocore.config import Config

        settings = {
            "retries": {"total_max_attempts": 1},
            "s3": {"addressing_style": style},
            "connect_timeout": 10,
            "read_timeout": 10,
            **(config or {}),
        }
        options = {
            "endpoint_url": self.tls_endpoint if tls else self.endpoint,
            "aws_access_key_id": self.access_key,
            "aws_secret_access_key": self.secret_key,
            "aws_session_token": self.session_token,
            "region_name": self.region,
            "verify": self.ca_file if tls else None,
            **more,
        }
        return boto3.client("s3", config=Config(**settings), **options)

    def control(self, **order):
        """Gives an order (strict/control.py); returns the state."""
        request = urllib.request.Request(self.control_url, json.dumps(order).encode())
        try:
            with urllib.request.urlopen(request, timeout=START_SECONDS) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise ValueError(json.load(error)["error"]) from None

    def log(self, **matching):
        """The requests so far, those with these values."""
        return [
            entry
            for entry in self.control()["log"]
            if all(entry[name] == value for name, value in matching.items())
        ]

    def sweep(self, action, prepare=None, **fault):
        """Counts the requests of action(), and then yields the line of the log of each, with that
        fault set for it and an empty store (or as prepare() leaves it): act again, and check."""

        def begin(rules=()):
            self.control(clear=["log", "rules", "late", "objects", "uploads"])
            if prepare:
                prepare()
            self.control(clear=["log"], rules=list(rules))

        begin()
        action()
        for line in self.log():
            begin([{**fault, "at": line["number"]}])
            yield line


@contextlib.contextmanager
def _started(command, what):
    """A program that prints one line of JSON, and ends when its standard input does: so it ends
    with this process, whatever happens."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"{what} ended with status {process.wait()}")
        yield Store(**json.loads(line))
    finally:
        process.stdin.close()
        process.wait(START_SECONDS)
        process.stdout.close()


@contextlib.contextmanager
def strict(*options, bucket="b"):
    """The server of this folder, which checks signatures and meets requests with faults."""
    command = [sys.executable, str(HERE / "server.py"), "--bucket", bucket, "--until-eof"]
    with _started([*command, *options], "server.py") as store:
        yield store


MOTO = """
import json, logging, sys
from moto.server import ThreadedMotoServer
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
host, port = server.get_host_and_port()
print(json.dumps({"endpoint": f"http://{host}:{port}", "bucket": sys.argv[1],
                  "access_key": "test-key", "secret_key": "test-secret"}), flush=True)
sys.stdin.read()
server.stop()
"""


@contextlib.contextmanager
def moto(bucket="bucket"):
    """The server of moto: others wrote it; it looks at no signature."""
    with _started([sys.executable, "-c", MOTO, bucket], "moto") as store:
        store.client().create_bucket(Bucket=bucket)
        yield store


@contextlib.contextmanager
def _group(module, bucket):
    """A store that is several programs; their files are in a folder that goes with them."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="sidestep-objects-"))
        endpoint = module.start(stack.enter_context(daemons.Daemons(folder)))
        store = Store(endpoint, bucket, module.ACCESS_KEY, module.SECRET_KEY)
        store.client(config={"read_timeout": START_SECONDS}).create_bucket(Bucket=bucket)
        yield store


def radosgw(bucket="bucket"):
    """Ceph's gateway: others wrote it; it checks signatures, and the hashes of bodies."""
    return _group(ceph_store, bucket)


def swift(bucket="bucket"):
    """OpenStack's store: others wrote it; it knows no conditions."""
    return _group(swift_store, bucket)
