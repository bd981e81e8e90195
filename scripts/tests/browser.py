# SPDX-License-Identifier: GPL-2.0
"""A real browser for tests: Debian's Chromium without a window, of scripts/cache/viewers, which
is told what to do by its DevTools protocol. Runs in the private root."""

import base64
import json
import os
import select
import subprocess
import tempfile
from pathlib import Path

from host.steps import cached

# Seconds that the browser may take for an answer.
PATIENCE = 60
# A user's own may not run as root without the first; nothing of the others is for tests.
OPTIONS = """--no-sandbox --headless --disable-gpu --disable-background-networking --no-first-run
--disable-component-update --disable-extensions --disable-sync --hide-scrollbars --window-size=1200,800
--remote-debugging-pipe""".split()
FONTS = """<?xml version="1.0"?>
<fontconfig><dir>{fonts}</dir><cachedir>{own}/fonts</cachedir></fontconfig>
"""


class BrowserError(Exception):
    """The browser did not do what it was told to."""


class Browser:
    """A browser with one page, to be used in a `with`."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.number, self.buffer, self.dialog, self.loaded = 0, b"", None, False

    def __enter__(self):
        viewers, own = cached("viewers"), Path(self.folder.name)
        (own / "fonts.conf").write_text(FONTS.format(fonts=viewers / "browser/fonts", own=own))
        environment = {"HOME": str(own), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        environment |= {"LD_LIBRARY_PATH": str(viewers / "browser/lib"), "FONTCONFIG_FILE": str(own / "fonts.conf")}
        program = viewers / "browser/chromium-headless-shell"
        # The browser reads its descriptor 3 and writes to its descriptor 4.
        told, self.tell = os.pipe()
        self.hear, said = os.pipe()
        words = ["sh", "-c", f'exec "$@" 3<&{told} 4>&{said}', "sh", program, f"--user-data-dir={own}/data"]
        with open(own / "log", "wb") as log:
            self.process = subprocess.Popen(
                [*words, *OPTIONS, "about:blank"], env=environment, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, pass_fds=(told, said), start_new_session=True,
            )
        os.close(told)
        os.close(said)
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_error):
        os.close(self.tell)
        os.close(self.hear)
        # Its end of the pipe is its sign to go.
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.folder.cleanup()

    def receive(self):
        """The next message."""
        while b"\0" not in self.buffer:
            if not select.select([self.hear], [], [], PATIENCE)[0]:
                raise BrowserError(f"no answer in {PATIENCE} s")
            data = os.read(self.hear, 1 << 20)
            if not data:
                log = Path(self.folder.name, "log").read_text(errors="replace")
                raise BrowserError(f"the browser has ended: {log[-2000:]}")
            self.buffer += data
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def call(self, method, **parameters):
        """Have the browser do something: its result. A dialog that opens meanwhile is answered."""
        number = self.send(method, **parameters)
        while True:
            message = self.receive()
            if message.get("id") == number:
                if "error" in message:
                    raise BrowserError(f"{method}: {message['error']['message']}")
                return message["result"]
            self.take(message)

    def take(self, message):
        """See to what the browser tells by itself."""
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            raise BrowserError(details.get("exception", details).get("description", details["text"]))
        if method == "Page.loadEventFired":
            self.loaded = True
        if method == "Page.javascriptDialogOpening":
            if self.dialog is None:
                raise BrowserError(f"a dialog: {parameters['message']}")
            self.send("Page.handleJavaScriptDialog", accept=True, promptText=self.dialog)
            self.dialog = None

    def send(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.tell, json.dumps(message).encode() + b"\0")
        return self.number

    def open(self, path):
        """Show a file, to the end of its loading."""
        self.loaded = False
        if failure := self.call("Page.navigate", url=Path(path).resolve().as_uri()).get("errorText"):
            raise BrowserError(f"{path}: {failure}")
        while not self.loaded:
            self.take(self.receive())

    def evaluate(self, expression):
        """The value of an expression in JavaScript."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise BrowserError(f"{expression}: {result['exceptionDetails']['exception']['description']}")
        return result["result"].get("value")

    def click(self, element, answer=None):
        """Click on the middle of an element, given as an expression; `answer` is typed into the
        dialog that this opens."""
        box = self.evaluate(f"(box => [box.x + box.width / 2, box.y + box.height / 2])({element}.getBoundingClientRect())")
        self.dialog = answer
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            pressed = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], **pressed)
        # What the click has done is done now.
        self.evaluate("0")
        if self.dialog is not None:
            raise BrowserError(f"{element} opens no dialog")

    def screenshot(self, path):
        """Write what is to be seen, as PNG."""
        Path(path).write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))
