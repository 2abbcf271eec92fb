# SPDX-License-Identifier: BSD-3-Clause
"""The wheel: made of the source tree, installed where nothing else is, and used from elsewhere."""

from __future__ import annotations

import email
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from sidestep._c import abi

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "torch-2.6.0"
# In the build's folder, so that a second run compiles only what was changed.
BUILD = ROOT / "build" / "wheel"
BESIDE_LIBRARY = {"libsidestep.so.0", "bin/sidestep", "py.typed"}


def attempt(*command: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program without what the tests set in the environment."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "SIDESTEP_LIBRARY", "PYTHONSTARTUP")
    }
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**kept, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )


def run(*command: object, cwd: Path, **environment: str) -> str:
    """What a program printed that must succeed."""
    done = attempt(*command, cwd=cwd, **environment)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def tools() -> str:
    """PATH that begins with the programs of this Python's environment: ninja, meson."""
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def test_without_a_compiler(tmp_path: Path) -> None:
    pytest.importorskip("mesonpy")
    environment = {"PATH": str(tmp_path), "PYTHONPATH": str(ROOT / "python" / "backend")}
    code = f"import sidestep_backend; sidestep_backend.build_wheel({str(tmp_path)!r})"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.startswith("sidestep: there is no C compiler: apt-get install gcc libc6-dev")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for module in ("mesonpy", "wheel"):
        pytest.importorskip(module)
    if not (shutil.which("gcc") or shutil.which("cc")):
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("wheel")
    where = BUILD if BUILD.parent.is_dir() else folder / "build"
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    quick = "--config-settings=setup-args=-Doptimization=0"  # half of the time to compile
    run(*pip, quick, f"--config-settings=build-dir={where}", f"--wheel-dir={folder}", ROOT,
        cwd=folder, PATH=tools())  # fmt: skip
    (found,) = folder.glob("*.whl")
    return found


@dataclass
class Installed:
    """A fresh environment that holds the wheel and nothing else."""

    python: Path
    command: Path
    package: Path
    elsewhere: Path

    def evaluate(self, program: str, **environment: str) -> object:
        """What the program's ``result`` is."""
        text = f"import json\n{program}\nprint(json.dumps(result))"
        return json.loads(run(self.python, "-c", text, cwd=self.elsewhere, **environment))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv", cwd=folder)
    python = folder / "venv" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", f"--python={python}", "install", "--quiet", "--no-index")
    run(*pip, wheel, cwd=folder)
    (folder / "elsewhere").mkdir()
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    package = folder / "venv" / "lib" / version / "site-packages" / "sidestep"
    return Installed(python, python.parent / "sidestep", package, folder / "elsewhere")


def test_tag(wheel: Path) -> None:
    system = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert system == f"linux_{platform.machine()}"
    assert wheel.name == f"sidestep-{abi.VERSION}-py3-none-{system}.whl"
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"sidestep-{abi.VERSION}.dist-info/WHEEL").decode()
    fields = email.message_from_string(text)
    assert fields.get_all("Tag") == [f"py3-none-{system}"]
    assert fields["Root-Is-Purelib"] == "false"


def test_contents(wheel: Path) -> None:
    """Every module of the tree and the one made of the header, the library, the program, the
    licence; and nothing else."""
    package = ROOT / "python" / "sidestep"
    modules = {path.relative_to(package).as_posix() for path in package.rglob("*.py")}
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        program = archive.getinfo("sidestep/bin/sidestep")
    inside = {name[len("sidestep/") :] for name in names if name.startswith("sidestep/")}
    assert inside == modules | BESIDE_LIBRARY
    assert len(modules) > 10
    info = f"sidestep-{abi.VERSION}.dist-info"
    rest = {name for name in names if not name.startswith("sidestep/")}
    parts = ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")
    assert rest == {f"{info}/{part}" for part in parts}
    assert program.external_attr >> 16 & 0o111 == 0o111


def test_metadata(wheel: Path) -> None:
    info = f"sidestep-{abi.VERSION}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        fields = email.message_from_bytes(archive.read(f"{info}/METADATA"))
        entry_points = archive.read(f"{info}/entry_points.txt").decode()
    assert fields["Version"] == abi.VERSION
    assert fields["License-Expression"] == "BSD-3-Clause"
    assert fields["Requires-Python"] in (">=3.9", ">= 3.9")
    # torch is an extra, and nothing is needed without it
    assert all("extra == " in need for need in fields.get_all("Requires-Dist"))
    assert entry_points.split() == ["[console_scripts]", "sidestep", "=", "sidestep.__main__:main"]


def test_asserts_stay_on(wheel: Path) -> None:
    """The build's settings are the project's own, not those of a Python extension."""
    with zipfile.ZipFile(wheel) as archive:
        assert b"__assert_fail" in archive.read("sidestep/libsidestep.so.0")


def test_import_without_torch(installed: Installed) -> None:
    result = installed.evaluate("""
import sys, sidestep
from sidestep._c.library import lib
heavy = [name for name in ("torch", "numpy") if name in sys.modules]
result = [sidestep.__file__, lib().sidestep_version().decode(), lib()._name, heavy]
""")
    package = installed.package
    library = package / "libsidestep.so.0"
    assert result == [str(package / "__init__.py"), abi.VERSION, str(library), []]


def test_import_loads_no_library(installed: Installed) -> None:
    """Only use does; and it is the package's own, whatever SIDESTEP_LIBRARY says."""
    result = installed.evaluate(
        """
import sidestep
before = "libsidestep" in open("/proc/self/maps").read()
from sidestep._c.library import lib
result = [before, lib()._name]
""",
        SIDESTEP_LIBRARY="/nowhere/libsidestep.so",
    )
    assert result == [False, str(installed.package / "libsidestep.so.0")]


def test_command(installed: Installed) -> None:
    assert run(installed.command, "--version", cwd=installed.elsewhere).split() == [
        "sidestep",
        abi.VERSION,
    ]
    with_module = run(installed.python, "-m", "sidestep", "--version", cwd=installed.elsewhere)
    assert with_module.split() == ["sidestep", abi.VERSION]


def test_command_reads_a_checkpoint_of_torch(installed: Installed) -> None:
    checkpoints = sorted(path.parent for path in GOLDEN.rglob(".metadata"))
    assert checkpoints
    for path in checkpoints[:3]:
        shown = run(installed.command, "show", path, cwd=installed.elsewhere)
        assert "dcp" in shown
        assert len(shown.splitlines()) > 3


def test_exit_status_of_the_command(installed: Installed) -> None:
    """It is the program's own: the process was replaced, not wrapped."""
    done = attempt(installed.command, "show", "nowhere", cwd=installed.elsewhere)
    assert done.returncode == 10
    assert "nowhere" in done.stderr


def test_command_of_a_tree_without_the_program(tmp_path: Path) -> None:
    """In a source tree there is none, and that is said."""
    python = str(ROOT / "python")
    done = attempt(sys.executable, "-m", "sidestep", cwd=tmp_path, PYTHONPATH=python)
    assert done.returncode == 1
    assert "bin/sidestep: No such file or directory" in done.stderr


def test_sdist(tmp_path: Path) -> None:
    """From a commit of what is in this tree: the archive holds all that a build needs."""
    pytest.importorskip("mesonpy")
    if shutil.which("git") is None:
        pytest.skip("no git: the archive of the sources is made of a commit")
    tree = tmp_path / "tree"
    skipped = shutil.ignore_patterns(
        "build*", ".git", ".venv", "__pycache__", "golden", "corpus", ".cache", ".hypothesis"
    )
    shutil.copytree(ROOT, tree, symlinks=True, ignore=skipped)
    git = ("git", "-c", "user.name=test", "-c", "user.email=test@localhost")
    run("git", "init", "--quiet", cwd=tree)
    run("git", "add", "--all", cwd=tree)
    run(*git, "commit", "--quiet", "--no-verify", "--message=all", cwd=tree)
    program = (
        "import sys; sys.path.insert(0, 'python/backend'); import sidestep_backend;"
        f"print(sidestep_backend.build_sdist({str(tmp_path)!r}))"
    )
    printed = run(sys.executable, "-c", program, cwd=tree, PATH=tools())
    name = printed.split()[-1]
    assert name == f"sidestep-{abi.VERSION}.tar.gz"
    with tarfile.open(tmp_path / name) as archive:
        names = set(archive.getnames())
    top = f"sidestep-{abi.VERSION}"
    for path in (
        *("PKG-INFO", "LICENSE", "README.md", "meson.build", "pyproject.toml", "libsidestep.map"),
        *("python/meson.build", "python/backend/sidestep_backend.py", "tools/list-sources"),
        *("include/sidestep/sidestep_tools.h", "include/sidestep/sidestep_series.h"),
        *("include/sidestep/sidestep.h", "python/sidestep/_c/__init__.py", "tools/make-abi"),
        "python/sidestep/py.typed",
    ):
        assert f"{top}/{path}" in names
    for pattern in ("src/**/*.c", "src/**/*.h", "cli/*.c"):
        files = [path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern)]
        assert len(files) > 10
        assert {f"{top}/{path}" for path in files} <= names
