"""The CDI Go library, asked by a program of ours (main.go): built once for each release, kept running for tests."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.needs import ROOT, Tool, cannot, find, need

HERE: Final = Path(__file__).parent
RELEASES: Final = {"1.1.0": "old.mod", "1.1.2": "go.mod"}
"""Release -> the module file that names it. 1.1.0 is what engines of before autumn 2026 hold; 1.1.2 reads YAML anew."""
BUILD_BOUND_S: Final = 900


class Library:
    """One release, answering."""

    def __init__(self, release: str, process: subprocess.Popen[bytes]) -> None:
        self.release = release
        self._process = process

    def ask(self, op: str, **asked: Any) -> dict[str, Any]:
        """One question, one answer."""
        given, taken = self._process.stdin, self._process.stdout
        assert given
        assert taken
        given.write(json.dumps({"op": op, **asked}).encode() + b"\n")
        given.flush()
        line = taken.readline()
        assert line, f"the Go library {self.release} died of {asked}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def read(self, data: bytes) -> dict[str, Any]:
        """What it makes of a file."""
        return self.ask("read", data=encoded(data))


def encoded(data: bytes) -> str:
    """Bytes as the requests have them."""
    return base64.b64encode(data).decode()


@contextmanager
def running(release: str) -> Iterator[Library]:
    """The library of a release, built when it was not yet."""
    process = subprocess.Popen([str(built(release))], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield Library(release, process)
    finally:
        process.communicate(timeout=60)


@functools.cache
def built(release: str) -> Path:
    """The program; the second time nothing is fetched nor built."""
    need(Tool.GO)
    module = HERE / RELEASES[release]
    sources = (HERE / "main.go", module, module.with_suffix(".sum"))
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    program = ROOT / "build" / "cdi-oracle" / f"{release}-{digest}"
    if program.exists():
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    # Beside it first: who builds at the same time, or is ended meanwhile, leaves no half of a program.
    beside = program.with_name(f"{program.name}.{os.getpid()}")
    argv = [str(find(Tool.GO)), "build", "-modfile", module.name, "-o", str(beside), "."]
    ended = subprocess.run(
        argv, cwd=HERE, capture_output=True, text=True, timeout=BUILD_BOUND_S, check=False,
        env=os.environ | {"GOFLAGS": "-mod=readonly -buildvcs=false", "CGO_ENABLED": "0"},
    )  # fmt: skip
    if ended.returncode != 0:
        cannot(f"the CDI Go library {release} could not be built:\n{ended.stderr[-2000:]}")
    beside.replace(program)
    return program
