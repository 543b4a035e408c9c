# SPDX-License-Identifier: Apache-2.0
"""A snapshot and a page when PyTorch runs out of memory."""
from __future__ import annotations

import os
import pickle
import sys
import threading

from fallow._arguments import framework
from fallow._page import replacing, run_report
from fallow._report import mib
from fallow._typing import Any


def _rank() -> str | None:
    """Return this process's rank in its job as text, or None if there is no job."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return str(distributed.get_rank())
    for name in ("RANK", "OMPI_COMM_WORLD_RANK"):  # torchrun and others; Open MPI
        if os.environ.get(name, "").isdigit():
            return os.environ[name]
    if os.environ.get("SLURM_NTASKS", "1") != "1" and os.environ.get("SLURM_PROCID", "").isdigit():
        return os.environ["SLURM_PROCID"]
    return None


def _name_page(pattern: str, number: int) -> str:
    """Return "oom.html", or "oom_rank3.html" in a job of several processes, or "oom-2.html" the second time."""
    rank = _rank()
    root, ending = os.path.splitext(pattern)
    if "{rank}" not in root and "{pid}" not in root and rank is not None:
        root += "_rank{rank}"
    root = root.replace("{rank}", rank or "0").replace("{pid}", str(os.getpid()))
    return root + ("-%d" % number if number > 1 else "") + ending


class OomWatch:
    """The watch that watch_oom() began. `pages` are the paths of the pages written so far. It ends with stop() or the
    end of a `with` block."""

    def __init__(self, torch: Any, pattern: str, most: int, seconds: float) -> None:
        self.pages: list[str] = []
        self._torch, self._pattern, self._most, self._seconds = torch, pattern, most, seconds
        self._count = 0
        self._is_on = True
        self._records = False  # it was this watch that turned the recording on
        self._lock = threading.RLock()  # devices may run out at once, each on a thread of its own

    def __enter__(self) -> OomWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Write no more pages, and end PyTorch's recording if watch_oom() began it. PyTorch keeps the observer, which
        does nothing, until the process ends."""
        with self._lock:
            records, self._records, self._is_on = self._records, False, False
        if records:
            self._torch.cuda.memory._record_memory_history(None)

    def _observe(self, device: int, asked_bytes: int, total_bytes: int, free_bytes: int) -> None:
        """PyTorch's callback. An exception would replace PyTorch's own error, so none is raised."""
        try:
            with self._lock:
                if self._is_on and self._count < self._most:
                    self._count += 1
                    self._say("device %d is out of memory: %s asked for, %s of %s free"
                              % (device, mib(asked_bytes), mib(free_bytes), mib(total_bytes)))
                    self._write(device, _name_page(self._pattern, self._count))
        except BaseException as error:  # a KeyboardInterrupt too
            self._say("of this out-of-memory no page was written: %s: %s" % (type(error).__name__, error))

    def _write(self, device: int, page: str) -> None:
        snapshot = os.path.splitext(page)[0] + ".pickle"
        os.makedirs(os.path.dirname(page), exist_ok=True)  # of a rank that was unknown at the start
        with replacing(snapshot) as file:
            pickle.dump(self._torch.cuda.memory._snapshot(), file)
        self._say("wrote %s" % snapshot)
        if os.path.exists(page):
            os.unlink(page)  # of an earlier run
        complaint = ""
        try:
            run_report(["--trace-device", str(device), "--html", page, "--", snapshot], self._seconds)
        except RuntimeError as error:
            if not os.path.exists(page):
                self._say("no page: %s" % error)
                self._say("once that is mended: fallow report %s --trace-device %d --html %s" % (snapshot, device, page))
                return
            complaint = "; %s" % error  # the page is whole
        self.pages.append(page)
        self._say("wrote %s%s" % (page, complaint))

    @staticmethod
    def _say(text: str) -> None:
        try:
            sys.stderr.write("fallow: %s\n" % text)
            sys.stderr.flush()
        except Exception:  # no place for a message
            pass


def watch_oom(path: str | os.PathLike[str] = "oom.html", stacks: str = "all", max_entries: int = 100000, most: int = 3,
              seconds: float = 300) -> OomWatch:
    """Whenever PyTorch runs out of CUDA memory, write a snapshot and the page of `fallow report` about it before the
    error is raised. Call it near the start of the program:

        fallow.watch_oom("oom.html")        # later: oom.pickle and oom.html, named on standard error

    path         of the page; the snapshot is beside it, as .pickle. {rank} and {pid} are replaced; without them, a
                 process of a job (torch.distributed; RANK, OMPI_COMM_WORLD_RANK, SLURM_PROCID) writes oom_rank3.html
    stacks       "all", or "python": without C++ frames, which name the work of a backward pass
    max_entries  most allocations and frees that PyTorch records, some KB of host memory each
    most         most times that something is written; later ones have the names oom-2.html, ...
    seconds      most that the page may take; the snapshot stays in any case

    Turns on PyTorch's memory history if it is off; `stacks` and `max_entries` concern that alone. Returns a handle
    with stop(). PyTorch offers this only for its own allocator: with enable_torch() use Recording(flight=True).
    ImportError: needs PyTorch 2.1 or newer with CUDA."""
    torch = framework("torch", "watch_oom()")
    attach = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
    if attach is None:
        raise ImportError("fallow.watch_oom() needs PyTorch 2.1 or newer with CUDA; this is %s"
                          % getattr(torch, "__version__", "an unknown version"))
    path = os.path.abspath(os.fspath(path))
    if os.path.splitext(path)[1] == ".pickle":
        raise ValueError("fallow.watch_oom() takes the path of the page, such as oom.html, not %s; the snapshot lies "
                         "beside it" % path)
    folder = os.path.dirname(_name_page(path, 1))
    os.makedirs(folder, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError("fallow.watch_oom() may not write to the folder %s" % folder)
    watch = OomWatch(torch, path, most, seconds)
    try:
        attach(watch._observe)
    except RuntimeError as error:
        instead = "; with enable_torch() take fallow.Recording(flight=True)" if "Pluggable" in str(error) else ""
        reason = str(error).split(". ")[0]
        raise RuntimeError("PyTorch cannot watch for an out-of-memory here: %s%s" % (reason, instead)) from error
    if not torch._C._cuda_isHistoryEnabled():
        torch.cuda.memory._record_memory_history("all", stacks=stacks, max_entries=max_entries)
        watch._records = True
    return watch
