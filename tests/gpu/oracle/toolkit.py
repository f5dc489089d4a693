"""The container toolkit itself: `nvidia-ctk` of release 1.20, and its transformations of specs, asked by main.go."""

from __future__ import annotations

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
NVIDIA_CTK: Final = "github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-ctk"
TRANSFORMER: Final = "."
BUILD_BOUND_S: Final = 900


class Transformer:
    """The toolkit's transformations, answering."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def __call__(self, op: str, spec: dict[str, Any], **asked: str) -> dict[str, Any]:
        """What it makes of a spec; nothing empty is in it."""
        given, taken = self._process.stdin, self._process.stdout
        assert given
        assert taken
        given.write(json.dumps({"op": op, "spec": spec, **asked}).encode() + b"\n")
        given.flush()
        answer = json.loads(taken.readline())
        assert "error" not in answer, answer
        made: dict[str, Any] = answer["spec"]
        return made


@contextmanager
def transforming() -> Iterator[Transformer]:
    """The program that answers, built when it was not yet."""
    process = subprocess.Popen([str(built(TRANSFORMER))], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield Transformer(process)
    finally:
        process.communicate(timeout=60)


@functools.cache
def built(package: str) -> Path:
    """A program of the toolkit's module; the second time nothing is fetched nor built."""
    need(Tool.GO)
    sources = b"\0".join((HERE / name).read_bytes() for name in ("main.go", "go.mod", "go.sum"))
    name = package.rpartition("/")[2].strip(".") or "transformer"
    program = ROOT / "build" / "toolkit-oracle" / f"{name}-{hashlib.sha256(sources).hexdigest()[:16]}"
    if program.exists():
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    # Beside it first: who builds at the same time, or is ended meanwhile, leaves no half of a program.
    beside = program.with_name(f"{program.name}.{os.getpid()}")
    # NVML's functions are found when the library is loaded, not when the program is linked.
    env = {"GOFLAGS": "-mod=readonly -buildvcs=false", "CGO_LDFLAGS": "-Wl,--unresolved-symbols=ignore-in-object-files"}
    ended = subprocess.run(
        [str(find(Tool.GO)), "build", "-o", str(beside), package],
        cwd=HERE, capture_output=True, text=True, timeout=BUILD_BOUND_S, check=False, env=os.environ | env,
    )  # fmt: skip
    if ended.returncode != 0:
        cannot(f"{name} of the container toolkit could not be built:\n{ended.stderr[-2000:]}")
    beside.replace(program)
    return program
