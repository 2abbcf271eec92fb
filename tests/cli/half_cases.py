"""Half a model never passes for a whole one: files of a set that are missing, and pointers of Git LFS
and git-annex in place of files.

All commands say the same: status 4, and which files are missing.
"""
import json
import os
import re

from layout_cases import Root

SHARDS = [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
BINS = [f"pytorch_model-0000{i}-of-00003.bin" for i in (1, 2, 3)]
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"ab" * 32 + b"\nsize 12345\n"
ANNEX = b"/annex/objects/SHA256E-s12345--" + b"ab" * 32 + b".safetensors\n"


def expect_half(sidestep, path, words, tensor="w0"):
    """Check that each command says that ${path} is incomplete, and ${words}."""
    made = sidestep.path("made.pt")
    for arguments in (["show", path], ["verify", path], ["convert", path, made], ["show", "--stats", path],
                      ["diff", path, path], ["cat", path, tensor]):
        result = sidestep.run(*arguments)
        said = result.stdout + result.stderr
        assert result.status == 4 and re.search(words, said), result.describe()
        assert not os.path.exists(made), result.describe()


def expect_whole(sidestep, path):
    for arguments in (["show", path], ["verify", path], ["convert", path, sidestep.path("made.pt")]):
        result = sidestep.run(*arguments)
        assert result.status == 0, result.describe()
    os.remove(sidestep.path("made.pt"))


def one_each(root, names, tensors):
    """Write a file of one tensor for each name; the tensors have different names."""
    for number, name in enumerate(names):
        path = root.safetensors(name, tensors)
        with open(path, "rb") as file:
            data = file.read()
        root.write(name, data.replace(b'"w', b'"%c' % (ord("a") + number)))


def test_shards_without_siblings(sidestep):
    """safetensors of a set, without an index: all of them, or none"""
    root = Root(sidestep)
    one_each(root, [f"hub/{name}" for name in SHARDS], 1)
    hub = sidestep.path("hub")
    expect_whole(sidestep, hub)
    os.rename(f"{hub}/{SHARDS[1]}", sidestep.path("kept"))
    expect_half(sidestep, hub, f"incomplete: {SHARDS[1]} is missing")
    os.remove(f"{hub}/{SHARDS[0]}")
    expect_half(sidestep, hub, f"incomplete: {SHARDS[0]}, {SHARDS[1]} are missing")
    os.rename(f"{hub}/{SHARDS[2]}", f"{hub}/epoch-3-of-9.safetensors")  # not the name of a set
    expect_whole(sidestep, hub)


def test_numbers_from_zero(sidestep):
    """a set whose numbers begin with 0"""
    root = Root(sidestep)
    names = [f"hub/weights-0000{i}-of-00003.safetensors" for i in (0, 1, 2)]
    one_each(root, names, 1)
    expect_whole(sidestep, sidestep.path("hub"))
    os.remove(sidestep.path(names[2]))
    expect_half(sidestep, sidestep.path("hub"), "weights-00002-of-00003.safetensors is missing")


def test_index_names_what_is_missing(sidestep):
    """an index names files that are not there"""
    root = Root(sidestep)
    root.safetensors(f"hub/{SHARDS[0]}", 1)
    root.write("hub/model.safetensors.index.json", json.dumps({"weight_map": {
        "w0": SHARDS[0], "a": SHARDS[1], "b": SHARDS[1], "c": SHARDS[2], "d": "x.safetensors",
        "e": "y.safetensors"}}).encode())
    expect_half(sidestep, sidestep.path("hub"),
                f"{SHARDS[1]}, {SHARDS[2]}, x.safetensors and 1 more are missing")


def test_bins(sidestep):
    """pytorch_model-*.bin, without an index and with one"""
    root = Root(sidestep)
    hub = sidestep.path("hub")
    root.torch(f"hub/{BINS[0]}")
    expect_half(sidestep, hub, f"incomplete: {BINS[1]}, {BINS[2]} are missing")
    root.index("hub/pytorch_model.bin.index.json", BINS[:2])
    expect_half(sidestep, hub, f"{BINS[1]}(, {BINS[2]} are| is) missing")


def test_pointers(sidestep):
    """pointers of Git LFS and git-annex in place of files, of indexes, of shards and of .metadata"""
    root = Root(sidestep)
    for number, (name, data) in enumerate((
            ("model.safetensors", LFS), ("model.safetensors", ANNEX), ("pytorch_model.bin", LFS),
            (SHARDS[2], LFS), ("model.safetensors.index.json", LFS))):
        folder = f"hub{number}"
        if name in SHARDS:
            one_each(root, [f"{folder}/{shard}" for shard in SHARDS[:2]], 1)
        elif name.endswith("json"):
            root.safetensors(f"{folder}/model-00001-of-00001.safetensors")
        path = root.write(f"{folder}/{name}", data)
        keeper = "git-annex" if data is ANNEX else "Git LFS"
        expect_half(sidestep, sidestep.path(folder), f"{name}.*a pointer of {keeper}")
        if not name.endswith("json"):
            expect_half(sidestep, path, f"a pointer of {keeper}, and the file itself has not arrived")
    for name in ("__0_0.distcp", ".metadata"):
        checkpoint = sidestep.copy("torch-2.14.1/nested", f"dcp{name}")
        root.write(f"dcp{name}/{name}", LFS)
        expect_half(sidestep, checkpoint, f"{name}.*a pointer of Git LFS", tensor="w")
