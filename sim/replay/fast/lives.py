"""What the fast engine keeps of an actor's life on a worker, and of a worker."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

import attrs

from statemachine.actor import Actor, Claims, ContainerFate, Restart, Snapshot
from statemachine.problem import Problem, Step
from statemachine.states import STEP_OF, State

if TYPE_CHECKING:
    from sim.fleet.config import Actors
    from sim.fleet.facts import StartActor
    from sim.replay.fast.naming import Copy, Name
    from sim.replay.fast.paths import Point
    from sim.traces.records import Assignment, WorkerAdd
    from statemachine.reasons import Reason

NEVER: int = -1
"""A turn that nothing in the heap has: what waits for it does not come."""


@attrs.frozen
class Saved:
    """A snapshot, the copy of it that is meant, how large it is, and how much work was left in it."""

    name: Name
    copy: Copy
    size_mib: float
    left_s: float


@attrs.define(eq=False)
class Node:
    """A worker: which of its GPUs are free, by ordinal, and who has the others.

    Attributes:
        record: as the trace has it.
        free: ascending. holders: by ordinal. lost: those that nobody is granted, and until when;
            lost_at_s is when the last of them was lost.
        spec_s: when its CDI spec is made, so that whoever comes later gets it at once.
        lives: who is here, by uid.
        copies: snapshots here that a store has too, oldest first, with their size; copies_bytes is what all take.
        refused: starts that could not begin here, of actors that the fleet has here.
        uploading: how many uploads are under way. wanting: who waits for a turn to upload.
        suspending: who is suspended because the worker is drained. to_suspend: who waits for a turn.
    """

    record: WorkerAdd
    free: list[int]
    holders: dict[int, str] = attrs.field(factory=dict)
    lost: dict[int, float] = attrs.field(factory=dict)
    lost_at_s: float = -math.inf
    refused: dict[str, StartActor] = attrs.field(factory=dict)
    spec_s: float = 0.0
    lives: dict[str, Life] = attrs.field(factory=dict)
    copies: dict[str, float] = attrs.field(factory=dict)
    copies_bytes: float = 0.0
    uploading: int = 0
    wanting: deque[Life] = attrs.field(factory=deque)
    suspending: set[str] = attrs.field(factory=set)
    to_suspend: deque[Life] = attrs.field(factory=deque)


@attrs.define(eq=False)
class Life:
    """A life of an actor on a worker.

    Attributes:
        assignment, node: whose, where.
        point: where it stands in the machine. memory: the machine's, which is that of the point.
        gpus: what it claims. granted: the ordinals that it has.
        answer, deadline, work, cleanup: turns in the heap of what it waits for: the step's end, its deadline when that
            must be waited for beside it, the end of its work, the next try of a cleanup. NEVER is nothing.
        fetches: whether it fetches its snapshot from the store.
        due_s: when the state must be left.
        since_s: when the present state began. asked_s: when Running was asked for; suspended_s: since when it is
            being suspended.
        steps: how long each step of this activation took.
        left_s: work that is left; inf without an end. runs_s: since when it works on that.
        saved: the newest snapshot that is here. saving: the one that is being made. origin: that of this activation.
        sending: the one that is being uploaded. is_uploading: whether one is, or waits for its turn or its next try.
        successor: a start that came while this life was ending.
        saves: snapshots that were begun. cleanups, uploads: tries, each bounded.
        is_gone: its worker is gone, and it with it.
    """

    assignment: Assignment
    node: Node
    point: Point
    memory: Actor
    gpus: int
    asked_s: float
    left_s: float = math.inf
    granted: tuple[int, ...] = ()
    answer: int = NEVER
    deadline: int = NEVER
    work: int = NEVER
    cleanup: int = NEVER
    fetches: bool = False
    due_s: float = math.inf
    since_s: float = 0.0
    suspended_s: float = math.nan
    runs_s: float = math.nan
    steps: dict[str, float] = attrs.field(factory=dict)
    saved: Saved | None = None
    saving: Saved | None = None
    origin: Saved | None = None
    sending: Saved | None = None
    is_uploading: bool = False
    successor: StartActor | None = None
    saves: int = 0
    cleanups: int = 0
    uploads: int = 0
    is_gone: bool = False

    @property
    def actor(self) -> str:
        """Its uid."""
        return self.assignment.actor

    @property
    def worker(self) -> str:
        """The name of its worker."""
        return self.node.record.worker


def memory_of(assignment: Assignment, actors: Actors, origin: Snapshot | None) -> Actor:
    """What the machine knows of an actor whose life begins."""
    return Actor(
        state=State.ASSIGNED,
        claims=Claims.GPUS if assignment.gpus else Claims.NOTHING,
        restart=Restart(actors.restart),
        grace_s=actors.grace_s,
        probe_s=actors.probe_s,
        containers=tuple(ContainerFate(name=each.name) for each in assignment.containers),
        origin=origin,
        last_good=origin,
    )


def trouble_of(life: Life, reason: Reason, message: str) -> Problem:
    """A problem of the step that runs."""
    step = STEP_OF.get(life.memory.state, Step.SUPERVISE)
    return Problem(step=step, reason=reason, subject=life.actor, message=message)


def exits_of(life: Life) -> tuple[tuple[str, int], ...]:
    """The containers that have ended, by name, with their codes."""
    return tuple(sorted((fate.name, fate.exit_code) for fate in life.memory.containers if fate.exit_code is not None))
