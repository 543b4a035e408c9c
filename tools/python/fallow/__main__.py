# SPDX-License-Identifier: Apache-2.0
"""Run the command fallow: `python -m fallow report snapshot.pickle`. The script `fallow` of a wheel runs this too."""
from __future__ import annotations

import os
import signal
import sys

from fallow._library import find_command


def main() -> None:
    """Replace this process by the command, which finds its libraries relative to its own path."""
    command = find_command()
    if command is None:
        sys.exit("fallow: no command beside %s; build it (-DFALLOW_TOOLS=ON)" % os.path.dirname(__file__))
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores these signals; the command would inherit that
    os.execv(command, ["fallow"] + sys.argv[1:])


if __name__ == "__main__":
    main()
