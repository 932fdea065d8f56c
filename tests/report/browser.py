"""A headless Chromium driven over its DevTools pipe: open a page, run script in it, take its picture."""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    # Whatever a page might ask the network for fails at once; only a server of the tests on this machine answers.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe",
]
DRAWN = "document.documentElement?.dataset.ready === 'yes'"
"""A page with figures says so when they are drawn."""
LOADED = "document.readyState === 'complete' && location.protocol === 'file:'"
"""A page without scripts."""


def find_chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    """One page of a browser, its console and its requests."""

    def __init__(self, orders: int, answers: int) -> None:
        self.orders, self.answers = orders, answers
        self.rest = b""
        self.number = 0
        self.session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.orders, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive(60.0)
            if answer.get("id") == self.number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self.events.append(answer)

    def receive(self, seconds: float) -> dict[str, Any]:
        until = time.monotonic() + seconds
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.answers], [], [], max(0.0, until - time.monotonic()))
            assert ready, f"the browser did not answer within {seconds:.0f} s"
            piece = os.read(self.answers, 1 << 20)
            assert piece, "the browser has gone away"
            self.rest += piece
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)

    def open(self, page: Path, *, width: int = 1100, height: int = 900, dark: bool = False, ready: str = DRAWN) -> None:
        self.events.clear()
        self.look(width=width, height=height, dark=dark)
        self.call("Page.navigate", url=page.as_uri())
        self.wait(ready)

    def look(self, *, width: int = 1100, height: int = 900, dark: bool = False, media: str = "screen") -> None:
        """Set the screen's size and theme, or print."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[theme])

    def wait(self, condition: str, seconds: float = 30.0) -> None:
        until = time.monotonic() + seconds
        while not self.run(condition):
            assert time.monotonic() < until, f"waited in vain for {condition}; {self.complaints()}"
            time.sleep(0.05)

    def run(self, script: str) -> Any:
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def complaints(self) -> list[str]:
        """Return console errors and warnings, exceptions and log entries since the page was opened."""
        said = []
        for event in self.events:
            content = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                said.append(json.dumps(content["exceptionDetails"]))
            if event.get("method") == "Runtime.consoleAPICalled" and content["type"] in ("error", "warning", "assert"):
                said.append(json.dumps(content["args"]))
            if event.get("method") == "Log.entryAdded":
                said.append(json.dumps(content["entry"]))
        return said

    def requests(self) -> list[str]:
        """Return the addresses asked for since the page was opened, other than files and inline data."""
        asked = [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [url for url in asked if not url.startswith(("file:", "data:", "blob:"))]

    def picture(self, path: Path) -> None:
        """Take a picture of the whole page."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        taken = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(taken["data"]))

    def printed(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.printToPDF", printBackground=False)["data"]))


@contextlib.contextmanager
def browse(chromium: str) -> Iterator[Browser]:
    """Start Chromium, which reads orders from file descriptor 3 and answers on 4."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        # The shell puts the pipes where Chromium looks for them, whatever numbers they have here.
        order = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        process = subprocess.Popen(
            ["bash", "-c", order, "bash", chromium, *FLAGS, f"--user-data-dir={home}", "about:blank"],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            yield Browser(ours_out, ours_in)
        finally:
            os.close(ours_out)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            os.close(ours_in)
