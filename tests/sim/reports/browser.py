"""A headless Chromium that a test drives through pipes: it opens a page, moves the pointer, and says what it has seen.

It is spoken to in the DevTools protocol, a JSON message at a time with a NUL after each, which needs no package.

Source: chromedevtools.github.io/devtools-protocol; `--remote-debugging-pipe` reads from descriptor 3 and writes to 4.
"""

import base64
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.needs import Tool, find

WIDTH: Final = 1280
HEIGHT: Final = 800
"""Of a laptop's screen."""
ARGUMENTS: Final = (
    "--headless",
    "--no-sandbox",  # root has none; it opens nothing but our own pages
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--remote-debugging-pipe",
    f"--window-size={WIDTH},{HEIGHT}",
)


class Browser:
    """One page in it, and what happened there: `asked` has every address that was fetched, `complaints` every error."""

    def __init__(self, to: int, answers: int) -> None:
        self._to, self._answers, self._number = to, answers, 0
        self._rest = b""
        self._session: str | None = None
        self.asked: list[str] = []
        self.complaints: list[str] = []
        self._events: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """One question and its answer; what happens meanwhile is kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (heard := self._heard()).get("id") != self._number:
            self._happened(heard)
        assert "result" in heard, heard
        return heard["result"]

    def open(self, path: Path, *, scheme: str = "light") -> None:
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self._events.clear()
        self.call("Page.navigate", url=path.as_uri())
        while "Page.loadEventFired" not in self._events:
            self._happened(self._heard())

    def value(self, expression: str) -> Any:
        """What an expression of JavaScript is worth in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def point_at(self, selector: str, x: float, y: float) -> None:
        """Move the pointer to a place inside an element, in shares of its width and height."""
        self.value(f"document.querySelector({selector!r}).scrollIntoView({{block: 'center'}})")
        box = self.value(f"document.querySelector({selector!r}).getBoundingClientRect().toJSON()")
        place = {"x": box["left"] + x * box["width"], "y": box["top"] + y * box["height"]}
        self.call("Input.dispatchMouseEvent", type="mouseMoved", **place)

    def screenshot(self) -> bytes:
        """The whole page as PNG, however long it is."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        return base64.b64decode(shot["data"])

    def _heard(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = os.read(self._answers, 1 << 16)
            assert more, "the browser has ended"
            self._rest += more
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def _happened(self, event: dict[str, Any]) -> None:
        method, told = event.get("method", ""), event.get("params", {})
        self._events.append(method)
        match method:
            case "Network.requestWillBeSent":
                self.asked.append(told["request"]["url"])
            case "Runtime.exceptionThrown":
                self.complaints.append(str(told["exceptionDetails"]))
            case "Runtime.consoleAPICalled" | "Log.entryAdded":
                self.complaints.append(str(told))


@contextmanager
def browser() -> Iterator[Browser]:
    """It is there until the test ends."""
    to_it, ours = os.pipe()
    answers, its = os.pipe()
    os.set_inheritable(to_it, True)
    os.set_inheritable(its, True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # `exec` puts the pipes where the browser looks for them: at descriptors 3 and 4.
        script = f'exec "$0" "$@" 3<&{to_it} 4>&{its}'
        argv = ["bash", "-c", script, str(find(Tool.CHROMIUM)), *ARGUMENTS, f"--user-data-dir={profile}"]
        process = subprocess.Popen(argv, pass_fds=(to_it, its), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_it)
        os.close(its)
        try:
            yield Browser(ours, answers)
        finally:
            os.close(ours)  # it ends when nobody speaks to it any more
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            os.close(answers)
