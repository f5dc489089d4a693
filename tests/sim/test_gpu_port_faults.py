"""Calls that fail, hang, are slow or lie, where GPUs are asked for: of the monitor, of nvidia-ctk, of the nodes.

Whatever happens, who claims GPUs has them all or fails with a reason; the others go on; what is over is forgotten.
"""

import pytest
import trio

from sim.engine import record_of, run
from sim.faults import Fail, Fault, Hang, Lie, Slow, When
from sim.invariants.registry import check
from sim.lies import LIES
from statemachine.reasons import Reason
from tests.sim import gpu_pods as pods

STEPS = {"detect", "generate", "partition", "inject", "create", "verify", "admission", "supervise"}
OWN = {
    Reason.NVML_UNAVAILABLE, Reason.GENERATE_FAILED, Reason.TOOLKIT_NOT_FOUND, Reason.STEP_DEADLINE_EXCEEDED,
    Reason.STATE_UNWRITABLE, Reason.CDI_DEVICE_UNRESOLVED, Reason.GPU_NOT_DETECTED, Reason.INSUFFICIENT_GPUS,
    Reason.GPU_LOST, Reason.RUNTIME_UNAVAILABLE,
}  # fmt: skip
"""Reasons that such a fault may have; never `Internal`."""
CALLS = {
    "monitor": When(port="gpus", method="monitor"),
    "word": When(port="gpus", method="receive"),
    "version": When(method="run", argument="nvidia-ctk.* --version"),
    "generate": When(method="run", argument="cdi generate"),
    "private": When(method="make_directory", argument="cdi/.new-"),
    "output": When(method="read", argument="cdi/.new-"),
    "kept": When(method="replace", argument="cdi/.*nvidia.json"),
    "dev": When(method="list_directory", argument="^/dev$"),
    "nodes": When(method="lstat_each", argument="^/dev/nvidia[0-9]"),
    "granted": When(method="lstat_each", argument="/dev/nvidiactl"),
    "stamps": When(method="stat_each", argument="^/dev "),
    "mounts": When(method="read", argument="^/proc/self/mountinfo$"),
    "links": When(method="make_links"),
    "tree": When(method="make_tree"),
}
FAILS = {"fails": Fail("EIO"), "hangs": Hang(for_s=400.0), "is slow": Slow(5.0)}
FAULTS = {f"{call} {how}": (when, what) for call, when in CALLS.items() for how, what in FAILS.items()} | {
    f"{call} lies: {how}": (CALLS[call], Lie(how))
    for call, name in {
        "word": ("gpus", "receive"), "version": ("processes", "run"), "generate": ("processes", "run"),
        "output": ("files", "read"), "dev": ("files", "list_directory"), "nodes": ("files", "lstat_each"),
        "granted": ("files", "lstat_each"), "stamps": ("files", "stat_each"),
        "mounts": ("files", "read"), "kept": ("files", "replace"),
    }.items()
    for how in LIES[name]
}  # fmt: skip


LATER_ONLY = ("dev", "nodes", "granted", "stamps", "mounts", "tree")
"""What the worker does by itself at its start, and any actor at its own: a fault from the start meets somebody else."""
AT_START = [
    pytest.param(*fault, id=name, marks=() if name.endswith("fails") else pytest.mark.long)
    for name, fault in FAULTS.items()
    if not name.startswith(LATER_ONLY)
]
LATER = [
    pytest.param(*fault, id=name, marks=() if name.startswith(LATER_ONLY) else pytest.mark.long)
    for name, fault in FAULTS.items()
]


def planted(when, what):
    return Fault(id="planted", when=when, what=what)


@pytest.mark.parametrize(("when", "what"), AT_START)
def test_a_fault_from_the_start_leaves_nobody_with_less_than_it_claims_and_passes(when, what):
    async def scenario(here):
        await here.submit(pods.PLAIN)
        outcome = await pods.comes_to_rest(here, pods.VICTIM)
        await pods.holds_what_it_claims(here, outcome)
        # A file that hangs may be what a start of the worker waits for: it is released before the next one tries.
        await trio.sleep(500)
        assert here.state("plain") == "Running"
        if outcome["state"] != "Running":
            assert outcome["reason"] in OWN, outcome
            assert outcome["step"] in STEPS, outcome
            await pods.runs(here)
        assert await pods.ends(here, "victim", "plain") == []

    record = run(scenario, machine=pods.MACHINE, faults=[planted(when, what)])
    assert record.faults[0].fired, "the fault was never met"


@pytest.mark.parametrize(("when", "what"), LATER)
def test_a_fault_later_on_concerns_nobody_who_runs(when, what):
    async def scenario(here):
        await pods.furnish(here)
        here.plant(planted(when, what))
        pods.renew_toolkit(here.world)
        outcome = await pods.comes_to_rest(here, pods.VICTIM)
        await trio.sleep(500)
        await pods.holds_what_it_claims(here, outcome)
        for uid in ("plain", "holder"):
            assert [move.after for move in here.world.hearing.moves if move.actor == uid].count("Running") == 1
            assert here.state(uid) == "Running"
        assert check(here.world, record_of(here.world)) == ()
        if outcome["state"] != "Running":
            assert outcome["reason"] in OWN, outcome
            await pods.runs(here)
        assert await pods.ends(here, "victim", "holder", "plain") == []

    run(scenario, machine=pods.MACHINE)
