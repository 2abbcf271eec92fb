# SPDX-License-Identifier: BSD-3-Clause
"""The last checkpoint of a run in a format that others read."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Optional, Union

from ._abi import Dtype
from ._checked import a_path, a_text
from ._convert import convert, size_of

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Final:
    """The format of the last checkpoint of a run.

    format          "safetensors": a directory with ``model.safetensors``, or several files and
                    ``model.safetensors.index.json``; "torch": one file, for ``torch.load``; "dcp":
                    a checkpoint as the others are, but of the model alone, or of another dtype
    path            relative to the root of the checkpoints; None: "final" or "final.pt"
    only            names that begin with this and a dot are taken, without it; None: all tensors
    dtype           floating-point tensors are converted to it; None: as they are
    max_shard_size  of a file of safetensors: bytes, or "5GB"
    """

    format: Literal["safetensors", "torch", "dcp"] = "safetensors"
    path: Optional[str] = None
    only: Optional[str] = "model"
    dtype: Optional[torch.dtype] = None
    max_shard_size: Union[int, str] = "5GB"

    def __post_init__(self) -> None:
        if self.format not in ("safetensors", "torch", "dcp"):
            raise ValueError(f"format={self.format!r} is none of: safetensors, torch, dcp")
        size_of(self.max_shard_size)
        if self.path is not None:
            a_path(self.path, "path")
        if self.only is not None:
            a_text(self.only, "only")
        if (
            self.dtype is not None
            and str(self.dtype).rpartition(".")[2].upper() not in Dtype.__members__
        ):
            raise ValueError(f"dtype={self.dtype!r} is no dtype of torch's")

    def path_in(self, root: str) -> str:
        """Where it goes."""
        return os.path.join(root, self.path or ("final.pt" if self.format == "torch" else "final"))

    @property
    def shard_bytes(self) -> int:
        """``max_shard_size`` as a number."""
        return size_of(self.max_shard_size)


def export(
    checkpoint: Union[str, os.PathLike[str]],
    path: Union[str, os.PathLike[str]],
    final: Optional[Final] = None,
) -> None:
    """Write the tensors of ``checkpoint`` (of ours or torch's) to ``path`` in another format:
    `convert`, with what `Final` has of it.  What an earlier export left there is replaced.

    Errors: those of `convert`.
    """
    if not isinstance(final, (Final, type(None))):
        raise TypeError(f"final={final!r} is no sidestep.Final")
    final = final or Final(only=None)
    include: list[str] = []
    rename: list[str] = []
    if final.only:
        include = [re.sub(r"([*?\[\\])", r"[\1]", final.only) + ".*"]
        rename = [f"s\x01^{re.escape(final.only)}[.]\x01\x01"]
    convert(
        checkpoint,
        path,
        to=final.format,
        include=include,
        rename=rename,
        dtype=final.dtype,
        objects="skip",
        max_shard_size=final.shard_bytes,
        replace=True,
    )
