# SPDX-License-Identifier: BSD-3-Clause
"""`Planes`: lets stock torch read checkpoints that were saved with ``compress="planes"``, as an
extension of its reader.  Also decides what extensions of a caller mean to sidestep.

torch before 2.7 has no extensions: the names exist, but cannot be used.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import IO, TYPE_CHECKING, Any, Optional

from .._c.calls import call_for_bytes
from .._c.library import lib

if TYPE_CHECKING:
    from torch.distributed.checkpoint._extension import ExtensionRegistry, StreamTransformExtension
else:
    try:
        from torch.distributed.checkpoint._extension import StreamTransformExtension
    except ImportError:
        StreamTransformExtension = object

DESCRIPTOR = "sidestep.planes/1"
NO_LIMIT = (1 << 64) - 1


class Planes(StreamTransformExtension):
    """``FileSystemReader(path, _extension_registry=sidestep.extension_registry())`` reads it.

    It only decodes: an item is compressed by its dtype, which a stream does not know.
    ``FileSystemWriter(_extensions=[Planes()])`` is understood by `sidestep.save`, as
    ``SaveOptions(compress="planes")``.
    """

    @staticmethod
    def registry_name() -> str:
        """Its name in torch's registry."""
        return "sidestep.planes"

    @staticmethod
    def from_descriptor(version: str) -> Planes:
        """Make it from the descriptor of a stored item."""
        if version != "1":
            raise ValueError(f"sidestep.planes: version {version} is newer than this package")
        return Planes()

    def get_descriptor(self) -> str:
        """The descriptor that is stored with items."""
        return DESCRIPTOR

    def transform_to(self, output: IO[bytes]) -> IO[bytes]:
        """Raises NotImplementedError."""
        raise NotImplementedError(
            "torch cannot write sidestep.planes: use sidestep.save, and compress='planes'"
        )

    def transform_from(self, input: IO[bytes]) -> IO[bytes]:
        """The decoded item.  Errors: `sidestep.Error` (ECORRUPT)."""
        return io.BytesIO(decode(DESCRIPTOR, input.read()))


EXTENSIONS = {Planes: "planes"}
"""Ours, and the ``compress`` that each stands for."""


def decode(descriptor: str, stored: bytes, most: int = NO_LIMIT) -> bytes:
    """Decode an item, or a part of a file, that has a transform of the library."""
    return call_for_bytes(lib().sidestep_decode, descriptor.encode(), stored, len(stored), most)


def extension_registry() -> ExtensionRegistry:
    """torch's registry of extensions, with `Planes` in it."""
    from torch.distributed.checkpoint._extension import ExtensionRegistry

    registry = ExtensionRegistry()
    for extension in EXTENSIONS:
        registry.register(extension)
    return registry


def compress_of(extensions: Iterable[Any]) -> Optional[str]:
    """The ``compress`` that equals ``extensions``; None: there is none, or only torch can do it."""
    descriptors = [_ours(type(extension)) for extension in extensions]
    return descriptors[0] if len(descriptors) == 1 else None


def is_known(registry: Any) -> bool:
    """Whether the library reads everything that ``registry`` reads."""
    standard = type(registry)().extensions
    return all(
        standard.get(name) is kind or kind in EXTENSIONS
        for name, kind in registry.extensions.items()
    )


def _ours(kind: type) -> Optional[str]:
    if kind in EXTENSIONS:
        return EXTENSIONS[kind]
    name = f"{kind.__module__}.{kind.__qualname__}"
    return "zstd" if name == "torch.distributed.checkpoint._extension.ZStandard" else None
