"""Other programs, each with a deadline; none is left running."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

_END_S: Final = 20.0
_TAIL_CHARACTERS: Final = 800


class CheckError(Exception):
    """Raised when a check finds something that is not as it should be."""


class Clock:
    """The time that is left for all checks together."""

    def __init__(self, total_s: float) -> None:
        self._end = time.monotonic() + total_s

    def within(self, bound_s: float) -> float:
        """A bound for one command: this, or what is left."""
        left_s = self._end - time.monotonic()
        if left_s <= 1:
            raise CheckError("no time was left for it")
        return min(bound_s, left_s)


def tail(text: str) -> str:
    """The end of what a program said, on one line."""
    return " | ".join(line.strip() for line in text.strip().splitlines() if line.strip())[-_TAIL_CHARACTERS:]


def run(
    argv: Sequence[str | Path], *, bound_s: float, env: Mapping[str, str] | None = None, given: str = ""
) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a program that ends by itself; its output goes to files, for it may daemonize."""
    with _file() as out, _file() as err, _file(given) as stdin:
        try:
            process = subprocess.Popen(
                list(map(str, argv)), stdin=stdin, stdout=out, stderr=err, env=env, start_new_session=True
            )
        except OSError as error:
            raise CheckError(f"{argv[0]} cannot be started: {error.strerror}") from error
        try:
            code = process.wait(bound_s)
        except subprocess.TimeoutExpired:
            raise CheckError(f"{Path(argv[0]).name} did not end within {bound_s:.0f} s: {tail(_said(err))}") from None
        finally:
            _end(process)
        return code, _said(out), _said(err)


def _file(text: str = "") -> IO[str]:
    file = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - its user closes it
    file.write(text)
    file.seek(0)
    return file


def _said(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def require(
    argv: Sequence[str | Path], *, bound_s: float, env: Mapping[str, str] | None = None, given: str = ""
) -> str:
    """Stdout of a program that ends with 0."""
    code, out, err = run(argv, bound_s=bound_s, env=env, given=given)
    if code != 0:
        raise CheckError(f"{_named(argv)} ended with {code}: {tail(err) or tail(out) or 'and said nothing'}")
    return out


def _named(argv: Sequence[str | Path]) -> str:
    """A command line's program and first words."""
    words = [str(word) for word in argv]
    if "greenroom" in words:
        words = words[words.index("greenroom") :]
    return " ".join((Path(words[0]).name, *(word for word in words[1:4] if not word.startswith("-"))))


class Talker:
    """A program that runs on while it is looked at; what it says is kept, line by line."""

    def __init__(self, name: str, process: subprocess.Popen[str], stream: IO[str]) -> None:
        self._name = name
        self.process = process
        self._lines: list[str] = []
        self._has_ended = False
        self._told = threading.Condition()
        self._reader = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._reader.start()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self._tell(line)
        with self._told:
            self._has_ended = True
            self._told.notify_all()

    def _tell(self, line: str) -> None:
        with self._told:
            self._lines.append(line)
            self._told.notify_all()

    def line(self, is_wanted: Callable[[str], bool], *, bound_s: float) -> str:
        """The first line that is wanted."""

        def found() -> str | None:
            return next(filter(is_wanted, self._lines), None)

        with self._told:
            self._told.wait_for(lambda: found() is not None or self._has_ended, timeout=bound_s)
            line = found()
        if line is None:
            why = "ended" if self._has_ended else f"said nothing of it within {bound_s:.0f} s"
            raise CheckError(f"{self._name} {why}: {tail(''.join(self._lines)) or 'nothing was said'}")
        return line

    def let_go(self) -> int:
        """Close its stdin, which ends it, and wait for that."""
        if self.process.stdin:
            self.process.stdin.close()
        try:
            return self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            raise CheckError(f"it did not end within {_END_S:.0f} s when its stdin was closed") from None


@contextmanager
def talking(
    argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None, listens_to_stderr: bool = False
) -> Iterator[Talker]:
    """A program whose stdout, or stderr, is read while it runs; it is ended afterwards."""
    out, err = (subprocess.DEVNULL, subprocess.PIPE) if listens_to_stderr else (subprocess.PIPE, subprocess.STDOUT)
    try:
        process = subprocess.Popen(
            list(map(str, argv)), stdin=subprocess.PIPE, stdout=out, stderr=err, env=env, start_new_session=True,
            text=True,
        )  # fmt: skip
    except OSError as error:
        raise CheckError(f"{argv[0]} cannot be started: {error.strerror}") from error
    stream = process.stderr if listens_to_stderr else process.stdout
    assert stream is not None, "it was asked for as a pipe"
    try:
        yield Talker(Path(argv[0]).name, process, stream)
    finally:
        if process.stdin and not process.stdin.closed:
            process.stdin.close()
        process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            _end(process)
        stream.close()


def _end(process: subprocess.Popen[Any]) -> None:
    """Of one that still runs, its whole session is ended."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
