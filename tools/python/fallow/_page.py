# SPDX-License-Identifier: Apache-2.0
"""Pages of `fallow report`, in a notebook or a file. Needs the command and no library; the command is looked for in
FALLOW_COMMAND, then beside this file's installation, then along PATH."""
from __future__ import annotations

import contextlib
import html
import os
import pickle
import shutil
import subprocess
import tempfile

from fallow._library import find_command
from fallow._typing import Any, AnyPath, BinaryIO, Iterator, Sequence


def _command() -> str | None:
    return os.environ.get("FALLOW_COMMAND") or find_command() or shutil.which("fallow")


def run_report(arguments: Sequence[str], seconds: float | None = None) -> bytes:
    """Run `fallow report` and return its standard output. RuntimeError: the command cannot be run, takes longer than
    `seconds`, or fails; the message is that of the command."""
    command = _command()
    if command is None:
        raise RuntimeError("the command fallow was not found; install Fallow, or set FALLOW_COMMAND to it")
    # The command does not need this program's preloads.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    try:
        done = subprocess.run([command, "report", *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, env=environment, timeout=seconds)
    except OSError as error:
        raise RuntimeError("the command fallow cannot be run: %s; FALLOW_COMMAND can name another" % error) from error
    except subprocess.TimeoutExpired as error:
        raise RuntimeError("fallow report took more than %g s" % error.timeout) from error
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()
        raise RuntimeError(said or "fallow report ended with status %d" % done.returncode)
    return done.stdout


class Page:
    """A page of `fallow report`: a notebook shows it, `html` is its text, save() writes it to a file."""

    def __init__(self, text: str, height: int) -> None:
        self.html, self._height = text, height

    def _repr_html_(self) -> str:
        """Return the page in a frame of its own, so that its style and script stay out of the notebook."""
        return ('<iframe srcdoc="%s" sandbox="allow-scripts" title="fallow report" '
                'style="width:100%%;height:%dpx;border:0"></iframe>' % (html.escape(self.html), self._height))

    def __repr__(self) -> str:
        return "<fallow.report_html: %d bytes; .save(path) writes them>" % len(self.html.encode())

    def save(self, path: AnyPath) -> AnyPath:
        """Write the page to a file, which is replaced completely or not at all. Returns the path."""
        with replacing(path) as file:
            file.write(self.html.encode())
        return path


def report_html(snapshot: Any, *options: str, height: int = 800) -> Page:
    """Return the page of `fallow report` about a snapshot, for a notebook or a file:

        fallow.report_html(torch.cuda.memory._snapshot())
        fallow.report_html("snapshot.pickle", "--policy", "fallow,pytorch").save("report.html")

    snapshot  a dict as torch.cuda.memory._snapshot() returns it; a path of any file that `fallow report` reads; or
              the bytes of such a file
    options   of `fallow report`
    height    of the frame in a notebook, in pixels

    Runs the command `fallow`, which is searched in FALLOW_COMMAND, beside this package, and along PATH; it needs no
    GPU. RuntimeError: there is no command, or it cannot read the snapshot."""
    arguments = list(options) + ["--html", "-", "--"]
    if isinstance(snapshot, (str, os.PathLike)):
        page = run_report(arguments + [os.fspath(snapshot)])
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
            page = run_report(arguments + [path])
    return Page(page.decode(), height)


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file to write that gets its name when it is complete. If writing fails no file is left."""
    draft = "%s.%d.part" % (os.fspath(path), os.getpid())
    try:
        with open(draft, "wb") as file:
            yield file
        os.replace(draft, path)
    finally:
        if os.path.exists(draft):
            os.unlink(draft)
