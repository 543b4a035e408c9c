#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""python.tensors: arenas, and their regions as DLPack tensors, read as a consumer reads them: the capsule's
name, the structure behind it, its deleter. On the simulated device, where there are no bytes to look at."""
import contextlib
import ctypes
import gc
import io
import json
import os
import tempfile
import unittest

import fakes
import fallow

_get = ctypes.pythonapi.PyCapsule_GetPointer
_get.restype, _get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype, _name.argtypes = ctypes.c_char_p, [ctypes.py_object]
_rename = ctypes.pythonapi.PyCapsule_SetName
_rename.restype, _rename.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]


class Tensor(ctypes.Structure):
    """DLTensor, from its specification."""

    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("manager", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", Tensor)]


class Unversioned(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


_forms = {b"dltensor_versioned": (Versioned, b"used_dltensor_versioned"), b"dltensor": (Unversioned, b"used_dltensor")}


def consume(capsule):
    """As a framework does: take the tensor, rename the capsule, call the deleter when done."""
    name = _name(capsule)
    form, used = _forms[name]
    address = _get(capsule, name)
    _rename(capsule, used)
    taken = form.from_address(address)
    return taken, lambda: ctypes.CFUNCTYPE(None, ctypes.c_void_p)(taken.deleter)(address)


class Arenas(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        fallow.configure(driver="sim", limit="256M")

    def setUp(self):
        self.arena = fallow.Arena(name="decode")
        self.layout = fallow.Layout([{"name": "out", "bytes": 4096}, {"name": "counter", "bytes": 64,
                                     "init": "counter", "persistent": True, "element_bytes": 4}])

    def tearDown(self):
        self.arena.close()
        self.assertEqual(fallow.stats()["live_count"], 0)

    def test_a_region_is_a_tensor_in_both_forms(self):
        lease = self.arena.lease(self.layout)
        view = lease.tensor("out", (3, 5), "float32", byte_offset=64)
        self.assertEqual(view.__dlpack_device__(), (2, 0))
        for version, major in (((1, 0), 1), (None, None)):
            taken, delete = consume(view.__dlpack__(stream=1, max_version=version))
            tensor = taken.tensor
            if major is not None:
                self.assertEqual((taken.major, taken.minor), (1, 0))
            self.assertEqual(tensor.data, lease.address("out") + 64)  # PyTorch up to 2.9 ignores byte_offset
            self.assertEqual((tensor.device_type, tensor.device_id, tensor.ndim), (2, 0, 2))
            self.assertEqual((tensor.code, tensor.bits, tensor.lanes), (2, 32, 1))
            self.assertEqual((tensor.shape[0], tensor.shape[1], tensor.strides[0]), (3, 5, 5))
            self.assertEqual(tensor.byte_offset, 0)
            delete()
        lease.end()
        self.arena.lease(self.layout).end()

    def test_tensors_bound_to_locals_hold_nothing_open(self):
        kept = []

        def step(fails):
            with self.arena.lease(self.layout) as lease:
                out, delete = consume(lease.tensor("out", (4,), "bfloat16").__dlpack__(max_version=(1, 1)))
                kept.append(delete)
                self.assertEqual(out.tensor.data, lease.address("out"))
                if fails:
                    raise ValueError("a kernel refused its shape")

        for fails in (False, True, False, True):
            try:
                step(fails)
            except ValueError as error:
                kept.append(error)  # the traceback keeps the frame
        self.assertEqual(len(kept), 6)
        for wait_ms in (-1, 1 << 32):
            with self.assertRaisesRegex(ValueError, "wait_ms is"):
                self.arena.lease(self.layout, stream=0, wait_ms=wait_ms)
        with self.assertRaisesRegex(RuntimeError, "the lease has ended"):
            lease = self.arena.lease(self.layout)
            lease.end()
            lease.end()
        self.arena.close()
        for each in kept:
            if not isinstance(each, ValueError):
                each()

    def test_a_lease_ends_with_its_object_and_holds_its_layout(self):
        lease = self.arena.lease(fallow.Layout([{"name": "only", "bytes": 64}]))
        gc.collect()
        self.assertEqual(lease.tensor("only", (64,), "uint8").__dlpack_device__(), (2, 0))
        self.assertTrue(lease.address("only"))
        del lease
        gc.collect()
        self.assertEqual(self.arena.stats()["is_leased"], 0)
        with self.arena.lease(self.layout) as lease:
            self.arena.close()  # takes effect when the lease ends
            self.assertTrue(lease.address("out"))

    def test_a_capsule_that_nobody_takes_gives_its_tensor_back(self):
        for version in ((1, 0), None):
            lease = self.arena.lease(self.layout)
            capsule = lease.tensor("out", (4,), "int64").__dlpack__(max_version=version)
            lease.end()
            del capsule
            gc.collect()
            self.arena.lease(self.layout).end()

    def test_small_floats_have_the_codes_of_dlpack(self):
        codes = {"float8_e4m3fn": (10, 8, 1), "float8_e4m3fnuz": (11, 8, 1), "float8_e5m2": (12, 8, 1),
                 "float8_e5m2fnuz": (13, 8, 1), "float8_e8m0fnu": (14, 8, 1), "float4_e2m1fn_x2": (17, 4, 2)}
        with self.arena.lease(self.layout) as lease:
            for word, code in codes.items():
                taken, delete = consume(lease.tensor("out", (4096,), word).__dlpack__(max_version=(1, 1)))
                self.assertEqual((taken.tensor.code, taken.tensor.bits, taken.tensor.lanes), code)
                self.assertEqual((taken.major, taken.minor, taken.tensor.strides[0]), (1, 1, 1))
                delete()
                with self.assertRaisesRegex(fallow.Error, "a tensor of 4097 bytes"):
                    lease.tensor("out", (4097,), word).__dlpack__()

    def test_a_rank_without_tokens_has_empty_tensors(self):
        rows, other = self.arena.get(("rows", (0, 576), "bfloat16"), ("other", (4,), "uint8"))
        taken, delete = consume(rows.__dlpack__(max_version=(1, 0)))
        self.assertEqual((taken.tensor.shape[0], taken.tensor.shape[1]), (0, 576))
        delete()
        nothing, = self.arena.get(("rows", (0,), "uint8"))
        consume(nothing.__dlpack__())[1]()

    def test_a_stream_that_joined_may_use_tensors(self):
        with self.arena.lease(self.layout, stream=0) as lease:
            view = lease.tensor("out", (4,), "float32")
            with self.assertRaisesRegex(BufferError, r"on 0x1234: .* lease\.join\(\) it"):
                view.__dlpack__(stream=0x1234)
            lease.join(0x1234)
            for stream in (0x1234, 1, None, -1):
                consume(view.__dlpack__(stream=stream))[1]()
            lease.used("out", 64)
            with self.assertRaises(fallow.Error):
                lease.used("out", 4097)

    def test_what_cannot_be_is_refused(self):
        with self.arena.lease(self.layout, stream=0) as lease:
            with self.assertRaisesRegex(fallow.Error, "exceeds region 'out' of 4096 bytes"):
                lease.tensor("out", (1025,), "float32").__dlpack__()
            with self.assertRaisesRegex(BufferError, "begin the lease on the consumer's stream"):
                lease.tensor("out", (4,), "float32").__dlpack__(stream=0x1234)
            with self.assertRaisesRegex(BufferError, "neither copied nor moved"):
                lease.tensor("out", (4,), "float32").__dlpack__(copy=True)
            with self.assertRaisesRegex(BufferError, "neither copied nor moved"):
                lease.tensor("out", (4,), "float32").__dlpack__(dl_device=(1, 0))
            with self.assertRaisesRegex(TypeError, "complex64"):
                lease.tensor("out", (4,), "complex64")
            with self.assertRaisesRegex(KeyError, "no region 'in': it has out, counter"):
                lease.address("in")
        with self.assertRaisesRegex(RuntimeError, "the lease has ended"):
            lease.address("out")
        with self.assertRaisesRegex(ValueError, "a region has no size"):
            fallow.Layout([{"name": "x", "size": 4}])
        alone = r"^fallow\.Layout: a layout cannot have the region {'name': 'x'.*%s.*help\(fallow\.Layout\)"
        for wrong, text in (({"bytes": 0, "persistent": True}, "'persistent': True"),
                            ({"bytes": 1 << 63}, "'bytes': 9223372036854775808"), ({"bytes": 4, "align": 3}, "'align': 3"),
                            ({"bytes": 4, "phases": (3, 1)}, r"'phases': \(3, 1\)")):
            with self.assertRaisesRegex(fallow.Error, alone % text):
                fallow.Layout([{"name": "a", "bytes": 4}, dict(wrong, name="x"), {"name": "b", "bytes": 4}])
        for wrong in {"bytes": 1 << 64 | 16}, {"bytes": 4, "phases": (0, 1 << 32)}, {"bytes": 4, "element_bytes": -1}:
            with self.assertRaisesRegex(ValueError, "(size|last_phase|element).* is -?[0-9]+: out of range"):
                fallow.Layout([dict(wrong, name="x")])
        for wrong in [], [{"name": "a", "bytes": 4}] * 2:
            with self.assertRaisesRegex(fallow.Error, "no region, two of one name"):
                fallow.Layout(wrong)

    def test_a_locked_arena_says_what_does_not_fit(self):
        self.arena.lease(self.layout).end()
        self.arena.lock()
        larger = fallow.Layout([{"name": "out", "bytes": 1 << 20}])
        with self.assertRaisesRegex(fallow.Error, "region 'out'.*FALLOW_OVER_BUDGET"):
            self.arena.lease(larger)
        with self.assertRaisesRegex(ValueError, "below 2.63"):
            self.arena.set_budget(1 << 64 | 1)
        with self.assertRaisesRegex(ValueError, "tag is 4294967296: out of range"):
            fallow.Arena(tag=1 << 32)
        self.arena.set_budget(larger.bytes + 64)
        self.arena.lease(larger).end()
        self.arena.unlock()
        self.arena.lease(larger).end()
        self.arena.trim()

    def test_regions_that_are_never_alive_together_share_bytes(self):
        layout = fallow.Layout([{"name": "a", "bytes": 4096, "phases": (0, 1)},
                                {"name": "b", "bytes": 4096, "phases": (2, 3)},
                                {"name": "c", "bytes": 64, "persistent": True}], name="ab")
        self.assertEqual((layout.name, layout.bytes, layout.lower_bound, layout.persistent_bytes),
                         ("ab", 4096, 4096, 64))
        self.assertEqual([(each["name"], each["offset"], each["align"], each["phases"], each["persistent"])
                          for each in layout.regions],
                         [("a", 0, 256, (0, 1), False), ("b", 0, 256, (2, 3), False), ("c", 0, 256, (0, 0), True)])

    def test_reserved_memory_serves_every_layout_without_growth(self):
        small = fallow.Layout([{"name": "counter", "bytes": 4, "init": "counter", "persistent": True}], "small")
        self.arena.reserve([small, self.layout])
        self.arena.reserve("1M")
        self.arena.lock()
        before = self.arena.stats()
        for layout in (small, self.layout, fallow.Layout([{"name": "out", "bytes": 1 << 20}])):
            self.arena.lease(layout).end()
        after = self.arena.stats()
        self.assertEqual(after["lease_count"], before["lease_count"] + 3)
        for name in ("grow_count", "init_count", "generation"):
            self.assertEqual(after[name], before[name], name)
        self.assertEqual((after["is_locked"], after["is_leased"], after["persistent_bytes"]), (1, 0, 64))

    def test_lanes_get_the_memory_together_or_not_at_all(self):
        lanes = [fallow.Arena(name="lane %d" % number, checks=0) for number in range(2)]
        lanes[1].set_budget("1M")
        lanes[1].get(("x", (4,), "uint8"))  # ends with the next call
        small = self.arena.stats()["scratch_bytes"], lanes[1].stats()["scratch_bytes"]
        with self.assertRaisesRegex(fallow.Error, "arena 'lane 1': layout 'reserve'"):
            self.arena.reserve("2M", lanes=lanes)
        self.assertEqual((self.arena.stats()["scratch_bytes"], lanes[1].stats()["scratch_bytes"]), small)
        lanes[1].unlock()
        self.arena.reserve("2M", lanes=lanes)
        for arena in [self.arena] + lanes:
            self.assertGreaterEqual(arena.stats()["scratch_bytes"], 2 << 20)
            self.assertEqual(arena.stats()["is_leased"], 0)
        for lane in lanes:
            lane.close()

    def test_persistent_regions_get_their_values_from_the_callback(self):
        woken = []

        def wake(region, address, stream):
            woken.append((region["name"], region["bytes"], address, stream))
            if len(woken) == 2:
                raise ValueError("printed")
            return True

        self.arena.on_wake(wake)
        with self.arena.lease(self.layout, stream=0) as lease:
            self.assertEqual(woken, [("counter", 64, lease.address("counter"), 0)])
        self.arena.lose_contents()
        with contextlib.redirect_stderr(io.StringIO()) as printed:
            self.arena.guard(0)  # no capture: does not call the hook
            self.arena.lease(self.layout, stream=0).end()
        self.assertIn("ValueError: printed", printed.getvalue())
        self.assertEqual((len(woken), self.arena.stats()["init_count"]), (2, 2))
        self.arena.on_wake(None)
        self.arena.lose_contents()
        self.arena.lease(self.layout, stream=0).end()
        self.assertEqual(len(woken), 2)

    def test_an_error_gives_the_reason_of_its_own_call(self):
        with self.assertRaisesRegex(MemoryError, r"for layout 'q, k': no device memory [^;]*; fallow\.report\(\) [^:]*$"):
            self.arena.get(("q", (1 << 40,), "uint8"), ("k", (1,), "uint8"))
        with self.arena.lease(self.layout) as lease:
            with self.assertRaisesRegex(fallow.Error, "^used: arena 'decode': region 'out' has 4096 bytes, fewer than the 4097"):
                lease.used("out", 4097)
            with self.assertRaisesRegex(fallow.Error, "^tensor: an argument is out of range"):  # no reason given
                lease.tensor("out", (1,) * 9, "uint8").__dlpack__()
            with self.assertRaisesRegex(fallow.Error, r"^lock: .*: a lease is open; end it first \(FALLOW_BUSY\)$"):
                self.arena.lock()
        self.arena.lease(self.layout, wait_ms=None).end()
        closed = fallow.Arena()
        closed.close()
        for call in closed.stats, closed.lock, lambda: closed.lease(self.layout), lambda: closed.reserve("1M"):
            with self.assertRaisesRegex(RuntimeError, "the arena is closed"):
                call()

    def test_the_log_gets_each_refusal(self):
        lines = []
        arena = fallow.Arena(name="told", log=lambda level, text: lines.append((level, text)))
        with arena.lease(self.layout):
            with self.assertRaises(fallow.Error):
                arena.lock()
        self.assertEqual(lines, [("warning", "arena 'told': a lease is open; end it first")])
        arena.close()

    def test_a_ready_layout_is_made_from_a_model(self):
        layout = fallow.layout("moe-triton", "qwen3-30b-a3b", tokens=8192)
        self.assertEqual((layout.name, layout.bytes), ("moe-triton", 369690628))
        self.assertIn("gate_and_up", [region["name"] for region in layout.regions])
        for wrong, text in ((("moe", "qwen3-30b-a3b"), "path is 'moe': one of fa3-graph, "),
                            (("moe-triton", "qwen"), "model is 'qwen': one of llama-3-8b, .*or the config.json")):
            with self.assertRaisesRegex(ValueError, text):
                fallow.layout(*wrong)
        with self.assertRaisesRegex(ValueError, "a size of the step is 'token': one of batch, tokens.*overlaps$"):
            fallow.layout("moe-triton", "qwen3-30b-a3b", token=1)
        with self.assertRaisesRegex(ValueError, "tokens is -1: out of range"):
            fallow.layout("moe-triton", "qwen3-30b-a3b", tokens=-1)
        with self.assertRaisesRegex(fallow.Error, "the model has nothing for that path"):
            fallow.layout("moe-triton", "llama-3-8b", tokens=1)

    def test_a_config_of_huggingface_is_the_preset(self):
        configs = {  # published configurations, size fields only
            "llama-3-8b": {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
                           "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 128256},
            "qwen3-30b-a3b": {"text_config": {
                "head_dim": 128, "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768,
                "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
                "num_key_value_heads": 4, "vocab_size": 151936}},
            "mixtral-8x7b": {"head_dim": None, "hidden_size": 4096, "intermediate_size": 14336,
                             "num_attention_heads": 32, "num_experts_per_tok": 2, "num_hidden_layers": 32,
                             "num_key_value_heads": 8, "num_local_experts": 8, "vocab_size": 32000},
            "deepseek-v3": {
                "first_k_dense_replace": 3, "hidden_size": 7168, "intermediate_size": 18432, "kv_lora_rank": 512,
                "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
                "num_attention_heads": 128, "num_experts_per_tok": 8, "num_hidden_layers": 61,
                "num_key_value_heads": 128, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
                "quantization_config": {"quant_method": "fp8"}, "v_head_dim": 128, "vocab_size": 129280},
        }
        for name, config in configs.items():
            preset, model = fallow._layout._model(name), fallow._layout._model(config)
            for field, _ in fallow._abi.Model._fields_[1:]:
                self.assertEqual(getattr(model, field), getattr(preset, field), (name, field))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "config.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(configs["deepseek-v3"], file)
            sizes = [fallow.layout("flashmla-decode", model, batch=4).bytes
                     for model in ("deepseek-v3", path, folder)]
        self.assertEqual(sizes, [sizes[0]] * 3)
        with self.assertRaisesRegex(ValueError, "describes no language model"):
            fallow.layout("moe-triton", {"vocab_size": 4})
        with self.assertRaisesRegex(ValueError, "values of 256 elements and keys of 192"):
            fallow.layout("mla-prefill", dict(configs["deepseek-v3"], qk_nope_head_dim=192, v_head_dim=256))

    def test_several_tensors_take_one_line(self):
        q, k, scale = self.arena.get(("q", (3, 5), "bfloat16"), ("k", [7], "float32"), ("scale", (), "float64"))
        places = []
        for view, count, bits in ((q, 15, 16), (k, 7, 32), (scale, 1, 64)):
            taken, delete = consume(view.__dlpack__(max_version=(1, 0)))
            self.assertEqual(taken.tensor.bits, bits)
            places.append((taken.tensor.data, taken.tensor.data + count * bits // 8))
            delete()
        places.sort()
        self.assertTrue(all(end <= begin for (_, end), (begin, _) in zip(places, places[1:])), places)
        first, = self.arena.get(("q", (4096,), "uint8"))
        with self.assertRaisesRegex(RuntimeError, "the lease has ended"):
            q.__dlpack__()
        self.arena.lock()  # like most calls, ends the lease
        with self.assertRaisesRegex(RuntimeError, "the lease has ended"):
            first.__dlpack__()
        with self.assertRaisesRegex(fallow.Error, "layout 'q' needs 1048.*: raise the budget.*FALLOW_OVER_BUDGET"):
            self.arena.get(("q", (1 << 20,), "uint8"))
        self.arena.unlock()

    def test_a_dropped_arena_gives_back_what_one_line_borrowed(self):
        gc.disable()  # must be freed without the cycle collector
        self.addCleanup(gc.enable)
        arena = fallow.Arena(name="dropped")
        arena.get(("q", (4096,), "uint8"))
        del arena
        self.assertEqual(fallow.stats()["live_count"], 0)
        arena = fallow.Arena(name="dropped")
        arena.get(("q", (4096,), "uint8"))
        arena._got.__del__()  # the cycle collector may run before close()
        arena.close()

    def test_layouts_of_equal_lines_are_kept_and_bounded(self):
        for rows in range(300):
            self.arena.get(("q", (1 + rows, 5), "bfloat16"))
        kept = dict(self.arena._layouts)
        self.assertEqual(len(kept), 256)
        self.arena.get(("q", [300, 5], "bfloat16"))
        self.assertEqual(self.arena._layouts, kept)
        self.assertEqual(self.arena.stats()["refuse_count"], 0)

    def test_dtypes_of_torch_give_its_tensors(self):
        fake = fakes.torch()
        fake.from_dlpack = lambda view: ("a tensor of PyTorch's", view)

        class Type:
            def __repr__(self):
                return "torch.bfloat16"

        with fakes.installed(torch=fake):
            (word, view), other = self.arena.get(("q", (3, 5), Type()), ("k", (3,), "bool"))
        self.assertEqual((word, view._dtype, other._dtype), ("a tensor of PyTorch's", (4, 16), (6, 8)))


def entry(name, *arguments):
    """A function of the simulated driver."""
    address = fallow._library.lib().fallow_pool_driver_entry(fallow._pool.make_pool(0), name.encode())
    function = ctypes.CFUNCTYPE(ctypes.c_int, *arguments)(address)

    def call(*given):
        result = function(*given)
        if result != 0:
            raise AssertionError("%s answered %d" % (name, result))

    return call


class Captures(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        fallow.stats() or fallow.allocate(1)  # creates the pool, which loads the driver
        pointer, context = ctypes.c_void_p, ctypes.c_void_p()
        entry("cuDevicePrimaryCtxRetain", pointer, ctypes.c_int)(ctypes.byref(context), 0)
        entry("cuCtxSetCurrent", pointer)(context)
        cls.create = staticmethod(entry("cuStreamCreate", pointer, ctypes.c_uint))
        cls.begin = staticmethod(entry("cuStreamBeginCapture_v2", pointer, ctypes.c_int))
        cls.end = staticmethod(entry("cuStreamEndCapture", pointer, pointer))

    def setUp(self):
        self.arena = fallow.Arena(name="decode")
        self.layout = fallow.Layout([{"name": "out", "bytes": 4096}])
        self.stream, self.graph = ctypes.c_void_p(), ctypes.c_void_p()
        self.create(ctypes.byref(self.stream), 1)
        self.stream = self.stream.value

    def tearDown(self):
        self.arena.close()

    @contextlib.contextmanager
    def captured(self):
        self.begin(self.stream, 0)
        try:
            yield
        finally:
            self.end(self.stream, ctypes.byref(self.graph))

    def test_a_lease_in_an_announced_capture_is_pinned_until_its_release(self):
        self.arena.reserve([self.layout], self.stream)
        announced = fallow.capture(self.stream)
        with announced, self.captured():
            with self.arena.lease(self.layout, self.stream) as lease:
                address = lease.address("out")
        self.assertEqual(self.arena.stats()["is_pinned"], 1)
        with self.assertRaisesRegex(fallow.Error, "captures hold its addresses"):
            self.arena.trim()  # keeps the graph's memory
        self.assertEqual((self.arena.stats()["capture_count"], self.arena.stats()["scratch_bytes"] > 0), (1, True))
        self.arena.guard(self.stream)
        with self.arena.lease(self.layout, self.stream) as lease:
            self.assertEqual(lease.address("out"), address)
        announced.release()
        self.arena.trim()
        self.assertEqual((self.arena.stats()["is_pinned"], self.arena.stats()["scratch_bytes"]), (0, 0))

    def test_a_lease_in_a_capture_that_nobody_announced_is_refused(self):
        self.arena.reserve([self.layout], self.stream)
        other = fallow.Layout([{"name": "out", "bytes": 64}])
        with self.captured():
            with self.assertRaisesRegex(fallow.Error, r"guard: .*outside of captures \(FALLOW_CAPTURING\)$"):
                self.arena.guard(self.stream)
            for layout in (self.layout, other):
                with self.assertRaisesRegex(
                        fallow.Error, r"being captured: announce that with fallow\.capture\(stream\) \(FALLOW_CAPTURING\)$"):
                    self.arena.lease(layout, self.stream)

    def test_one_line_goes_in_and_out_of_captures(self):
        line = ("q", (4096,), "uint8"), ("k", (64,), "uint8")
        self.arena.get(*line, stream=self.stream)
        captures = [fallow.capture(self.stream) for _ in range(3)]
        for announced in captures:
            with announced, self.captured():
                self.arena.get(*line, stream=self.stream)
                self.arena.get(*line[:1], stream=self.stream)
        for _ in range(2):
            self.arena.guard(self.stream)
            self.arena.get(*line, stream=self.stream)
        for announced in captures:
            announced.release()
        self.arena.trim()
        self.assertEqual(self.arena.stats()["refuse_count"], 0)

    def test_captures_of_pytorch_are_announced_by_its_hooks(self):
        line = ("q", (4096,), "uint8"), ("k", (64,), "uint8")
        lib, identity = fallow._library.lib(), fallow._abi.MempoolId(0, 99)
        self.arena.get(*line, stream=self.stream)
        lib.fallow_torch_begin_allocate_to_pool(0, identity, None)
        with self.captured():
            self.arena.get(*line, stream=self.stream)  # before PyTorch's first allocation
            self.arena.get(*line[:1], stream=self.stream)
        lib.fallow_torch_end_allocate_to_pool(0, identity)
        self.assertEqual(self.arena.stats()["capture_count"], 1)
        self.arena.guard(self.stream)
        self.arena.get(*line, stream=self.stream)
        lib.fallow_torch_release_pool(0, identity)
        self.arena.trim()
        self.assertEqual((self.arena.stats()["scratch_bytes"], self.arena.stats()["refuse_count"]), (0, 0))


if __name__ == "__main__":
    unittest.main()
