"""Repro files: a plan in JSON Lines, which `greenroom sim replay` runs, and tests/regressions/ keeps.

The first line says what was found; each of the others is one actor, one deed or one fault:

    {"v":1,"kind":"GreenroomRepro","planted":null,"found":[{"phase":"safety","name":"NeverLost"}],"plan":{"seed":7}}
    {"actor":{"uid":"a1"}}
    {"deed":{"deed":"Assign","at_s":0.3,"uid":"a1","generation":1,"state":"Running"}}
    {"fault":{"id":"f1","when":{"port":"files","method":"rename"},"what":{"type":"Kill"}}}
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs
import orjson
from cattrs.errors import BaseValidationError

from sim.chaos.defects import DEFECTS, planted
from sim.chaos.outcome import Phase
from sim.chaos.plan import CONVERTER, Deed, Plan, PlannedActor
from sim.chaos.running import run_plan
from sim.faults import Fault
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from supervisor.host.surroundings import read_small

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from sim.chaos.outcome import Outcome

FORMAT: Final = 1
KIND: Final = "GreenroomRepro"
LIMIT_BYTES: Final = 1 << 24
_LISTS: Final[dict[str, tuple[str, Any]]] = {
    "actor": ("actors", PlannedActor), "deed": ("deeds", Deed), "fault": ("faults", Fault),
}  # fmt: skip


@attrs.frozen(kw_only=True)
class Repro:
    """A plan with what it shows.

    Attributes:
        plan: what is run.
        found: what was found in it: phases and names.
        planted: the defect that was planted for it; None is none, so that a sound worker shows nothing of this.
    """

    plan: Plan
    found: tuple[tuple[Phase, str], ...]
    planted: str | None = None


def repro_of(plan: Plan, outcome: Outcome, *, defect: str | None = None) -> Repro:
    """The repro of a run in which something was found."""
    return Repro(plan=plan, found=tuple(dict.fromkeys(each.what for each in outcome.found)), planted=defect)


def repro_as_lines(repro: Repro) -> bytes:
    """The content of a repro file."""
    whole = CONVERTER.unstructure(repro.plan)
    parts = {key: whole.pop(name, []) for key, (name, _) in _LISTS.items()}
    head = {
        "v": FORMAT,
        "kind": KIND,
        "planted": repro.planted,
        "found": [{"phase": str(phase), "name": name} for phase, name in repro.found],
        "plan": whole,
    }
    rows = [head, *({key: each} for key, found in parts.items() for each in found)]
    return b"".join(orjson.dumps(row) + b"\n" for row in rows)


def is_repro(data: bytes) -> bool:
    """Whether a file begins as a repro does."""
    try:
        head = orjson.loads(data.split(b"\n", 1)[0])
    except orjson.JSONDecodeError:
        return False
    return isinstance(head, dict) and head.get("kind") == KIND


def read_repro(data: bytes, *, path: Path) -> Repro:
    """A repro out of the bytes of its file.

    Raises:
        ProblemError: InvalidTrace, with the number of the line and what is wrong with it.
    """
    lines = data.splitlines()
    number = 1
    try:
        head = orjson.loads(lines[0]) if lines else {}
        if head.get("kind") != KIND or head.get("v") != FORMAT:
            raise ValueError(f"it does not begin as a {KIND} of format {FORMAT}")  # noqa: TRY301 - as all that is wrong
        defect = head["planted"]
        if defect is not None and defect not in DEFECTS:
            raise ValueError(f"there is no defect {defect!r}; there are {', '.join(DEFECTS)}")  # noqa: TRY301 - as above
        found = tuple((Phase(each["phase"]), str(each["name"])) for each in head["found"])
        parts: dict[str, list[Any]] = {name: [] for name, _ in _LISTS.values()}
        for number, line in enumerate(lines[1:], 2):  # noqa: B007 - the number of the line that is wrong is told
            _take(orjson.loads(line), parts)
        plan = attrs.evolve(
            CONVERTER.structure(head["plan"], Plan),
            actors=tuple(parts["actors"]),
            deeds=tuple(parts["deeds"]),
            faults=tuple(parts["faults"]),
        )
    except (KeyError, TypeError, AttributeError, ValueError, BaseValidationError) as error:
        message = f"{path}: line {number}: {'; '.join(_leaves(error))}"
        problem = Problem(
            step=Step.SUPERVISE, reason=Reason.INVALID_TRACE, subject=str(path), message=message, hint=_HINT
        )
        raise ProblemError(problem) from error
    return Repro(plan=plan, found=found, planted=defect)


_HINT: Final = "Write repros with `greenroom sim chaos`; docs/simulator.md tells what is in them."


def _take(row: Any, parts: dict[str, list[Any]]) -> None:
    ((key, value),) = row.items()
    name, kind = _LISTS[key]
    parts[name].append(CONVERTER.structure(value, kind))


def _leaves(error: BaseException) -> Iterable[str]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in _leaves(each)]
    return [f"{type(error).__name__}: {error}"]


def run_repro(path: Path) -> Outcome:
    """Run the file of a repro, with the defect that it was found with.

    Raises:
        ProblemError: it cannot be read, or is none.
    """
    try:
        data = read_small(path, limit_bytes=LIMIT_BYTES)
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror or error}"
        problem = Problem(step=Step.SUPERVISE, reason=Reason.UNREADABLE_FILE, subject=str(path), message=message)
        raise ProblemError(problem) from error
    repro = read_repro(data, path=path)
    with planted(repro.planted):
        return run_plan(repro.plan)
