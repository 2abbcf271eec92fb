# SPDX-License-Identifier: BSD-3-Clause
"""Each framework has its pinned version, the torch of .venv, and the package of this tree."""

import os

import environments
import pytest

FRAMEWORKS = ["lightning", "transformers", "torchtitan", "torchtune", "megatron", "deepspeed", "ray"]


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_versions(name):
    environment = environments.find(name)
    pins = (environment.python.parent.parent / "requirements").read_text().split()
    versions = dict(pin.split("==") for pin in pins)
    versions = {name.partition("[")[0]: version for name, version in versions.items()}
    ended = environment.run("versions.py", *versions, "torch")
    ended.ok()
    assert {one: ended.values(one)[0] for one in versions} == versions
    assert ended.values("torch")[0].startswith("2.13.0")
    assert ended.values("sidestep")[0].startswith(str(environments.TOP / "python"))


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_its_programs_have_a_python(name):
    """They name it by its path."""
    place = environments.find(name).python.parent
    first = {path.name: path.read_bytes().partition(b"\n")[0] for path in place.iterdir()}
    pythons = {name: os.fsdecode(line[2:]) for name, line in first.items() if line[:3] == b"#!/"}
    assert "pip" in pythons
    assert {name: one for name, one in pythons.items() if not os.path.exists(one)} == {}


def test_a_program_that_fails_is_noticed():
    environment = environments.find("lightning")
    ended = environment.run("versions.py", "no-such-package")
    assert ended.status == 1
    with pytest.raises(AssertionError, match="PackageNotFoundError"):
        ended.ok()


def test_every_file_of_tests_is_in_a_suite():
    runner = (environments.TOP / "tools" / "run-tests").read_text()
    here = environments.TOP / "tests" / "frameworks"
    assert [path.name for path in here.glob("test_*.py") if f"/{path.name}" not in runner] == []


def test_every_example_is_run():
    here = environments.TOP / "tests"
    places = [*here.glob("frameworks/test_*.py"), *(here.parent / "python" / "tests").glob("*.py")]
    tests = "".join(path.read_text() for path in places)
    examples = [path.name for path in (environments.TOP / "examples").glob("*.py")]
    assert len(examples) > 5
    assert [name for name in examples if f'"{name}"' not in tests] == []
