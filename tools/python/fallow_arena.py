# SPDX-License-Identifier: Apache-2.0
"""Layouts, arenas, leases and their tensors: a part of the module fallow, which re-exports the classes."""
import ctypes
import sys

from fallow import _check, _configure, _framework, _lib, _pool, _stream_handle, _word


class Region(ctypes.Structure):
    """fallow_region"""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("size_bytes", ctypes.c_size_t),
        ("align_bytes", ctypes.c_size_t),
        ("init", ctypes.c_int),
        ("first_phase", ctypes.c_uint32),
        ("last_phase", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("init_value", ctypes.c_int64),
        ("init_step", ctypes.c_int64),
        ("element_bytes", ctypes.c_uint32),
        ("reserved_0", ctypes.c_uint32),
    ]


class ArenaConfig(ctypes.Structure):
    """The front of fallow_arena_config"""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("tag", ctypes.c_uint32),
        ("checks", ctypes.c_uint32),
        ("scratch_bytes", ctypes.c_size_t),
    ]


def declare(say):
    """Declare the functions of arena.h: say(name, result, *arguments)."""
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    out = ctypes.POINTER(ctypes.c_void_p)
    say("fallow_layout_create", number, ctypes.POINTER(Region), size, out)
    say("fallow_layout_destroy", None, pointer)
    say("fallow_layout_bytes", size, pointer)
    say("fallow_layout_find", size, pointer, ctypes.c_char_p)
    say("fallow_layout_region", number, pointer, size, ctypes.POINTER(Region), ctypes.POINTER(size))
    say("fallow_arena_create", number, pointer, ctypes.POINTER(ArenaConfig), out)
    say("fallow_arena_destroy", None, pointer)
    say("fallow_arena_lock", number, pointer)
    say("fallow_arena_unlock", number, pointer)
    say("fallow_arena_trim", number, pointer)
    say("fallow_arena_last_error", None, pointer, ctypes.c_char_p, size)
    say("fallow_lease_begin", number, pointer, pointer, pointer, out)
    say("fallow_lease_end", number, pointer, pointer)
    say("fallow_lease_region_at", pointer, pointer, size)
    say(
        "fallow_lease_export", number, pointer, size, ctypes.POINTER(ctypes.c_int64),
        ctypes.POINTER(ctypes.c_int64), number, ctypes.c_uint8, ctypes.c_uint8, ctypes.c_uint64, out,
    )
    say("fallow_export_unversioned", pointer, pointer)


_INITS = ["dirty", "prefix", "once", "leading_zero", "counter", "zero", "sentinel", "valid_tail", "neutral_tail"]
_DTYPES = {  # DLPack code and bits
    "int8": (0, 8), "int16": (0, 16), "int32": (0, 32), "int64": (0, 64),
    "uint8": (1, 8), "uint16": (1, 16), "uint32": (1, 32), "uint64": (1, 64),
    "float16": (2, 16), "float32": (2, 32), "float64": (2, 64),
    "bfloat16": (4, 16), "bool": (6, 8),
}


class Layout:
    """Named regions of a step's scratch memory (fallow_layout). Each region is a dict:

        {"name": "out", "bytes": 4096, "align": 256, "init": "dirty", "phases": (0, 3), "persistent": False,
         "value": 0, "step": 0, "element_bytes": 4}

    name and bytes are needed. Regions whose phases do not meet share bytes."""

    def __init__(self, regions):
        array = (Region * len(regions))()
        for place, region in zip(array, regions):
            unknown = set(region) - {"name", "bytes", "align", "init", "phases", "persistent", "value", "step",
                                     "element_bytes"}
            if unknown:
                raise ValueError("a region has no %s" % ", ".join(sorted(unknown)))
            place.name = region["name"].encode()
            place.size_bytes = region["bytes"]
            place.align_bytes = region.get("align", 0)
            place.init = _word(region.get("init", "dirty"), _INITS, "init")
            place.first_phase, place.last_phase = region.get("phases", (0, 0))
            place.flags = 1 if region.get("persistent", False) else 0
            place.init_value = region.get("value", 0)
            place.init_step = region.get("step", 0)
            place.element_bytes = region.get("element_bytes", 0)
        handle = ctypes.c_void_p()
        self._handle = None
        _check(_lib().fallow_layout_create(array, len(regions), ctypes.byref(handle)), "fallow.Layout")
        self._handle = handle

    def __del__(self):
        if getattr(self, "_handle", None) is not None and _lib is not None:
            _lib().fallow_layout_destroy(self._handle)

    @property
    def bytes(self):
        """Bytes of the scratch block."""
        return _lib().fallow_layout_bytes(self._handle)

    def _find(self, name):
        index = _lib().fallow_layout_find(self._handle, name.encode())
        if index == ctypes.c_size_t(-1).value:
            raise KeyError("the layout has no region %r" % name)
        return index


class Arena:
    """Scratch memory of a step, borrowed once and reused dirty (fallow_arena), from the device's default
    pool:

        arena = fallow.Arena(name="decode")
        with arena.lease(layout) as lease:
            out = lease.torch("out", (tokens, 4096), torch.bfloat16)

    `settings`: as configure()."""

    def __init__(self, device=0, name="arena", tag=0, checks=0, **settings):
        _configure(settings)
        self._device = device
        self._handle = None
        config = ArenaConfig(ctypes.sizeof(ArenaConfig), name.encode(), tag, checks, 0)
        handle = ctypes.c_void_p()
        status = _lib().fallow_arena_create(_pool(device), ctypes.byref(config), ctypes.byref(handle))
        _check(status, "fallow.Arena")
        self._handle = handle

    def close(self):
        """Give its memory back, after the last lease and its tensors."""
        if self._handle is not None and _lib is not None:
            _lib().fallow_arena_destroy(self._handle)
        self._handle = None

    def __del__(self):
        if getattr(self, "_handle", None) is not None:
            self.close()

    def _refused(self, status, what):
        text = ctypes.create_string_buffer(512)
        _lib().fallow_arena_last_error(self._handle, text, len(text))
        reason = text.value.decode(errors="replace")
        _check(status, what + (": " + reason if reason else ""))

    def lock(self):
        """After warm-up: a lease that needs more than the arena holds is refused."""
        self._refused(_lib().fallow_arena_lock(self._handle), "lock")

    def unlock(self):
        """Growth is allowed again."""
        self._refused(_lib().fallow_arena_unlock(self._handle), "unlock")

    def trim(self):
        """Give the blocks back to the pool; contents of persistent regions are lost."""
        self._refused(_lib().fallow_arena_trim(self._handle), "trim")

    def lease(self, layout, stream=None):
        """Borrow all regions for work given to `stream` from now on. None: PyTorch's current stream where
        PyTorch has been imported and uses CUDA, else the default stream."""
        if stream is None:
            torch = sys.modules.get("torch")
            if torch is not None and torch.cuda.is_available():
                stream = torch.cuda.current_stream(self._device)
        number = _stream_handle(stream)
        handle = ctypes.c_void_p()
        status = _lib().fallow_lease_begin(self._handle, layout._handle, number, ctypes.byref(handle))
        self._refused(status, "lease")
        return Lease(self, layout, number, handle)


class Lease:
    """One use of an arena. Ends with the `with` block, or by end(); tensors hold it open until they are
    gone."""

    def __init__(self, arena, layout, stream, handle):
        self._arena, self._layout, self._stream, self._handle = arena, layout, stream, handle

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._handle is not None:
            self.end()

    def end(self, stream=None):
        """Release everything in the order of `stream`'s present end; None: the lease's."""
        number = self._stream if stream is None else _stream_handle(stream)
        self._arena._refused(_lib().fallow_lease_end(self._handle, number), "end of the lease")
        self._handle = None

    def _open(self):
        if self._handle is None:
            raise RuntimeError("the lease has ended")
        return self._handle

    def address(self, name):
        """The region's device address."""
        return _lib().fallow_lease_region_at(self._open(), self._layout._find(name))

    def tensor(self, name, shape, dtype, byte_offset=0, strides=None):
        """The region, or a part of it, as an object with __dlpack__, for torch.from_dlpack and others.
        dtype: "bfloat16", torch.bfloat16, numpy.float32 ..."""
        word = getattr(dtype, "__name__", None) or str(dtype)
        word = word.rsplit(".", 1)[-1]
        if word not in _DTYPES:
            raise TypeError("%r is no type that a region can have: one of %s" % (dtype, ", ".join(_DTYPES)))
        self._open()
        return _View(self, self._layout._find(name), tuple(shape), strides, _DTYPES[word], byte_offset)

    def torch(self, name, shape, dtype, byte_offset=0, strides=None):
        """The same as a PyTorch tensor."""
        torch = _framework("torch", "Lease.torch()")
        return torch.from_dlpack(self.tensor(name, shape, dtype, byte_offset, strides))


def _python(name, result, *arguments):
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_capsule_new = _python("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_capsule_is = _python("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
_capsule_get = _python("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)

_NAMES = {True: b"dltensor_versioned", False: b"dltensor"}  # static: capsules keep the pointer


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned, as far as its deleter."""

    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("manager", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p)]


class _Unversioned(ctypes.Structure):
    """DLManagedTensor, the form before DLPack 1.0."""

    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("byte_offset", ctypes.c_uint64), ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


def _delete(address, is_versioned):
    form = _Versioned if is_versioned else _Unversioned
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(form.from_address(address).deleter)(address)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _drop_capsule(capsule):
    """A capsule that no tensor was taken from; one that was taken from has another name."""
    for is_versioned, name in _NAMES.items():
        if _capsule_is(capsule, name):
            _delete(_capsule_get(capsule, name), is_versioned)


class _View:
    """A region as a DLPack producer."""

    def __init__(self, lease, index, shape, strides, dtype, byte_offset):
        self._lease, self._index, self._dtype, self._byte_offset = lease, index, dtype, byte_offset
        self._shape = (ctypes.c_int64 * max(1, len(shape)))(*shape)
        self._strides = None if strides is None else (ctypes.c_int64 * max(1, len(strides)))(*strides)
        self._dimensions = len(shape)

    def __dlpack_device__(self):
        return (2, self._lease._arena._device)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """stream: the consumer's. It must be the lease's, whose order the memory is in; -1: the consumer
        sees to the order itself."""
        if copy or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            raise BufferError("a region is exported where it lies: it is neither copied nor moved")
        names = {None: 0, 1: 0}
        lease = self._lease
        if stream != -1 and names.get(stream, stream) != names.get(lease._stream, lease._stream):
            raise BufferError("the lease is on stream %#x, the consumer on %#x: begin the lease on the consumer's "
                              "stream" % (lease._stream, stream or 0))
        exported = ctypes.c_void_p()
        status = _lib().fallow_lease_export(
            lease._open(), self._index, self._shape, self._strides, self._dimensions, self._dtype[0],
            self._dtype[1], self._byte_offset, ctypes.byref(exported))
        lease._arena._refused(status, "tensor")
        is_versioned = max_version is not None and tuple(max_version) >= (1, 0)
        address = exported.value
        if not is_versioned:
            address = _lib().fallow_export_unversioned(exported)
            if not address:
                _delete(exported.value, True)
                raise MemoryError("no host memory for a tensor")
        drop = ctypes.cast(_drop_capsule, ctypes.c_void_p)
        return _capsule_new(address, _NAMES[is_versioned], drop)
