# SPDX-License-Identifier: BSD-3-Clause
"""hostile.py -- makes hostile input: pickles, archives, zstd frames and manifests that correct writers
do not write."""
import hashlib
import io
import json
import os
import struct
import warnings
import zipfile

METADATA = "torch.distributed.checkpoint.metadata"
FILESYSTEM = "torch.distributed.checkpoint.filesystem"


# ---- pickles: each function returns the opcodes that leave one value on the stack

def none():
    return b"N"


def boolean(value):
    return b"\x88" if value else b"\x89"


def text(value):
    raw = value if isinstance(value, bytes) else value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def number(value):
    return b"L%dL\n" % value


def tup(*items):
    return b"(" + b"".join(items) + b"t"


def sequence(*items):
    return b"](" + b"".join(items) + b"e"


def mapping(*pairs):
    return b"}(" + b"".join(key + value for key, value in pairs) + b"u"


def symbol(module, name):
    return f"c{module}\n{name}\n".encode()


def call(function, *arguments):
    return function + tup(*arguments) + b"R"


def instance(module, name, **fields):
    return (symbol(module, name) + b")\x81" +
            mapping(*((text(key), value) for key, value in fields.items())) + b"b")


def size(*numbers):
    return call(symbol("torch", "Size"), tup(*map(number, numbers)))


def pickled(value):
    return b"\x80\x02" + value + b"."


# ---- torch's metadata.  boxes: [(offsets, lengths)]

def chunk(offsets, lengths):
    return instance(METADATA, "ChunkStorageMetadata", offsets=size(*offsets), sizes=size(*lengths))


def tensor(dtype, shape, boxes, **more):
    fields = {"properties": instance(METADATA, "TensorProperties", dtype=symbol("torch", dtype),
                                     requires_grad=boolean(False)),
              "size": size(*shape), "chunks": sequence(*(chunk(*one) for one in boxes)), **more}
    return instance(METADATA, "TensorStorageMetadata", **fields)


def blob():
    return instance(METADATA, "BytesStorageMetadata")


def stored(file, first, count, **more):
    fields = {"relative_path": text(file), "offset": number(first), "length": number(count), **more}
    return instance(FILESYSTEM, "_StorageInfo", **fields)


def index(name, offsets=None):
    return instance(METADATA, "MetadataIndex", fqn=text(name), index=none(),
                    offset=none() if offsets is None else size(*offsets))


def metadata(entries, storage, **more):
    """entries: [(name, opcodes)], storage: [(index, opcodes)]."""
    fields = {"state_dict_metadata": mapping(*((text(name), entry) for name, entry in entries)),
              "planner_data": none(), "storage_data": mapping(*storage), **more}
    return pickled(instance(METADATA, "Metadata", **fields))


def storage_meta(save_id):
    return instance(METADATA, "StorageMeta", checkpoint_id=text("forged"), save_id=text(save_id),
                    load_id=none(), modules=sequence())


# ---- archives

def tensor_pickle(storage, shape, elements=None, key="0"):
    strides, step = [], 1
    for length in reversed(shape):
        strides.insert(0, step)
        step *= length
    identity = tup(text("storage"), symbol("torch", storage), text(key), text("cpu"),
                   number(step if elements is None else elements))
    return pickled(call(symbol("torch._utils", "_rebuild_tensor_v2"), identity + b"Q", number(0),
                        tup(*map(number, shape)), tup(*map(number, strides)), boolean(False),
                        call(symbol("collections", "OrderedDict"))))


def archive(members, compression=zipfile.ZIP_STORED, comment=b""):
    """members: [(name, bytes)]."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about duplicate names
        file.comment = comment
        for name, data in members:
            file.writestr(f"archive/{name}", data)
    return out.getvalue()


def tensor_archive(storage, shape, data, **more):
    return archive([("data.pkl", tensor_pickle(storage, shape)), ("byteorder", b"little"),
                    ("data/0", data), ("version", b"3\n")], **more)


def zstd_of_zeroes(megabytes, window=0x58):
    """A frame of run-length blocks: 32 bytes per MiB. ${window}: the byte that describes the window."""
    blocks = megabytes * 8
    frame = b"\x28\xb5\x2f\xfd\x00" + bytes([window])
    for number_of_block in range(blocks):
        last = number_of_block == blocks - 1
        frame += struct.pack("<I", last | 1 << 1 | (128 << 10) << 3)[:3] + b"\0"
    return frame


# ---- files of a directory

def put(folder, name, data):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data)


def get(folder, name):
    with open(os.path.join(folder, name), "rb") as file:
        return file.read()


def manifest_name(folder):
    name, = [name for name in os.listdir(folder) if name.startswith(".sidestep.manifest.")]
    return name


def forge_manifest(folder, change=lambda document: None):
    """Make the manifest agree with .metadata again, after ${change} has edited it."""
    name = manifest_name(folder)
    document = json.loads(get(folder, name).split(b"\n")[0])
    data = get(folder, ".metadata")
    document["metadata"] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    change(document)
    line = json.dumps(document, separators=(",", ":")).encode() + b"\n"
    put(folder, name, line + b"sha256 " + hashlib.sha256(line).hexdigest().encode() + b"\n")
