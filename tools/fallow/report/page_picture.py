#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""README.md's picture: the top of the page that `fallow report` makes of the demo trace.

  page_picture.py BUILD            make page.png anew: needs chromium; look at it afterwards
  page_picture.py --check BUILD    is page.png of the numbers that this build's report says?

What the picture was made of, the report's table and verdict, is kept in the file as a comment (a tEXt chunk),
so that the check needs no browser. Exit: 0; 1 the picture is stale, or there is none.
"""
import os
import struct
import subprocess
import sys
import tempfile
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
PICTURE = os.path.join(HERE, "page.png")
DEMO = os.path.join(os.path.dirname(HERE), "demo.ftext.xz")
POLICIES = "fallow,fallow-memory-first,pytorch,pytorch-expandable,async,bound"
SIZE = (1000, 868)
SIGNATURE = b"\x89PNG\r\n\x1a\n"
KEYWORD = b"Comment\0"


def report(build, page):
    """The report's table and verdict; writes the page."""
    said = subprocess.run(
        [os.path.join(build, "bin", "fallow"), "report", DEMO, "--no-times", "--policy", POLICIES, "--html", page],
        check=True, capture_output=True, text=True).stdout.split("\n")
    return "\n".join(line for line in said if line[:1].isalpha() and "▇" not in line and "█" not in line)


def chunks(data):
    at = len(SIGNATURE)
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        yield data[at + 4 : at + 8], data[at + 8 : at + 8 + size], data[at : at + 12 + size]
        at += 12 + size


def make_chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def make(build):
    with tempfile.TemporaryDirectory() as folder:
        page, raw = os.path.join(folder, "page.html"), os.path.join(folder, "page.png")
        text = report(build, page)
        subprocess.run(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--force-device-scale-factor=1", "--window-size=%d,%d" % SIZE, "--screenshot=" + raw, "file://" + page],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with open(raw, "rb") as file:
            parts = [(kind, whole) for kind, _, whole in chunks(file.read())]
    with open(PICTURE, "wb") as file:
        file.write(SIGNATURE + parts[0][1] + make_chunk(b"tEXt", KEYWORD + text.encode("latin-1")))
        file.write(b"".join(whole for kind, whole in parts[1:] if kind in (b"IDAT", b"IEND")))
    print("written: %s; look at it" % PICTURE)


def check(build):
    with open(PICTURE, "rb") as file:
        kept = [body for kind, body, _ in chunks(file.read()) if kind == b"tEXt" and body.startswith(KEYWORD)]
    with tempfile.TemporaryDirectory() as folder:
        text = report(build, os.path.join(folder, "page.html"))
    if not kept or kept[0][len(KEYWORD) :].decode("latin-1") != text:
        print("page.png is stale; page_picture.py makes it anew. It was made of\n%s\nand the report says\n%s" %
              (kept[0][len(KEYWORD) :].decode("latin-1") if kept else "nothing that is known", text), file=sys.stderr)
        return 1
    print("page.png is of these numbers:\n" + text)
    return 0


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--check":
        sys.exit(check(sys.argv[2]))
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    make(sys.argv[1])
