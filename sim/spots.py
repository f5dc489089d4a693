"""Where a fault can come into the life run, suspend, resume, stop: its port calls, and what each of them can meet."""

from __future__ import annotations

import enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from sim.documents import counter, durable
from sim.engine import run
from sim.faults import BROKEN, DEADLINE, STORE, Cut, Fail, Fault, Halfway, Hang, Lie, Slow, When
from sim.lies import LIES
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from statemachine.states import State

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sim.faults import What
    from sim.scenario import Stage
    from sim.world.calls import Call

UID: Final = "a1"
WAY: Final = (
    ("submit", State.RUNNING),
    ("suspend", State.SUSPENDED),
    ("upload", State.SUSPENDED),
    ("resume", State.RUNNING),
    ("stop", State.TERMINATED),
)
"""What is asked for, and where that leads; an upload comes by itself, where there is a store."""
SWEPT: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "local": counter(),
        "stored": counter(suspend={"uri": "s3://bucket/snapshots"}),
        "durable": durable(),
    }
)
"""The actors that are swept, by name."""
TRIES: Final = 3
"""A client that is not answered asks again."""
UPLOADED_S: Final = 1800.0
"""Virtual seconds in which an upload must have come, however often it is tried."""
LOOK_AGAIN_S, LOOK_AGAIN_MAX_S = 0.5, 60.0
SLOW_S: Final = 7.0
POWER: Final = "power"
"""The kill in the middle is that of the whole machine: what was not synced may be lost."""
_NEVER: Final = 1 << 30
BRINGS_NEWS: Final = frozenset({"wait", "next", "accept", "receive"})
"""Calls that wait for something to happen; that it does not is no fault."""
_UNFAILING: Final = frozenset({"wall", "signals"})
"""Ports that the kernel does not fail."""


class Kind(enum.StrEnum):
    """What happens to a call."""

    FAIL = "fail"
    HANG = "hang"
    SLOW = "slow"
    LIE = "lie"
    HALF = "half"


@attrs.frozen(kw_only=True)
class Spot:
    """A call of the life, and one fault that it meets.

    Attributes:
        number: of the call, among all calls of the run.
        port, method, argument: the call.
        op: what was asked for last before it.
        state: where the actor was, or was about to be.
        kind: of the fault.
        what: the fault.
        fault: its name.
    """

    number: int
    port: str
    method: str
    argument: str
    op: str
    state: State | None
    kind: Kind
    what: What
    fault: str

    @property
    def cuts_power(self) -> bool:
        """Whether the machine goes with the supervisor."""
        return self.kind is Kind.HALF and self.fault.endswith(f":{POWER}")

    def __str__(self) -> str:
        return f"call {self.number} ({self.port}.{self.method} {self.argument}), {self.op}, {self.state}: {self.fault}"


# ---- the life


@attrs.define
class Progress:
    """How far a life has come: what was asked for last, and what came of it."""

    op: str = ""
    is_through: bool = False
    problem: ProblemError | None = None


async def live(here: Stage, document: Mapping[str, Any], progress: Progress) -> None:
    """Do everything; the first thing that cannot come ends it."""
    has_store = "uri" in document["spec"].get("suspend", {})
    try:
        for progress.op, state in WAY:
            if progress.op != "upload" or has_store:
                await _insist(here, document, progress.op, state)
    except ProblemError as error:
        progress.problem = error
    else:
        progress.is_through = True


async def _insist(here: Stage, document: Mapping[str, Any], op: str, state: State) -> None:
    """Ask for a state and wait for it, again when no answer comes, as somebody does who wants it."""
    for tries_left in reversed(range(TRIES)):
        try:
            await _ask(here, document, op)
            await here.wait(state, UID)
        except ProblemError as error:
            if error.problem.reason is not Reason.WORKER_UNREACHABLE or not tries_left or not here.worker.lives:
                raise
        else:
            return


async def _ask(here: Stage, document: Mapping[str, Any], op: str) -> None:
    match op:
        case "submit":
            await here.submit(document)
        case "upload":
            await _see_uploaded(here)
        case _:
            await here.ask(op, uid=UID)


async def _see_uploaded(here: Stage) -> None:
    """Look until the snapshot stands in the store.

    Raises:
        ProblemError: WaitTimeout, as who waits for a state is told.
    """
    with trio.move_on_after(UPLOADED_S):
        pause_s = LOOK_AGAIN_S
        while (await here.status(UID))["lastGoodSnapshot"]["storedUri"] is None:
            await trio.sleep(pause_s)
            pause_s = min(2 * pause_s, LOOK_AGAIN_MAX_S)
        return
    message = f"nothing stands in the store after {UPLOADED_S:g} s"
    raise ProblemError(Problem(step=Step.SUPERVISE, reason=Reason.WAIT_TIMEOUT, subject=UID, message=message))


# ---- its spots


@attrs.define
class _Seen:
    """What is noted of the calls of an undisturbed life: by number, where the actor was and what was asked for."""

    places: dict[int, tuple[str, State | None]] = attrs.field(factory=dict)
    parts: dict[int, list[str]] = attrs.field(factory=dict)
    calls: list[Call] = attrs.field(factory=list)


def spots_of(name: str = "local", *, seed: int = 0) -> tuple[Spot, ...]:
    """Run the life of one of the actors undisturbed; returns every fault that a call of it can meet.

    Raises:
        RuntimeError: it does not go well undisturbed.
    """
    seen, progress = _Seen(), Progress()

    async def scenario(here: Stage) -> None:
        def observe(call: Call) -> None:
            state = here.world.hearing.states.get(UID)
            if progress.op:
                seen.places[call.number] = progress.op, None if state is None else State(state)
                seen.calls.append(call)

        here.world.ledger.observe = observe
        await live(here, SWEPT[name], progress)
        here.world.ledger.observe = None
        for planted in here.world.plan.planted:
            seen.parts.update(planted.parts)

    run(scenario, seed=seed, faults=_measures())
    if progress.problem is not None:
        raise RuntimeError(f"undisturbed, it does not go as it should: {progress.problem}")
    return tuple(spot for call in seen.calls for spot in _spots_at(call, seen))


def _measures() -> tuple[Fault, ...]:
    """What notes of which parts the calls consist, and cuts none."""
    in_parts = (("files", None, Halfway(at="")), ("stores", None, Halfway(at="")), ("processes", "run", Cut(_NEVER)))
    return tuple(
        Fault(id=port, when=When(port=port, method=method, times_max=None), what=what)
        for port, method, what in in_parts
    )


def _spots_at(call: Call, seen: _Seen) -> Iterator[Spot]:
    op, state = seen.places[call.number]
    for kind, name, what in _faults_of(call, seen.parts.get(call.number, [])):
        yield Spot(
            number=call.number,
            port=call.port,
            method=call.method,
            argument=call.argument,
            op=op,
            state=state,
            kind=kind,
            what=what,
            fault=f"{kind}:{name}" if name else str(kind),
        )


def _faults_of(call: Call, parts: Sequence[str]) -> Iterator[tuple[Kind, str, What]]:
    is_waiting = call.port != "wall" and (call.port, call.method) not in AT_ONCE
    if call.port not in _UNFAILING:
        for error in _errors_of(call):
            yield Kind.FAIL, error, Fail(error)
    if is_waiting and call.method not in BRINGS_NEWS:
        yield Kind.HANG, "", Hang()
    if is_waiting:
        yield Kind.SLOW, "", Slow(SLOW_S)
    for how in LIES.get((call.port, call.method), ()):
        yield Kind.LIE, how, Lie(how)
    for part in dict.fromkeys(parts):
        if call.port == "processes":
            yield Kind.HALF, part, Cut(int(part))
        else:
            error = STORE if call.port == "stores" else "EIO"
            yield Kind.HALF, f"{part}:{error}", Halfway(at=part, error=error)
            yield Kind.HALF, f"{part}:kill", Halfway(at=part)
            yield Kind.HALF, f"{part}:{POWER}", Halfway(at=part)


AT_ONCE: Final = frozenset({("processes", "signal"), ("processes", "close"), ("files", "unlock")})
NEVER_FAIL: Final = AT_ONCE | {("processes", "wait"), ("net", "accept"), ("net", "close"), ("watch", "next")}
"""Calls that the real ports do not let fail."""


def _errors_of(call: Call) -> tuple[str, ...]:
    if (call.port, call.method) in NEVER_FAIL:
        return ()
    match call.port:
        case "files":
            return ("EIO", "ENOSPC", "EROFS") if call.changes else ("EIO",)
        case "processes":
            return ("EAGAIN", DEADLINE) if call.method in {"run", "kill_and_wait"} else ("EMFILE",)
        case "net":
            return (BROKEN,) if call.method in {"send", "receive"} else ("EMFILE",)
        case "stores":
            return (STORE,)
        case _:
            return ("EIO",)
