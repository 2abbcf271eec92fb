# SPDX-License-Identifier: BSD-3-Clause
"""Renames that replace nothing, and files that appear whole."""

import errno

import pytest

from sidestep import _put


@pytest.fixture(params=["renameat2", "by hand"])
def way(request, monkeypatch):
    if request.param == "by hand":
        monkeypatch.setattr(_put, "_renameat2", lambda old, new: errno.EINVAL)


def make(path, kind):
    if kind == "directory":
        path.mkdir()
        (path / "inside").write_text("of the user")
    elif kind == "link":
        path.symlink_to("nowhere")
    else:
        path.write_text("of the user")


def content(path):
    if path.is_symlink():
        return path.readlink()
    return (path / "inside" if path.is_dir() else path).read_text()


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("there", ["file", "directory", "link"])
@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_nothing_is_replaced(tmp_path, kind, there):
    old, new, free = tmp_path / "old", tmp_path / "new", tmp_path / "free"
    make(old, kind)
    make(new, there)
    before = content(old), content(new)
    with pytest.raises(FileExistsError):
        _put.rename_new(str(old), str(new))
    assert (content(old), content(new)) == before
    assert _put.put_aside(str(old), iter([str(new), str(free)])) == str(free)
    assert (content(free), content(new)) == before
    assert not old.exists() and not old.is_symlink()


def test_a_file_that_appears_meanwhile_stays(tmp_path):
    """It has the name from when it was found to be free."""
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("ours")

    def names():
        new.write_text("of the user")
        yield str(new)
        yield str(tmp_path / "other")

    assert _put.put_aside(str(old), names()) == str(tmp_path / "other")
    assert new.read_text() == "of the user"


def test_a_file_appears_whole(tmp_path):
    """What others have beside it stays, also under names that look like parts of it."""
    file, theirs = tmp_path / "model.bin", tmp_path / "model.bin.part"
    theirs.write_text("of the user")
    with _put.whole_file(str(file)) as part:
        with open(part, "w") as out:
            out.write("all")
        assert not file.exists()
    with pytest.raises(RuntimeError), _put.whole_file(str(file)) as part:
        with open(part, "w") as out:
            out.write("ha")
        raise RuntimeError
    assert file.read_text() == "all"
    assert theirs.read_text() == "of the user"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.bin", "model.bin.part"]
