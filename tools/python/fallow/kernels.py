# SPDX-License-Identifier: Apache-2.0
"""The kernel modules of libfallow-kernels as functions: fallow.kernels.NAME(inputs, out=..., options).

    from fallow import kernels
    kernels.silu_and_mul(gate_up, out=activated)
    kernels.cu_seqlens(lengths, cu_seqlens=starts, max_length=longest)

Each function is made from the parameters in fallow/attention.h, mla.h, moe.h and debug_kernels.h. The comments there are
its docstring: help(kernels.combine).

inputs   tensors of PyTorch or CuPy, or any object with __cuda_array_interface__ or __dlpack__, in the order of the
         header. None: the parameter is NULL. `in` is called in_
outputs  by keyword; their old contents do not matter. With lease=, an output that is not given is the region of that
         name in the lease's layout, if there is one
options  by keyword. Sizes and types are read from the tensors; an enumeration takes the end of its constant's name,
         as score="sigmoid"
stream   None: the current stream of the first tensor's framework; or as everywhere in this package
returns  the outputs that the call wrote, in the header's order: one, or a tuple

A call queues one kernel, allocates nothing, waits for nothing, and may be captured. The first call on a device loads
all kernels, also inside a capture. The tensors must stay alive as for any kernel of their framework.

TypeError, ValueError: a tensor's type, shape, strides or device. Error: the library refused a parameter; the message
names it. Nothing was launched. Any thread may call."""
from __future__ import annotations

import ctypes
import math
import os
import re
import struct
import sys
import threading

from fallow import _library
from fallow._arena import View
from fallow._arguments import stream_handle
from fallow._kernel_headers import DTYPES, Buffer, Module, find_folder, read_modules
from fallow._kernel_tensors import (Tensor, current_stream, dtype_code, is_torch, loaded_driver, read_tensor,
                                    require_shape, strides_of, text_of)
from fallow._pool import find_pool
from fallow._typing import Any, Callable

_MOST_PLANS = 4096  # of a module; steps of an engine have few shapes
_BYTES = (4, 8, 1, 4, 2, 2, 1)

_modules: dict[str, Module] = {}
_handles: dict[int, int] = {}  # of each device its fallow_kernels
_lock = threading.Lock()


def _open() -> ctypes.CDLL:
    return ctypes.CDLL(os.path.join(os.path.dirname(_library.library_path()), "libfallow-kernels.so.0.2"))


def _last_error() -> str:
    library, text = _open(), ctypes.create_string_buffer(512)
    library.fallow_kernels_last_error(None, text, ctypes.c_size_t(len(text)))
    return text.value.decode(errors="replace")


def _require_current(device: int) -> None:
    """RuntimeError: the thread's current context is of another device."""
    driver, current = loaded_driver(), ctypes.c_int(-1)
    if driver is not None and driver.cuCtxGetDevice(ctypes.byref(current)) == 0 and current.value != device:
        raise RuntimeError("fallow.kernels: the tensors are on device %d, and device %d is current: make theirs current "
                           "for the first call" % (device, current.value))


def _handle(device: int) -> int:
    """Return the kernels of a device, all loaded: in the context of the default pool, otherwise in the current one."""
    with _lock:
        if device not in _handles:
            library, handle = _open(), ctypes.c_void_p()
            pool = find_pool(device, "stream")
            status = library.fallow_kernels_create(pool, ctypes.byref(handle))
            if status == 0 and pool is None:
                _require_current(device)
            status = status or library.fallow_kernels_load(handle, None, ctypes.c_size_t(0))
            if status:
                reason = _last_error()
                library.fallow_kernels_destroy(handle)
                _library.check(status, "fallow.kernels", reason)
            _handles[device] = handle.value or 0
        return _handles[device]


# ---- sizes from shapes


def _expression(text: str, numbers: list[str]) -> str:
    """Return a dimension as an expression in Python, "" if it does not follow from the numbers."""
    text = re.sub(r"\b(\d+) (?=[a-z])", r"\1 * ", text)
    text = re.sub(r"ceil\((\w+) / (\w+)\)", r"-(-\1 // \2)", text).replace(" / ", " // ")
    return text if set(re.findall(r"[a-z]\w*", text)) <= set(numbers) and re.fullmatch(r"[\w +*/()-]+", text) else ""


def _solve(text: str, size: int, known: dict[str, Any]) -> None:
    """Set the number that follows from the size of a dimension, if it is the only unknown one."""
    unknown = [word for word in set(re.findall(r"[a-z]\w*", text)) if known[word] is None]
    if len(unknown) != 1:
        return
    for pattern, result in ((r"NAME", "SIZE"), (r"(\d+) \* NAME", r"SIZE // \1"), (r"(\w+) \* NAME", r"SIZE // (\1 or 1)"),
                            (r"NAME \* (\w+)", r"SIZE // (\1 or 1)"), (r"NAME \+ (\w+)", r"SIZE - \1"),
                            (r"(\w+) \+ NAME", r"SIZE - \1"), (r"NAME \* (\w+) \+ (\d+)", r"(SIZE - \2) // (\1 or 1)"),
                            (r"(\w+) // NAME", r"\1 // (SIZE or 1)")):
        match = re.fullmatch(pattern.replace("NAME", unknown[0]), text)
        if match:
            known[unknown[0]] = eval(match.expand(result), {"SIZE": size}, known)
            return


class _Arguments:
    """The arguments of a call, checked against the header."""

    def __init__(self, module: Module, given: dict[str, Any]) -> None:
        self.module, self.given, self.known = module, given, {name: given[name] for name in module.numbers}
        self.comments = {name: comment for name, _, comment in module.fields}
        self.buffers = sorted(module.buffers.values(), key=lambda buffer: buffer.direction == "out")
        self.tensors: dict[str, Tensor] = {}
        for buffer in self.buffers:
            self.read(buffer)
        self.find_words()
        self.find_sizes()
        self.find_types()
        for buffer in self.buffers:
            self.borrow(buffer)
        self.strides: dict[str, Any] = {name: given[name] for buffer in self.buffers for name in buffer.strides}
        for name in self.tensors:
            try:
                self.check(module.buffers[name])
            except (TypeError, ValueError) as error:
                raise type(error)("fallow.kernels.%s: %s %s" % (module.name, name, error)) from None

    def read(self, buffer: Buffer) -> None:
        if self.given[buffer.name] is None:
            return
        tensor = read_tensor(self.given[buffer.name])
        for i, text in enumerate(buffer.shapes[0]):  # a dimension that is 1 by default may be left out
            if len(tensor.shape) == len(buffer.shapes[0]) - 1 and re.search(r"\b0 = 1\b", self.comments.get(text, "")):
                tensor = tensor._replace(shape=(*tensor.shape[:i], 1, *tensor.shape[i:]),
                                         strides=(*tensor.strides[:i], 1, *tensor.strides[i:]))
        self.tensors[buffer.name] = tensor

    def find_words(self) -> None:
        for name, words in self.module.words.items():
            if isinstance(self.known[name], str):
                if self.known[name] not in words:
                    raise ValueError("fallow.kernels.%s: %s is %r: one of %s" % (
                        self.module.name, name, self.known[name], ", ".join(words)))
                self.known[name] = words.index(self.known[name])

    def shape(self, buffer: Buffer) -> list[str]:
        shapes = buffer.shapes
        return [_expression(text, self.module.numbers) for text in shapes[1 if buffer.flag and self.known[buffer.flag] else 0]]

    def find_sizes(self) -> None:
        """Set sizes that are not given from the tensors, and the others to their defaults."""
        used = " ".join(text for buffer in self.buffers for shape in buffer.shapes for text in shape)
        for name in self.module.numbers:
            if self.known[name] is None and not re.search(r"\b%s\b" % name, used):
                self.known[name] = None if name in self.type_names() else 0
        for _ in range(2):
            for buffer in self.buffers:
                shape = self.shape(buffer)
                if buffer.name in self.tensors and len(shape) == len(self.tensors[buffer.name].shape):
                    for text, size in zip(shape, self.tensors[buffer.name].shape):
                        if text:
                            _solve(text, size, self.known)
        for name in self.module.numbers:
            if self.known[name] is None and name not in self.type_names():
                default = re.search(r"\b0 = (\w+)(?=[.,;]|$)", self.comments[name])
                word = default[1] if default else "0"
                self.known[name] = int(word) if word.isdigit() else self.known.get(word) or 0

    def type_names(self) -> list[str]:
        return [buffer.dtype for buffer in self.module.buffers.values() if isinstance(buffer.dtype, str)]

    def find_types(self) -> None:
        for name in self.type_names():
            codes = [-1 if self.tensors[buffer.name].dtype is None else self.tensors[buffer.name].dtype
                     for buffer in self.buffers if buffer.dtype == name and buffer.name in self.tensors]
            if self.known[name] is not None:
                self.known[name] = dtype_code(self.known[name])
            else:
                self.known[name] = codes[0] if codes else self.known["dtype"] if name == "out_dtype" else 0
        for name in self.module.dtypes:  # also of a type that no buffer has
            self.known[name] = dtype_code(self.known[name] or 0)

    def sizes(self, buffer: Buffer) -> tuple[int | None, ...]:
        return tuple(self.size(text) for text in self.shape(buffer))

    def size(self, text: str) -> int | None:
        try:
            return int(eval(text, {}, self.known)) if text else None
        except ZeroDivisionError:  # the library refuses the parameter
            return None

    def dtype(self, buffer: Buffer) -> Any:
        return self.known[buffer.dtype] if isinstance(buffer.dtype, str) else buffer.dtype

    def check_cache(self, tensor: Tensor) -> None:
        """Check the type and width of gather_kv's cache, which follow from the format."""
        form = self.known["format"]
        width = {2: 656, 3: 132}.get(form, self.known["width"])
        if tensor.dtype != self.known["dtype"] if form == 0 else tensor.dtype is None or _BYTES[tensor.dtype] != 1:
            raise TypeError("has elements of another type than the format: dtype in rows, otherwise bytes")
        if tensor.shape[2] != width:
            raise ValueError("has rows of %d elements, not %d" % (tensor.shape[2], width))
        if form == 3:  # the values of a block are before all its scales
            self.strides["token_stride"] = self.given["token_stride"]

    def borrow(self, buffer: Buffer) -> None:
        """Take the region of the lease for an output that is not given."""
        lease = self.given["lease"]
        if buffer.direction != "out" or buffer.name in self.tensors or lease is None:
            return
        if buffer.name in [region["name"] for region in lease._layout.regions]:
            sizes = self.sizes(buffer)
            if None in sizes:
                raise ValueError("fallow.kernels.%s: the size of %s does not follow from the parameters: give the tensor"
                                 % (self.module.name, buffer.name))
            word, torch = DTYPES[self.dtype(buffer)], any(is_torch(self.given[name]) for name in self.tensors)
            self.given[buffer.name] = (lease.torch if torch else lease.tensor)(buffer.name, sizes, word)
            self.tensors[buffer.name] = read_tensor(self.given[buffer.name])

    def check(self, buffer: Buffer) -> None:
        tensor, first, dtype = self.tensors[buffer.name], next(iter(self.tensors)), self.dtype(buffer)
        if tensor.device != self.tensors[first].device:
            raise ValueError("is on device %d, %s on device %d" % (tensor.device, first, self.tensors[first].device))
        if dtype is not None and tensor.dtype != dtype:
            word = "a type that no kernel accepts" if tensor.dtype is None else DTYPES[tensor.dtype]
            raise TypeError("has elements of %s, not %s" % (word, DTYPES[dtype] if 0 <= dtype < len(DTYPES) else "that"))
        sizes = self.sizes(buffer)
        if sizes != (1,) or tensor.shape != ():
            try:
                require_shape(tensor, sizes)
            except ValueError as error:
                raise ValueError("%s: it must be %s" % (error, " or ".join(
                    "[%s]" % ", ".join(names) for names in buffer.shapes))) from None
        if buffer.direction and tensor.read_only:
            raise ValueError("is read-only")
        for name, stride in zip(buffer.strides, strides_of(tensor, buffer.strides)):
            self.strides[name] = stride if self.strides[name] is None else self.strides[name]
        if self.module.name == "gather_kv" and buffer.name == "cache":
            self.check_cache(tensor)

    def pack(self, form: struct.Struct) -> bytes:
        values = [form.size]
        for name, _, _ in self.module.fields[1:]:
            if name in self.module.buffers:
                values.append(self.tensors[name].address if name in self.tensors else 0)
            elif not name.startswith("reserved_"):
                values.append((self.strides[name] or 0) if name in self.strides else self.known[name])
        try:
            return form.pack(*values)
        except struct.error as error:
            raise ValueError("fallow.kernels.%s: a parameter is out of range: %s" % (self.module.name, error)) from None

    def require_bytes(self, packed: bytes) -> None:
        """Check outputs of a size that only the library computes."""
        query, need = getattr(_open(), self.module.function + "_query"), ctypes.create_string_buffer(struct.pack("Q304x", 312))
        if all(None not in self.sizes(buffer) for buffer in self.buffers if buffer.direction == "out"):
            return
        _library.check(query(packed, need), "fallow.kernels." + self.module.name, _last_error())
        for i in range(8):  # fallow_workspace_need.outputs
            address, size = struct.unpack_from("QQ", need, 48 + 32 * i)
            tensor = self.tensors.get(ctypes.string_at(address).decode()) if address else None
            if tensor is not None and math.prod(tensor.shape) * _BYTES[tensor.dtype or 0] < size:
                raise ValueError("fallow.kernels.%s: %s has the shape %s; the output has %d bytes" % (
                    self.module.name, ctypes.string_at(address).decode(), text_of(tensor.shape), size))


# ---- functions


def _python_name(name: str) -> str:
    return name + "_" if name == "in" else name


_FUNCTION = """
def {name}({inputs}, *, {options}, stream=None, lease=None):
    key = packed = None
    try:
        key = ({key}, lease)
        handle, numbers, device, current = plans[key]
        packed = head({size}, {addresses}) + numbers
    except (AttributeError, KeyError, TypeError):
        pass
    if packed is None:
        return prepare(key, {given}, stream, lease)
    status = function(handle, packed, current(device) if stream is None else stream_handle(stream))
    if status:
        refuse(status)
    return {results}
"""


def _source(module: Module) -> str:
    """Return the function of a module. It recognises a call by the shapes, types and options of an earlier one;
    prepare() checks all others."""
    buffers = {_python_name(name): buffer for name, buffer in module.buffers.items()}
    options = [*module.numbers, *[stride for buffer in buffers.values() for stride in buffer.strides]]
    inputs = [name for name, buffer in buffers.items() if buffer.direction != "out" and name != "flags"]
    results = [name for name, buffer in buffers.items() if buffer.direction and name != "flags"]
    form = "None if {0} is None else ({0}.shape, {0}.stride(), {0}.dtype, {0}.get_device())"
    return _FUNCTION.format(
        name=module.name, inputs=", ".join(name + "=None" for name in inputs) or "_=None",
        options=", ".join(name + "=None" for name in [*buffers, *options] if name not in inputs),
        key=", ".join([form.format(name) for name in buffers] + options), size=_form(module).size,
        addresses=", ".join("0 if {0} is None else {0}.data_ptr()".format(name) for name in buffers),
        given="(%s,)" % ", ".join([*buffers, *options]),
        results=results[0] if len(results) == 1 else "results_of((%s))" % ", ".join(results))


def _form(module: Module) -> struct.Struct:
    return struct.Struct("".join("%dx" % struct.calcsize(letter) if name.startswith("reserved_") else letter
                                 for name, letter, _ in module.fields) + "0Q")  # padded as the struct in C


def _results(made: tuple[Any, ...]) -> Any:
    given = tuple([tensor for tensor in made if tensor is not None])
    return given[0] if len(given) == 1 else given


def _make(module: Module) -> Callable[..., Any]:
    """Return the function of a module."""
    function, form, plans = getattr(_open(), module.function), _form(module), {}  # type: Any, struct.Struct, dict[Any, Any]
    function.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    names = [*module.buffers, *module.numbers,
             *[stride for buffer in module.buffers.values() for stride in buffer.strides]]

    def refuse(status: int) -> None:
        _library.check(status, "fallow.kernels." + module.name, _last_error().replace(module.function + ": ", ""))

    def prepare(key: Any, values: Any, stream: Any, lease: Any) -> Any:
        arguments = _Arguments(module, dict(zip(names, values), lease=lease))
        packed = arguments.pack(form)
        arguments.require_bytes(packed)
        given, tensors = arguments.given, arguments.tensors
        first = next(iter(tensors), None)
        device = tensors[first].device if first else 0
        if stream is None:
            stream = current_stream(given[first], device) if first else 0
        stream = stream_handle(stream)
        for name in tensors:
            if isinstance(given[name], View):
                given[name].require_stream(stream)
        status = function(_handle(device), packed, stream)
        if status:
            refuse(status)
        is_plain = all(isinstance(given[name], (int, float, str, type(None))) for name in names[len(module.buffers):])
        if key is not None and lease is None and is_plain and all(is_torch(given[name]) for name in tensors):
            if len(plans) >= _MOST_PLANS:
                plans.clear()
            plans[key] = (_handle(device), packed[8 + 8 * len(module.buffers):], device,
                          sys.modules["torch"]._C._cuda_getCurrentRawStream)
        return _results(tuple(given[name] for name, buffer in module.buffers.items()
                              if buffer.direction and name != "flags"))

    scope = {"plans": plans, "prepare": prepare, "function": function, "refuse": refuse, "stream_handle": stream_handle,
             "head": struct.Struct("Q%dQ" % len(module.buffers)).pack, "results_of": _results}
    exec(compile(_source(module), "<fallow.kernels.%s>" % module.name, "exec"), scope)
    made: Any = scope[module.name]
    made.__module__, made.__qualname__ = __name__, module.name
    made.__doc__ = "%s\n\n%s" % (module.text, "\n".join(
        "%s  %s" % (_python_name(name), comment) for name, _, comment in module.fields[1:] if comment))
    return made  # type: ignore[no-any-return]


def _read() -> dict[str, Module]:
    if not _modules:
        _modules.update(read_modules(find_folder(_library._roots())))
    return _modules


def __getattr__(name: str) -> Any:
    """Make the function of a module when it is first used."""
    if name.startswith("_") or name not in _read():
        raise AttributeError("module 'fallow.kernels' has no attribute %r" % name)
    globals()[name] = made = _make(_read()[name])
    return made


def __dir__() -> list[str]:
    return sorted([*_read(), "dtype_code"])
