# SPDX-License-Identifier: Apache-2.0
"""Find and load libfallow.so, find the command, and turn statuses into exceptions."""
from __future__ import annotations

import ctypes
import os
import sys

from fallow import _abi
from fallow._typing import Callable

_loaded: ctypes.CDLL | None = None
_loaded_path = ""
kept: list[object] = []  # objects that frameworks or the library hold by address only


class Error(RuntimeError):
    """A call of the library failed: `status` is its number, `name` its name such as "FALLOW_BUSY"."""

    def __init__(self, status: int, what: str, reason: str | None = None) -> None:
        self.status = status
        self.name: str = lib().fallow_status_name(status).decode()
        super().__init__("%s: %s (%s)" % (what, reason or _message(status), self.name))


def _roots() -> list[str]:
    """Return the folders to search for lib and bin, in order."""
    for folder in sys.modules["fallow"].__path__:  # two after pip install -e
        if os.path.isdir(os.path.join(folder, "lib")):
            return [folder]  # installed by pip
    here = os.path.dirname(os.path.abspath(__file__))
    source = os.path.normpath(os.path.join(here, "../../.."))  # tools/python/fallow of a source tree
    builds = [os.path.join(source, "build", preset) for preset in ("release", "quickstart", "dev")]
    return [os.path.dirname(source)] + builds  # PREFIX/share/fallow/python/fallow


def _candidates() -> list[str]:
    """Return the paths of libfallow.so to try, in order."""
    if os.environ.get("FALLOW_LIBRARY"):
        return [os.environ["FALLOW_LIBRARY"]]
    folders = ("lib", "lib64", "lib/%s-linux-gnu" % os.uname().machine)
    found = [os.path.join(root, folder, "libfallow.so.0.2") for root in _roots() for folder in folders]
    return found + ["libfallow.so.0.2", "libfallow.so"]


def find_command() -> str | None:
    """Return the path of the command fallow that belongs to this package, or None if there is none."""
    found = [os.path.join(root, "bin", "fallow") for root in _roots()]
    return next((path for path in found if os.access(path, os.X_OK)), None)


def lib() -> ctypes.CDLL:
    """Return the library. The first call loads it; OSError lists the files tried. Threads that call it first at once
    get objects of the same library."""
    global _loaded, _loaded_path
    if _loaded is not None:
        return _loaded
    tried = []
    for path in _candidates():
        if os.path.isabs(path) and not os.path.exists(path):
            tried.append("%s: no such file" % path)
            continue
        try:
            library = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
            for name, (result, *arguments) in _abi.FUNCTIONS.items():
                function = getattr(library, "fallow_" + name)
                function.restype, function.argtypes = result, arguments
        except OSError as error:
            tried.append(str(error))
            continue
        except AttributeError as error:
            tried.append("%s is of another version than this module: %s" % (path, error))
            continue
        _loaded_path, _loaded = path, library
        return library
    raise OSError("libfallow.so could not be loaded; install Fallow, or set FALLOW_LIBRARY to the file. Tried: "
                  + "; ".join(tried))


def library_path() -> str:
    """Return the path of libfallow.so, for other users of its functions. Loads the library if it is not; OSError if
    that fails."""
    lib()
    return _loaded_path


def kernel_generations() -> list[str]:
    """Return the GPU generations that libfallow-kernels has device code for, such as ["sm_80", "sm_90"]. Empty if it was
    built without nvcc; its kernels then run on the simulated device only. OSError if the library cannot be loaded."""
    kernels = ctypes.CDLL(os.path.join(os.path.dirname(library_path()), "libfallow-kernels.so.0.2"))
    kernels.fallow_kernels_generations.restype = ctypes.c_char_p
    generations: bytes = kernels.fallow_kernels_generations()
    return generations.decode().split()


def address_of(name: str) -> int | None:
    """Return the address of a function of the library."""
    return ctypes.cast(getattr(lib(), name), ctypes.c_void_p).value


_PYTHON_NAMES = [  # replacements in messages of the library
    ("fallow_pool_get_oom_report", "fallow.report()"),
    ("fallow_pool_wake", "fallow.wake()"),
    ("fallow_capture_begin", "fallow.capture(stream)"),
    ("fallow_lease_guard", "Arena.guard()"),
    ("fallow_lease_end", "the lease's end"),
    ("; fallow_arena_last_error names both", ""),
]


def in_python(text: str) -> str:
    """Return a message of the library with this package's names in place of C functions."""
    for name, here in _PYTHON_NAMES:
        text = text.replace(name, here)
    return text


def _message(status: int) -> str:
    return in_python(lib().fallow_status_message(status).decode())


def check(status: int, what: str, reason: str | None = None) -> None:
    """Raise MemoryError or Error unless the status is OK. `reason` replaces the message of the status, if given."""
    if status in (_abi.FALLOW_OUT_OF_MEMORY, _abi.FALLOW_OUT_OF_HOST_MEMORY):
        raise MemoryError("%s: %s" % (what, reason or _message(status)))
    if status != _abi.FALLOW_OK:
        raise Error(status, what, reason)


def make(what: str, function: Callable[..., int], *arguments: object) -> ctypes.c_void_p:
    """Return the handle or address that a function of the library writes to its last argument. Raises as check()."""
    made = ctypes.c_void_p()
    check(function(*arguments, ctypes.byref(made)), what)
    return made


def call_back(function: Callable[..., object], *arguments: object, if_raised: bool) -> object:
    """Return the result of a function that the library calls. An exception is printed, since no caller could catch
    it, and `if_raised` returned."""
    try:
        return function(*arguments)
    except Exception:
        import traceback  # slow to import

        traceback.print_exc()
        return if_raised
