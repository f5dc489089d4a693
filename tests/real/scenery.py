"""What the actors of these tests are made of: one shared rootfs, assignments, and how a count that went on is known."""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

COUNT: Final = 'trap "exit 0" TERM; i=0; while :; do echo $i; i=$((i+1)); sleep 0.02; done'
"""Writes 0, 1, 2, … until it is told to end."""
GRACE_S: Final = 30
"""Hardly anything here needs it; but what is asserted of how a container ends must not hang on a busy machine."""


def counting(name: str, rootfs: Path | str, **more: Any) -> dict[str, Any]:
    """A container that counts."""
    return running(name, rootfs, "sh", "-c", COUNT, **more)


def exiting(name: str, rootfs: Path | str, code: int, *, after_s: float = 0.0) -> dict[str, Any]:
    """A container that exits with a code after a while."""
    return running(name, rootfs, "sh", "-c", f"sleep {after_s}; exit {code}")


def running(name: str, rootfs: Path | str, *argv: str, **more: Any) -> dict[str, Any]:
    """A container that runs a command."""
    return {"name": name, "rootfs": str(rootfs), "command": list(argv), **more}


def assignment(uid: str, *containers: dict[str, Any], generation: int = 1, **spec: Any) -> dict[str, Any]:
    """A WorkerAssignment that wants Running unless told otherwise."""
    return {
        "apiVersion": "greenroom.dev/v1alpha1",
        "kind": "WorkerAssignment",
        "metadata": {"uid": uid, "name": f"actor-{uid}", "generation": generation},
        "spec": {
            "desiredState": "Running",
            "terminationGracePeriodSeconds": GRACE_S,
            "containers": list(containers),
            **spec,
        },
    }


def write_assignment(directory: Path, document: dict[str, Any], *, name: str | None = None) -> Path:
    """Put an assignment into a watched directory as a careful writer does: beside it, then renamed."""
    path = directory / f"{name or document['metadata']['uid']}.json"
    beside = directory / f".{path.name}.new"
    beside.write_text(json.dumps(document))
    return beside.rename(path)


def whole_lines(log: Path) -> list[str]:
    """What a container has written, without a line that has no end yet."""
    text = log.read_bytes() if log.exists() else b""
    assert b"\0" not in text, f"{log.name} has a hole"
    return text.decode().rpartition("\n")[0].splitlines()


def goes_on(lines: Sequence[str]) -> bool:
    """Whether a counter counted on without a hole and without a number twice, from 0 to its last line."""
    return list(lines) == [str(number) for number in range(len(lines))]


def digest_of(directory: Path) -> str:
    """One digest of everything in a tree: names, modes, times and contents."""
    digest = hashlib.sha256()
    for parent, folders, files in sorted(os.walk(directory)):
        for path in (Path(parent, name) for name in sorted((*folders, *files))):
            stat = path.lstat()
            digest.update(f"{path}\0{stat.st_mode}\0{stat.st_size}\0{stat.st_mtime_ns}\0".encode())
            if path.is_file() and not path.is_symlink():
                digest.update(path.read_bytes())
    return digest.hexdigest()


def flip_a_byte(path: Path) -> None:
    """Damage a file in its middle without changing its size."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 0xFF]))
