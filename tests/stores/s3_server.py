"""A real S3 server in a process of its own, moto's, and in front of it whatever can go wrong on a network.

    python -m tests.stores.s3_server

prints its port and serves until its stdin is closed. `POST /-/faults` plans faults (a JSON list), `GET /-/faults` tells
how often each fired and every request that came, `POST /-/clear` forgets both and lets go on who hangs.
"""

from __future__ import annotations

import io
import json
import re
import socket
import sys
import threading
from typing import Any, Final

REFUSED: Final = (
    b'<?xml version="1.0"?><Error><Code>AccessDenied</Code><Message>Access Denied</Message>'
    b"<AWSAccessKeyId>AKIATHEKEYSID</AWSAccessKeyId><StringToSign>string-to-sign</StringToSign></Error>"
)
BROKEN: Final = b'<?xml version="1.0"?><Error><Code>InternalError</Code><Message>We broke down.</Message></Error>'


class Faults:
    """The plan, and what became of it: `{method, path, what, times}`; `path` is searched for in path and query."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.planned: list[dict[str, Any]] = []
        self.seen: list[str] = []
        self.released = threading.Event()

    def plan(self, faults: list[dict[str, Any]]) -> None:
        with self.lock:
            self.planned += [{"times": None, "fired": 0, **each} for each in faults]

    def clear(self) -> None:
        with self.lock:
            self.planned, self.seen = [], []
            self.released.set()
            self.released = threading.Event()

    def meeting(self, method: str, path: str) -> str | None:
        with self.lock:
            self.seen.append(f"{method} {path}")
            for each in self.planned:
                left = each["times"] is None or each["fired"] < each["times"]
                if left and each["method"] == method and re.search(each["path"], path):
                    each["fired"] += 1
                    return str(each["what"])
        return None

    def told(self) -> bytes:
        with self.lock:
            return json.dumps({"faults": self.planned, "seen": self.seen}).encode()


class Server:
    """A WSGI application in front of another one."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.faults = Faults()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        path = environ["PATH_INFO"]
        if path.startswith("/-/"):
            return self._asked(environ, start_response)
        if environ.get("QUERY_STRING"):
            path = f"{path}?{environ['QUERY_STRING']}"
        what = self.faults.meeting(environ["REQUEST_METHOD"], path)
        return self._met(what, environ, start_response) if what else self.app(environ, start_response)

    def _asked(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        answer = b""
        match environ["REQUEST_METHOD"], environ["PATH_INFO"]:
            case "POST", "/-/faults":
                self.faults.plan(json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))))
            case "POST", "/-/clear":
                self.faults.clear()
            case _:
                answer = self.faults.told()
        start_response("200 OK", [("Content-Length", str(len(answer)))])
        return [answer]

    def _met(self, what: str, environ: dict[str, Any], start_response: Any) -> Any:
        if what in {"500", "403"}:
            text = BROKEN if what == "500" else REFUSED
            status = "500 Internal Server Error" if what == "500" else "403 Forbidden"
            start_response(status, [("Content-Length", str(len(text))), ("Content-Type", "application/xml")])
            return [text]
        if what == "hang":
            self.faults.released.wait(300)
        if what in {"hang", "drop"}:
            return _drop(environ)
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        # A store that keeps less than it says keeps half of it.
        status, headers, data = self._done(environ, body[: len(body) // 2] if what == "stored short" else body)
        if what == "lost":  # it was done, and nobody hears of it
            return _drop(environ)
        start_response(status, headers)
        match what:
            case "stored short":
                return [data]
            case "sent short":
                return _half(environ, data)
            case "flipped":
                return [bytes((data[0] ^ 1,)) + data[1:]]
            case _:
                raise ValueError(what)

    def _done(self, environ: dict[str, Any], body: bytes) -> tuple[str, list[tuple[str, str]], bytes]:
        said: list[Any] = []
        changed = {**environ, "wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": str(len(body))}
        for name in [name for name in changed if "CHECKSUM" in name or name == "HTTP_CONTENT_MD5"]:
            del changed[name]
        data = b"".join(self.app(changed, lambda status, headers, *_: said.append((status, headers))))
        return said[0][0], list(said[0][1]), data


def _drop(environ: dict[str, Any]) -> list[bytes]:
    environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    raise ConnectionAbortedError


def _half(environ: dict[str, Any], data: bytes) -> Any:
    yield data[: len(data) // 2]
    environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)


def main() -> None:
    """Serve."""
    from moto.moto_server.werkzeug_app import (  # noqa: PLC0415 - only this process pays
        DomainDispatcherApplication,
        create_backend_app,
    )
    from werkzeug.serving import WSGIRequestHandler, make_server  # noqa: PLC0415 - as above

    class Quiet(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log(self, *_args: Any) -> None:
            pass

    app = Server(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    sys.stdout.write(f"{server.port}\n")
    sys.stdout.flush()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
