"""Random lives of an actor, as values: what its containers run, and what is done to it, one thing after the other."""

from __future__ import annotations

from typing import Any, Final

import attrs
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.differential.applications import KILLED, Application, Counter, Ending, Missing, Sleeper

CONTAINERS_MAX: Final = 3
SUCCEEDS, FAILS = "true", "false"

# -------------------------------------------------------------------------------------------------------------- deeds


@attrs.frozen
class Command:
    """`suspend`, `resume` or `stop` by command."""

    op: str


@attrs.frozen(kw_only=True)
class NewGeneration:
    """A document of a higher generation.

    Attributes:
        wish: its desiredState.
        snapshot: nothing, `cold` (none), `good` (the last good one by its URI), `missing` (one that is not there).
        immutable: it changes what must not change while the actor lives.
    """

    wish: str = "Running"
    snapshot: str | None = None
    immutable: bool = False


@attrs.frozen
class OldDocument:
    """A document that is handed in again: `same`, `changed` with the same generation, or `stale`."""

    how: str


@attrs.frozen(kw_only=True)
class Signal:
    """A signal to a container's first process, by runsc itself, past the worker. Indices go round."""

    container: int
    name: str


@attrs.frozen
class KillSandbox:
    """A signal to the process of the sandbox."""

    name: str


@attrs.frozen
class HangAndStop:
    """SIGSTOP to the process of the sandbox, then `stop`."""


@attrs.frozen
class KillGofer:
    """SIGKILL to the file server of a container."""

    container: int


@attrs.frozen
class Crash:
    """SIGKILL to the worker, and another one on what it left."""


@attrs.frozen
class Restart:
    """SIGTERM to the worker, which drains, and another one after it."""


@attrs.frozen
class Spoil:
    """Damage to the last good snapshot: `flip` a byte, `lose` a file, `garble` the manifest, `remove` it all."""

    how: str


Deed = Command | NewGeneration | OldDocument | Signal | KillSandbox | HangAndStop | KillGofer | Crash | Restart | Spoil


@attrs.frozen(kw_only=True)
class Life:
    """A life.

    Attributes:
        containers: what they run; their names are c0, c1, c2.
        deeds: what is done, each when the actor rests after the one before.
        restart: restartPolicy.
        on_drain: what a worker that is restarted does to running actors.
    """

    containers: tuple[Application, ...] = (Counter(),)
    deeds: tuple[Deed, ...] = ()
    restart: str = "Never"
    on_drain: str = "stop"


def name_of(index: int) -> str:
    """The name of a container."""
    return f"c{index}"


# ----------------------------------------------------------------------------------------------------------- strategies

_COUNTERS: Final = st.builds(
    Counter,
    on_term=st.sampled_from(["exits", "exits", "exits", "dies", "dies", "deaf"]),
    on_usr1=st.sampled_from([0, 0, 1, 7, 255]),
    stream=st.sampled_from([1, 2]),
    has_child=st.booleans(),
    keeps_file=st.booleans(),
    probe=st.sampled_from([*[None] * 11, *[SUCCEEDS] * 4, FAILS]),
)
_ENDINGS: Final = st.builds(
    Ending,
    code=st.sampled_from([0, 0, 0, 0, 0, 0, 1, 3, 126, KILLED, 255]),
    says=st.sampled_from(["", "", "hello", "two words"]),
)
_MISSING: Final = st.builds(Missing, command=st.sampled_from(["/bin/nope", "nope"]))
_SLEEPERS: Final = st.builds(Sleeper)
_NAMES: Final = st.sampled_from(["USR1", "USR1", "TERM", "KILL"])


def _weighed(*strategies: tuple[int, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """One of these, by their weights; `one_of` knows none."""
    chosen = [strategy for weight, strategy in strategies for _ in range(weight)]
    return st.sampled_from(chosen).flatmap(lambda strategy: strategy)


# A command that is missing ends a life before it has begun: not in many of them.
_FIRST: Final = _weighed((18, _COUNTERS), (3, _ENDINGS), (4, _SLEEPERS), (1, _MISSING))
_FURTHER: Final = st.lists(
    _weighed((18, _COUNTERS), (8, _ENDINGS), (4, _SLEEPERS), (1, _MISSING)), max_size=CONTAINERS_MAX - 1
)
_INDICES: Final = st.integers(0, CONTAINERS_MAX - 1)
_COMMANDS: Final = {op: st.just(Command(op)) for op in ("suspend", "resume", "stop")}
_DOCUMENTS: Final = st.builds(
    NewGeneration,
    wish=st.sampled_from(["Running", "Running", "Suspended", "Terminated"]),
    snapshot=st.sampled_from([None, None, None, "cold", "good", "missing"]),
    immutable=st.sampled_from([False, False, False, False, False, True]),
)
_OLD_ONES: Final = st.builds(OldDocument, st.sampled_from(["same", "changed", "stale"]))
_SIGNALS: Final = st.builds(Signal, container=_INDICES, name=_NAMES)
_RESTARTS: Final = st.sampled_from([Crash(), Restart()])
_KILLS: Final = _weighed(
    (4, st.builds(KillSandbox, st.sampled_from(["KILL", "KILL", "TERM"]))),
    (3, st.builds(KillGofer, _INDICES)),
    (1, st.just(HangAndStop())),
)
_SPOILS: Final = st.builds(Spoil, st.sampled_from(["flip", "lose", "garble", "remove"]))
_SUSPEND, _RESUME, _STOP = _COMMANDS.values()
_BEGUN_ANEW: Final = st.builds(NewGeneration, wish=st.just("Running"))
_FITTING: Final = {
    "Running": _weighed((5, _SUSPEND), (2, _SIGNALS), (1, _KILLS), (1, _RESTARTS), (1, _DOCUMENTS), (1, _OLD_ONES)),
    "Suspended": _weighed((5, _RESUME), (2, _DOCUMENTS), (1, _RESTARTS), (1, _SPOILS), (1, _OLD_ONES)),
    "Failed": _weighed((4, _RESUME), (2, _DOCUMENTS), (1, _RESTARTS), (1, _SPOILS)),
    "Terminated": _weighed((4, _BEGUN_ANEW), (1, _DOCUMENTS), (1, _RESTARTS)),
}
_ANYTHING: Final = st.one_of(_SUSPEND, _RESUME, _STOP, _DOCUMENTS, _OLD_ONES, _SIGNALS, _KILLS, _RESTARTS, _SPOILS)
_ONE_OF_FIVE: Final = st.sampled_from([False, False, False, False, True])
_LENGTHS: Final = st.sampled_from([8, 7, 6, 5, 4, 3, 2, 1])


def _with_one_trouble(containers: tuple[Application, ...]) -> tuple[Application, ...]:
    """Of two containers that cannot be started, or do not serve, it is chance which one is blamed: one may stay."""
    found: list[Application] = []
    for each in containers:
        if isinstance(each, Missing) and any(isinstance(other, Missing) for other in found):
            found.append(Sleeper())
        elif each.probe == FAILS and any(other.probe == FAILS for other in found):
            found.append(attrs.evolve(each, probe=SUCCEEDS))
        else:
            found.append(each)
    return tuple(found)


@st.composite
def lives(draw: st.DrawFn) -> Life:
    """Any life."""
    containers = _with_one_trouble((draw(_FIRST), *draw(_FURTHER)))
    restart = draw(st.sampled_from(["Never", "Never", "OnFailure"]))
    on_drain = draw(st.sampled_from(["stop", "suspend"]))
    if all(isinstance(each, Ending) for each in containers):
        restart = "Never"  # it would be tried again for half a minute
    state = "Running" if all(each.starts for each in containers) else "Failed"
    deeds: list[Deed] = []
    for _ in range(draw(_LENGTHS)):
        # In one of five cases just any, also what means nothing in this state.
        deeds.append(draw(_ANYTHING if draw(_ONE_OF_FIVE) else _FITTING[state]))
        state = _expected(state, deeds[-1], on_drain)
    return Life(containers=containers, deeds=tuple(deeds), restart=restart, on_drain=on_drain)


def _expected(state: str, deed: Deed, on_drain: str) -> str:
    """Roughly where a deed leads: only for the choice of the next one."""
    match state, deed:
        case "Running", Command("suspend") | NewGeneration(wish="Suspended", immutable=False):
            return "Suspended"
        case (("Suspended" | "Failed"), Command("resume")):
            return "Running"
        case "Running", Restart():
            return {"suspend": "Suspended", "stop": "Terminated"}[on_drain]
        case _, Command("stop") | HangAndStop():
            return "Terminated"
        case "Running", KillSandbox() | Crash():
            return "Failed"
        case _:
            return deed.wish if isinstance(deed, NewGeneration) and deed.wish != "Suspended" else state


def drawn(count: int, *, number: int) -> tuple[Life, ...]:
    """That many different lives, the same ones each time that they are asked for by this number."""
    found: dict[Life, None] = {}
    while len(found) < count:
        found[_drawn(number)] = None
        number += 1
    return tuple(found)


def _drawn(number: int) -> Life:
    """One life: hypothesis begins with the simplest one, and would go on with variations of what it has had."""
    found: list[Life] = []

    @seed(number)
    @settings(
        max_examples=2,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(lives())
    def draw(life: Life) -> None:
        found.append(life)

    draw()
    return found[-1]
