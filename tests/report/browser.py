"""Chromium without a window, spoken to through two pipes in its DevTools protocol: nothing but Python is needed."""

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import time

from tests.timeouts import TIMEOUT

CHROMIUM = shutil.which("chromium")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions", "--mute-audio"]
LAUNCH = """
import os, sys
reads, writes = int(sys.argv[1]), int(sys.argv[2])
os.dup2(os.dup2(reads, 100), 3)
os.dup2(os.dup2(writes, 101), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""  # Chromium reads from 3 and writes to 4


class Browser:
    """A page of Chromium; `errors` are what it complained of."""

    def __init__(self, profile):
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
        self.process = subprocess.Popen(
            [sys.executable, "-ISc", LAUNCH, str(theirs_in), str(theirs_out), *command],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.pipes = (ours_in, ours_out)
        self.numbers, self.buffer, self.errors, self.session, self.events = itertools.count(1), b"", [], None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self):
        for pipe in self.pipes:
            os.close(pipe)  # whereupon it ends
        self.process.wait(TIMEOUT)

    def call(self, method, **arguments):
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": arguments}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.pipes[1], json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != number:
            self._note(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def _receive(self):
        end = time.monotonic() + TIMEOUT
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.pipes[0]], [], [], max(0, end - time.monotonic()))
            assert ready, "Chromium does not answer"
            read = os.read(self.pipes[0], 1 << 20)
            assert read, "Chromium has ended"
            self.buffer += read
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def _note(self, event):
        method, content = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(content["exceptionDetails"])
        elif method == "Log.entryAdded" and content["entry"]["level"] in ("error", "warning"):
            self.errors.append(content["entry"])
        elif method == "Runtime.consoleAPICalled" and content["type"] in ("error", "warning"):
            self.errors.append(content["args"])
        elif method == "Network.requestWillBeSent":
            self.events.append(content["request"]["url"])
        elif method == "Page.loadEventFired":
            self.events.append("loaded")

    def open(self, path, width=1280, height=900, scheme="light", touch=False):
        """Open a file in a window of that size; `requests` are then the addresses it asked for."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=touch)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.events, self.errors = [], []
        self.call("Page.navigate", url=path.as_uri())
        self.wait_for_load()

    def wait_for_load(self):
        while "loaded" not in self.events:
            self._note(self._receive())

    @property
    def requests(self):
        return [event for event in self.events if event != "loaded" and not event.startswith("data:")]

    def run(self, expression, gesture=False):
        """What an expression of JavaScript is, in the page; with `gesture`, as if the user had asked for it."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=gesture
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, expression):
        """Wait until an expression is true."""
        end = time.monotonic() + TIMEOUT
        while not self.run(expression):
            assert time.monotonic() < end, expression
            self.settle()

    def point_at(self, selector):
        """Move the mouse to the middle of an element."""
        x, y = self._middle(selector)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector):
        x, y = self._middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def tap(self, selector):
        x, y = self._middle(selector)
        self.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        self.settle()

    def _middle(self, selector):
        """The middle of an element, scrolled into view."""
        x, y = self.run(
            f"(() => {{ const one = document.querySelector({json.dumps(selector)});"
            "one.scrollIntoView({block: 'center', behavior: 'instant'}); const box = one.getBoundingClientRect();"
            "return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        self.settle()
        return x, y

    def settle(self):
        """Wait for two frames, when all has heard that the page was scrolled."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def press_tab(self):
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)

    def screenshot(self, path, whole=True):
        """Save a picture of the page, the whole of it or what is in view."""
        data = self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))
