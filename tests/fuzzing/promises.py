"""What every fuzz target shares: what must hold is held, and no input takes longer than its bound."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs

from statemachine.catalogue import CATALOGUE
from statemachine.problem import ProblemError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

_T = TypeVar("_T")

CPU_S_MAX: Final = 2.0
"""Of one input, instrumented: the slowest good ones take a hundredth of it."""
MEMORY_MB_MAX: Final = 1024
"""Of the whole process, instrumented, with everything it has learnt: it begins with 150 to 250."""


class BrokenPromiseError(Exception):
    """Raised when an input shows a fault of Greenroom."""


def hold(truth: object, what: str) -> None:
    """What must be true for every input."""
    if not truth:
        raise BrokenPromiseError(what)


@attrs.frozen(kw_only=True)
class Target:
    """Something that reads what others wrote.

    Attributes:
        name: as it is called on the command line.
        check: tries one input; raises for whatever is not promised.
        seeds: first inputs, by name.
        words: what inputs are put together from, besides bytes.
        input_bytes_max: of one input.
    """

    name: str
    check: Callable[[bytes], object]
    seeds: Callable[[], Iterable[tuple[str, bytes]]]
    words: tuple[str, ...] = ()
    input_bytes_max: int = 6000


def attempt(target: Target, data: bytes) -> float:
    """Try one input, and return its seconds of a processor.

    Raises:
        BrokenPromiseError: a promise is broken; and whatever the reader raises that it must not.
    """
    began_s = time.process_time()
    target.check(data)
    took_s = time.process_time() - began_s
    hold(took_s < CPU_S_MAX, "an input takes no longer than seconds")
    return took_s


def hold_tellable(error: ProblemError) -> None:
    """A refusal can be told: each problem has a reason of the catalogue, a subject, a message and bounds."""
    hold(error.problems, "a refusal has a problem")
    for problem in error.problems:
        hold(problem.reason in CATALOGUE, "a problem has a reason of the catalogue")
        hold(problem.message, "a problem has a message")
        hold(problem.message.isprintable(), "a message is one line that can be printed")
        hold(problem.subject.isprintable(), "a subject is one line that can be printed")


def refused(read: Callable[[], _T]) -> _T | None:
    """What was read; None when it was refused with reasons."""
    try:
        return read()
    except ProblemError as error:
        hold_tellable(error)
        return None


def finished(work: Coroutine[Any, Any, _T]) -> _T:
    """The result of something that has to wait for nothing here."""
    try:
        work.send(None)
    except StopIteration as ended:
        found: _T = ended.value
        return found
    work.close()
    raise BrokenPromiseError("it waits for something, which a reader of bytes does not")
