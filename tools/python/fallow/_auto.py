# SPDX-License-Identifier: Apache-2.0
"""Enable Fallow in the frameworks that FALLOW_AUTO names, right after the program has imported them.

fallow.pth imports this module at Python's start if FALLOW_AUTO is set. A failure prints one line, and the program
continues with the framework's own allocator."""
from __future__ import annotations

import os
import sys

from fallow._typing import Any, Sequence

_MODULES = {"cupy": "cupy", "numba": "numba.cuda", "rmm": "rmm", "torch": "torch"}


def _complain(text: str) -> None:
    try:
        sys.stderr.write("fallow: FALLOW_AUTO=%s: %s\n" % (os.environ.get("FALLOW_AUTO"), " ".join(text.split())))
    except (AttributeError, OSError, ValueError):
        pass  # no stderr, or a closed one


def _enable(name: str, word: str = "") -> None:
    """Call fallow.enable_NAME(), for a word in FALLOW_AUTO if that is another one."""
    try:
        import fallow

        getattr(fallow, "enable_" + name)()
    except Exception as error:
        _complain("%s allocates without Fallow: %s; correct this, or remove %s from FALLOW_AUTO"
                  % (name, str(error) or type(error).__name__, word or name))


class _Loader:
    """Executes a framework's module with its own loader, then enables Fallow."""

    def __init__(self, finder: _Finder, loader: Any) -> None:
        self._finder, self._loader = finder, loader

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # a copy is queried before it has a loader
            raise AttributeError(name)
        return getattr(self._loader, name)

    def exec_module(self, module: Any) -> None:
        module.__loader__ = module.__spec__.loader = self._loader  # for programs that read them
        self._loader.exec_module(module)
        name = self._finder.waiting.pop(module.__name__, None)  # importlib.reload enables nothing again
        if name is not None:
            _enable(name)


class _Finder:
    """Finds the modules of frameworks with the finders after itself in sys.meta_path."""

    def __init__(self) -> None:
        self.waiting: dict[str, str] = {}  # framework by module, until enabled

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        if name not in self.waiting:
            return None
        finders: Any = iter(list(sys.meta_path))
        for finder in finders:
            if finder is self:
                break
        for finder in finders:
            spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):  # not folders without __init__.py, nor archives before 3.10
                    spec.loader = _Loader(self, spec.loader)
                return spec
        return None


def _names() -> list[str]:
    return os.environ.get("FALLOW_AUTO", "").replace(",", " ").split()


def _install() -> None:
    """Wait for the imports of the frameworks in FALLOW_AUTO. Enable those already imported."""
    finder: Any = _Finder()
    for name in dict.fromkeys(_names()):
        module = _MODULES.get(name)
        if name == "vllm":
            continue
        if module is None:
            _complain("no framework '%s'; use %s or vllm, separated by commas" % (name, ", ".join(_MODULES)))
        elif module in sys.modules:
            _enable(name)
        else:
            finder.waiting[module] = name
    if finder.waiting:
        sys.meta_path.insert(0, finder)


def vllm() -> None:
    """Enable Fallow in PyTorch if FALLOW_AUTO names vllm. vLLM calls this plug-in in each of its processes."""
    if "vllm" in _names():
        _enable("torch", "vllm")


_install()  # on import, because Python runs a .pth file twice in virtual environments
