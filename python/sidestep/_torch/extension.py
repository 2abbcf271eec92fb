# SPDX-License-Identifier: BSD-3-Clause
"""`Planes`: sidestep's own compression as an extension of torch's reader, so that stock torch reads
checkpoints that were saved with ``compress="planes"``; and what extensions mean to sidestep.

Torches before 2.7 have no extensions; there the names are here, and cannot be used.
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
    ``Writer(compress="planes")``.
    """

    @staticmethod
    def registry_name() -> str:
        """Under which torch's registry finds it."""
        return "sidestep.planes"

    @staticmethod
    def from_descriptor(version: str) -> Planes:
        """As stored items ask for it."""
        if version != "1":
            raise ValueError(f"sidestep.planes: version {version} is newer than this package")
        return Planes()

    def get_descriptor(self) -> str:
        """What items are stored with."""
        return DESCRIPTOR

    def transform_to(self, output: IO[bytes]) -> IO[bytes]:
        """Raises NotImplementedError."""
        raise NotImplementedError(
            "torch cannot write sidestep.planes: use sidestep.save, with Writer(compress='planes')"
        )

    def transform_from(self, input: IO[bytes]) -> IO[bytes]:
        """The decoded item.  Errors: `sidestep.Error` (ECORRUPT)."""
        return io.BytesIO(decode(DESCRIPTOR, input.read()))


def decode(descriptor: str, stored: bytes, most: int = NO_LIMIT) -> bytes:
    """An item, or part of a file, that was stored with a transform of the library's."""
    return call_for_bytes(lib().sidestep_decode, descriptor.encode(), stored, len(stored), most)


def extension_registry() -> ExtensionRegistry:
    """torch's registry of extensions, with `Planes` in it."""
    from torch.distributed.checkpoint._extension import ExtensionRegistry

    registry = ExtensionRegistry()
    registry.register(Planes)
    return registry


def compress_of(extensions: Iterable[Any]) -> Optional[str]:
    """What ``extensions`` are to `sidestep.save`; None: none, or not ours to do."""
    descriptors = [_ours(type(extension)) for extension in extensions]
    return descriptors[0] if len(descriptors) == 1 else None


def is_known(registry: Any) -> bool:
    """Whether all that ``registry`` reads the library reads, too."""
    standard = type(registry)().extensions
    return all(
        standard.get(name) is kind or _ours(kind) == "planes"
        for name, kind in registry.extensions.items()
    )


def _ours(kind: type) -> Optional[str]:
    if kind is Planes:
        return "planes"
    name = f"{kind.__module__}.{kind.__qualname__}"
    return "zstd" if name == "torch.distributed.checkpoint._extension.ZStandard" else None
