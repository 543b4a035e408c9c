#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check.page_browser: pages of `fallow report` in a real browser.

Checks of each page, at two widths, light and dark: the console is empty, no request leaves the page, every visible
picture has a size and marks, nothing is wider than the window, words do not overlap, text has at least 11 pixels and a
contrast of 4.5, shapes a contrast of 3, legends have the colours of their pictures and no two policies share a colour,
the keyboard reaches every control, arrow keys choose, and without scripts there are tables. Checks of pixels for
generated traces: the painted part of 'addresses over time' is live, owners are as high as their bytes, and the
out-of-memory is marked at its op. The script shows the chosen moment, the clicked or tapped block with its stack, the
zoomed part of a picture, and the results of a search; a reload keeps these. The page of several devices switches
between them; the page of several traces marks the worst.

  page_browser.py FALLOW TRACE [...] [--shots FOLDER]

Exit: 0; 1 something is wrong; 77 no browser here.
"""
import argparse
import itertools
import os
import pickle
import subprocess
import sys

sys.dont_write_bytecode = True  # leave the source folder unchanged
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import browser as chromium  # noqa: E402

WIDTHS = (1280, 400)
SCHEMES = ("light", "dark")
NARROW = 640  # page.css: no table scrolls below this width
PICTURES_LEAST = 8
TEXT_PIXELS, TEXT_CONTRAST, SHAPE_CONTRAST = 11, 4.5, 3
PAINTED_ERROR = 0.03  # of a region of the picture
LIKE = 8  # levels of a channel: difference of painted and styled colours
COLOURS_APART = 12  # least distance of two policies' colours, to any kind of eye (CIELAB)

failures = []


def check(condition, where, what):
    if not condition:
        failures.append("%s: %s" % (where, what))


# ---- properties of the page

PICTURES = """[...document.querySelectorAll('.plot>svg')].filter(s => s.checkVisibility()).map(s =>
    ({name: s.querySelector('title')?.textContent ?? '', marks: s.parentElement.querySelector('canvas') ? 9 :
        s.querySelectorAll('path,rect,circle').length,
      height: s.getBoundingClientRect().height}))"""
FOCUS = """(() => { const e = document.activeElement;
    return e === document.body ? '' : e.tagName + [...document.querySelectorAll('*')].indexOf(e); })()"""
CONTROLS = """[...document.querySelectorAll('input:checked,summary,a[href],[tabindex="0"]')]
    .filter(e => e.checkVisibility()).length"""
GROUPS = "[...new Set([...document.querySelectorAll('input[type=radio]')].map(e => e.name))]"

# Every piece of text that is shown: words, place, size, colour and the colour behind it. Text in a scroller is never
# outside; a button shortens text.
TEXTS = """(() => {
    const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
        if (!/, 0\\)$/.test(c)) return c; } return getComputedStyle(document.documentElement).backgroundColor; };
    const out = [];
    for (const e of document.body.querySelectorAll('*')) {
        const said = [...e.childNodes].filter(n => n.nodeType === 3).map(n => n.data.trim()).join(' ').trim();
        if (!said || !e.checkVisibility() || e.closest('title,desc,style,script')) continue;
        const style = getComputedStyle(e), range = document.createRange();
        range.selectNodeContents(e);
        const r = /text|BUTTON/.test(e.tagName) ? e.getBoundingClientRect() : range.getBoundingClientRect();
        const svg = e.tagName === 'text' ? [...document.querySelectorAll('svg')].indexOf(e.closest('svg')) : -1;
        out.push({said: said.slice(0, 60), size: parseFloat(style.fontSize), svg,
            colour: svg >= 0 ? style.fill : style.color, behind: behind(e), scrolls: !!e.closest('.scroll'),
            left: r.left, right: r.right, top: r.top, bottom: r.bottom});
    }
    return out; })()"""

# Every colour that a shape of a picture is painted in. A grid is no shape; a free part has an edge that is one.
SHAPES = """(() => {
    const out = {}, paper = getComputedStyle(document.body).backgroundColor;
    for (const e of document.querySelectorAll('svg path, svg rect, svg circle')) {
        const kind = e.getAttribute('class') ?? '';
        if (!e.checkVisibility() || /grid|under/.test(kind)) continue;
        const s = getComputedStyle(e);
        const ink = /line|leader|edge|chosen/.test(kind) ? s.stroke : s.fill;
        (out[kind] ??= []).includes(ink) || out[kind].push(ink);
    }
    return {paper, inks: out}; })()"""

# The legend's keys, and the policies' lines.
KEYS = """[...document.querySelectorAll('.key')].filter(e => e.checkVisibility()).map(e => {
    const r = e.getBoundingClientRect();
    return {x: r.left + r.width / 2 + scrollX, y: r.top + r.height / 2 + scrollY,
            colour: getComputedStyle(e).backgroundColor, says: e.parentElement.textContent}; })"""
LINES = """(() => { const out = {};
    for (const e of document.querySelectorAll('.line-key path')) { const s = getComputedStyle(e);
        (out[e.closest('.entry').textContent.trim().replace(/ [0-9.]+ [KMGT]?i?B$/, '')] ??= new Set())
            .add(s.stroke + '|' + s.strokeDasharray); }
    return Object.fromEntries(Object.entries(out).map(([k, v]) => [k, [...v]])); })()"""

# Return the place of a picture's drawing in the window.
PLOT = """(() => { const s = [...document.querySelectorAll('svg[role=img]')].find(s => s.checkVisibility() &&
        s.querySelector('title').textContent === %s);
    const inner = s.querySelector('.shapes'), outer = s.getBoundingClientRect();
    const top = outer.top + inner.y.baseVal.value + scrollY;
    return {left: outer.left + scrollX, width: outer.width, top, height: inner.height.baseVal.value}; })()"""


# ---- colours

def parse_colour(text):
    """Return rgb(1, 2, 3) as (1, 2, 3)."""
    return tuple(round(float(part)) for part in text[text.index("(") + 1 : -1].split(",")[:3])


def linear(level):
    level /= 255
    return level / 12.92 if level <= 0.04045 else ((level + 0.055) / 1.055) ** 2.4


def contrast(one, other):
    """Return the contrast of WCAG, 1 to 21."""
    low, high = sorted(sum(w * linear(c) for w, c in zip((0.2126, 0.7152, 0.0722), rgb)) for rgb in (one, other))
    return (high + 0.05) / (low + 0.05)


# Colours as seen without one kind of cone (Machado, Oliveira, Fernandes 2009), and by all other eyes.
EYES = (
    ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)))


def seen(rgb, eye):
    """Return the CIELAB value of a colour, as seen by that eye."""
    light = [linear(c) for c in rgb]
    r, g, b = (min(1, max(0, sum(w * c for w, c in zip(row, light)))) for row in eye)
    xyz = ((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505, 0.2126 * r + 0.7152 * g + 0.0722 * b,
           (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089)
    x, y, z = (c ** (1 / 3) if c > 0.008856 else 7.787 * c + 16 / 116 for c in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def apart(one, other):
    return min(sum((a - b) ** 2 for a, b in zip(seen(one, eye), seen(other, eye))) ** 0.5 for eye in EYES)


# ---- any page

SECTIONS = """[...document.querySelectorAll('section>h2')].filter(h => h.checkVisibility())
    .map(h => '#' + h.parentElement.id).join()"""
CONTENTS = "[...document.querySelectorAll('nav a')].filter(a => a.checkVisibility()).map(a => a.hash).join()"

def look(page, url, where):
    pictures = page.evaluate(PICTURES)
    check(not page.messages, where, "the console says %s" % page.messages[:2])
    foreign = [r for r in page.requests if r not in (url, "about:blank") and not r.startswith("data:")]
    check(not foreign, where, "requests leave the page: %s" % foreign[:2])
    check(len(pictures) >= PICTURES_LEAST, where, "only %d pictures are shown" % len(pictures))
    for picture in pictures:
        check(picture["name"] and picture["marks"] >= 1 and picture["height"] > 20, where, "empty: %s" % picture)
    sections, contents = page.evaluate(SECTIONS), page.evaluate(CONTENTS)
    check(sections == contents, where, "the contents say %s, the sections are %s" % (contents, sections))
    return len(pictures)


def look_at_texts(page, where, width):
    wide = page.evaluate("document.documentElement.scrollWidth")
    check(wide <= width, where, "the page is %d pixels wide" % wide)
    texts = page.evaluate(TEXTS)
    check(len(texts) > 50, where, "only %d pieces of text" % len(texts))
    for text in texts:
        check(text["size"] >= TEXT_PIXELS, where, "'%(said)s' has %(size)s pixels" % text)
        ratio = contrast(parse_colour(text["colour"]), parse_colour(text["behind"]))
        check(ratio >= TEXT_CONTRAST, where, "'%s' has a contrast of %.2f" % (text["said"], ratio))
        check((text["scrolls"] and width > NARROW) or (text["left"] >= 0 and text["right"] <= width + 0.5), where,
              "'%(said)s' is cut off: from %(left).0f to %(right).0f" % text)
    for _, group in itertools.groupby((t for t in texts if t["svg"] >= 0), key=lambda t: t["svg"]):
        for a, b in itertools.combinations(list(group), 2):
            lie_over = (min(a["right"], b["right"]) - max(a["left"], b["left"]) > 1 and
                        min(a["bottom"], b["bottom"]) - max(a["top"], b["top"]) > 4)
            check(not lie_over, where, "'%s' lies on '%s'" % (a["said"], b["said"]))


def paint_at(page, x, y):
    return chromium.Picture(page.shoot(x, y, 1, 1)).pixel(0, 0)


def look_at_shapes(page, where):
    shapes = page.evaluate(SHAPES)
    paper = parse_colour(shapes["paper"])
    painted = paint_at(page, 2, 2)
    check(painted == paper, where, "the paper is painted %s, not %s" % (painted, paper))
    for kind, inks in shapes["inks"].items():
        for ink in inks:
            ratio = 1 if ink == "none" else contrast(parse_colour(ink), paper)
            check(ratio >= SHAPE_CONTRAST, where, "shapes '%s', %s, have a contrast of %.2f" % (kind, ink, ratio))


def look_at_colours(page, where):
    look_at_shapes(page, where)
    keys = page.evaluate(KEYS)
    check(len(keys) > 5, where, "only %d keys in legends" % len(keys))
    for key in keys:
        painted, meant = paint_at(page, int(key["x"]), int(key["y"])), parse_colour(key["colour"])
        check(max(abs(a - b) for a, b in zip(painted, meant)) <= LIKE, where,
              "the key of '%s' is painted %s, not %s" % (key["says"], painted, meant))
    lines = page.evaluate(LINES)
    check(len(lines) >= 4, where, "only %d policies in legends" % len(lines))
    for name, styles in lines.items():
        check(len(styles) == 1, where, "policy '%s' has several colours: %s" % (name, styles))
    for (one, ones), (other, others) in itertools.combinations(lines.items(), 2):
        distance = apart(*(parse_colour(styles[0].split("|")[0]) for styles in (ones, others)))
        check(distance >= COLOURS_APART, where, "'%s' and '%s' are %.1f apart" % (one, other, distance))


def press_keys(page, where):
    reached = set()
    for _ in range(1000):
        page.press("Tab")
        focus = page.evaluate(FOCUS)
        if focus == "" or focus in reached:
            break
        reached.add(focus)
    wanted = page.evaluate(CONTROLS)
    check(len(reached) >= wanted, where, "the keyboard reaches %d of %d controls" % (len(reached), wanted))
    for group in page.evaluate(GROUPS):
        visible = "[...document.querySelectorAll('input[name=\"%s\"]')].filter(e => e.checkVisibility())" % group
        if page.evaluate(visible + ".length") < 2:
            continue
        page.evaluate(visible + "[0].focus()")
        page.press("ArrowRight")
        chosen = page.evaluate(visible + ".map(e => e.checked && e === document.activeElement)")
        check(chosen.index(True) == 1, where, "%s: the arrow key chose %s" % (group, chosen))
        for picture in page.evaluate(PICTURES):
            check(picture["marks"] >= 1 and picture["height"] > 20, where, "%s: empty: %s" % (group, picture))


# ---- the picture of a generated trace

MIB = 1 << 20
BASE = 1 << 40


class Made:
    """A recording with thin blocks that fill a given share of each region of addresses."""

    def __init__(self):
        self.initial, self.events = [], []  # of (id, bytes, address); of (op, id, bytes, address)
        self.regions = {}  # name: (from, to in bytes, live share over the whole picture, bytes of a block)
        count = 0
        for name, begin, size, step, blocks in (("a thousand thin blocks", 0, 2 * MIB, 2 * MIB, 1024),
                                                ("every other address", 2048 * MIB, MIB, 2 * MIB, 512)):
            for i in range(blocks):
                self.initial.append((count, size, begin + i * step))
                count += 1
            self.regions[name] = [begin, begin + blocks * step, size / step, size]
        turns, tall = 24000, 1024 * MIB  # more than a page has rectangles for: some are merged
        for _ in range(turns):
            self.events.append(("A", count, tall, 3072 * MIB))
            self.events.append(("F", count, tall, 3072 * MIB))
            count += 1
        ops = len(self.initial) + len(self.events)
        for i, name in enumerate(("a thousand thin blocks", "every other address")):  # each begins at an op of its own
            firsts = range(0, 1024) if i == 0 else range(1024, 1536)
            self.regions[name][2] *= 1 - sum(firsts) / len(firsts) / ops
        self.regions["short lives"] = [3072 * MIB, 4096 * MIB, turns / ops, tall]
        self.bytes = 4096 * MIB

    def write(self, path):
        with open(path, "w", encoding="utf-8") as file:
            file.write("#fallow-trace 1\ndevice 0\nstream 0\nfields times addresses segments\n")
            file.write("S 0 %d 0 large @%d\n" % (self.bytes, BASE))
            for block, size, address in self.initial:
                file.write("P 0 %d %d 0 @%d\n" % (block, size, BASE + address))
            for time, (kind, block, size, address) in enumerate(self.events):
                file.write("A %d %d %d 0 @%d\n" % (time * 1000, block, size, BASE + address) if kind == "A" else
                           "F %d %d 0\nC %d %d 0\n" % (time * 1000, block, time * 1000, block))


def painted_share(picture, paper, inks, top, bottom):
    """Return the share of lines of a picture in one of two colours, with parts of pixels (least squares)."""
    one, other = ([a - b for a, b in zip(ink, paper)] for ink in inks)
    aa, ab, bb = (sum(p * q for p, q in zip(*pair)) for pair in ((one, one), (one, other), (other, other)))
    total = 0
    for x, y in itertools.product(range(picture.width), range(top, bottom)):
        way = [a - b for a, b in zip(picture.pixel(x, y), paper)]
        a, b = (sum(p * q for p, q in zip(way, ink)) for ink in (one, other))
        total += min(1, max(0, ((a * bb - b * ab) + (b * aa - a * ab)) / (aa * bb - ab * ab)))
    return total / picture.width / (bottom - top)


# The colour of an owner in the legend of the heap.
INK = """getComputedStyle([...document.querySelectorAll('#heap .entry')].find(e => e.textContent === '%s')
    .querySelector('.key')).backgroundColor"""


def look_at_strip(page, where, made):
    paper = parse_colour(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    page.evaluate("document.querySelectorAll('.cursor').forEach(c => c.remove())")  # hide the part above
    plot = page.evaluate(PLOT % '"Addresses over time"')
    picture = chromium.Picture(page.shoot(*(round(plot[key]) for key in ("left", "top", "width", "height"))))
    for name, (begin, end, live, size) in made.regions.items():
        name_of_size = "up to %d MiB" % (size // MIB) if size < 1024 * MIB else "up to 1 GiB"
        inks = [parse_colour(page.evaluate(INK % of)) for of in (name_of_size, "smaller blocks, merged")]
        top, bottom = (round(picture.height * (1 - at / made.bytes)) for at in (end, begin))
        painted = painted_share(picture, paper, inks, top + 1, bottom - 1)
        print("%s: %s: %.3f live, %.3f painted" % (where, name, live, painted))
        check(abs(painted - live) <= PAINTED_ERROR, where,
              "%s: %.3f of it is live, %.3f painted" % (name, live, painted))


# ---- a part of a picture

# Scroll to the picture of that name; return the place of the drawing in the window.
WINDOW = """(() => { const s = [...document.querySelectorAll('svg[role=img]')].find(s => s.checkVisibility() &&
        s.querySelector('title').textContent === %s);
    s.parentElement.focus();
    scrollTo(0, s.getBoundingClientRect().top + scrollY - 80);
    const outer = s.getBoundingClientRect();
    return {left: outer.left, width: outer.width, top: outer.top + 26, height: outer.height - 60,
        view: location.hash.slice(1).split('&').filter(part => /^(ops|time|address)=/.test(part)).join('&')}; })()"""
PANEL = "(() => { const b = document.getElementById('block'); return b.hidden ? '' : b.innerText; })()"
STATE = "document.querySelector('#moment output').textContent + ' ' + (%s) + ' ' + location.hash" % PANEL
HEAP = '"Addresses over time"'
ZOOMS = 8  # times the key is pressed, each halves the shown range


def shoot_column(page, plot, share):
    x, y = plot["left"] + share * plot["width"], plot["top"] + page.evaluate("scrollY")
    return chromium.Picture(page.shoot(round(x), round(y), 1, round(plot["height"])))


def runs_of(column, paper):
    """Return the lengths of painted and unpainted runs of one column, from the top."""
    painted = [contrast(column.pixel(0, y), paper) >= SHAPE_CONTRAST for y in range(column.height)]
    return [(is_painted, len(list(run))) for is_painted, run in itertools.groupby(painted)]


def look_at_zoom(page, where, made):
    """Zoom by keys into blocks of which a dozen share a pixel: all get the right height, and can be clicked."""
    paper = parse_colour(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    plot = page.evaluate(WINDOW % HEAP)
    before = [shoot_column(page, plot, 0.9).lines, plot["view"]]
    for _ in range(ZOOMS):
        page.press("+")
    zoomed = page.evaluate(WINDOW % HEAP)
    shown = made.bytes / 2 ** ZOOMS  # around the middle: all below is full, above that every other MiB
    high = plot["height"] * MIB / shown
    runs = runs_of(shoot_column(page, zoomed, 0.9), paper)
    check(len(runs) == shown // MIB // 2 and all(abs(size - high) <= 1 for _, size in runs[1:-1]), where,
          "a MiB is not %.1f pixels high, and every other: %s" % (high, runs))
    for place, wanted in ((4.5, ["1 MiB (1,048,576 bytes)", "operation 1,026 to the end"]), (5.5, ["No block"])):
        spot = (zoomed["left"] + 0.9 * zoomed["width"], zoomed["top"] + zoomed["height"] / 2 - place * high)
        page.drag(spot)
        said = page.evaluate(PANEL)
        check(all(words in said for words in wanted), where, "a click at %.1f MiB shows '%s'" % (place, said))
    page.evaluate(WINDOW % HEAP)
    page.press("ArrowUp")
    said = page.evaluate(STATE)
    check("MiB" in said.split("#")[0] and "address=" in said, where, "the arrow up chooses no block: '%s'" % said)
    page.reload()
    check(page.evaluate(STATE) == said, where, "a reload shows '%s', not '%s'" % (page.evaluate(STATE), said))
    check(page.evaluate(WINDOW % HEAP)["view"] == zoomed["view"], where, "a reload shows all of the picture")
    page.press("0")
    page.evaluate("document.querySelector('#block button')?.click()")
    page.evaluate("document.querySelectorAll('.cursor').forEach(c => c.remove())")
    plot = page.evaluate(WINDOW % HEAP)
    check([shoot_column(page, plot, 0.9).lines, plot["view"]] == before, where, "0 shows not all again")


# ---- the picture of owners

OWNERS = [("step_%d_of_a_training_loop_with_a_long_name" % i, (i + 1) * 8 * MIB) for i in range(10)]
ASKED = 900 * MIB  # and refused, after half of the events
OOM_TEXT = "out of memory"
EVIL = "</script><script>alert(1)</script>"  # the name of a file
NOTE = """(() => { const t = [...document.querySelectorAll('text.note')].find(t => t.checkVisibility() &&
        t.textContent === %s);
    if (!t) return null;
    const dot = t.closest('svg').querySelector('circle.oom').getBoundingClientRect();
    return dot.left + dot.width / 2 + scrollX; })()"""


def write_snapshot(path):
    """Write a snapshot: ten owners keep a block; then one block is allocated and freed, with a failed request."""
    events, address = [], BASE

    def add(action, size, address, owner):
        events.append({"action": action, "addr": address, "size": size, "stream": 0, "time_us": len(events),
                       "frames": [{"filename": "/program/train.py", "line": 7, "name": owner},
                                  {"filename": EVIL, "line": 1, "name": "main"}]})

    for owner, size in OWNERS:
        add("alloc", size, address, owner)
        address += size
    for i in range(200):
        if i == 100:
            add("oom", ASKED, 0, OWNERS[0][0])
            events[-1]["device_free"] = MIB
        add("alloc", 512, address, OWNERS[0][0])
        add("free_requested", 512, address, OWNERS[0][0])
        add("free_completed", 512, address, OWNERS[0][0])
    with open(path, "wb") as file:
        pickle.dump({"segments": [], "device_traces": [events]}, file)


def look_at_owners(page, where):
    plot = page.evaluate(PLOT % '"Live memory over time, by owner"')
    column = chromium.Picture(page.shoot(round(plot["left"] + 0.9 * plot["width"]), round(plot["top"]), 1,
                                         round(plot["height"])))
    pixels = [column.pixel(0, y) for y in range(column.height)]
    keys = {key["says"].split(" ")[0]: parse_colour(key["colour"]) for key in reversed(page.evaluate(KEYS))}
    heights = {name: pixels.count(keys.get(name)) for name, _ in OWNERS}
    total = sum(size for _, size in OWNERS)
    for name, size in OWNERS:
        wanted = sum(heights.values()) * size / total
        check(abs(heights[name] - wanted) <= 2, where,
              "'%s' is %d pixels high, not %.1f" % (name, heights[name], wanted))
    painted = sum(heights.values()) / column.height
    check(painted > 0.7, where, "owners take %.2f of the picture's height at the peak" % painted)
    x = page.evaluate(NOTE % ('"%s"' % OOM_TEXT))
    middle = plot["left"] + plot["width"] * (len(OWNERS) + 200) / (len(OWNERS) + 400)
    check(x is not None and abs(x - middle) < 4, where, "'%s' is at %s, not at %.0f" % (OOM_TEXT, x, middle))


# ---- a moment

MOMENT = """(() => { const m = document.getElementById('moment');
    return {hidden: m.hidden, says: m.querySelector('output').textContent, link: m.querySelector('a').hash, rows: m.querySelectorAll('tbody tr').length,
        cells: [...m.querySelectorAll('.icicle button')].map(b => ({says: b.title, width: b.getBoundingClientRect().width})),
        cursors: [...document.querySelectorAll('.cursor')].filter(c => c.checkVisibility()).map(c =>
            c.getBoundingClientRect().left + scrollX)}; })()"""


def look_at_moment(page, where):
    """Check the moment: the first is the out-of-memory; arrow keys move, a click chooses, a cell fills the width."""
    total = sum(size for _, size in OWNERS)
    moment = page.evaluate(MOMENT)
    op = len(OWNERS) + 199  # the last op before the failure
    says = "operation %d (out of memory): %d MiB in" % (op, total // MIB)
    check(not moment["hidden"] and moment["says"].startswith(says), where,
          "a moment is not shown: '%s'" % moment["says"])
    cells = {cell["says"].split("\n")[1].split(" ")[0]: cell["width"] for cell in moment["cells"]}
    cells["all"] = cells.get("main", 0)
    for name, size in OWNERS:
        wanted = cells.get("all", 0) * size / total
        check(abs(cells.get(name, 0) - wanted) < 0.5, where,
              "the icicle's '%s' is %.0f wide, not %.0f" % (name, cells.get(name, 0), wanted))
    page.evaluate("document.querySelector('#moment input').focus()")
    page.press("ArrowRight")
    moved = page.evaluate(MOMENT)
    check(moved["says"].startswith("operation %d:" % (op + 1)), where, "the arrow key walks not")
    check("op=%d" % (op + 1) in moved["link"], where, "the link to the moment is %s" % moved["link"])
    plot = page.evaluate(PLOT % '"Live memory over time, by owner"')
    page.evaluate("scrollTo(0, %d)" % plot["top"])
    x, y = plot["left"] + plot["width"] / 4, plot["top"] + 100 - page.evaluate("scrollY")
    page.drag((x, y))
    after = page.evaluate(MOMENT)
    check(any(abs(cursor - x) < 3 for cursor in after["cursors"]), where, "a click at %.0f chose %s" % (x, after))
    paper, ink = (parse_colour(page.evaluate("getComputedStyle(document.body)['%s']" % name))
                  for name in ("background-color", "color"))
    column = chromium.Picture(page.shoot(round(after["cursors"][0]), round(plot["top"]), 1, round(plot["height"])))
    seen = {column.pixel(0, at) for at in range(column.height)}
    check(seen >= {paper, ink}, where, "the cursor has not both colours, that it is seen on any: %s" % seen)
    page.evaluate("document.querySelectorAll('.icicle button')[1].click()")
    wide = page.evaluate(MOMENT)["cells"]
    check(len(wide) == 3 and len({cell["width"] for cell in wide}) == 1, where, "a click fills no width: %s" % wide)


DATA = "JSON.parse(document.getElementById('data').textContent)"


def look_at_block(page, where):
    """Check that a click or a tap on the largest owner's block shows the block's stack, and that two fingers zoom."""
    place, top = sum(size for _, size in OWNERS[:-1]), page.evaluate(DATA + ".analyses[0].heap.bytes")
    plot = page.evaluate(WINDOW % HEAP)
    name, size = OWNERS[-1]
    x, y = plot["left"] + plot["width"] / 2, plot["top"] + plot["height"] * (1 - (place + size / 2) / top)
    is_touched = "400" in where
    page.ask("Emulation.setTouchEmulationEnabled", enabled=is_touched)
    if is_touched:
        page.touch([(x, y)])
    else:
        page.drag((x, y))
    said = page.evaluate(PANEL)
    wanted = ("%s (/program/train.py:7)" % name, "%d MiB" % (size // MIB), "operation 9 to the end", "stream\n0")
    check(all(words in said for words in wanted), where, "of the largest owner's block '%s' is shown" % said)
    if is_touched:
        page.touch([(x - 20, y), (x + 20, y)], [(x - 40, y), (x + 40, y)])
        view = page.evaluate(WINDOW % HEAP)["view"]
        low, high = (float(end) for end in view.partition("ops=")[2].split("&")[0].split("%2C"))
        check(abs(high - low - 0.5) < 0.005, where, "two fingers twice as far apart show '%s'" % view)
        page.press("0")
        page.ask("Emulation.setTouchEmulationEnabled", enabled=False)


def look_at_part(page, where):
    """Check that a drag over a fifth of the picture shows that fifth, with the marks."""
    name = '"Live memory over time, by owner"'
    plot = page.evaluate(WINDOW % name)
    page.drag(*((round(plot["left"] + share * plot["width"]), round(plot["top"] + 50)) for share in (0.4, 0.5, 0.6)))
    x, op = page.evaluate(NOTE % ('"%s"' % OOM_TEXT)), (len(OWNERS) + 200) / (len(OWNERS) + 400)
    wanted = plot["left"] + plot["width"] * (op - 0.4) / 0.2
    check(x is not None and abs(x - wanted) < 8, where, "zoomed, '%s' is at %s, not at %.0f" % (OOM_TEXT, x, wanted))
    page.evaluate("document.querySelectorAll('input[name=along]')[1].click()")
    page.evaluate(WINDOW % name)
    page.press("+")
    check("time=0.25%2C0.75" in page.evaluate(WINDOW % name)["view"], where, "the picture by time is not zoomed")


FOUND = """({found: document.getElementById('found').textContent, search: document.getElementById('search').value,
    says: document.querySelector('#moment output').textContent, dim: document.querySelectorAll('#owners .dim').length,
    pressed: document.querySelectorAll('[aria-pressed=true]').length,
    matching: document.querySelectorAll('#owners .matching').length})"""


def look_at_search(page, where):
    """Check that a click filters by an owner, a search finds frames in stacks, and a reload keeps the search."""
    name, size = OWNERS[-1]
    page.evaluate("[...document.querySelectorAll('#oom button')].find(b => b.textContent.startsWith('%s')).click()" % name)
    found = page.evaluate(FOUND)
    check(found["dim"] == len(OWNERS) - 1 and name in found["search"] and found["pressed"] == 2 and
          "%d MiB in 1 block" % (size // MIB) in found["says"], where, "an owner alone is %s" % found)
    page.reload()
    check(page.evaluate(FOUND) == found, where, "a reload shows %s, not %s" % (page.evaluate(FOUND), found))
    page.evaluate("(() => { const s = document.getElementById('search'); s.value = 'MAIN ('; "
                  "s.dispatchEvent(new Event('input')); })()")
    found = page.evaluate(FOUND)
    total = sum(size for _, size in OWNERS) + 512
    check(found["matching"] == 1 and "at most %d MiB" % (total // MIB) in found["found"], where,
          "of a frame of all blocks is shown %s" % found)
    page.evaluate("(() => { const s = document.getElementById('search'); s.value = ''; "
                  "s.dispatchEvent(new Event('input')); })()")
    check(page.evaluate(FOUND)["dim"] == 0, where, "an empty search leaves something dim")


# Frames without Python, the innermost first, and their names in the icicle.
NATIVE = (("DivBackward0", ["torch::unwind::unwind()", "at::_ops::div_Tensor::call(at::Tensor const&)",
                            "torch::autograd::generated::DivBackward0::apply(std::vector<at::Tensor>&&)"]),
          ("zeros", ["torch::unwind::unwind()", "at::_ops::empty_memory_format::call(c10::ArrayRef<c10::SymInt>)",
                     "at::_ops::zeros::call(c10::ArrayRef<c10::SymInt>)"]))
LABELS = "[...document.querySelectorAll('.icicle button')].map(b => b.getAttribute('aria-label'))"


def look_at_native(page, fallow, shots):
    trace, trace_page = (os.path.join(shots, "native." + kind) for kind in ("pickle", "html"))
    events = [{"action": "alloc", "addr": BASE + i * MIB, "size": MIB, "stream": 0, "time_us": i,
               "frames": [{"filename": "??", "line": 0, "name": frame} for frame in frames]}
              for i, (_, frames) in enumerate(NATIVE)]
    with open(trace, "wb") as file:
        pickle.dump({"segments": [], "device_traces": [events]}, file)
    report(fallow, trace, trace_page)
    page.open("file://" + os.path.abspath(trace_page), WIDTHS[0], 900, SCHEMES[0])
    labels = page.evaluate(LABELS)
    check(set("%s, 1 MiB" % name for name, _ in NATIVE) <= set(labels), "native", "stacks are called %s" % labels)


LATE_NS, LATE_SPAN_NS = 10**18, 100000  # doubles distinguish such times from 128 ns on
TICKS = "[...document.querySelectorAll('#owners .plot text.middle')].map(t => t.textContent)"


def look_at_late(page, fallow, shots):
    """Check that a zoomed scale with few distinct times ends, for any address of the page."""
    trace, trace_page = (os.path.join(shots, "late." + kind) for kind in ("ftext", "html"))
    with open(trace, "w", encoding="utf-8") as file:
        file.write("#fallow-trace 1\ndevice 0\nstream 0\nfields times\n")
        for i in range(101):
            file.write("A %d %d %d 0\n" % (LATE_NS + i * LATE_SPAN_NS // 100, i, MIB))
    report(fallow, trace, trace_page)
    url = "file://" + os.path.abspath(trace_page)
    page.open(url, WIDTHS[0], 900, SCHEMES[0])
    page.evaluate("document.querySelectorAll('input[name=along]')[1].click()")
    for share in (1 / 4, 1 / 64, 1 / 4096):
        page.evaluate("location.hash = 'time=0,%r'" % share)
        page.evaluate("new Promise(done => setTimeout(done))")  # the event has been handled
        ticks = page.evaluate(TICKS)
        check(1 <= len(ticks) <= 20, "late", "a scale of 1/%d has the ticks %s" % (1 / share, ticks))
    page.open("about:blank", WIDTHS[0], 900)
    page.open(url + "#ops=-Infinity,Infinity&time=NaN,1&address=0,Infinity", WIDTHS[0], 900, SCHEMES[0])
    check(not page.evaluate("[...document.querySelectorAll('.plot')].some(p => p.innerHTML.includes('NaN'))"), "late",
          "an address of no numbers is shown")


def look_at_unknown(page, fallow, shots):
    """Check that a failed request of unknown size leaves the page whole."""
    trace = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fuzz", "corpus", "ftrace", "everything_1.ftrace")
    trace_page = os.path.join(shots, "unknown.html")
    report(fallow, trace, trace_page)
    page.open("file://" + os.path.abspath(trace_page), WIDTHS[0], 900, SCHEMES[0])
    said = page.evaluate("document.querySelector('#oom .card').textContent")
    check("a block of unknown size" in said and not page.messages, "unknown", "%s: '%s'" % (page.messages, said))


DEVICE = "document.querySelector('#facts').textContent + ' ' + document.querySelector('#owners .legend').textContent"


def look_at_devices(page, fallow, shots):
    """Check that a click switches to the other device, and that a link keeps the choice."""
    trace, trace_page = (os.path.join(shots, "devices." + kind) for kind in ("pickle", "html"))
    traces = [[{"action": "alloc", "addr": BASE + i * MIB, "size": MIB, "stream": 0, "time_us": i,
                "frames": [{"filename": "/p/x.py", "line": 1, "name": "on_device_%d" % device}]}
               for i in range(3 + device)] for device in range(2)]
    with open(trace, "wb") as file:
        pickle.dump({"segments": [], "device_traces": traces}, file)
    report(fallow, trace, trace_page)
    page.open("file://" + os.path.abspath(trace_page), WIDTHS[0], 900, SCHEMES[0])
    for device in (0, 1):
        page.evaluate("document.querySelectorAll('input[name=device]')[%d].click()" % device)
        said = page.evaluate(DEVICE)
        check("Peak live memory: %d MiB" % (3 + device) in said and "on_device_%d" % device in said, "devices",
              "device %d shows '%s'" % (device, said))
    page.reload()
    check(page.evaluate(DEVICE) == said and not page.messages, "devices", "a reload shows '%s'" % page.evaluate(DEVICE))


def look_at_program(page, where):
    look_at_owners(page, where)
    look_at_moment(page, where)
    if where.endswith(SCHEMES[0]):
        look_at_block(page, where)
        look_at_part(page, where)
        look_at_search(page, where)


def look_at_heap(page, where, made):
    look_at_strip(page, where, made)
    if where.endswith(SCHEMES[0]):
        look_at_zoom(page, where, made)


LANDING = """(() => { const rows = [...document.querySelectorAll('tbody tr')];
    return {bars: rows.map(r => r.querySelectorAll('rect.requested').length),
        worst: [...document.querySelectorAll('.worst')].map(w => w.textContent),
        ratios: [...document.querySelectorAll('td small')].map(s => s.textContent)}; })()"""


def look_at_landing(page, where, count):
    look_at_shapes(page, where)
    said = page.evaluate(LANDING)
    check(said["bars"] == [1] * count, where, "bars of %d traces: %s" % (count, said["bars"]))
    ratios = [float(words.split()[-1]) for words in said["ratios"] if "%" not in words]
    check(len(said["worst"]) == 1 and float(said["worst"][0].split()[-1]) == max(ratios), where,
          "the worst is '%s' of %s" % (said["worst"], ratios))


# ---- all checks

def report(fallow, trace, page, *options):
    subprocess.run([fallow, "report", trace, "--no-times", "--html", page, *options], check=True,
                   stdout=subprocess.DEVNULL)


def look_at_page(page, path, shots, look_closer=None):
    url = "file://" + os.path.abspath(path)
    for width in WIDTHS:
        for scheme in SCHEMES:
            where = "%s %d %s" % (os.path.splitext(os.path.basename(path))[0], width, scheme)
            page.open(url, width, 900, scheme)
            count = look(page, url, where)
            look_at_texts(page, where, width)
            with open(os.path.join(shots, where.replace(" ", "_") + ".png"), "wb") as file:
                file.write(page.shoot())
            look_at_colours(page, where)
            if look_closer is not None:
                look_closer(page, where)
            if scheme == SCHEMES[0]:  # in its initial state
                page.open(url, width, 900, scheme)
                press_keys(page, where)
            print("%s: %d pictures" % (where, count))
    page.open(url, WIDTHS[0], 900, has_scripts=False)
    page.ask("Emulation.setScriptExecutionDisabled", value=False)  # from outside, after loading
    tables = page.evaluate("[...document.querySelectorAll('noscript table')].map(t => t.innerText)")
    check(len(tables) == 2 and all(table.count("\n") >= 2 for table in tables), path,
          "without scripts the tables are %s" % tables)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("fallow")
    parser.add_argument("traces", nargs="+")
    parser.add_argument("--shots", default="screenshots", help="folder for screenshots")
    options = parser.parse_args()
    path = chromium.find()
    if path is None:
        print("page_browser: skipped, there is no chromium: whether the page's pictures are true, in reach and "
              "readable is not tested")
        return 77
    os.makedirs(options.shots, exist_ok=True)
    made = Made()
    thin, owners = (os.path.join(options.shots, name) for name in ("thin.ftext", "owners.pickle"))
    made.write(thin)
    write_snapshot(owners)
    looks = {thin: lambda page, where: look_at_heap(page, where, made), owners: look_at_program}
    with chromium.Browser(path) as page:
        for trace in [thin, owners, *options.traces]:
            trace_page = os.path.join(options.shots, os.path.basename(trace).split(".")[0] + ".html")
            # The heap of the first policy is shown: of the made trace, that of the recording.
            chosen = ["--policy", "recorded,fallow,pytorch,bound"] if trace == thin else []
            report(options.fallow, trace, trace_page, *chosen)
            look_at_page(page, trace_page, options.shots, looks.get(trace))
        look_at_native(page, options.fallow, options.shots)
        look_at_late(page, options.fallow, options.shots)
        look_at_unknown(page, options.fallow, options.shots)
        look_at_devices(page, options.fallow, options.shots)
        landing = os.path.join(options.shots, "landing.html")
        report(options.fallow, thin, landing, owners)
        for width, scheme in itertools.product(WIDTHS, SCHEMES):
            where = "landing %d %s" % (width, scheme)
            page.open("file://" + os.path.abspath(landing), width, 900, scheme)
            look_at_texts(page, where, width)
            look_at_landing(page, where, 2)
    for failure in failures[:60]:
        print(failure, file=sys.stderr)
    print("%d failures; screenshots are in %s" % (len(failures), options.shots))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
