"""Where the processes of actors are: in the cgroup of their activation, which goes with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.cgroups import activation_in, cgroup_name
from sim.invariants.evidence import activations_in, actors_in
from statemachine.states import FINAL, RESTING, State
from supervisor.settings import CgroupsWanted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sim.engine import Record
    from sim.invariants.violation import Finding
    from sim.world.world import World


def cgroups_hold_their_actors(world: World, _record: Record) -> Iterator[Finding]:
    """Every process of a Running actor is in the cgroup of its activation, and there is no other cgroup at rest."""
    if world.machine.no_cgroups is not None or world.worker.settings.cgroups is CgroupsWanted.OFF:
        return
    states = {each.uid: each.state for each in actors_in(world)}
    running = set()
    for activation in activations_in(world):
        record = activation.record
        if record is None or states.get(record.actor) is not State.RUNNING:
            continue
        running.add(activation.name)
        name, ours = cgroup_name(record.actor, activation.name), {record.sandbox, *record.gofers.values()}
        for process in activation.processes:
            if process.identity in ours and not process.cgroup.startswith(f"{name}/"):
                yield record.actor, f"process {process.pid} is in cgroup {process.cgroup!r}, not in {name}"
    for name in world.cgroups.cgroups:
        state = states.get(name.partition(".")[0])
        if (state is None or state in RESTING | FINAL) and activation_in(name) not in running:
            yield name, f"a cgroup is left of an actor that is {state or 'unknown'}"
