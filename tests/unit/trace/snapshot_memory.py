# SPDX-License-Identifier: Apache-2.0
#
# Owns: the memory that reading a snapshot takes, as the growth from a small one to a large one of
# big_snapshot.py, in bytes for each byte of the file.
# Usage: snapshot_memory.py FALLOW BIG_SNAPSHOT BYTES_A_BYTE
import os
import subprocess
import sys
import tempfile

SMALL, LARGE = 4 << 20, 40 << 20


def peak_bytes(tool, path):
    child = subprocess.Popen([tool, "trace", "info", path], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"fallow trace info {path} exits with {child.returncode}")
    return usage.ru_maxrss * 1024


def main():
    tool, writer, bound = sys.argv[1], sys.argv[2], float(sys.argv[3])
    peaks = []
    with tempfile.TemporaryDirectory() as folder:
        for size in (SMALL, LARGE):
            path = os.path.join(folder, f"{size}.pickle")
            with open(path, "wb") as file:
                subprocess.run([sys.executable, writer, str(size)], stdout=file, check=True)
            peaks.append(peak_bytes(tool, path))
    ratio = (peaks[1] - peaks[0]) / (LARGE - SMALL)
    print(f"{peaks[0]} bytes for {SMALL}, {peaks[1]} for {LARGE}: {ratio:.2f} a byte, at most {bound}")
    return 0 if 0 < ratio <= bound else 1


sys.exit(main())
