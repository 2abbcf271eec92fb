# SPDX-License-Identifier: BSD-3-Clause
"""Services that hand out credentials: of a machine (IMDSv2), of a container, of a web identity.

with Services(key="test-key", secret="test-secret") as services:
    services.url ... services.log: [(method, path, headers, body)]
"""

import datetime
import http.server
import json
import threading


def ends_in(seconds):
    end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
    return end.strftime("%Y-%m-%dT%H:%M:%SZ")


TOKEN_SERVICE = """<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>{key}</AccessKeyId>
<SecretAccessKey>{secret}</SecretAccessKey><SessionToken>{token}</SessionToken>
<Expiration>{ends}</Expiration></Credentials></AssumeRoleWithWebIdentityResult>
</AssumeRoleWithWebIdentityResponse>"""


class Handler(http.server.BaseHTTPRequestHandler):
    services = None  # of a subclass
    protocol_version = "HTTP/1.1"

    def answer(self, status, text):
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def handle_one(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        services = self.services
        services.log.append((self.command, self.path, dict(self.headers), body))
        if services.failures:
            return self.answer(*services.failures.pop(0))
        made = {"AccessKeyId": services.key, "SecretAccessKey": services.secret,
                "Token": services.token, "Expiration": ends_in(services.seconds)}  # fmt: skip
        if self.command == "POST":
            values = {"key": services.key, "secret": services.secret, "token": services.token}
            return self.answer(200, TOKEN_SERVICE.format(ends=made["Expiration"], **values))
        if self.command == "PUT":
            return self.answer(200, "imds-session")
        if self.path.startswith("/latest/"):
            if self.headers.get("x-aws-ec2-metadata-token") != "imds-session":
                return self.answer(401, "")
            if self.path.endswith("/security-credentials/"):
                return self.answer(*services.role)
        return self.answer(200, json.dumps(made))

    do_GET = do_PUT = do_POST = handle_one

    def log_message(self, format, *args):
        pass


class Services:
    def __init__(self, key="temporary", secret="its-secret", token="its-token", seconds=3600):
        self.key, self.secret, self.token, self.seconds = key, secret, token, seconds
        self.role = (200, "a-role\n")
        self.failures = []  # [(status, body)], each for one request
        self.log = []
        self.server = None

    def __enter__(self):
        handler = type("OwnHandler", (Handler,), {"services": self})
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        return self

    def __exit__(self, *exception):
        self.server.shutdown()
        self.server.server_close()
