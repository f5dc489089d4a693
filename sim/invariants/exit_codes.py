"""Exit codes: what is told of a container is how its program ended, or can have ended."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from actors.assignment import Rootfs
from sim.invariants.evidence import actors_in, containers_in
from sim.world.runsc.contained import KILLED, STOPPED
from sim.world.runsc.programs import Run
from sim.world.runsc.sentry import TERMINATED
from sim.world.runsc.shell import NoSuchCommandError, NotUnderstoodError, recognise

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.assignment import Container
    from sim.engine import Record
    from sim.invariants.violation import Finding
    from sim.world.runsc.programs import Program
    from sim.world.world import World

STEPS_MAX: Final = 1_000
"""What has not ended after so many sleeps counts as a program that never ends by itself."""


def exit_codes_are_right(world: World, _record: Record) -> Iterator[Finding]:
    """A container's exit code is its program's own, or that of a TERM or KILL; in a live sandbox the very one."""
    for each in actors_in(world):
        if each.actor is None or each.assignment is None:
            continue
        programs = {container.name: container for container in each.assignment.containers}
        for fate in each.actor.containers:
            if fate.exit_code is None or fate.name not in programs:
                continue
            possible = possible_codes(world, programs[fate.name])
            if possible is not None and fate.exit_code not in possible:
                yield each.uid, f"container {fate.name} cannot have ended with {fate.exit_code}: {sorted(possible)}"
    told = {
        (each.uid, fate.name): fate.exit_code
        for each in actors_in(world)
        if each.actor is not None
        for fate in each.actor.containers
    }
    for actor, name, container in containers_in(world):
        code = told.get((actor, name))
        if container is not None and container.state == STOPPED and code not in {None, container.status}:
            yield actor, f"container {name} ended with {container.status}, and is told as {code}"


def possible_codes(world: World, container: Container) -> frozenset[int] | None:
    """How a container can end; None when that cannot be told from here."""
    if not isinstance(container.source, Rootfs):
        return None
    env = tuple(f"{name}={value}" for name, value in container.source.env)
    try:
        program = recognise(container.source.argv, env, world.machine.programs, rootfs_has_pause=False)
    except (NoSuchCommandError, NotUnderstoodError):
        return None
    traps = {instruction[0] for instruction in program.code} & {"trap"}
    own = {each[1] for each in program.code if each[0] == "exit"} if traps else _own_code(program)
    return frozenset({KILLED, TERMINATED} | own)


def _own_code(program: Program) -> set[int]:
    """How it ends when nobody does anything to it."""
    run, alone = Run(program=program), _Alone()
    for _ in range(STEPS_MAX):
        run.advance(run.next_s(), alone)
        if run.status is not None:
            return {run.status}
        if math.isinf(run.next_s()):
            return set()
    return set()


class _Alone:
    """The `Surroundings` of one process, whose output goes nowhere."""

    def __init__(self) -> None:
        self._files: set[str] = set()

    def write(self, stream: int, text: str) -> None:
        """Drop it."""

    def make_file(self, path: str) -> None:
        """Make a file."""
        self._files.add(path)

    def make_node(self, path: str, kind: str) -> bool:  # noqa: ARG002 - as the protocol has it
        """Make a node; that a filter might refuse it changes no code that this is asked for."""
        self._files.add(path)
        return True

    def cannot_open(self, path: str) -> str:
        """Why a device cannot be opened."""
        return "No such device or address" if path in self._files else "No such file or directory"

    def remove_file(self, path: str) -> None:
        """Remove a file."""
        self._files.discard(path)

    def has_file(self, path: str) -> bool:
        """Whether a file is there."""
        return path in self._files

    def fork(self, program: Program, now_s: float) -> None:
        """Forget it: a child does not change how its parent ends."""
