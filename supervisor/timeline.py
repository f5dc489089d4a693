"""An actor's life as its journal tells it: in which states it was and for how long, what led there, and what happened.

Pure. A duration is that of the supervisor's own clock where two lines are of one supervisor, whose clock the calendar
confirms; else it is the calendar's, and never negative.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from actors.codec import CodecError, epoch_s, loads
from actors.journal import FORMAT
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from statemachine.states import FINAL, RESTING, State

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CLOCKS_AGREE_S: Final = 0.25
"""Two clocks that differ by more than that over one step tell of a restart, or of a calendar that was set."""


@attrs.frozen(kw_only=True)
class Happening:
    """Something that did not change the state.

    Attributes:
        at_s: seconds since the beginning of the journal.
        name: a progress mark, with its step, or an event.
        detail: more about it, if there is more.
    """

    at_s: float
    name: str
    detail: str = ""


@attrs.frozen(kw_only=True)
class Stay:
    """A stay in one state.

    Attributes:
        state: which.
        begin_s: seconds since the beginning of the journal.
        end_s: likewise; None while it lasts.
        generation: whose wish was followed.
        event: what led to it; empty for where the journal begins, and after a gap.
        reason: the reason of a problem that led to it; empty without one.
        detail: its sentence, or more about the event.
        happenings: what happened meanwhile, in order.
    """

    state: str
    begin_s: float
    end_s: float | None = None
    generation: int = 0
    event: str = ""
    reason: str = ""
    detail: str = ""
    happenings: tuple[Happening, ...] = ()

    @property
    def rests(self) -> bool:
        """Whether nothing was to be done in it."""
        return self.state in {str(state) for state in RESTING | FINAL}


@attrs.frozen(kw_only=True)
class Timeline:
    """A whole journal.

    Attributes:
        began_s: its beginning, seconds since 1970 UTC.
        last_s: its last line, seconds since the beginning.
        stays: in order; the last one lasts.
    """

    began_s: float
    last_s: float
    stays: tuple[Stay, ...]


def timeline(data: bytes, *, subject: str) -> Timeline:
    """Read a journal. A torn last line is left out, as recovery does.

    Raises:
        ProblemError: StateCorrupt; NewerFormat.
    """
    lines = [_parsed(raw, subject=subject, number=number) for number, raw in enumerate(data.split(b"\n")[:-1], start=1)]
    if not lines:
        raise _corrupt(subject, 1, "there is no whole line")
    first = lines[0]
    # The journal begins anew now and then, in the middle of a stay.
    began_s = min(epoch_s(_text(first, "since") or _text(first, "at")), epoch_s(_text(first, "at")))
    stays: list[Stay] = []
    at_s, before = 0.0, first
    for number, line in enumerate(lines, start=1):
        at_s += epoch_s(_text(line, "at")) - began_s if number == 1 else _passed_s(before, line)
        before = line
        try:
            _take(stays, line, 0.0 if number == 1 else at_s, at_s)
        except (LookupError, TypeError, ValueError) as error:
            raise _corrupt(subject, number, f"it is no line of a journal: {error!r}") from error
    return Timeline(began_s=began_s, last_s=at_s, stays=tuple(stays))


def _take(stays: list[Stay], line: Mapping[str, Any], begin_s: float, at_s: float) -> None:
    """Add one line to the stays so far."""
    generation = int(line.get("generation", 0))
    if "progress" in line:
        progress = line["progress"]
        _note(stays, Happening(at_s=at_s, name=f"{progress['step']}: {progress['mark']}"))
        return
    if "base" in line:
        state, event, reason, detail = State(line["base"]["state"]), "", "", ""
        if stays and stays[-1].state == state:
            name = "updated" if stays[-1].generation != generation else "begun anew"
            _note(stays, Happening(at_s=at_s, name=name, detail=f"generation {generation}"))
            stays[-1] = attrs.evolve(stays[-1], generation=generation)
            return
    else:
        state, event = State(line["to"]), str(line["event"]["type"])
        reason, detail = _about(line["event"])
        if line["from"] == state:
            _note(stays, Happening(at_s=at_s, name=event, detail=f"{reason}: {detail}" if reason else detail))
            return
    if stays:
        stays[-1] = attrs.evolve(stays[-1], end_s=at_s)
    stays.append(Stay(state=state, begin_s=begin_s, generation=generation, event=event, reason=reason, detail=detail))


def _note(stays: list[Stay], happening: Happening) -> None:
    last = stays[-1]
    stays[-1] = attrs.evolve(last, happenings=(*last.happenings, happening))


def _about(event: Mapping[str, Any]) -> tuple[str, str]:
    """The reason of an event's problem, and what else is to be told of it."""
    problem = event.get("problem")
    if isinstance(problem, dict):
        return str(problem["reason"]), str(problem["message"])
    told = {key: value for key, value in event.items() if key != "type" and isinstance(value, str | int)}
    return "", " ".join(f"{key}={value}" for key, value in told.items())


def _passed_s(before: Mapping[str, Any], line: Mapping[str, Any]) -> float:
    calendar_s = max(0.0, epoch_s(_text(line, "at")) - epoch_s(_text(before, "at")))
    earlier, later = before.get("mono_s"), line.get("mono_s")
    if (
        isinstance(earlier, int | float)
        and isinstance(later, int | float)
        and _text(before, "bootId") == _text(line, "bootId")
    ):
        clock_s = later - earlier
        if clock_s >= 0 and abs(clock_s - calendar_s) <= CLOCKS_AGREE_S:
            return clock_s
    return calendar_s


def events_for_perfetto(found: Timeline, *, uid: str) -> Iterator[dict[str, Any]]:
    """The same as trace events in Chrome's JSON form, which Perfetto reads; times in microseconds."""
    yield {"ph": "M", "name": "process_name", "pid": 1, "tid": 1, "args": {"name": f"actor {uid}"}}
    yield {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "state"}}
    for stay in found.stays:
        end_s = found.last_s if stay.end_s is None else stay.end_s
        args = {"generation": stay.generation, "event": stay.event, "reason": stay.reason, "detail": stay.detail}
        yield {
            "ph": "X", "name": stay.state, "cat": "rest" if stay.rests else "step", "pid": 1, "tid": 1,
            "ts": _micros(stay.begin_s), "dur": _micros(end_s) - _micros(stay.begin_s),
            "args": {key: value for key, value in args.items() if value},
        }  # fmt: skip
        for each in stay.happenings:
            args = {"detail": each.detail} if each.detail else {}
            yield {
                "ph": "i", "s": "t", "name": each.name, "cat": "mark", "pid": 1, "tid": 1, "ts": _micros(each.at_s),
                "args": args,
            }  # fmt: skip


def _micros(seconds: float) -> int:
    return round(seconds * 1e6)


def _text(line: Mapping[str, Any], key: str) -> str:
    value = line.get(key, "")
    return value if isinstance(value, str) else ""


def _parsed(raw: bytes, *, subject: str, number: int) -> dict[str, Any]:
    try:
        line = loads(raw)
    except CodecError as error:
        raise _corrupt(subject, number, str(error)) from error
    if not isinstance(line, dict) or type(line.get("v")) is not int:
        raise _corrupt(subject, number, "it is not an object with a format version")
    if line["v"] > FORMAT:
        message = f"line {number} has format {line['v']}; this version reads up to {FORMAT}"
        raise ProblemError(Problem(step=Step.SUPERVISE, reason=Reason.NEWER_FORMAT, subject=subject, message=message))
    return line


def _corrupt(subject: str, number: int, what: str) -> ProblemError:
    message = f"line {number} of the journal cannot be used: {what}"
    return ProblemError(Problem(step=Step.SUPERVISE, reason=Reason.STATE_CORRUPT, subject=subject, message=message))
