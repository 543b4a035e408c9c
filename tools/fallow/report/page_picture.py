#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""README.md's picture: the owners of the demo trace's memory, from the page of `fallow report`.

  page_picture.py BUILD            generate page.png: needs chromium; check the result by eye
  page_picture.py --check BUILD    compare page.png with this build's page

The source of the picture, the report's list of owners, is kept in the file as a comment (a tEXt chunk) and
compared first, which needs no browser. Where there is one the picture is made anew and compared tile by tile, so that
another machine's letters are no difference, but another picture is.

Exit: 0; 1 the picture is stale, or there is none.
"""
import os
import struct
import subprocess
import sys
import tempfile
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
sys.dont_write_bytecode = True  # the sources' folder stays as it is
sys.path.insert(0, os.path.join(ROOT, "tests", "check"))
import browser as chromium  # noqa: E402

PICTURE = os.path.join(HERE, "page.png")
DEMO = os.path.join(os.path.dirname(HERE), "demo.ftrace")
WIDTH = 1000
# From the section's heading to the end of the legend of its first chart.
PART = """(() => { const s = document.querySelector('#owners'), top = s.getBoundingClientRect().top + scrollY;
    return [top, s.querySelector('.legend').getBoundingClientRect().bottom + scrollY - top]; })()"""
TILE = 20  # pixels each way
TILE_ERROR = 32  # levels of a tile's mean
STALE_TILES = 0.05  # of all
KEYWORD = b"Comment\0"


def report(build, page):
    """The report's list of owners at the peak; writes the page."""
    said = subprocess.run(
        [os.path.join(build, "bin", "fallow"), "report", DEMO, "--ascii", "--no-times", "--policy", "bound", "--html", page],
        check=True, capture_output=True, text=True).stdout
    owners = said.partition("at the peak, by owner\n")[2].partition("\n\n")[0].split("\n")
    return "\n".join(" ".join(line.split()) for line in owners if "(" in line)


def make_chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def shoot(browser, page):
    with chromium.Browser(browser) as tab:
        tab.open("file://" + page, WIDTH, 900)
        top, height = tab.evaluate(PART)
        return tab.shoot(0, round(top), WIDTH, round(height) + 8)


def make(build):
    browser = chromium.find()
    if browser is None:
        sys.exit("there is no chromium; page.png is as it was")
    with tempfile.TemporaryDirectory() as folder:
        page = os.path.join(folder, "page.html")
        text = report(build, page)
        parts = [(kind, whole) for kind, _, whole in chromium.chunks(shoot(browser, page))]
    with open(PICTURE, "wb") as file:
        file.write(chromium.SIGNATURE + parts[0][1] + make_chunk(b"tEXt", KEYWORD + text.encode("latin-1")))
        file.write(b"".join(whole for kind, whole in parts[1:] if kind in (b"IDAT", b"IEND")))
    print("written: %s; look at it" % PICTURE)


def tiles(picture):
    """The mean of each tile, three channels, by place."""
    out = {}
    for y in range(0, picture.height - TILE + 1, TILE):
        for x in range(0, picture.width - TILE + 1, TILE):
            step = picture.step
            rows = [picture.lines[y + i][x * step : (x + TILE) * step] for i in range(TILE)]
            out[x, y] = [sum(sum(row[c::step]) for row in rows) / TILE / TILE for c in range(3)]
    return out


def differ(one, other):
    """The share of tiles that one picture has and the other has not alike."""
    ours, theirs = tiles(one), tiles(other)
    odd = [at for at in ours.keys() | theirs.keys() if at not in ours or at not in theirs or
           max(abs(a - b) for a, b in zip(ours[at], theirs[at])) > TILE_ERROR]
    return len(odd) / len(ours.keys() | theirs.keys())


def check(build):
    with open(PICTURE, "rb") as file:
        data = file.read()
    kept = [body for kind, body, _ in chromium.chunks(data) if kind == b"tEXt" and body.startswith(KEYWORD)]
    browser = chromium.find()
    with tempfile.TemporaryDirectory() as folder:
        page = os.path.join(folder, "page.html")
        text = report(build, page)
        shown = None if browser is None else shoot(browser, page)
    if not kept or kept[0][len(KEYWORD) :].decode("latin-1") != text:
        print("page.png is stale; page_picture.py generates it. It was generated from\n%s\nand the report has\n%s" %
              (kept[0][len(KEYWORD) :].decode("latin-1") if kept else "nothing", text), file=sys.stderr)
        return 1
    print("page.png is of these numbers:\n" + text)
    if shown is None:
        print("no chromium here: the picture is not compared")
        return 0
    share = differ(chromium.Picture(data), chromium.Picture(shown))
    print("%.1f %% of page.png differ from the page" % (100 * share))
    if share > STALE_TILES:
        print("page.png is stale: page_picture.py makes it anew", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--check":
        sys.exit(check(sys.argv[2]))
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    make(sys.argv[1])
