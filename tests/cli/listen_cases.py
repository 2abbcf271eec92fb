"""metrics --listen: what scrapers, and clients that mean no good, get from it."""
import concurrent.futures
import contextlib
import ctypes
import http.client
import json
import os
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import time
import urllib.parse
import urllib.request

from harness import TIMEOUT_SECONDS, Skip
from saved_cases import saved, shard_of

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
IN_OPEN = 0x20
PROMETHEUS = "contrib/prometheus/prometheus.yml"


class Listener:
    """A sidestep that listens, until the block ends; it must then end with status 0."""

    def __init__(self, sidestep, *arguments, address="127.0.0.1:0", environment=None):
        self.process = subprocess.Popen([sidestep.program, "metrics", "--listen", address, *arguments],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env=sidestep.environment(environment))
        said = self.process.stderr.readline()
        if "built without --listen" in said or "needs libmicrohttpd" in said:
            self.process.communicate()
            raise Skip(said.strip())
        found = re.fullmatch(r"sidestep: metrics: listening on http://(\S+):(\d+)/metrics\n", said)
        assert found, said
        self.host, self.port = found[1].strip("[]"), int(found[2])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end(signal.SIGTERM)

    def end(self, number):
        if self.process.returncode is None:
            self.process.send_signal(number)
            out, err = self.process.communicate(timeout=TIMEOUT_SECONDS)
            assert (self.process.returncode, out, err) == (0, "", ""), (self.process.returncode, out, err)

    def ask(self, path="/metrics", method="GET", host=None):
        """(status, headers, text)"""
        connection = http.client.HTTPConnection(host or self.host, self.port, timeout=TIMEOUT_SECONDS)
        with contextlib.closing(connection):
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()

    def scrape(self):
        status, headers, text = self.ask()
        assert (status, headers["Content-Type"]) == (200, OPENMETRICS), (status, str(headers))
        assert text.endswith("\n# EOF\n"), text
        return text

    def connect(self, data=b""):
        client = socket.create_connection((self.host, self.port), timeout=TIMEOUT_SECONDS)
        with contextlib.suppress(OSError):  # it may have been sent away
            client.sendall(data)
        return client


def without_space(text):
    """Free space changes at any time."""
    return re.sub(r"(?m)^sidestep_free_bytes\{.*\n", "", text)


def read_all(client):
    """What the server sends until it closes."""
    got = b""
    with contextlib.suppress(ConnectionError):
        while piece := client.recv(65536):
            got += piece
    client.close()
    return got


def test_answers(sidestep):
    """a scrape is what metrics prints, with the type of OpenMetrics; other paths and methods are refused"""
    saved(sidestep, 1, 2)
    roots = [sidestep.folder, sidestep.path("no")]
    with Listener(sidestep, *roots) as listener:
        printed = sidestep.run("metrics", *roots).stdout
        assert without_space(listener.scrape()) == without_space(printed)
        assert 'sidestep_free_bytes{root="' in listener.scrape()
        status, headers, text = listener.ask(method="HEAD")
        assert (status, headers["Content-Type"], text) == (200, OPENMETRICS, "")
        assert int(headers["Content-Length"]) > len(without_space(printed))
        assert listener.ask("/metrics?x=y")[0] == 200
        assert listener.ask("/")[::2] == (200, "The metrics are at /metrics.\n")
        for path in ("/metrics/", "/metricsx", "//metrics", "/../etc/passwd", "*"):
            assert listener.ask(path)[0] in (400, 404), path
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "get", "X"):
            status, headers, _ = listener.ask(method=method)
            assert (status, headers["Allow"]) == (405, "GET, HEAD"), method


def test_answers_come_from_storage(sidestep):
    """each scrape sees what is there, and one from a process that was started anew is the same"""
    newest = saved(sidestep, 1, 2)

    def seen():
        with Listener(sidestep, sidestep.folder) as other:
            text = without_space(other.scrape())
        assert without_space(listener.scrape()) == text == without_space(
            sidestep.run("metrics", sidestep.folder).stdout)
        return {name: int(value) for name, value in re.findall(r'(?m)^sidestep_(\w+)\{root="[^"]*"\} (\d+)$', text)}

    with Listener(sidestep, sidestep.folder) as listener:
        assert seen()["last_committed_step"] == 2
        saved(sidestep, 3)
        assert seen()["last_committed_step"] == 3
        shutil.rmtree(sidestep.path("step-3"))
        assert seen()["last_committed_step"] == 2
        os.unlink(os.path.join(newest, shard_of(newest)))
        values = seen()
        assert (values["last_committed_step"], values["health"]) == (1, 1)
        os.rename(sidestep.folder, sidestep.folder + ".away")
        try:
            values = seen()
            assert (values["up"], values["health"]) == (0, 3) and "last_committed_step" not in values
        finally:
            os.rename(sidestep.folder + ".away", sidestep.folder)
        assert seen()["up"] == 1


def test_addresses(sidestep):
    """it answers this machine only, unless it is told an address"""
    port_only = "0"
    for address in (port_only, ":0", "127.0.0.1:0", "localhost:0", "[::1]:0", "0.0.0.0:0"):
        try:
            with Listener(sidestep, sidestep.folder, address=address) as listener:
                if address in (port_only, ":0"):
                    assert listener.host == "127.0.0.1"
                assert listener.ask("/")[0] == 200, address
                # The whole net 127 is this machine; who listens at one address of it only refuses this.
                try:
                    other = listener.ask("/", host="127.0.0.2")[0]
                except ConnectionRefusedError:
                    other = None
                assert other == (200 if address == "0.0.0.0:0" else None), (address, other)
        except AssertionError as error:
            if address != "[::1]:0" or "Cannot assign requested address" not in str(error):
                raise  # but a machine may have no IPv6
    for address in ("", ":", "x", "127.0.0.1", "::1:9188", "[::1]", "1:2:3", "65536", "99999999999",
                    "-1", "+1", "0x1", "1 ", "127.0.0.1:http"):
        sidestep.expect("metrics", f"--listen={address}", sidestep.folder, status=2, stderr=re.compile(
            r"sidestep: metrics: --listen: '.*' is none of PORT, HOST:PORT and \[HOST\]:PORT\n.*\n"))


def test_port_in_use(sidestep):
    """a port in use is an error that names it; a warning where a file is written, too"""
    message = (r"sidestep: metrics: listen on 127\.0\.0\.1:{}: Address already in use; end the program that has "
               r"this port \('ss -ltnp' names it\), or choose another one\n")
    out = sidestep.path("m.prom")
    with Listener(sidestep, sidestep.folder) as listener:
        expected = re.compile(message.format(listener.port))
        sidestep.expect("metrics", "--listen", str(listener.port), sidestep.folder, status=11, stderr=expected)
        sidestep.expect("metrics", "--listen", str(listener.port), "--out", out, sidestep.folder, stderr=expected)
        error = sidestep.json_error("metrics", "--listen", str(listener.port), sidestep.folder, status=11)
        assert error["status"] == "ELOCKED", error
    with open(out, encoding="utf-8") as file:
        assert file.read().endswith("# EOF\n")
    # A port that was just used is free; the file is written first, and once.
    os.unlink(out)
    with Listener(sidestep, "--out", out, sidestep.folder, address=f"127.0.0.1:{listener.port}") as listener:
        os.unlink(out)
        listener.scrape()
        assert not os.path.exists(out)


def opened(watch):
    """How often the folder was opened since the last call, in bytes of inotify(7)."""
    try:
        return len(os.read(watch, 1 << 20))
    except BlockingIOError:
        return 0


def test_many_scrapes_cost_one_look(sidestep):
    """scrapes that come at once share a look"""
    saved(sidestep, 1)
    library = ctypes.CDLL(None)
    watch = library.inotify_init1(os.O_NONBLOCK)
    with Listener(sidestep, sidestep.folder) as listener, os.fdopen(watch, "rb"), \
            concurrent.futures.ThreadPoolExecutor(40) as pool:
        library.inotify_add_watch(watch, sidestep.folder.encode(), IN_OPEN)
        alone = listener.scrape()
        one = opened(watch)
        assert one > 0
        texts = list(pool.map(lambda _: listener.scrape(), range(40)))
        assert {without_space(text) for text in texts} == {without_space(alone)}
        assert opened(watch) < 10 * one
        for _ in range(3):  # the control: one after the other, each has its own
            listener.scrape()
            assert opened(watch) == one


def test_hostile_clients(sidestep):
    """whatever clients send, or do not send, scrapes go on"""
    saved(sidestep, 1)
    request = b"GET /metrics HTTP/1.1\r\nHost: x\r\n"
    with Listener(sidestep, sidestep.folder) as listener:
        expected = without_space(listener.scrape())

        def scrapes(*clients):
            assert without_space(listener.scrape()) == expected
            for client in clients:
                client.close()

        slow = [listener.connect(request + b"X-a: ") for _ in range(200)]
        for client in slow:
            with contextlib.suppress(OSError):
                client.send(b"b")
        scrapes(*slow)
        assert b" 200 " not in read_all(listener.connect(request + b"X-a: " + b"b" * 100000 + b"\r\n\r\n"))
        assert b" 200 " not in read_all(listener.connect(request + b"X-a: b\r\n" * 20000 + b"\r\n"))
        assert b" 200 " not in read_all(listener.connect(b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n\r\n"))
        garbage = (b"\0" * 1000, bytes(range(256)) * 40, b"\r\n" * 5000, b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00",
                   b"GET /metrics HTTP/9.9\r\n\r\n", request + b"Content-Length: -1\r\n\r\n",
                   request + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n")
        clients = [listener.connect(data) for data in (*garbage, *garbage)]
        for client in clients[::2]:
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_WR)
        scrapes(*clients)
        body = b"Content-Length: 99999999\r\n\r\n" + b"a" * 100000
        scrapes(listener.connect(request + body), listener.connect(b"POST" + request[3:] + body),
                listener.connect((request + b"\r\n") * 1000))
        one = read_all(listener.connect((request + b"\r\n") * 3))  # one request for each connection
        assert one.count(b" 200 OK") == 1 and one.endswith(b"# EOF\n"), one
        for _ in range(100):  # they have gone when the answer comes, or before
            client = listener.connect(request + b"\r\n")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        scrapes()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        count = min(2000, hard - 100)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + 100), hard))
        crowd, end = [], time.monotonic() + TIMEOUT_SECONDS
        while len(crowd) < count:
            crowd.append(listener.connect())
            assert time.monotonic() < end  # the first ones go at once, and not when their time is over
        scrapes(*crowd)
        scrapes(*[listener.connect(request + b"\r\n") for _ in range(100)])  # and do not read the answer
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        with open(f"/proc/{listener.process.pid}/status", encoding="ascii") as status:
            assert int(re.search(r"VmHWM:\s*(\d+) kB", status.read())[1]) < 65536
        scrapes()


def test_slow_clients(sidestep):
    """a client that is silent, or goes on for ever, is sent away after some time"""
    with Listener(sidestep, sidestep.folder) as listener:
        silent, lively = listener.connect(), listener.connect(b"GET /met")
        end = time.monotonic() + TIMEOUT_SECONDS
        with contextlib.suppress(OSError):
            while True:
                lively.send(b"r")
                time.sleep(0.1)
                assert time.monotonic() < end
        lively.close()
        assert read_all(silent) == b""


def test_signals(sidestep):
    """SIGTERM and SIGINT end it with status 0, also while somebody waits for an answer"""
    for number in (signal.SIGTERM, signal.SIGINT):
        with Listener(sidestep, sidestep.folder) as listener:
            clients = [listener.connect(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n") for _ in range(40)]
            clients.append(listener.connect(b"GET /me"))
            listener.end(number)
            for client in clients:
                assert read_all(client) == b"" or client is not clients[-1]


def test_without_the_library(sidestep):
    """without libmicrohttpd it says so, after the file of --out was written"""
    Listener(sidestep, sidestep.folder).end(signal.SIGTERM)  # or the test is skipped
    with open(sidestep.path("libmicrohttpd.so.12"), "wb"):
        pass
    out = sidestep.path("m.prom")
    sidestep.expect("metrics", "--listen", "0", "--out", out, sidestep.folder, status=5,
                    environment={"LD_LIBRARY_PATH": sidestep.folder},
                    stderr=re.compile(r"sidestep: metrics: --listen needs libmicrohttpd 0\.9\.73: .*too short\n"))
    assert os.path.exists(out)


def test_with_prometheus(sidestep):
    """promtool accepts the answer, and a Prometheus with the configuration of contrib takes it in"""
    prometheus, promtool = shutil.which("prometheus"), shutil.which("promtool")
    if prometheus is None or promtool is None:
        raise Skip("Prometheus is not installed (package prometheus)")
    subprocess.run([promtool, "check", "config", PROMETHEUS], check=True, stdout=subprocess.DEVNULL)
    root = sidestep.path('a"b\\c')
    os.mkdir(root)
    saved(sidestep, 3)
    with Listener(sidestep, sidestep.folder, root) as listener:
        subprocess.run([promtool, "check", "metrics"], input=listener.scrape().encode(), check=True)
        with open(PROMETHEUS, encoding="utf-8") as file:
            text = file.read().replace("127.0.0.1:9188", f"127.0.0.1:{listener.port}").replace("1m", "1s")
        with open(sidestep.path("prometheus.yml"), "w", encoding="utf-8") as file:
            file.write(text.replace("[sidestep", f"[{os.path.abspath(os.path.dirname(PROMETHEUS))}/sidestep"))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        server = subprocess.Popen([prometheus, f"--config.file={sidestep.path('prometheus.yml')}",
                                   f"--storage.tsdb.path={sidestep.path('data')}",
                                   f"--web.listen-address=127.0.0.1:{port}"], stderr=subprocess.DEVNULL)
        try:
            assert values_in(server, port, "up") == [1]
            assert sorted(values_in(server, port, "sidestep_up")) == [1, 1]
            assert values_in(server, port, "sidestep_last_committed_step") == [3]
        finally:
            server.terminate()
            server.wait()


def values_in(server, port, name):
    """The values of ${name}, as soon as there are some."""
    url = f"http://127.0.0.1:{port}/api/v1/query?query=" + urllib.parse.quote(name)
    end = time.monotonic() + TIMEOUT_SECONDS
    while True:
        assert server.poll() is None and time.monotonic() < end, name
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(url) as answer:
                found = json.load(answer)["data"]["result"]
            if found:
                return [int(sample["value"][1]) for sample in found]
        time.sleep(0.1)
