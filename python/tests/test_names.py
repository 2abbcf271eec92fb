# SPDX-License-Identifier: BSD-3-Clause
"""Changing one import line is enough: every public name is there, and importing costs nothing."""

from __future__ import annotations

import importlib
import inspect
import pickle
import subprocess
import sys
import textwrap

import pytest
import torch.distributed.checkpoint as stock

import sidestep

PUBLIC_MODULES = [
    "api",
    "default_planner",
    "filesystem",
    "format_utils",
    "hf_storage",
    "logger",
    "logging_handlers",
    "metadata",
    "optimizer",
    "planner",
    "planner_helpers",
    "quantized_hf_storage",
    "resharding",
    "staging",
    "state_dict",
    "state_dict_loader",
    "state_dict_saver",
    "stateful",
    "storage",
    "utils",
]
OURS = {"save", "async_save", "load"}


def run(code: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_is_light() -> None:
    loaded = run("""
        import sys, sidestep
        sidestep.Error, sidestep.__version__
        print([name for name in ("torch", "numpy") if name in sys.modules])
    """)
    assert loaded == "[]"


def test_a_torch_that_is_too_old_is_refused() -> None:
    out = run("""
        import torch.distributed
        torch.__version__ = "2.4.1+cu121"
        try:
            import sidestep
        except ImportError as error:
            print(error)
    """)
    assert out.startswith("sidestep needs torch 2.5 or later, and this is 2.4.1+cu121:")


def test_without_torch() -> None:
    out = run("""
        import sys
        sys.modules["torch"] = None
        import sidestep
        for name in ("FileSystemWriter", "nothing", "_private"):
            try:
                getattr(sidestep, name)
            except AttributeError as error:
                print(error)
        try:
            import sidestep.state_dict
        except ModuleNotFoundError as error:
            print(error)
        print("Error" in dir(sidestep), sidestep.Error("why").message)
    """).splitlines()
    assert out == [
        "module 'sidestep' has no attribute 'FileSystemWriter'",
        "module 'sidestep' has no attribute 'nothing'",
        "module 'sidestep' has no attribute '_private'",
        "No module named 'sidestep.state_dict'",
        "True why",
    ]


def test_private_names_are_refused_without_importing_torch() -> None:
    assert (
        run("""
        import sys, sidestep
        assert not hasattr(sidestep, "_repr_html_") and not hasattr(sidestep, "__wrapped__")
        print("torch" in sys.modules)
    """)
        == "False"
    )


def test_every_public_name_of_the_package() -> None:
    names = [name for name in vars(stock) if not name.startswith("_")]
    assert len(names) > 25
    for name in names:
        ours = getattr(sidestep, name)
        if name not in OURS and not inspect.ismodule(getattr(stock, name)):
            assert ours is getattr(stock, name), name
        assert name in dir(sidestep)


@pytest.mark.parametrize("module", PUBLIC_MODULES)
def test_every_public_name_of_a_module(module: str) -> None:
    theirs = importlib.import_module(f"torch.distributed.checkpoint.{module}")
    alias = importlib.import_module(f"sidestep.{module}")
    assert getattr(sidestep, module).__name__.rpartition(".")[2] == module
    for name in getattr(theirs, "__all__", []):
        if name in OURS and hasattr(stock, name):
            assert getattr(alias, name) is getattr(sidestep, name)
            assert getattr(sidestep, name) is not getattr(theirs, name)
        else:
            assert getattr(alias, name) is getattr(theirs, name), name
            getattr(sidestep, name)
    assert theirs.__spec__ is not None  # the import machinery has not touched torch's module
    assert theirs.__spec__.name == theirs.__name__ == f"torch.distributed.checkpoint.{module}"


def test_import_statements() -> None:
    assert (
        run("""
        import sidestep as dcp
        import sidestep.state_dict
        import sidestep.state_dict_saver as saver
        from sidestep import DefaultSavePlanner, FileSystemReader, Stateful, get_state_dict
        from sidestep.stateful import Stateful as again
        from sidestep.staging import DefaultStager, StagingOptions
        from sidestep.state_dict_loader import load
        from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
        assert Stateful is again and dcp.state_dict.get_state_dict is get_state_dict
        assert saver.async_save is dcp.async_save and load is dcp.load
        assert saver.AsyncCheckpointerType is AsyncCheckpointerType
        from sidestep import *
        print(save is dcp.save, Error.__name__)
    """)
        == "True Error"
    )


def test_modules_that_torch_lacks_are_not_found() -> None:
    for name in ("sidestep.no_such_module", "sidestep._nothing", "sidestep.state_dict.more"):
        with pytest.raises(ModuleNotFoundError, match="sidestep"):
            importlib.import_module(name)


def test_what_is_torchs_pickles_as_torchs() -> None:
    planner = pickle.loads(pickle.dumps(sidestep.DefaultSavePlanner(flatten_state_dict=False)))
    assert type(planner) is stock.DefaultSavePlanner
    assert planner.flatten_state_dict is False


@pytest.mark.parametrize("name", sorted(OURS))
def test_signatures_are_those_of_torch(name: str) -> None:
    def parameters(function: object) -> list[tuple[str, object, object]]:
        assert callable(function)
        return [
            (p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()
        ]

    ours, theirs = parameters(getattr(sidestep, name)), parameters(getattr(stock, name))
    assert ours[: len(theirs)] == theirs
    assert len(ours) >= 6
    more = {"files": None, "strict_objects": False} if "save" in name else {}
    added = [(word, inspect.Parameter.KEYWORD_ONLY, default) for word, default in more.items()]
    assert ours[len(theirs) :] == added
