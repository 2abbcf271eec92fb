"""What the tests of the command line share: run it, and compare exactly."""
import difflib
import json
import os
import pty
import re
import select
import shutil
import subprocess
import tempfile

TIMEOUT_SECONDS = 60
GOLDEN = "tests/golden"


class Skip(Exception):
    """This machine cannot run the test; the text is the reason."""


class Result:
    def __init__(self, arguments, status, stdout, stderr):
        self.arguments, self.status = arguments, status
        self.stdout, self.stderr = stdout, stderr

    def describe(self):
        return (f"sidestep {' '.join(map(repr, self.arguments))}\nstatus {self.status}\n"
                f"stdout {self.stdout[:2000]!r}\nstderr {self.stderr[:2000]!r}")


def compare(what, got, expected, result):
    """Text must be equal; a compiled pattern must match all of it."""
    if isinstance(expected, re.Pattern):
        assert expected.fullmatch(got), f"{what} does not match {expected.pattern!r}\n" + result.describe()
    elif got != expected:
        if isinstance(got, bytes):
            raise AssertionError(f"{what} differs\n" + result.describe())
        lines = difflib.unified_diff(expected.splitlines(), got.splitlines(), "expected", "got",
                                     lineterm="")
        raise AssertionError(f"{what} differs\n" + "\n".join(lines) + "\n" + result.describe())


class Sidestep:
    """The command under test, and a folder that is removed after the test."""

    def __init__(self, program):
        self.program = program
        self.folder = None

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="sidestep-cli-")
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder, ignore_errors=True)

    def environment(self, extra=None):
        kept = ("PATH", "HOME", "LD_LIBRARY_PATH", "ASAN_OPTIONS", "UBSAN_OPTIONS")
        return {**{name: os.environ[name] for name in kept if name in os.environ},
                "TERM": "xterm", **(extra or {})}

    def run(self, *arguments, binary=False, environment=None, cwd=None, **streams):
        """Run it; returns a Result, whatever the status."""
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
                   **streams}
        done = subprocess.run([self.program, *arguments], env=self.environment(environment), cwd=cwd,
                              timeout=TIMEOUT_SECONDS, check=False, **streams)
        stdout, stderr = done.stdout or b"", done.stderr or b""
        return Result(arguments, done.returncode, stdout if binary else stdout.decode(),
                      stderr.decode())

    def expect(self, *arguments, stdout="", stderr="", status=0, **more):
        """Run it, and compare status, stdout and stderr."""
        result = self.run(*arguments, **more)
        assert result.status == status, f"status is not {status}\n" + result.describe()
        compare("stderr", result.stderr, stderr, result)
        compare("stdout", result.stdout, stdout, result)
        return result

    def json(self, *arguments, status=0):
        """Run it with --json; returns the document on stdout; stderr must be empty."""
        result = self.run("--json", *arguments)
        assert result.status == status, f"status is not {status}\n" + result.describe()
        compare("stderr", result.stderr, "", result)
        assert result.stdout.count("\n") == 1 and result.stdout.endswith("\n"), result.describe()
        return json.loads(result.stdout)

    def json_error(self, *arguments, status):
        """Run it with --json; returns the error on stderr; stdout must be empty."""
        result = self.run("--json", *arguments)
        assert result.status == status, f"status is not {status}\n" + result.describe()
        compare("stdout", result.stdout, "", result)
        assert result.stderr.count("\n") == 1, result.describe()
        error = json.loads(result.stderr)
        assert list(error) == ["error"], result.describe()
        assert list(error["error"]) == ["status", "message", "errno", "rank"], result.describe()
        return error["error"]

    def on_terminal(self, *arguments, typed=b"", environment=None):
        """Run it with a terminal as all three streams; returns (status, output)."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(self.program, [self.program, *arguments], self.environment(environment))
        if typed:
            os.write(terminal, typed)
        shown = b""
        while select.select([terminal], [], [], TIMEOUT_SECONDS)[0]:
            try:
                piece = os.read(terminal, 65536)
            except OSError:  # EIO: the other end was closed
                break
            if not piece:
                break
            shown += piece
        os.close(terminal)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode()

    def path(self, name):
        return os.path.join(self.folder, name)

    def copy(self, checkpoint, name="ckpt"):
        """Copy a golden checkpoint, which the test may damage."""
        target = self.path(name)
        shutil.copytree(os.path.join(GOLDEN, checkpoint), target)
        for folder, _, files in os.walk(target):
            os.chmod(folder, 0o755)
            for file in files:
                os.chmod(os.path.join(folder, file), 0o644)
        return target


def one_line(*words):
    """A pattern for one line on standard error that contains the words in this order."""
    return re.compile("sidestep: .*" + ".*".join(map(re.escape, words)) + ".*\n")


NOBODY = {"user": 65534, "group": 65534, "extra_groups": []}


def other_user(sidestep):
    """Options that make run() use the rights of nobody; the folder becomes readable for it."""
    if os.geteuid() != 0:
        return {}  # this user cannot read what it has denied itself
    os.chmod(sidestep.folder, 0o755)
    try:
        subprocess.run([sidestep.program, "--version"], stdout=subprocess.DEVNULL, check=True,
                       **NOBODY)
    except (OSError, subprocess.SubprocessError) as error:
        raise Skip(f"another user cannot run the program here: {error}") from error
    return NOBODY
