#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check.page_browser: pages of `fallow report` in a real browser.

At two widths, light and dark, with scripts off and on: nothing on the console, no request leaves the page,
every picture that is shown has a size and marks, the page is no wider than the window, the keyboard reaches
every control and the arrow keys choose, and a choice shows what it names. How long a page took to load is
printed, and held to a bound where one is given.

  page_browser.py PAGE.html [...] [--shots FOLDER] [--within SECONDS]

Needs python's playwright and chromium. Exit: 0; 1 something is wrong; 77 no browser here.
"""
import argparse
import os
import shutil
import sys
import time

WIDTHS = (1100, 380)
SCHEMES = ("light", "dark")
failures = []


def check(condition, where, what):
    if not condition:
        failures.append(f"{where}: {what}")


PICTURES = """() => [...document.querySelectorAll('svg')].filter(s => s.getClientRects().length).map(s =>
    ({name: s.querySelector('title')?.textContent ?? '', marks: s.querySelectorAll('path,rect,circle').length,
      height: s.getBoundingClientRect().height}))"""
FOCUS = """() => { const e = document.activeElement;
    return e === document.body ? '' : e.tagName + [...document.querySelectorAll('*')].indexOf(e); }"""
CONTROLS = """() => [...document.querySelectorAll('input:checked,summary,a[href],[tabindex="0"]')]
    .filter(e => e.checkVisibility()).length"""
SHOWN = "() => [...document.querySelectorAll('.option')].filter(e => e.getClientRects().length).length"


def look(page, url, where, shots):
    messages, requests = [], []
    page.on("console", lambda m: messages.append(m.text))
    page.on("pageerror", lambda e: messages.append(str(e)))
    page.on("request", lambda r: requests.append(r.url))
    begun = time.monotonic()
    page.goto(url)
    first = time.monotonic() - begun
    pictures = page.evaluate(PICTURES)
    check(not messages, where, f"the console says {messages[:2]}")
    foreign = [r for r in requests if r != url and not r.startswith("data:")]
    check(not foreign, where, f"requests leave the page: {foreign[:2]}")
    check(len(pictures) >= 8, where, f"only {len(pictures)} pictures are shown")
    for picture in pictures:
        check(picture["name"] and picture["marks"] > 2 and picture["height"] > 20, where, f"empty: {picture}")
    wide = page.evaluate("() => document.documentElement.scrollWidth - document.documentElement.clientWidth")
    check(wide <= 0, where, f"the page is {wide} pixels wider than the window")
    if shots:
        page.screenshot(path=os.path.join(shots, where.replace(" ", "_").replace("/", "_") + ".png"), full_page=True)
    return first, len(pictures)


def press_keys(page, where):
    reached = set()
    for _ in range(400):
        page.keyboard.press("Tab")
        focus = page.evaluate(FOCUS)
        if focus == "" or focus in reached:
            break
        reached.add(focus)
    wanted = page.evaluate(CONTROLS)
    check(len(reached) >= wanted, where, f"the keyboard reaches {len(reached)} of {wanted} controls")
    groups = page.evaluate("() => [...new Set([...document.querySelectorAll('input[type=radio]')].map(e => e.name))]")
    for group in groups:
        radios = page.locator(f"input[name='{group}']:visible")
        if radios.count() < 2:
            continue
        before = page.evaluate(SHOWN)
        radios.first.focus()
        page.keyboard.press("ArrowRight")
        chosen = page.evaluate(f"() => document.querySelector(\"input[name='{group}']:checked\").id")
        check(chosen.endswith("1") or chosen == "axis-time", where, f"{group}: the arrow key chose {chosen}")
        check(page.evaluate(SHOWN) >= before - 1, where, f"{group}: the choice shows nothing")
        for picture in page.evaluate(PICTURES):
            check(picture["marks"] > 2 and picture["height"] > 20, where, f"{group}: empty: {picture}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("pages", nargs="+")
    parser.add_argument("--shots", help="folder for screenshots")
    parser.add_argument("--within", type=float, help="seconds that a page may take to load")
    options = parser.parse_args()
    browser_path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        browser_path = None
    if browser_path is None:
        print("page_browser: no playwright or no chromium: skipped")
        return 77
    if options.shots:
        os.makedirs(options.shots, exist_ok=True)
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        for path in options.pages:
            url = "file://" + os.path.abspath(path)
            name = os.path.basename(path)
            for width in WIDTHS:
                for scheme in SCHEMES:
                    for scripts in (True, False) if scheme == "light" else (True,):
                        where = f"{name} {width} {scheme}{'' if scripts else ' without scripts'}"
                        # The page's own content policy holds in the first; evaluate needs none.
                        context = browser.new_context(viewport={"width": width, "height": 900},
                                                      color_scheme=scheme, java_script_enabled=scripts)
                        page = context.new_page()
                        if scripts:
                            first, count = look(page, url, where, options.shots)
                            print(f"{where}: {count} pictures, loaded in {first:.2f} s")
                            check(options.within is None or first <= options.within, where, f"loaded in {first:.2f} s")
                            press_keys(page, where)
                        else:
                            page.goto(url)
                            check(page.locator("svg:visible").count() >= 8, where, "pictures are missing")
                        context.close()
        browser.close()
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
