#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""python.kernels: fallow.kernels on a simulated device with contents. Every module is called once with tensors of each
kind, and its outputs are compared with values computed here or taken from the definition in its header; wrong tensors
and parameters are refused and change nothing."""
import ctypes
import inspect
import math
import os
import struct
import subprocess
import sys
import textwrap
import threading
import unittest
import unittest.mock

import engine_lines
import fakes
import fallow
from fallow import kernels
from test_tensors import Versioned
from test_workspace import World, driver

FORMATS = {"int32": "i", "int64": "q", "uint8": "B", "float32": "f", "float16": "e"}
TYPESTR = {"int32": "<i4", "int64": "<i8", "uint8": "|u1", "float32": "<f4", "float16": "<f2", "float8": "|V1"}
POISON = 0xA5


def flat(values):
    return [each for value in values for each in flat(value)] if isinstance(values, (list, tuple)) else [values]


def shape_of(values):
    return (len(values), *shape_of(values[0])) if isinstance(values, (list, tuple)) else ()


class Memory:
    """Memory of the device with values."""

    def __init__(self, values=None, word="int32", shape=None, strides=None, device=0):
        self.shape, self.word, self.strides = shape_of(values) if shape is None else tuple(shape), word, strides
        self.id = device
        self.each = struct.calcsize(FORMATS[word])
        steps = strides or self.dense()
        self.count = 1 + sum((size - 1) * step for size, step in zip(self.shape, steps)) if 0 not in self.shape else 0
        self.address = fallow.allocate(max(1, self.count * self.each))
        data = bytearray([POISON]) * (self.count * self.each)
        for place, value in zip(self.places(), flat(values) if values is not None else ()):
            struct.pack_into(FORMATS[word], data, place * self.each, value)
        copied = ctypes.create_string_buffer(bytes(data), max(1, len(data)))
        assert driver("cuMemcpyHtoD_v2")(ctypes.c_void_p(self.address), copied, ctypes.c_size_t(len(data))) == 0

    def dense(self):
        return tuple(math.prod(self.shape[i + 1:]) for i in range(len(self.shape)))

    def places(self):
        """Return the element of each value, row-major."""
        found = [0]
        for size, step in zip(self.shape, self.strides or self.dense()):
            found = [place + i * step for place in found for i in range(size)]
        return found

    def bytes(self):
        copied = ctypes.create_string_buffer(max(1, self.count * self.each))
        driver("cuCtxSynchronize")()
        assert driver("cuMemcpyDtoH_v2")(copied, ctypes.c_void_p(self.address), ctypes.c_size_t(self.count * self.each)) == 0
        return copied.raw[:self.count * self.each]

    def values(self):
        data = self.bytes()
        return [struct.unpack_from(FORMATS[self.word], data, place * self.each)[0] for place in self.places()]


class Tensor(Memory):
    """The same as an object with __cuda_array_interface__."""

    @property
    def dtype(self):
        return {"float8": "float8_e4m3fn"}.get(self.word, self.word)

    @property
    def __cuda_array_interface__(self):
        strides = None if self.strides is None else tuple(step * self.each for step in self.strides)
        return {"shape": self.shape, "typestr": TYPESTR[self.word], "data": (self.address, False), "strides": strides,
                "version": 3}


class DlpackTensor(Memory):
    """The same as an object with __dlpack__ alone."""

    device_type = 2

    def __dlpack__(self, *, stream=None, max_version=None):
        code, bits = {"int32": (0, 32), "int64": (0, 64), "uint8": (1, 8), "float32": (2, 32), "float16": (2, 16)}[self.word]
        self.managed = Versioned(major=1)
        self.freed = []
        self.deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.freed.append)
        self.managed.deleter = ctypes.cast(self.deleter, ctypes.c_void_p)
        tensor = self.managed.tensor
        tensor.data, tensor.device_type, tensor.ndim, tensor.lanes = self.address, self.device_type, len(self.shape), 1
        tensor.code, tensor.bits = code, bits
        tensor.shape = (ctypes.c_int64 * len(self.shape))(*self.shape)
        if self.strides:
            tensor.strides = (ctypes.c_int64 * len(self.shape))(*self.strides)
        return fallow._dlpack._capsule_new(ctypes.addressof(self.managed), b"dltensor_versioned", fallow._dlpack._drop)


class TorchTensor(Tensor):
    """The same with the methods of a PyTorch tensor that the module calls."""

    def data_ptr(self):
        return self.address

    def get_device(self):
        return self.id

    def stride(self):
        return self.strides or self.dense()

    @property
    def dtype(self):
        return "torch." + self.word


kind_of_outputs = [Tensor]


def empty(*shape, word="int32"):
    return kind_of_outputs[0](shape=shape, word=word)


def silu(x):
    return x / (1 + math.exp(-x))


LOGITS = [[0.5, 2.0, -1.0, 3.0], [1.0, 0.0, 4.0, -2.0]]
TABLE = [[10, 11, 12, 13], [20, 21, 22, 23], [30, 31, 32, 33]]  # token slots of three requests


def softmax(row):
    powers = [math.exp(x - max(row)) for x in row]
    return [power / sum(powers) for power in powers]


#: For each module: how it is called with a constructor of inputs, and the outputs, values flat. Ellipsis: not declared.
CASES = {
    "cu_seqlens": (lambda t: kernels.cu_seqlens(t([3, 0, 2]), cu_seqlens=empty(4), total=empty(1), max_length=empty(1)),
                   [[0, 3, 3, 5], [5], [3]]),
    "page_table": (lambda t: kernels.page_table(
        t([3, 1]), None, None, None, t([2, 0]), t(TABLE), page_table=empty(2, 4), cache_seqlens=empty(2), cu_k=empty(3),
        max_length=empty(1), fill=-7), [[30, 31, 32, -7, 10, -7, -7, -7], [3, 1], [0, 3, 4], [3]]),
    "verify_pages": (lambda t: kernels.verify_pages(
        t([1]), None, None, t([1]), t(TABLE), t([[1, 0], [1, 1]], "uint8"), page_table=empty(2, 2),
        cache_seqlens=empty(2)), [[21, ..., 21, 22], [1, 2]]),
    "concat_pages": (lambda t: kernels.concat_pages(
        t([[1, 2]]), t([1]), t([[8, 9]]), page_table=empty(1, 5), cache_seqlens=empty(1), fill=-1),
        [[1, 8, 9, -1, -1], [3]]),
    "kv_indices": (lambda t: kernels.kv_indices(t([0, 2, 5]), None, None, None, t([1, 0]), t(TABLE), kv_indices=empty(5)),
                   [[20, 21, 10, 11, 12]]),
    "merge_states": (lambda t: kernels.merge_states(
        t([[[1.0, 2.0]]], "float32"), t([[[3.0, 6.0]]], "float32"), t([[0.0]], "float32"), t([[0.0]], "float32"),
        out=empty(1, 1, 2, word="float32"), out_lse=empty(1, 1, word="float32")), [[2.0, 4.0], [math.log(2)]]),
    "neutral_rows": (lambda t: kernels.neutral_rows(
        t([[[1.0]], [[2.0]], [[3.0]]], "float32"), t([[4.0, 5.0, 6.0]], "float32"), t([0, 1, 2]), t([1, 0])),
        [[1.0, 0.0, 0.0], [4.0, -math.inf, -math.inf]]),
    "padded_copy": (lambda t: kernels.padded_copy(t([5, 6], "int64"), dst=empty(4, word="int64"), value=9), [[5, 6, 9, 9]]),
    "fa3_schedule": (lambda t: kernels.fa3_schedule(
        metadata=empty(9), batch=1, seqlen_q=1, seqlen_k=64, heads_q=1, heads_kv=1, multiprocessors=1, block_m=64,
        block_n=64, valid_count=t([1])), [[1, 0, 0, 0, 1, 0, 0, 0, 0]]),
    "local_attention": (lambda t: kernels.local_attention(
        t([0, 4]), t([4]), None, t([[0, 1, 2, 3]]), cu_q_local=empty(4), seqused_k=empty(3), local_table=empty(3, 2),
        virtual_count=empty(1), chunk=2), [[0, 2, 4, 4], [2, 2, 0], [0, 1, 2, 3, 0, 0], [2]]),
    "restore_counters": (lambda t: kernels.restore_counters(t([0, 7, 1]), restored=empty(1)), [[0, 0, 0], [2]]),
    "scale_padding": (lambda t: kernels.scale_padding(t([[[[1] * 512]]], "uint8"), t([1]), rows=2, columns=3),
                      [[1 if place < 3 else 0 for place in range(512)]]),
    "flashmla_schedule": (lambda t: kernels.flashmla_schedule(
        t([65]), tile_metadata=empty(1, 8), num_splits=empty(2)), [[0, 0, 0, 2, 0, 0, 0, 0], [0, 1]]),
    "chunk_plan": (lambda t: kernels.chunk_plan(
        t([5, 3]), starts=empty(2, 2), lengths=empty(2, 2), cu_seqlens=empty(2, 3), totals=empty(2),
        token_to_seq=empty(2, 8), workspace_tokens=8, page_size=1, mode="uniform"),
        [[0, 0, 4, 4], [4, 3, 1, 0], [0, 4, 7, 0, 1, 1], [7, 1], [0, 0, 0, 0, 1, 1, 1, 0] + [0] * 8]),
    "gather_kv": (lambda t: kernels.gather_kv(
        t([[[1.0, 2.0]], [[3.0, 4.0]]], "float16"), t([[1, 0]]), t([0, 2]), dst=empty(2, 2, word="float16"), format="rows"),
        [[3.0, 4.0, 1.0, 2.0]]),
    "concat_kv": (lambda t: kernels.concat_kv(
        t([[[1.0, 2.0, 3.0]]], "float32"), t([[9.0]], "float32"), k=empty(1, 1, 3, word="float32"),
        v=empty(1, 1, 2, word="float32")), [[1.0, 2.0, 9.0], [3.0, 0.0]]),
    "route": (lambda t: kernels.route(
        t(LOGITS, "float32"), weights=empty(2, 2, word="float32"), ids=empty(2, 2), score="softmax"),
        [[softmax(LOGITS[0])[3], softmax(LOGITS[0])[1], softmax(LOGITS[1])[2], softmax(LOGITS[1])[0]], [3, 1, 2, 0]]),
    "align_blocks": (lambda t: kernels.align_blocks(
        t([1, 0, 1]), sorted_ids=empty(5), expert_ids=empty(3), padded_count=empty(1), experts=2, block_size=2,
        pad="minus_one"), [[1, 3, 0, 2, 3], [0, 1, -1], [4]]),
    "expert_counts": (lambda t: kernels.expert_counts(
        t([1, 0, 1]), counts=empty(2), offsets=empty(3), ends=empty(2), positions=empty(3), experts=2),
        [[1, 2], [0, 1, 3], [1, 3], [1, 0, 2]]),
    "permute": (lambda t: kernels.permute(
        t([[1.0, 2.0], [3.0, 4.0]], "float32"), t([[1], [0]]), out=empty(2, 2, word="float32")), [[3.0, 4.0, 1.0, 2.0]]),
    "silu_and_mul": (lambda t: kernels.silu_and_mul(t([[1.0, -2.0, 3.0, 4.0]], "float32"), out=empty(1, 2, word="float32")),
                     [[silu(1.0) * 3, silu(-2.0) * 4]]),
    "combine": (lambda t: kernels.combine(
        t([[1.0, 2.0], [10.0, 20.0]], "float32"), t([[0.5, 2.0]], "float32"), t([[0, 1]]), out=empty(1, 2, word="float32")),
        [[20.5, 41.0]]),
    "poison": (lambda t: kernels.poison(memory=empty(4, word="uint8"), pattern=0x7F), [[0x7F] * 4]),
    "validate": (lambda t: kernels.validate(t([[math.nan, 2.0]], "float32"), None, Tensor([0] * 80, "uint8")),
                 [list(struct.pack("10Q", 0, 0, 1, 1, 0, 0, 0, 0, 0, 0))]),
    "validate_ids": (lambda t: kernels.validate_ids(t([[0, 2]]), None, Tensor([0] * 80, "uint8"), id_count=2),
                     [list(struct.pack("10Q", 0, 0, 0, 0, 0, 0, 1, 5, 0, 0))]),
}


class Kernels(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        simulated = ctypes.CDLL(os.path.join(os.path.dirname(fallow._library.lib()._name), "libfallow-simcuda.so"))
        simulated.flw_sim_reset(ctypes.byref(World(ctypes.sizeof(World), backed=1, check=1)))
        fallow.configure(driver="sim")
        context = ctypes.c_void_p()
        driver("cuDevicePrimaryCtxRetain")(ctypes.byref(context), 0)
        driver("cuCtxSetCurrent")(context)
        fallow.allocate(1)  # the pool

    def tearDown(self):
        driver("cuCtxSynchronize")()
        self.assertIsNone(driver("flw_sim_violation", ctypes.c_char_p)(0))

    def compare(self, name, made, wanted):
        made = [made] if isinstance(made, Memory) else list(made)
        self.assertEqual(len(made), len(wanted), name)
        for tensor, values in zip(made, wanted):
            found = tensor.values()
            self.assertEqual(len(found), len(values), name)
            for value, expected in zip(found, values):
                if expected is not ...:
                    self.assertTrue(value == expected or math.isclose(value, expected, rel_tol=1e-5), (name, found, values))

    def test_every_module_computes_with_tensors_of_each_kind(self):
        self.assertEqual(sorted(CASES), sorted(set(dir(kernels)) - {"dtype_code"}))
        for name, (call, wanted) in CASES.items():
            for kind in (Tensor, DlpackTensor):
                self.compare(name, call(kind), wanted)

    def test_a_call_is_recognised_by_shapes_types_and_options(self):
        torch = fakes.torch(initialized=True)
        torch.Tensor, torch._C._cuda_getCurrentRawStream = TorchTensor, lambda device: 0
        kind_of_outputs[0] = TorchTensor
        self.addCleanup(kind_of_outputs.__setitem__, 0, Tensor)
        with fakes.installed(torch=torch):
            for name, (call, wanted) in CASES.items():
                if "report" in inspect.signature(getattr(kernels, name)).parameters:
                    continue  # given as another kind of tensor
                self.compare(name, call(TorchTensor), wanted)
                with unittest.mock.patch.object(kernels, "_Arguments", side_effect=AssertionError(name)):
                    self.compare(name, call(TorchTensor), wanted)
            inputs, out = TorchTensor([[0.5, 2.0]], "float32"), TorchTensor(shape=(1, 1), word="float32")
            kernels.combine(inputs, out=TorchTensor(shape=(1, 2), word="float32"), tokens=1, top_k=1)
            kernels.silu_and_mul(inputs, out=out)
            for change in (dict(out=TorchTensor(shape=(2, 1), word="float32")), dict(out=out, rounds_silu=1),
                           dict(out=TorchTensor(shape=(1, 1), word="float16"))):
                with unittest.mock.patch.object(kernels, "_Arguments", side_effect=ZeroDivisionError):
                    with self.assertRaises(ZeroDivisionError):
                        kernels.silu_and_mul(inputs, **change)

    def test_memory_outside_of_a_tensor_is_refused(self):
        arena = fallow.Arena(name="small")
        rows = Tensor([[1.0, 2.0]] * 4, "float32")
        with arena.lease(fallow.Layout([{"name": "out", "bytes": 4}])) as lease:
            with self.assertRaises(fallow.Error):
                kernels.combine(rows, positions=Tensor([[0]]), lease=lease)
        with arena.lease(fallow.Layout([{"name": "out", "bytes": 64}])) as lease:
            with self.assertRaisesRegex(BufferError, "the lease is on stream"):
                kernels.combine(rows, positions=Tensor([[0]]), lease=lease, stream=77)
        arena.close()
        repeated = Tensor([[1.0, 2.0]], "float32")
        repeated.shape, repeated.strides = (3, 2), (0, 1)
        with self.assertRaisesRegex(ValueError, r"in has the shape \[3, 2\] and the strides \[0, 1\]"):
            kernels.silu_and_mul(repeated, out=empty(3, 1, word="float32"))
        blocks = Tensor([[[1] * 4]] * 2, "uint8")
        with self.assertRaisesRegex(TypeError, "cache has elements of another type"):
            kernels.gather_kv(blocks, Tensor([[1, 0]]), Tensor([0, 2]), dst=empty(2, 4, word="float16"))
        with self.assertRaisesRegex(ValueError, "cache has rows of 4 elements, not 8"):
            kernels.gather_kv(blocks, Tensor([[1, 0]]), Tensor([0, 2]), dst=empty(2, 8, word="uint8"))
        on_host = DlpackTensor([1])
        on_host.device_type = 1
        with self.assertRaisesRegex(TypeError, "DLPack's device 1"):
            kernels.restore_counters(on_host)
        fixed = Foreign(rows.address, is_read_only=True)
        with self.assertRaisesRegex(ValueError, "counters is read-only"):
            kernels.restore_counters(fixed)

    def test_sizes_by_default_and_of_nothing(self):
        positions = empty(3)
        kernels.expert_counts(Tensor([1, 0, 1]), positions=positions, experts=2, align=4)
        self.assertEqual(positions.values(), [4, 0, 5])
        nothing = kernels.silu_and_mul(Tensor(shape=(0, 4), word="float32"), Tensor([], shape=(0,)),
                                       out=empty(0, 2, word="float32"))
        self.assertEqual(nothing.values(), [])
        with self.assertRaisesRegex(fallow.Error, "block_size is 0"):
            kernels.align_blocks(Tensor([1]), sorted_ids=empty(1), expert_ids=empty(1), padded_count=empty(1), experts=2)

    def test_lines_of_engines_are_replaced_over_poison(self):
        inf = math.inf
        lse = Tensor([[1.0, 2.0]] * 5, "float32")  # requests of 2 and 2 rows, the second without keys, and padding
        engine_lines.empty_shards(lse, Tensor([7, 0]), Tensor([0, 2, 4]))
        self.assertEqual(lse.values(), [1.0, 2.0] * 2 + [-inf, -inf] * 3)
        for word, value in (("int32", 0), ("int64", 0), ("int64", -1)):
            tensor = Tensor(shape=(6,), word=word)
            before = tensor.values()
            engine_lines.pad_tail(tensor, Tensor([4]), value)
            self.assertEqual(tensor.values(), before[:4] + [value] * 2)
        ids = [2, -1, 0, 2, 2, 1]
        counts = empty(4)
        engine_lines.count_experts(Tensor(ids, "int64"), counts)
        self.assertEqual(counts.values(), [ids.count(expert) for expert in range(4)])
        self.activates_valid_rows()
        table = [[16 * request + token for token in range(12)] for request in range(3)]
        lengths, requests = [5, 12, 1], [2, 0, 1]
        pages, seqlens, offsets = empty(3, 3), empty(3), empty(4)
        engine_lines.decode_metadata(Tensor(lengths, "int64"), Tensor(requests, "int64"), Tensor(table), 4, pages, seqlens,
                                     offsets)
        self.assertEqual([seqlens.values(), offsets.values()], [lengths, [0, 5, 17, 18]])
        for row, length in enumerate(lengths):
            found = pages.values()[3 * row:3 * row + 3]
            used = -(-length // 4)
            self.assertEqual(found[:used], [slot // 4 for slot in table[requests[row]][::4][:used]])
            self.assertEqual(found[used:], [0] * (3 - used))

    def activates_valid_rows(self):
        width, valid = 128, [1, 0]
        gate_up = Tensor([[0.25] * width + [2.0] * width] * 4, "float32")  # two experts of two rows
        out, scales = Tensor(shape=(4, width), word="uint8"), Tensor(shape=(4, 1), word="float32")
        out.word, before = "float8", out.bytes()
        engine_lines.activate_batches(gate_up, Tensor(valid), out, scales)
        scale = struct.unpack_from("f", scales.bytes())[0]
        self.assertTrue(math.isclose(scale, silu(0.25) * 2 / 448, rel_tol=1e-5))
        self.assertEqual(out.bytes(), bytes([0x7E]) * width + before[width:])  # 448, the largest

    def test_strided_rows_are_read_and_written_in_place(self):
        gate_up = Tensor([[1.0, 2.0], [3.0, 4.0]], "float32", strides=(8, 1))
        out = Tensor(shape=(2, 1), word="float32", strides=(5, 1))
        before = out.bytes()
        made = kernels.silu_and_mul(gate_up, out=out)
        self.assertIs(made, out)
        self.compare("silu_and_mul", made, [[silu(1.0) * 2, silu(3.0) * 4]])
        self.assertEqual(made.bytes()[4:20], before[4:20])  # between the rows
        transposed = Tensor([[1.0, 2.0], [3.0, 4.0]], "float32", strides=(1, 2))
        with self.assertRaisesRegex(ValueError, r"in has the shape \[2, 2\] and the strides \[1, 2\], where only in_stride may"):
            kernels.silu_and_mul(transposed, out=out)
        with self.assertRaisesRegex(ValueError, "row_counts has .*, but must be dense"):
            kernels.silu_and_mul(gate_up, Tensor([1, 1], strides=(2,)), out=out)

    def test_wrong_tensors_are_named_and_nothing_is_launched(self):
        rows, weights, positions = (Tensor([[1.0, 2.0]] * 4, "float32"), Tensor([[0.5, 2.0]], "float32"), Tensor([[0, 1]]))
        out = empty(1, 2, word="float32")
        before = out.bytes()
        for error, text, call in (
                (ValueError, r"combine: positions has the shape \[1, 1\], not \[1, 2\]: it must be \[tokens, top_k\]",
                 lambda: kernels.combine(rows, weights, Tensor([[0]]), out=out)),
                (ValueError, r"out has the shape \[2, 2\], not \[1, 2\]", lambda: kernels.combine(
                    rows, weights, positions, out=empty(2, 2, word="float32"))),
                (ValueError, r"flags has the shape \[2\], not \[1\]",
                 lambda: kernels.combine(rows, weights, positions, out=out, flags=empty(2))),
                (TypeError, "positions has elements of int64, not int32",
                 lambda: kernels.combine(rows, weights, Tensor([[0, 1]], "int64"), out=out)),
                (TypeError, "out has elements of float16, not float32",
                 lambda: kernels.combine(rows, weights, positions, out=empty(1, 2, word="float16"))),
                (TypeError, "'x' is no tensor on a device", lambda: kernels.combine("x", out=out)),
                (ValueError, "score is 'tanh': one of softmax, sigmoid", lambda: kernels.route(rows, score="tanh")),
                (TypeError, "no type that kernels accept", lambda: kernels.combine(rows, out=out, dtype="float64")),
                (ValueError, "a parameter is out of range", lambda: kernels.combine(rows, out=out, rounds_each=256)),
                (fallow.Error, "^fallow.kernels.combine: out is NULL", lambda: kernels.combine(rows, weights, positions)),
                (fallow.Error, "^fallow.kernels.combine: rounds_each is 2, outside 0 to 1", lambda: kernels.combine(
                    rows, weights, positions, out=out, rounds_each=2)),
                (fallow.Error, "ids_dtype is F32", lambda: kernels.expert_counts(
                    Tensor([1.0], "float32"), counts=empty(1), experts=1)),
                (ValueError, r"metadata has the shape \[5\]; the output has 36 bytes", lambda: kernels.fa3_schedule(
                    metadata=empty(5), batch=1, seqlen_q=1, seqlen_k=1, heads_q=1, heads_kv=1, multiprocessors=1,
                    block_m=1, block_n=1))):
            with self.assertRaisesRegex(error, text):
                call()
        with self.assertRaises(AttributeError):
            kernels.no_such_module
        self.assertEqual(out.bytes(), before)

    def test_tensors_of_torch_launch_on_its_current_stream(self):
        stream = ctypes.c_void_p()
        driver("cuStreamCreate")(ctypes.byref(stream), 1)
        torch, asked = fakes.torch(initialized=True), []
        torch.Tensor = TorchTensor
        torch._C._cuda_getCurrentRawStream = lambda device: asked.append(device) or stream.value
        with fakes.installed(torch=torch):
            inputs = TorchTensor([[0.0, 0.0, 3.0, 3.0]] * 3, "float32")
            out = TorchTensor(shape=(3, 2), word="float32")
            for _ in range(2):  # the second call is recognised
                self.assertEqual(kernels.silu_and_mul(inputs, out=out).values(), [0.0] * 6)
            with self.assertRaisesRegex(ValueError, "out is on device 1, in on device 0"):
                kernels.silu_and_mul(inputs, out=TorchTensor(shape=(3, 2), word="float32", device=1))
        self.assertEqual(asked, [0, 0])

    def test_outputs_are_regions_of_a_lease(self):
        arena = fallow.Arena(name="kernels")
        layout = fallow.Layout([{"name": "out", "bytes": 64}, {"name": "other", "bytes": 64}])
        with arena.lease(layout) as lease:
            out = kernels.combine(Tensor([[1.0, 2.0]], "float32"), positions=Tensor([[0]]), lease=lease)
            self.assertEqual(tuple(out._shape), (1, 2))
            copy = kernels.permute(out, Tensor([[0]]), out=empty(1, 2, word="float32"))
            self.compare("permute", copy, [[1.0, 2.0]])
            with self.assertRaisesRegex(fallow.Error, "weights is NULL"):  # the layout has no such region
                kernels.route(Tensor(LOGITS, "float32"), top_k=1, lease=lease)
        arena.close()

    def test_a_function_has_the_signature_and_text_of_its_header(self):
        parameters = inspect.signature(kernels.merge_states).parameters
        self.assertEqual(list(parameters)[:6], ["a", "b", "a_lse", "b_lse", "context_tokens", "out_scale"])
        self.assertIn("out_lse", parameters)
        self.assertRegex(kernels.merge_states.__doc__, r"(?s)Error: 6e-7.*out_scale +\[1\], E4M3 only")

    def test_messages_belong_to_the_thread_that_was_refused(self):
        rows, out = Tensor([[1.0]], "float32"), empty(1, 1, word="float32")
        ready, go, found = threading.Event(), threading.Event(), []

        def other():
            with self.assertRaisesRegex(fallow.Error, "top_k is 65"):
                kernels.combine(rows, out=out, tokens=1, top_k=65)
            ready.set()
            go.wait()
            found.append(kernels._last_error())

        thread = threading.Thread(target=other)
        thread.start()
        self.assertTrue(ready.wait(60))
        with self.assertRaisesRegex(fallow.Error, "rounds_each is 3"):
            kernels.combine(rows, out=out, tokens=1, top_k=1, rounds_each=3)
        go.set()
        thread.join()
        self.assertIn("top_k is 65", found[0])

    def test_a_first_call_inside_a_capture_loads_the_kernels(self):
        self.run_child("""
            import test_kernels as test, fallow, ctypes
            test.Kernels.setUpClass()
            lengths, out, stream = test.Tensor([3, 4]), test.empty(3), ctypes.c_void_p()
            assert test.driver("cuStreamCreate")(ctypes.byref(stream), 1) == 0
            assert test.driver("cuStreamBeginCapture_v2")(stream, 0) == 0
            fallow.kernels.cu_seqlens(lengths, cu_seqlens=out, stream=stream.value)
            graph, launch = ctypes.c_void_p(), ctypes.c_void_p()
            assert test.driver("cuStreamEndCapture")(stream, ctypes.byref(graph)) == 0
            assert out.values() == [0xA5A5A5A5 - (1 << 32)] * 3
            assert test.driver("cuGraphInstantiateWithFlags")(ctypes.byref(launch), graph, ctypes.c_uint64(0)) == 0
            assert test.driver("cuGraphLaunch")(launch, stream) == 0
            assert out.values() == [0, 3, 7], out.values()""")

    def test_no_pool_is_needed_where_another_allocator_has_the_memory(self):
        self.run_child("""
            import test_kernels as test, fallow, ctypes
            cuda = ctypes.CDLL("libcuda.so.1")
            context, address = ctypes.c_void_p(), ctypes.c_uint64()
            try:
                fallow.kernels.restore_counters(test.Foreign(0))
                raise SystemExit("no context, and no error")
            except fallow.Error as error:
                assert "no context is current" in str(error), error
            assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
            assert cuda.cuCtxSetCurrent(context) == 0 and cuda.cuMemAlloc_v2(ctypes.byref(address), 12) == 0
            cuda.cuMemcpyHtoD_v2(address, (ctypes.c_int32 * 3)(5, 0, 6), ctypes.c_size_t(12))
            fallow.kernels.restore_counters(test.Foreign(address.value))
            copied = (ctypes.c_int32 * 3)(1, 1, 1)
            cuda.cuMemcpyDtoH_v2(copied, address, ctypes.c_size_t(12))
            assert list(copied) == [0, 0, 0], list(copied)
            assert fallow.stats() == {}""")

    def run_child(self, source):
        folder = os.path.dirname(fallow._library.lib()._name)
        environment = dict(os.environ, LD_LIBRARY_PATH=os.path.join(folder, "driver"), FALLOW_SIMCUDA="contents",
                           PYTHONPATH=os.pathsep.join(sys.path))
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(source)], env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=120, universal_newlines=True)
        self.assertEqual((done.returncode, done.stdout), (0, ""))


class Foreign:
    """Memory of another allocator: three integers."""

    def __init__(self, address, is_read_only=False):
        self.__cuda_array_interface__ = {"shape": (3,), "typestr": "<i4", "data": (address, is_read_only), "version": 3}


if __name__ == "__main__":
    unittest.main()
