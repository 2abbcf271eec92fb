"""Streams, colours, terminals, hostile names: the output of the process."""
import os
import re
import shutil
import signal
import subprocess

from harness import Skip

HOSTILE = ["\x1b[2Jclear", "new\nline", "tab\there", "\u202eesrever", "back\\slash", "\x9bcsi",
           "\x7fdel"]


def hostile_root(sidestep):
    for name in HOSTILE:
        os.mkdir(sidestep.path(name))
    os.mkdir(os.path.join(os.fsencode(sidestep.folder), b"bad\xff\xc0\xaf"))
    return sidestep.folder


def test_full_device(sidestep):
    """a full device is reported, with status 28"""
    for arguments in [["help"], ["version"], ["completion", "zsh"], ["help", "--json"],
                      ["ls", "--json", sidestep.folder]]:
        with open("/dev/full", "wb") as full:
            result = sidestep.run(*arguments, stdout=full)
        assert result.status == 28, result.describe()
        assert result.stderr == "sidestep: write to standard output: No space left on device\n", \
            result.describe()


def test_closed_output(sidestep):
    """a closed standard output is a failure, and no file gets its output"""
    done = subprocess.run(["sh", "-c", 'exec "$0" version >&-', sidestep.program],
                          capture_output=True, text=True, env=sidestep.environment(), check=False)
    assert done.returncode == 1, done
    assert done.stderr == "sidestep: write to standard output: Bad file descriptor\n", done


def test_reader_that_left(sidestep):
    """if its reader has gone, the command ends silently"""
    for restore in (True, False):  # SIGPIPE as usual, and ignored
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run([sidestep.program, "help"], stdout=writer, stderr=subprocess.PIPE,
                              env=sidestep.environment(), restore_signals=restore, check=False)
        os.close(writer)
        assert done.returncode == (-signal.SIGPIPE if restore else 141), done
        assert done.stderr == b"", done


def test_missing_root(sidestep):
    """a missing directory: status 10, one line on stderr"""
    missing = sidestep.path("missing")
    for command in ["ls", "latest", "verify", "show"]:
        sidestep.expect(command, missing, status=10, stderr=re.compile(f"sidestep: .*{missing}.*\n"))
        assert sidestep.json_error(command, missing, status=10)["status"] == "ENOTFOUND"


def test_empty_root(sidestep):
    """an empty directory: every command has the same sentence; latest has status 10, verify 4"""
    none = f"'{sidestep.folder}': there is no checkpoint yet\n"
    sidestep.expect("ls", sidestep.folder, stderr="sidestep: " + none)
    sidestep.expect("prune", "--keep-last=1", "--yes", sidestep.folder, stderr="sidestep: " + none)
    sidestep.expect("ls", "-q", sidestep.folder)
    assert sidestep.json("ls", sidestep.folder) == {"checkpoints": []}
    sidestep.expect("latest", sidestep.folder, status=10, stderr="sidestep: " + none)
    sidestep.expect("verify", sidestep.folder, status=4, stderr="sidestep: open checkpoint " + none)
    sidestep.expect("show", sidestep.folder, status=4, stderr="sidestep: open " + none)
    sidestep.expect("gc", sidestep.folder, stderr="sidestep: nothing to remove\n")
    assert sidestep.json("gc", "-n", sidestep.folder) == {"dry_run": True, "removed": [],
                                                          "kept": [], "bytes": 0}


def test_foreign_is_hidden(sidestep):
    """other directories are listed only with --all"""
    os.mkdir(sidestep.path("src"))
    sidestep.expect("ls", sidestep.folder, stderr=f"sidestep: '{sidestep.folder}': there is no "
                    "checkpoint yet; other directories are listed with --all\n")
    entry, = sidestep.json("ls", "--all", sidestep.folder)["checkpoints"]
    assert list(entry) == ["name", "path", "step", "state", "bytes", "files", "shared_files",
                           "small_files", "small_bytes",
                           "ranks", "saved_at",
                           "pinned", "abandoned", "renamed", "kept", "kept_because", "tags", "metrics", "layout",
                           "reason", "target", "part_ranks"]
    assert entry["name"] == "src" and entry["state"] == "foreign" and entry["step"] is None
    assert entry["ranks"] is None


def test_names_are_escaped(sidestep):
    """hostile names in a table are escaped, one line each"""
    result = sidestep.run("ls", "--all", hostile_root(sidestep))
    for shown in [r"\x1b[2Jclear", r"new\nline", r"tab\there", r"\u202eesrever", r"back\\slash",
                  r"\x9bcsi", r"\x7fdel", r"bad\xff\xc0\xaf"]:
        assert shown + "\n" in result.stdout, (shown, result.describe())
    assert result.stdout.replace("\n", "").isprintable(), result.describe()
    assert result.stdout.count("\n") == 1 + len(HOSTILE) + 1, result.describe()


def test_names_in_json(sidestep):
    """hostile names in JSON are read back exactly, and are harmless in the text"""
    root = hostile_root(sidestep)
    text = sidestep.run("ls", "--all", "--json", root).stdout
    assert text.rstrip("\n").isascii() and text.rstrip("\n").isprintable(), text
    names = {entry["name"] for entry in sidestep.json("ls", "--all", root)["checkpoints"]}
    assert names == set(HOSTILE) | {"bad\ufffd\ufffd\ufffd"}, names


def test_messages_are_escaped(sidestep):
    """a hostile path in an error is escaped"""
    result = sidestep.run("ls", "/nowhere\x1b[31m\nsidestep: all is well")
    assert result.status == 10 and result.stderr.count("\n") == 1, result.describe()
    assert r"\x1b[31m\nsidestep" in result.stderr, result.describe()


def test_color_choices(sidestep):
    """--color=always colours, never and a pipe do not"""
    assert "\x1b[1m" in sidestep.run("help", "--color=always").stdout
    assert "\x1b" not in sidestep.run("help", "--color=never").stdout
    assert "\x1b" not in sidestep.run("help").stdout
    assert "\x1b" not in sidestep.run("--color=always", "help", "--man").stdout
    assert "\x1b" in sidestep.run("help", "--color=always", environment={"NO_COLOR": "1"}).stdout


def test_color_on_terminals(sidestep):
    """a terminal gets colour, unless NO_COLOR or TERM=dumb is set"""
    for environment, colored in [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False),
                                 ({"TERM": "dumb"}, False)]:
        status, shown = sidestep.on_terminal("help", environment=environment)
        assert status == 0 and ("\x1b[1mNAME\x1b[0m" in shown) == colored, (environment, shown)
    status, shown = sidestep.on_terminal("help", "--color=never")
    assert status == 0 and "\x1b" not in shown, shown


def test_cat_refuses_terminals(sidestep):
    """cat writes no bytes to a terminal"""
    status, shown = sidestep.on_terminal("cat", sidestep.folder, "x")
    assert status == 2 and "standard output is a terminal; --force" in shown, shown


def test_verbose_says_where(sidestep):
    """-v adds the place in the library to an error"""
    missing = sidestep.path("missing")
    plain = sidestep.run("show", missing).stderr
    assert "(" not in plain.splitlines()[0][-20:], plain
    assert re.search(r"\(\w+\.c:\d+\)\n$", sidestep.run("show", "-v", missing).stderr)


# A line that is too long for the terminal ends in "...".
PROGRESS = r"[^\r\n]*ckpt: \S+( \w+)? of \S+( \w+)?, \d+ %, \S+ \w+/s, \S+( \w+)? (left|\.\.\.)"


def test_progress(sidestep):
    """progress: a line that is redrawn and cleared on a terminal, lines elsewhere, none on request"""
    checkpoint = sidestep.copy("torch-2.14.1/four_ranks")
    fast = sidestep.path("fast_clock.so")
    compiler = shutil.which("cc")
    if compiler is None:
        raise Skip("there is no cc, which makes the clock run")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", fast, "tests/tools/fast_clock.c", "-ldl"],
                   check=True)
    environment = {"LD_PRELOAD": fast, "NO_COLOR": "1"}
    status, shown = sidestep.on_terminal("verify", checkpoint, environment=environment)
    assert status == 0, shown
    assert re.fullmatch(rf"(\r\x1b\[K{PROGRESS})+\r\x1b\[Kok  [^\r]*\r\n", shown), repr(shown)
    shares = [int(share) for share in re.findall(r"(\d+) %", shown)]
    assert shares == sorted(shares), repr(shown)
    status, shown = sidestep.on_terminal("--quiet", "verify", checkpoint, environment=environment)
    assert status == 0 and "\x1b" not in shown and " left" not in shown, repr(shown)
    result = sidestep.run("verify", checkpoint, environment=environment)
    assert result.status == 0 and re.fullmatch(rf"({PROGRESS}\n)+", result.stderr), \
        result.describe()
    for option in ("--quiet", "--json"):
        result = sidestep.run(option, "verify", checkpoint, environment=environment)
        assert result.status == 0 and result.stderr == "", result.describe()
    result = sidestep.run("verify", checkpoint)  # by the real clock it is soon done
    assert result.status == 0 and result.stderr == "", result.describe()
