"""Damaged, unfinished and hostile checkpoints: one line and the right status, quickly."""
import array
import os
import re
import signal
import subprocess
import time

from saver import Saver
from usage_cases import COMMANDS

SHARD = "__0_0.distcp"


def flip(path, offset):
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))


def data_offset(path, bytes_of_tensor):
    with open(path, "rb") as file:
        return file.read().index(bytes_of_tensor)


def damaged(sidestep, checkpoint, kinds):
    """Check that verify has status 3 and reports problems of these kinds; returns them."""
    report = sidestep.json("verify", checkpoint, status=3)
    assert list(report) == ["ok", "checked_bytes", "problems", "unlisted", "unchecked"], report
    assert report["ok"] is False and report["unlisted"] == 0, report
    assert report["problems"], report
    for problem in report["problems"]:
        assert list(problem) == ["file", "name", "kind", "message"], problem
    assert {problem["kind"] for problem in report["problems"]} <= kinds, report
    result = sidestep.run("verify", checkpoint)
    assert result.status == 3, result.describe()
    assert re.match(rf"DAMAGED  {checkpoint}  .* checked, \d+ problems?\n  ", result.stdout), \
        result.describe()
    return report["problems"]


def test_flipped_bit(sidestep):
    """a flipped bit in a tensor: verify and cat have status 3, and name it"""
    checkpoint = sidestep.copy("torch-2.14.1/nested")
    shard = f"{checkpoint}/{SHARD}"
    flip(shard, data_offset(shard, bytes.fromhex("000000000000803f00000040")) + 5)
    problem, = damaged(sidestep, checkpoint, {"hash"})
    assert problem["file"] == SHARD and problem["name"] == "w", problem
    result = sidestep.run("cat", checkpoint, "w", binary=True)
    assert result.status == 3 and result.stdout == b"" and "'w'" in result.stderr, result.describe()
    assert sidestep.run("cat", checkpoint, "s", binary=True).status == 0


def test_shard_cut(sidestep):
    """a shard that is too short, empty, or gone"""
    for size in (9774, 100, 0):
        checkpoint = sidestep.copy("torch-2.14.1/nested", f"cut-{size}")
        os.truncate(f"{checkpoint}/{SHARD}", size)
        damaged(sidestep, checkpoint, {"size", "format", "missing", "hash"})
    checkpoint = sidestep.copy("torch-2.14.1/nested", "gone")
    os.remove(f"{checkpoint}/{SHARD}")
    problems = damaged(sidestep, checkpoint, {"missing"})
    assert (problems[0]["file"], problems[0]["message"]) == (SHARD, "it is missing"), problems
    assert {"w", "opt.step"} & {p["name"] for p in problems[1:]}, problems  # what the file contained


def two_files(sidestep, tensors=20):
    """A checkpoint of two files, and the names of tensors and objects in each."""
    saver = Saver(os.path.dirname(sidestep.program))
    data = array.array("f", range(1000))
    saver.save(sidestep.path("one"), 7, [(f"w.{i}".encode(), 2, [1000], data)
                                         for i in range(tensors)], [(b"epoch", 3)])
    saver.close()
    sidestep.run("convert", "--to=dcp", "--ranks=2", sidestep.path("one"), sidestep.path("ckpt"))
    shown = sidestep.json("show", sidestep.path("ckpt"))
    assert shown["damage"] is None, shown
    files = {}
    for tensor in shown["tensors"]:
        chunk, = tensor["chunks"]
        files.setdefault(chunk["file"], []).append(tensor["name"])
    assert sorted(files) == ["__0_0.distcp", "__1_0.distcp"], files
    objects = [o["name"] for o in shown["objects"] if o["file"] == "__1_0.distcp"]
    return sidestep.path("ckpt"), data.tobytes(), files["__0_0.distcp"], files["__1_0.distcp"], objects


def test_shard_gone_others_read(sidestep):
    """the contents of other files than the missing one are shown and read"""
    checkpoint, data, there, gone, _ = two_files(sidestep)
    os.remove(f"{checkpoint}/__1_0.distcp")
    for name in there:
        sidestep.expect("cat", checkpoint, name, binary=True, stdout=data)
    for name in gone:
        sidestep.expect("cat", checkpoint, name, status=3,
                        stderr=f"sidestep: '{name}' in file '__1_0.distcp': it is missing\n")
    shown = sidestep.json("show", checkpoint, status=3)
    assert shown["damage"] == "file '__1_0.distcp': it is missing", shown["damage"]
    assert {tensor["name"] for tensor in shown["tensors"]} == {*there, *gone}
    result = sidestep.run("show", checkpoint)
    assert result.status == 3 and "\ndamage      file '__1_0.distcp': it is missing\n" in \
        result.stdout, result.describe()
    os.remove(f"{checkpoint}/__0_0.distcp")
    result = sidestep.run("show", checkpoint)
    assert "\ndamage      file '__0_0.distcp': it is missing; and 1 file more\n" in result.stdout, \
        result.describe()


def test_convert_partial(sidestep):
    """convert --partial takes what is whole, lists the rest, and has status 3"""
    checkpoint, data, there, gone, objects = two_files(sidestep, 2500)
    os.remove(f"{checkpoint}/__1_0.distcp")
    assert len(gone) > 1000  # all of them are listed
    target = sidestep.path("rest")
    result = sidestep.run("convert", "--to=dcp", checkpoint, target)
    assert result.status == 3 and not os.path.exists(target), result.describe()
    report = sidestep.json("convert", "--to=dcp", "--partial", "-n", checkpoint, target, status=3)
    assert report["tensors"] == len(there) and not os.path.exists(target), report["tensors"]
    report = sidestep.json("convert", "--to=dcp", "--partial", checkpoint, target, status=3)
    assert report["tensors"] == len(there), report["tensors"]
    assert sorted(report["lost"]) == sorted(f"{name}: __1_0.distcp: it is missing"
                                            for name in gone + objects), report["lost"][:3]
    assert sidestep.json("verify", target)["ok"]
    assert [t["name"] for t in sidestep.json("show", target)["tensors"]] == there
    sidestep.expect("cat", target, there[0], binary=True, stdout=data)
    rescued = sidestep.json("convert", "--partial", checkpoint, sidestep.path("rescued"), status=3)
    assert (rescued["to"], rescued["tensors"]) == ("dcp", len(there)), rescued["to"]
    result = sidestep.run("convert", "--partial", f"--include={there[1]}", f"--include={gone[0]}",
                          checkpoint, sidestep.path("two.safetensors"))
    assert result.status == 3 and result.stderr == \
        f"sidestep: lost: {gone[0]}: __1_0.distcp: it is missing\n", result.describe()
    sidestep.expect("convert", "--partial", f"--include={there[1]}", checkpoint,
                    sidestep.path("one.safetensors"), stdout=re.compile(".*: 1 tensor, .*\n"))
    result = sidestep.run("convert", "--partial", f"--include={gone[0]}", checkpoint,
                          sidestep.path("none.safetensors"))
    assert result.status == 3 and "no tensor that is wanted can be read" in result.stderr, \
        result.describe()
    assert not os.path.exists(sidestep.path("none.safetensors"))


def test_unreadable_metadata_is_named_once(sidestep):
    """a message about .metadata does not repeat the path, which precedes it"""
    checkpoint = sidestep.copy("torch-2.14.1/nested")
    os.truncate(f"{checkpoint}/.metadata", 10)
    result = sidestep.run("verify", checkpoint)
    assert result.status == 3 and result.stdout.count(checkpoint) == 1, result.describe()
    assert "\n  format: .metadata: " in result.stdout, result.describe()


def test_unlisted_problems(sidestep):
    """if the data of many names is lost, a thousand are listed and the others counted"""
    saver = Saver(os.path.dirname(sidestep.program))
    number = array.array("f", [1])
    names = [f"w.{i}".encode() for i in range(1200)]
    saver.save(sidestep.path("ckpt"), 1, [(name, 2, [1], number) for name in names], [])
    saver.close()
    shard, = [name for name in os.listdir(sidestep.path("ckpt")) if name.endswith(".distcp")]
    os.remove(sidestep.path(f"ckpt/{shard}"))
    report = sidestep.json("verify", sidestep.path("ckpt"), status=3)
    assert (len(report["problems"]), report["unlisted"]) == (1000, 201), len(report["problems"])
    result = sidestep.run("verify", sidestep.path("ckpt"))
    assert ", 1201 problems\n" in result.stdout, result.stdout[:200]
    assert result.stdout.endswith("\n  and 201 more\n"), result.stdout[-200:]


def test_metadata_gone(sidestep):
    """without .metadata there is no checkpoint: status 4"""
    checkpoint = sidestep.copy("torch-2.14.1/nested")
    os.remove(f"{checkpoint}/.metadata")
    assert sidestep.json_error("show", checkpoint, status=4)["status"] == "EUNCOMMITTED"
    problem, = sidestep.json("verify", checkpoint, status=4)["problems"]
    assert (problem["file"], problem["kind"]) == (".metadata", "incomplete"), problem
    assert sidestep.json_error("cat", checkpoint, "w", status=4)["status"] == "EUNCOMMITTED"


def test_metadata_cut(sidestep):
    """.metadata that is cut anywhere is damage, never a crash"""
    checkpoint = sidestep.copy("torch-2.14.1/nested")
    with open(f"{checkpoint}/.metadata", "rb") as file:
        whole = file.read()
    for size in range(0, len(whole), 97):
        with open(f"{checkpoint}/.metadata", "wb") as file:
            file.write(whole[:size])
        result = sidestep.run("show", checkpoint)
        assert result.status in (3, 4, 5) and result.stderr.count("\n") == 1, result.describe()


def test_metadata_executes_nothing(sidestep):
    """.metadata that calls os.system is refused, and nothing runs"""
    checkpoint = sidestep.copy("torch-2.14.1/nested")
    witness = sidestep.path("witness")
    with open(f"{checkpoint}/.metadata", "wb") as file:
        file.write(b"\x80\x02cposix\nsystem\nX" + len(f"touch {witness}").to_bytes(4, "little") +
                   f"touch {witness}".encode() + b"\x85R.")
    for command in ("show", "verify"):
        assert sidestep.run(command, checkpoint).status == 3
    assert not os.path.exists(witness)


def test_hostile_names(sidestep):
    """names from .metadata are escaped wherever they are printed"""
    checkpoint = sidestep.copy("torch-2.14.1/nested")
    with open(f"{checkpoint}/.metadata", "rb") as file:
        metadata = file.read()
    hostile = b"\x1b[2J\n\r\t"  # as long as what it replaces
    assert metadata.count(b"o.a.1.x") >= 1
    with open(f"{checkpoint}/.metadata", "wb") as file:
        file.write(metadata.replace(b"o.a.1.x", hostile))
    for arguments in [["show"], ["show", "--tree"], ["show", "--chunks"], ["verify"],
                      ["show", "--json"], ["verify", "--json"]]:
        result = sidestep.run(*arguments, checkpoint)
        for text in (result.stdout, result.stderr):
            assert text.replace("\n", "").isprintable(), result.describe()
    result = sidestep.run("show", checkpoint)
    if result.status == 0:  # a reader may also refuse such a name
        assert r"\x1b[2J\n\r\t" in result.stdout, result.describe()


def test_special_files(sidestep):
    """a pipe, a device, a directory, a huge sparse file instead of a file: refused at once"""
    def fifo(path):
        os.mkfifo(path)

    def zero(path):
        os.symlink("/dev/zero", path)

    def giant(path):
        with open(path, "wb") as file:
            os.truncate(file.fileno(), 1 << 42)

    def loop(path):
        os.symlink(os.path.basename(path), path)

    for number, make in enumerate((fifo, zero, giant, os.mkdir, loop)):
        for name in (".metadata", SHARD):
            checkpoint = sidestep.copy("torch-2.14.1/nested", f"{number}{name}")
            os.remove(f"{checkpoint}/{name}")
            make(f"{checkpoint}/{name}")
            started = time.monotonic()
            for arguments in [["show", checkpoint], ["verify", checkpoint], ["cat", checkpoint, "w"]]:
                if arguments[0] == "show" and name == SHARD:
                    continue  # it reads .metadata, and reports each object as unreadable
                if arguments[0] == "cat" and name == SHARD and make is giant:
                    continue  # longer than necessary, and it contains the tensor or not
                result = sidestep.run(*arguments, binary=True)
                assert result.status not in (0, 2) and result.status > 0, result.describe()
            assert time.monotonic() - started < 20, (make, name)


def test_interrupt(sidestep):
    """an interrupt ends verify with status 130 or its result, and never prints half a document"""
    checkpoint = sidestep.copy("torch-2.14.1/four_ranks")
    process = subprocess.Popen([sidestep.program, "--json", "verify", checkpoint],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=sidestep.environment())
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    if process.returncode == 0:
        assert stdout.endswith(b"}\n") and stderr == b"", (stdout, stderr)
    else:
        assert process.returncode in (130, -signal.SIGINT) and stdout == b"", (process, stdout)


def test_each_command_tells_damage(sidestep):
    """a shard is missing: no command reports success, but those that need no shard"""
    needs_no_shard = {"gc", "prune", "watch", "metrics", "events", "trace", "report", "pin", "unpin",
                      "tag", "doctor", "bench", "completion", "help", "version"}
    for number, command in enumerate(COMMANDS):
        if command in needs_no_shard:
            continue
        path = sidestep.copy("sidestep-1/plain", f"run-{number}/step-12")
        os.unlink(os.path.join(path, "__0_0.distcp"))
        more = {"cat": ["model.w"], "diff": [sidestep.copy("sidestep-1/plain", f"other-{number}")],
                "convert": [sidestep.path("out.safetensors")], "cp": [sidestep.path("copy")],
                "mirror": [sidestep.path("mirror")]}
        place = os.path.dirname(path) if command in ("ls", "latest", "check", "mirror") else path
        result = sidestep.run(command, place, *more.get(command, []))
        if command == "ls":
            assert "damaged" in result.stdout, result.describe()
        else:
            assert result.status == {"rebuild": 10, "check": 2, "mirror": 10}.get(command, 3), result.describe()
