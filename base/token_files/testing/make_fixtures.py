"""Writes the fixtures beside it, by hands other than ours: numpy, and Megatron-LM's own writer.

    pip install numpy && pip download --no-deps megatron-core     # unpack the wheel; PyTorch is not needed
    python3 make_fixtures.py UNPACKED_WHEEL

The tokens are 3, 10, 17, ... below 1000, unless a fixture is one that must be refused.
"""

import importlib.util
import io
import sys
import types
from pathlib import Path

import numpy

HERE = Path(__file__).parent


def tokens(count, kind):
    return ((numpy.arange(count) * 7 + 3) % 1000).astype(kind)


def write_npy(name, array, version=None):
    stream = io.BytesIO()
    numpy.lib.format.write_array(stream, array, version=version)
    (HERE / f"{name}.npy").write_bytes(stream.getvalue())


def megatron_writer(wheel):
    """megatron.core.datasets.indexed_dataset with PyTorch and the object stores, which it does not use, stood in for."""
    torch = types.ModuleType("torch")
    torch.Tensor = numpy.ndarray
    torch.utils = types.SimpleNamespace(data=types.SimpleNamespace(Dataset=object))
    sys.modules["torch"] = torch

    class Anything(types.ModuleType):
        def __getattr__(self, name):
            return type(name, (), {"is_enabled": staticmethod(lambda: False)})

    for name in ("megatron", "megatron.core", "megatron.core.datasets", "megatron.core.msc_utils",
                 "megatron.core.utils", "megatron.core.datasets.object_storage_utils",
                 "megatron.core.datasets.utils_s3"):
        sys.modules[name] = Anything(name)
    path = Path(wheel) / "megatron/core/datasets/indexed_dataset.py"
    spec = importlib.util.spec_from_file_location("indexed_dataset", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Row(numpy.ndarray):
    """What the writer asks of a tensor."""

    def numpy(self):
        return numpy.asarray(self)


def write_megatron(module, name, kind):
    builder = module.IndexedDatasetBuilder(str(HERE / f"{name}.bin"), dtype=kind)
    row = tokens(30, kind).view(Row)
    builder.add_document(row[:12], [12])
    builder.add_document(row[12:20], [5, 3])  # a document of two sequences
    builder.add_document(row[20:20], [0])     # and an empty one
    builder.add_document(row[20:], [10])
    builder.finalize(str(HERE / f"{name}.idx"))


def main():
    write_npy("uint16", tokens(300, "<u2"))
    write_npy("uint32_version2", tokens(30, "<u4"), (2, 0))
    write_npy("int32", tokens(30, "<i4"))
    write_npy("int64_version3", tokens(30, "<i8"), (3, 0))
    write_npy("empty", tokens(0, "<u2"))
    write_npy("negative", numpy.array([3, 10, -1], "<i4"))
    write_npy("beyond_int32", numpy.array([3, 1 << 40], "<i8"))
    write_npy("big_endian", tokens(30, ">u2"))
    write_npy("floats", tokens(30, "<f4"))
    write_npy("matrix", tokens(30, "<u2").reshape(5, 6))
    write_npy("scalar", numpy.array(7, "<u2"))
    write_npy("record", numpy.zeros(3, [("a", "<u2"), ("b", "<u2")]))
    tokens(30, "<u4").tofile(HERE / "uint32_raw.bin")
    module = megatron_writer(sys.argv[1])
    write_megatron(module, "megatron_uint16", numpy.uint16)
    write_megatron(module, "megatron_int32", numpy.int32)


main()
