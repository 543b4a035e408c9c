# SPDX-License-Identifier: Apache-2.0
"""A real browser for tests, by Python's standard library alone: chromium is controlled over a pipe (the DevTools
protocol), and screenshots are decoded here. Used by page_browser.py, perfetto.py and page_picture.py.
"""
import base64
import json
import os
import select
import shutil
import struct
import subprocess
import tempfile
import time
import zlib

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ANSWER_SECONDS = 120  # a machine under load is slow; a browser that hangs must not hang the tests
SIGNATURE = b"\x89PNG\r\n\x1a\n"


def find():
    """Return the browser's path, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Failed(Exception):
    """The browser did not start or answer, or rejected a call."""


class Browser:
    """One browser with one tab. A context manager; `messages` has the lines on the consoles, `requests` the requested
    addresses, both of the page that was opened last."""

    def __init__(self, path, *arguments):
        self.profile = tempfile.TemporaryDirectory(prefix="browser_", ignore_cleanup_errors=True)
        to_read, self.to_browser = os.pipe()
        self.from_browser, to_write = os.pipe()
        # The browser reads from descriptor 3 and writes to 4.
        self.process = subprocess.Popen(
            ["sh", "-c", 'exec "$0" "$@" 3<&%d 4>&%d' % (to_read, to_write), path, "--headless=new", "--no-sandbox",
             "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
             "--force-color-profile=srgb", "--disable-lcd-text", "--user-data-dir=" + self.profile.name,
             "--remote-debugging-pipe", *arguments, "about:blank"],
            pass_fds=(to_read, to_write), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.buffer, self.last_id, self.session = b"", 0, None
        self.events, self.messages, self.requests = [], [], []
        pages = [t for t in self.ask("Target.getTargets")["targetInfos"] if t["type"] == "page"]
        target = pages[0]["targetId"] if pages else self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(domain + ".enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.to_browser)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.from_browser)
        self.profile.cleanup()

    def take(self, until):
        """Return the next message of the browser."""
        while b"\0" not in self.buffer:
            ready = select.select([self.from_browser], [], [], max(0, until - time.monotonic()))[0]
            part = os.read(self.from_browser, 1 << 20) if ready else b""
            if not part:
                raise Failed("the browser %s" % ("ended" if ready else "does not answer"))
            self.buffer += part
        message, self.buffer = self.buffer.split(b"\0", 1)
        message = json.loads(message)
        self.note(message.get("method"), message.get("params", {}))
        return message

    def note(self, method, params):
        if method == "Runtime.consoleAPICalled":
            self.messages.append(" ".join(str(a.get("value", a.get("description"))) for a in params["args"]))
        elif method == "Runtime.exceptionThrown":
            self.messages.append(params["exceptionDetails"]["text"])
        elif method == "Log.entryAdded":
            self.messages.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method is not None:
            self.events.append(method)

    def ask(self, method, **params):
        """Call a method and return the result."""
        self.last_id += 1
        call = {"id": self.last_id, "method": method, "params": params}
        if self.session is not None:
            call["sessionId"] = self.session
        data = json.dumps(call).encode() + b"\0"
        while data:
            data = data[os.write(self.to_browser, data):]
        until = time.monotonic() + ANSWER_SECONDS
        while True:
            message = self.take(until)
            if message.get("id") == self.last_id:
                if "error" in message:
                    raise Failed("%s: %s" % (method, message["error"]["message"]))
                return message["result"]

    def open(self, url, width, height, scheme="light", has_scripts=True):
        """Show a page in a window of that size, in CSS pixels; return after loading."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.ask("Emulation.setScriptExecutionDisabled", value=not has_scripts)
        self.load("Page.navigate", url=url)

    def reload(self):
        """Reload the page from the present address; return after loading."""
        self.load("Page.reload")

    def load(self, method, **params):
        self.events, self.messages, self.requests = [], [], []
        self.ask(method, **params)
        until = time.monotonic() + ANSWER_SECONDS
        while "Page.loadEventFired" not in self.events:
            self.take(until)

    def evaluate(self, expression):
        """Return the value of an expression of JavaScript, evaluated from outside: the page's own policy does not
        apply."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise Failed(json.dumps(answer["exceptionDetails"])[:500])
        return answer["result"].get("value")

    def press(self, key):
        code = {"Tab": 9, "Enter": 13, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "Escape": 27, "Home": 36,
                "End": 35, "0": 48, "+": 107}[key]
        for kind in ("rawKeyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def drag(self, *spots):
        """Press the mouse's button at the first spot of the window and release it at the last; one spot is a click."""
        kinds = ["mousePressed"] + ["mouseMoved"] * (len(spots) - 1) + ["mouseReleased"]
        for kind, (x, y) in zip(kinds, [*spots, spots[-1]]):
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left",
                     buttons=int(kind != "mouseReleased"), clickCount=1)

    def touch(self, *moments):
        """Move fingers: each moment has the spots of all fingers that are down; after the last moment all are
        lifted."""
        for i, spots in enumerate([*moments, []]):
            kind = "touchStart" if i == 0 else "touchMove" if spots else "touchEnd"
            self.ask("Input.dispatchTouchEvent", type=kind,
                     touchPoints=[{"x": x, "y": y, "id": n} for n, (x, y) in enumerate(spots)])

    def shoot(self, left=0, top=0, width=None, height=None):
        """Return a picture of that part of the page, else of the whole page, as the bytes of a PNG."""
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": left, "y": top, "width": width or size["width"], "height": height or size["height"], "scale": 1}
        return base64.b64decode(self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True,
                                         clip=clip)["data"])


def chunks(data):
    """Yield the chunks of a PNG: kind, body, all bytes."""
    at = len(SIGNATURE)
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        yield data[at + 4 : at + 8], data[at + 8 : at + 8 + size], data[at : at + 12 + size]
        at += 12 + size


def _unfilter(kind, line, above, step):
    if kind == 1:
        for i in range(step, len(line)):
            line[i] = (line[i] + line[i - step]) & 255
    elif kind == 2:
        for i, up in enumerate(above):
            line[i] = (line[i] + up) & 255
    elif kind == 3:
        for i, up in enumerate(above):
            line[i] = (line[i] + ((line[i - step] if i >= step else 0) + up) // 2) & 255
    elif kind == 4:
        for i, up in enumerate(above):
            left, corner = (line[i - step], above[i - step]) if i >= step else (0, 0)
            guess = left + up - corner
            near = min((abs(guess - left), 0, left), (abs(guess - up), 1, up), (abs(guess - corner), 2, corner))
            line[i] = (line[i] + near[2]) & 255


class Picture:
    """A decoded PNG of 8 bits a channel: width, height, and pixel(x, y) as (red, green, blue)."""

    def __init__(self, data):
        parts = list(chunks(data))
        self.width, self.height, depth, colour, _, _, interlace = struct.unpack(">IIBBBBB", parts[0][1])
        if data[: len(SIGNATURE)] != SIGNATURE or depth != 8 or colour not in (2, 6) or interlace:
            raise ValueError("not a PNG of 8 bits a channel")
        self.step = 3 if colour == 2 else 4
        raw = zlib.decompress(b"".join(body for kind, body, _ in parts if kind == b"IDAT"))
        size = self.width * self.step
        self.lines, above = [], bytearray(size)
        for y in range(self.height):
            line = bytearray(raw[y * (size + 1) + 1 : (y + 1) * (size + 1)])
            _unfilter(raw[y * (size + 1)], line, above, self.step)
            self.lines.append(line)
            above = line

    def pixel(self, x, y):
        at = x * self.step
        return tuple(self.lines[y][at : at + 3])
