"""What is laid on an activation's cgroup, how its processes begin in it, and how it comes and goes with its stage."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest

from actors.assignment import Resources
from actors.bundle.activation_tree import enter_path
from actors.cgroups import activation_in, cgroup_name, container_leaf, leaves_for, limits_for
from actors.content import mutable_difference
from actors.enter_elf import enter_elf
from actors.ports import CgroupLimits, CgroupUsage
from actors.runsc.ids import fresh_activation
from actors.steps.bundles import prepare
from actors.steps.leaf import EMPTY_S, oom_kills, usage
from actors.steps.teardown import roll_back
from statemachine.problem import ProblemError, Step
from statemachine.reasons import Reason
from tests.actors.assignments import admitted, with_limits
from tests.actors.step_stage import ROLL_BACK, reason_of, shaped
from tests.fakes.ports import FakeWall

pytestmark = pytest.mark.anyio
GI = 1 << 30


# ---- names and limits


def containers(*amounts):
    """One for each pair of limits and requests."""
    (template,) = admitted(with_limits({})).containers
    return tuple(
        attrs.evolve(template, name=f"c{number}", limits=limits, requests=requests)
        for number, (limits, requests) in enumerate(amounts)
    )


NONE = Resources()
CPU, MEMORY = Resources(cpu_milli=500), Resources(memory_bytes=GI)
BOTH = Resources(cpu_milli=1500, memory_bytes=GI)


@pytest.mark.parametrize(
    ("amounts", "expected"),
    [
        ([(NONE, NONE)], CgroupLimits()),
        ([(BOTH, NONE)], CgroupLimits(cpu_quota_usec=150_000, cpu_weight=150, memory_bytes=GI)),
        ([(BOTH, NONE), (BOTH, CPU)], CgroupLimits(cpu_quota_usec=300_000, cpu_weight=200, memory_bytes=2 * GI)),
        # One without a limit may take what there is, and so may the whole.
        ([(BOTH, NONE), (NONE, NONE)], CgroupLimits(cpu_weight=150)),
        ([(CPU, NONE), (MEMORY, NONE)], CgroupLimits(cpu_weight=50)),
        ([(NONE, CPU), (NONE, NONE)], CgroupLimits(cpu_weight=50)),
        # The kernel has bounds of its own.
        ([(Resources(cpu_milli=1), NONE)], CgroupLimits(cpu_quota_usec=1000, cpu_weight=1)),
        ([(NONE, Resources(cpu_milli=1_000_000))], CgroupLimits(cpu_weight=10_000)),
        ([(Resources(cpu_milli=0, memory_bytes=0), NONE), (BOTH, NONE)], CgroupLimits(cpu_weight=150)),
    ],
)
def test_limits_are_sums_and_only_where_every_container_has_one(amounts, expected):
    assert limits_for(containers(*amounts)) == expected


def test_limits_and_requests_of_a_document_are_kept_as_they_are_written():
    (container,) = admitted(with_limits({"cpu": "2", "memory": "1Gi"}, {"cpu": "250m"})).containers
    assert limits_for([container]) == CgroupLimits(cpu_quota_usec=200_000, cpu_weight=25, memory_bytes=GI)


def test_a_request_is_no_content_so_that_it_may_differ_at_any_time_and_older_digests_stay_right():
    limits = {"cpu": "2"}
    without, small, large = (admitted(with_limits(limits, each)) for each in (None, {"cpu": "1"}, {"cpu": "2"}))
    assert without.digest == small.digest == large.digest
    assert mutable_difference(small, large) == []
    assert small.containers != large.containers


def test_a_name_is_of_one_actor_and_one_activation_and_says_of_which():
    names = [cgroup_name(uid, activation) for uid in ("a", "a-1") for activation in (fresh_activation(FakeWall()), "x")]
    assert len(set(names)) == len(names)
    assert [activation_in(name) for name in names][1::2] == ["x", "x"]
    assert activation_in("no-activation") == ""


def test_a_container_may_be_called_as_the_sandbox_is():
    one, other = containers((NONE, NONE), (NONE, NONE))
    assert leaves_for((attrs.evolve(one, name="sandbox"), other)) == ("sandbox", "c-sandbox", "c-c1")
    assert container_leaf("sandbox") != "sandbox"


# ---- with a stage


async def made(*names, **spec):
    """A stage that has a cgroup, and the plan of its activation."""
    stage, sandbox, _ = shaped(*(names or ("main",)), **spec)
    ports: Any = stage.ports
    stage.cgroups, stage.activation = ports.cgroups.delegation, None
    plan = await prepare(stage, stage.assignment.containers, step=Step.CREATE)
    return stage, sandbox, plan


async def test_the_sandbox_and_each_container_begin_in_leaves_of_their_own():
    stage, _, plan = await made("web", "log")
    cgroups: Any = stage.ports.cgroups
    ((name, (leaves, _limits)),) = cgroups.made.items()
    assert name == f"a1.{stage.activation.name}"
    assert leaves == ("sandbox", "c-web", "c-log")
    program = str(enter_path(stage.activation))
    begun_by = [plan.root.begun_by, *(plan.target(each).begun_by for each in plan.containers)]
    assert begun_by == [(program, f"/cgroup/actors/{name}/{leaf}/cgroup.procs") for leaf in leaves]
    files: Any = stage.ports.files
    assert files.content[Path(program)] == enter_elf("x86_64")


async def test_without_a_cgroup_nothing_is_begun_by_anything_and_no_program_is_written():
    stage, _, _ = shaped("web")
    plan = await prepare(stage, stage.assignment.containers, step=Step.CREATE)
    assert (plan.root.begun_by, plan.target(plan.containers[0]).begun_by) == ((), ())
    files: Any = stage.ports.files
    assert enter_path(stage.activation) not in files.content
    assert (await usage(stage), await oom_kills(stage)) == (None, None)
    await roll_back(stage, ROLL_BACK, None)


@pytest.mark.parametrize("step", [Step.CREATE, Step.RESTORE, Step.INJECT])
async def test_one_that_cannot_be_made_is_a_problem_of_the_step_that_wanted_it(step):
    stage, _, _ = await made()
    cgroups: Any = stage.ports.cgroups

    async def make(name, **_options):
        raise OSError(errno.ENOSPC, "No space left on device", name)

    cgroups.make = make
    with pytest.raises(ProblemError, match="No space left") as caught:
        await prepare(stage, stage.assignment.containers, step=step)
    assert (caught.value.problem.reason, caught.value.problem.step) == (Reason.CGROUP_UNAVAILABLE, step)


async def test_it_goes_with_the_activation_even_when_the_rollback_is_cancelled():
    stage, _, _ = await made()
    cgroups: Any = stage.ports.cgroups
    with anyio.CancelScope() as scope:
        scope.cancel()
        await roll_back(stage, ROLL_BACK, None)
    assert cgroups.made == {}
    assert stage.activation is None


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (TimeoutError(), Reason.STEP_DEADLINE_EXCEEDED),
        (OSError(errno.EBUSY, "Device or resource busy"), Reason.CGROUP_UNAVAILABLE),
    ],
)
async def test_one_that_cannot_be_removed_is_told_and_can_be_tried_again(error, reason):
    stage, _, _ = await made()
    cgroups: Any = stage.ports.cgroups
    activation, remove, asked = stage.activation, cgroups.remove, []

    async def fail(name, *, deadline_s):
        asked.append(deadline_s)
        raise error

    cgroups.remove = fail
    assert await reason_of(roll_back(stage, ROLL_BACK, None)) is reason
    assert (stage.activation, asked) == (activation, [EMPTY_S])
    cgroups.remove = remove
    await roll_back(stage, ROLL_BACK, None)
    assert (stage.activation, cgroups.made) == (None, {})


async def test_usage_is_that_of_the_live_activation_and_ooms_are_counted_in_it():
    stage, _, _ = await made()
    cgroups: Any = stage.ports.cgroups
    cgroups.used[f"a1.{stage.activation.name}"] = CgroupUsage(memory_bytes=7, oom_kills=3)
    assert await usage(stage) == CgroupUsage(memory_bytes=7, oom_kills=3)
    assert await oom_kills(stage) == 3
    cgroups.made.clear()
    assert (await usage(stage), await oom_kills(stage)) == (None, None)


async def test_one_that_cannot_be_read_is_an_error_and_its_ooms_are_not_known():
    stage, _, _ = await made()
    cgroups: Any = stage.ports.cgroups

    async def fail(_name):
        raise OSError(errno.EIO, "Input/output error")

    cgroups.usage = fail
    with pytest.raises(OSError, match="Input/output"):
        await usage(stage)
    assert await oom_kills(stage) is None


async def test_numbers_that_come_when_the_activation_has_ended_are_nobodys():
    stage, _, _ = await made()
    cgroups: Any = stage.ports.cgroups
    read = cgroups.usage

    async def late(name):
        found = await read(name)
        stage.activation = stage.state_dir.activation("next")
        return found

    cgroups.usage = late
    assert await usage(stage) is None
