"""What becomes of bundles: an image's own libraries, bundles that bring a GPU, and nothing where none is claimed."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given as examples
from hypothesis import settings
from hypothesis import strategies as st

from actors.cdi import Hook
from actors.steps.bundles import bundles_of
from actors.steps.performer import Steps
from statemachine import commands as c
from statemachine.actor import Resource
from statemachine.problem import Step
from statemachine.reasons import Reason
from tests.actors.assignments import admitted, with_spec
from tests.actors.gpu_stage import MINORS, bring_up, config_of, given, gpu_stage, problem_of, with_common
from tests.actors.step_stage import an_actor
from tests.gpu.making import LINKS

pytestmark = pytest.mark.anyio

COMPAT = Hook(
    hook_name="createContainer",
    path="/usr/bin/nvidia-cdi-hook",
    args=("nvidia-cdi-hook", "enable-cuda-compat", "--host-driver-version=570.1"),
)


# --------------------------------------------------------------------------------------------------- the image's folder


async def test_a_newer_libcuda_of_the_image_goes_first():
    stage = gpu_stage(trainer=1, desk=with_common(hooks=(LINKS, COMPAT)))
    stage.ports.files.put(Path("/assignments/rootfs/usr/local/cuda/compat/libcuda.so.580.65.06"), b"")
    await bring_up(stage)
    assert library_path(stage) == "/usr/local/cuda/compat:/run/greenroom/lib"


async def test_the_images_folder_is_found_as_the_container_finds_it_and_never_on_the_host():
    stage = gpu_stage(trainer=1, desk=with_common(hooks=(LINKS, COMPAT)))
    files, rootfs = stage.ports.files, Path("/assignments/rootfs")
    for path, target in {
        "usr/local/cuda": "/etc/alternatives/cuda",
        "etc/alternatives/cuda": "../../opt/cuda-12.9",
    }.items():
        files.content[rootfs / path], files.targets[rootfs / path] = b"", target
    files.put(Path("/etc/alternatives/cuda/compat/libcuda.so.580.1"), b"the host's")
    await bring_up(stage)
    assert library_path(stage) == "/run/greenroom/lib"
    await Steps(stage).perform(c.RollBack(undo=(Resource.BUNDLES, Resource.GRANT)), an_actor())
    files.put(rootfs / "opt/cuda-12.9/compat/libcuda.so.580.1", b"the image's")
    await bring_up(stage)
    assert library_path(stage) == "/usr/local/cuda/compat:/run/greenroom/lib"


async def test_links_of_an_image_that_lead_in_a_ring_are_as_good_as_no_folder():
    stage = gpu_stage(trainer=1, desk=with_common(hooks=(LINKS, COMPAT)))
    files, path = stage.ports.files, Path("/assignments/rootfs/usr/local/cuda")
    files.content[path], files.targets[path] = b"", "cuda"
    await bring_up(stage)
    assert library_path(stage) == "/run/greenroom/lib"


def library_path(stage):
    env = dict(each.split("=", 1) for each in config_of(stage, "trainer")["process"]["env"])
    return env["LD_LIBRARY_PATH"]


# ----------------------------------------------------------------------------------------- bundles that bring their own


BROUGHT = [
    {"linux": {"devices": [{"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0}]}},
    {"linux": {"devices": [{"path": "/dev/mine", "type": "c", "major": 195, "minor": 5}]}},
    {"mounts": [{"destination": "/dev/nvidia0", "type": "bind", "source": "/dev/nvidia0", "options": ["bind"]}]},
]


@pytest.mark.parametrize("brought", BROUGHT)
@pytest.mark.parametrize("is_claiming", [True, False], ids=["claims", "claims none"])
async def test_a_bundle_that_brings_a_gpu_by_itself_is_refused_beside_one_that_claims(brought, is_claiming):
    stage = gpu_stage(main=1, other=int(is_claiming), bundles={"other": given(**brought)})
    problem = await problem_of(bring_up(stage))
    assert (problem.step, problem.reason, problem.subject) == (Step.INJECT, Reason.INVALID_BUNDLE, "other")


@pytest.mark.parametrize("brought", BROUGHT)
@pytest.mark.parametrize("minors", [(), MINORS])
async def test_a_bundle_that_brings_a_gpu_by_itself_is_refused_on_every_node(brought, minors):
    stage = gpu_stage(main=0, minors=minors, bundles={"main": given(**brought)})
    problem = await problem_of(Steps(stage).perform(c.CreateSandbox(), an_actor()))
    assert (problem.step, problem.reason, problem.subject) == (Step.CREATE, Reason.INVALID_BUNDLE, "main")


# ------------------------------------------------------------------------------------- actors that have no part in this

ENV = st.dictionaries(
    st.sampled_from(["A", "PATH", "LD_LIBRARY_PATH", "NVIDIA_VISIBLE_DEVICES"]), st.sampled_from(["", "all", "/x:/y"])
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {"rootfs": st.just("rootfs"), "command": st.lists(st.sampled_from(["/bin/app", "a b"]), min_size=1)},
        optional={
            "env": ENV.map(lambda env: [{"name": name, "value": value} for name, value in env.items()]),
            "resources": st.sampled_from([{"limits": {"cpu": "500m"}}, {"limits": {"nvidia.com/gpu": 0}}]),
        },
    ),
    min_size=1,
    max_size=3,
)
"""Containers of an actor that claims nothing, whatever its image says of GPUs."""


async def bundles_without_gpus(rows, minors):
    """Every file of the bundles that create would start from, on a node with these GPUs."""
    stage = gpu_stage(minors=minors, main=0)
    named = [{"name": f"c{number}", **row} for number, row in enumerate(rows)]
    stage.assignment = admitted(with_spec(containers=named))
    await bundles_of(stage, stage.assignment.containers, step=Step.CREATE)
    desk, files = _fakes(stage)
    assert desk.story == []
    return files.below(stage.state_dir.sandboxes)


def _fakes(stage) -> Any:
    return stage.gpus, stage.ports.files


@settings(deadline=None, max_examples=60)
@examples(rows=ROWS)
def test_an_actor_without_a_claim_has_the_same_bundles_byte_for_byte_with_gpus_and_without(rows):
    without, with_gpus = (anyio.run(bundles_without_gpus, rows, minors) for minors in ((), MINORS))
    assert with_gpus == without
    assert any(name.endswith("/c0/config.json") for name in without)


async def test_a_container_without_a_grant_has_the_config_that_it_has_where_nobody_claims():
    claiming, plain = gpu_stage(trainer=2, logger=0), gpu_stage(trainer=0, logger=0)
    await bring_up(claiming)
    await bundles_of(plain, plain.assignment.containers, step=Step.CREATE)
    here, there = config_of(claiming, "logger"), config_of(plain, "logger")
    # What differs is decided from the claims alone: no container of an actor with a claim can make device nodes.
    for config in (here, there):
        del config["process"]["capabilities"]
        config["linux"].pop("seccomp", None)
    assert here == there
