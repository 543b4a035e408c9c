# SPDX-License-Identifier: Apache-2.0
"""Pages of `fallow report` from Python: in a notebook, and of the moment when PyTorch runs out of memory.

The module fallow has the public names. This part of it needs the command `fallow` and no library; the command
is looked for in FALLOW_COMMAND, then beside this file's installation, then along PATH."""
import html
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading

from fallow import _find_command

__all__ = ["report_html", "watch_oom"]


# ---- the command


def _command():
    if "FALLOW_COMMAND" in os.environ:
        return os.environ["FALLOW_COMMAND"]
    return _find_command() or shutil.which("fallow")


def _run_report(arguments, seconds=None):
    """What `fallow report` prints, as bytes. RuntimeError: what it complained of, or why it could not run."""
    command = _command()
    if command is None:
        raise RuntimeError("the command fallow was not found; install Fallow, or set FALLOW_COMMAND to it")
    # What this program is preloaded with is not for the command.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    try:
        done = subprocess.run([command, "report"] + arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, env=environment, timeout=seconds)
    except OSError as error:
        raise RuntimeError("the command fallow cannot be run: %s; FALLOW_COMMAND can name another" % error) from error
    except subprocess.TimeoutExpired as error:
        raise RuntimeError("fallow report took more than %g s" % seconds) from error
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()
        raise RuntimeError(said or "fallow report ended with status %d" % done.returncode)
    return done.stdout


# ---- a page in a notebook


class Page:
    """What report_html() returns: a notebook shows it; `html` is all of it as text, save() writes it."""

    def __init__(self, text, height):
        self.html, self._height = text, height

    def _repr_html_(self):
        """In a frame of its own, so that neither its style nor its script reaches the notebook."""
        return ('<iframe srcdoc="%s" sandbox="allow-scripts" title="fallow report" '
                'style="width:100%%;height:%dpx;border:0"></iframe>' % (html.escape(self.html), self._height))

    def __repr__(self):
        return "<fallow.report_html: %d bytes; .save(path) writes them>" % len(self.html.encode())

    def save(self, path):
        """Write the page to a file, which it replaces whole or not at all. Returns the path."""
        with _replacing(path) as file:
            file.write(self.html.encode())
        return path


def report_html(snapshot, *options, height=800):
    """The page of `fallow report`, to be shown by a notebook or saved:

        fallow.report_html(torch.cuda.memory._snapshot())
        fallow.report_html("snapshot.pickle", "--policy", "fallow,pytorch").save("report.html")

    snapshot  a dict as torch.cuda.memory._snapshot() makes it, the path of a file that `fallow report` reads,
              or such a file's bytes
    options   of `fallow report`
    height    of the frame in a notebook, in pixels

    RuntimeError: the command is not there, or what it says of a snapshot that it cannot read."""
    arguments = list(options) + ["--html", "-", "--"]
    if isinstance(snapshot, (str, os.PathLike)):
        page = _run_report(arguments + [os.fspath(snapshot)])
    else:
        with tempfile.TemporaryDirectory(prefix="fallow-") as folder:
            path = os.path.join(folder, "snapshot.pickle")
            with open(path, "wb") as file:
                if isinstance(snapshot, (bytes, bytearray, memoryview)):
                    file.write(snapshot)
                elif isinstance(snapshot, dict):
                    pickle.dump(snapshot, file)
                else:
                    raise TypeError("a snapshot is a dict, a path or bytes, not %r" % type(snapshot).__name__)
            page = _run_report(arguments + [path])
    return Page(page.decode(), height)


# ---- out of memory


class _replacing:
    """A file to write that takes its name when all of it is there, and leaves nothing when it is not."""

    def __init__(self, path):
        self._path, self._draft = os.fspath(path), "%s.%d.part" % (os.fspath(path), os.getpid())

    def __enter__(self):
        self._file = open(self._draft, "wb")
        return self._file

    def __exit__(self, kind, *_):
        try:
            self._file.close()
            if kind is None:
                os.replace(self._draft, self._path)
        finally:
            if os.path.exists(self._draft):
                os.unlink(self._draft)


def _rank():
    """This process's place in its job, as text; None: it has none."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return str(distributed.get_rank())
    for name in ("RANK", "OMPI_COMM_WORLD_RANK"):  # torchrun and others; Open MPI
        if os.environ.get(name, "").isdigit():
            return os.environ[name]
    if os.environ.get("SLURM_NTASKS", "1") != "1" and os.environ.get("SLURM_PROCID", "").isdigit():
        return os.environ["SLURM_PROCID"]
    return None


def _name_page(pattern, number):
    """oom.html; oom_rank3.html in a job of several; oom-2.html the second time."""
    rank = _rank()
    root, ending = os.path.splitext(pattern)
    if "{rank}" not in root and "{pid}" not in root and rank is not None:
        root += "_rank{rank}"
    root = root.replace("{rank}", rank or "0").replace("{pid}", str(os.getpid()))
    return root + ("-%d" % number if number > 1 else "") + ending


def _mib(count):
    return "%.1f MiB" % (count / 1048576.0)


class OomWatch:
    """What watch_oom() returns. `pages` are the pages written so far. stop() ends it, and so does the end of a
    `with` block."""

    def __init__(self, torch, pattern, most, seconds):
        self.pages = []
        self._torch, self._pattern, self._most, self._seconds = torch, pattern, most, seconds
        self._count = 0
        self._is_on = True
        self._records = False  # it was this watch that turned the recording on
        self._lock = threading.RLock()  # devices may run out at once, each on a thread of its own

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        """Write nothing from now on, and record no more if it was watch_oom() that began to. PyTorch keeps the
        observer, which does nothing, for as long as the process lives."""
        with self._lock:
            records, self._records, self._is_on = self._records, False, False
        if records:
            self._torch.cuda.memory._record_memory_history(None)

    def _observe(self, device, asked_bytes, total_bytes, free_bytes):
        """PyTorch's call. What it raises would take the place of PyTorch's own error, so it raises nothing."""
        try:
            with self._lock:
                if self._is_on and self._count < self._most:
                    self._count += 1
                    self._say("device %d is out of memory: %s asked for, %s of %s free"
                              % (device, _mib(asked_bytes), _mib(free_bytes), _mib(total_bytes)))
                    self._write(device, _name_page(self._pattern, self._count))
        except BaseException as error:  # a KeyboardInterrupt too
            self._say("of this out-of-memory no page was written: %s: %s" % (type(error).__name__, error))

    def _write(self, device, page):
        snapshot = os.path.splitext(page)[0] + ".pickle"
        os.makedirs(os.path.dirname(page), exist_ok=True)  # of a rank that was not known at the start
        with _replacing(snapshot) as file:
            pickle.dump(self._torch.cuda.memory._snapshot(), file)
        self._say("wrote %s" % snapshot)
        if os.path.exists(page):
            os.unlink(page)  # of an earlier run
        try:
            _run_report(["--trace-device", str(device), "--html", page, "--", snapshot], self._seconds)
        except RuntimeError as error:
            if os.path.exists(page):  # whole, and the command had something to say
                self.pages.append(page)
                self._say("wrote %s; %s" % (page, error))
                return
            self._say("no page: %s" % error)
            self._say("once that is mended: fallow report %s --trace-device %d --html %s" % (snapshot, device, page))
            return
        self.pages.append(page)
        self._say("wrote %s" % page)

    @staticmethod
    def _say(text):
        try:
            sys.stderr.write("fallow: %s\n" % text)
            sys.stderr.flush()
        except Exception:  # nowhere to say it
            pass


def watch_oom(path="oom.html", stacks="all", max_entries=100000, most=3, seconds=300):
    """From now on, when PyTorch runs out of CUDA memory, write a snapshot and the page of `fallow report`
    about it, before the error is raised:

        fallow.watch_oom("oom.html")        # near the start of the program
        ...                                 # oom.pickle and oom.html, said on standard error

    path         of the page; the snapshot lies beside it, as .pickle. {rank} and {pid} stand for the process's
                 own; with neither of them, a process of a job (torch.distributed; RANK, OMPI_COMM_WORLD_RANK, or
                 SLURM_PROCID of several tasks) writes oom_rank3.html. Its folder is made now,
                 or when a page is written if the rank was not known.
    stacks       "all", or "python": without C++ frames, which name what runs in a backward pass
    max_entries  most allocations and frees that PyTorch keeps, some KB of host memory each
    most         of so many times, the later ones as oom-2.html ...: programs try again with less
    seconds      most that the page may take; the snapshot stays

    PyTorch's recording of its history is turned on if it is not; stacks and max_entries are for that alone.
    Returns a handle with stop(). Not with enable_torch(), which PyTorch gives no observer: a
    Recording(flight=True) is written there when an allocation fails. Needs PyTorch 2.1 or newer with CUDA."""
    try:
        import torch
    except ImportError as error:
        raise ImportError("fallow.watch_oom() needs torch, which cannot be imported: %s" % error) from error
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
        raise RuntimeError("PyTorch cannot watch for an out-of-memory here: %s%s" % (error, instead)) from error
    if not torch._C._cuda_isHistoryEnabled():
        torch.cuda.memory._record_memory_history("all", stacks=stacks, max_entries=max_entries)
        watch._records = True
    return watch
