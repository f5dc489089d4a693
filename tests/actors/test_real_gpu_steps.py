"""The steps of an actor with claims on real files and in real gVisor; only the GPUs are nodes that nobody can open."""

import json
import os
import platform
import stat
from typing import Any

import attrs
import pytest

from actors.cdi import ContainerEdits, Device, DeviceNode, Mount, Spec
from actors.gpu.desk import KeptSpec
from actors.gpu.links import Library
from actors.runsc.flags import GlobalFlags
from actors.runsc.nvproxy import Nvproxy
from actors.runsc.version import runtime_version
from actors.steps.performer import Steps
from actors.steps.stage import Runtime, Stage
from statemachine import commands as c
from statemachine.actor import Actor, ContainerFate, Resource
from statemachine.problem import Step
from statemachine.states import State
from tests.actors.assignments import admitted, with_spec
from tests.actors.gpu_stage import UP
from tests.actors.stage import fingerprint, open_stage, wait_until
from tests.fakes.gpus import FakeDesk
from tests.gpu.making import gpu
from tests.needs import Tool, need

pytestmark = [pytest.mark.anyio, pytest.mark.runsc]

UNDO = (Resource.UNPROVEN_SNAPSHOT, Resource.SANDBOX, Resource.BUNDLES, Resource.GRANT)
LIBRARY = "/usr/lib64/libcuda.so.570.1"
LINKS = "/run/greenroom/lib"
SAYS = f"id -u; ls -d /dev/nvidia*; ls {LINKS}; cat {LINKS}/libcuda.so.1; echo $NVIDIA_VISIBLE_DEVICES"
SAID = [
    "1000", "/dev/nvidia-uvm", "/dev/nvidia2", "/dev/nvidia3", "/dev/nvidiactl", "libcuda.so.1", "libcuda.so.570.1",
    "the library", "void",
]  # fmt: skip
CONTROL = {"nvidiactl": (195, 255), "nvidia-uvm": (511, 0)}


def node_below(root, name, numbers):
    path = root / "dev" / name
    path.parent.mkdir(exist_ok=True)
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(*numbers))
    return DeviceNode(path=f"/dev/{name}", host_path=str(path))


def mock_desk(root, *minors):
    """GPUs below a directory, with a driver of one library."""
    root.mkdir()
    (root / "libcuda.so.570.1").write_text("the library\n")
    control = tuple(node_below(root, name, numbers) for name, numbers in CONTROL.items())
    nodes = {minor: node_below(root, f"nvidia{minor}", (195, minor)) for minor in minors}
    library = Mount(
        host_path=str(root / "libcuda.so.570.1"), container_path=LIBRARY, options=("ro", "rbind", "rprivate")
    )
    spec = Spec(
        cdi_version="0.7.0",
        kind="nvidia.com/gpu",
        devices=tuple(
            Device(name=f"GPU-{minor}", container_edits=ContainerEdits(device_nodes=(node,)))
            for minor, node in nodes.items()
        ),
        container_edits=ContainerEdits(device_nodes=control, mounts=(library,)),
    )
    kept = KeptSpec(
        identity="00ff", path=root / "nvidia.json", spec=spec, driver="570.1", toolkit="1.20.0",
        libraries=(Library(path=LIBRARY, soname="libcuda.so.1"),),
    )  # fmt: skip
    return FakeDesk([gpu(minor) for minor in minors], kept)


async def steps_of(real, desk, rootfs):
    """The steps of an actor with a trainer, that runs as nobody in particular, and a logger without a claim."""
    says = ["sh", "-c", f"{SAYS}; exec sleep 600"]
    rows: list[dict[str, Any]] = [
        {"name": "trainer", "command": says, "user": {"uid": 1000, "gid": 1000},
         "resources": {"limits": {"nvidia.com/gpu": 2}}},
        {"name": "logger", "command": ["sh", "-c", "ls /dev /run; exec sleep 600"]},
    ]  # fmt: skip
    rows = [{**row, "rootfs": str(rootfs), "env": [{"name": "PATH", "value": "/bin"}]} for row in rows]

    async def note(_mark):
        return None

    version = await runtime_version(real.ports.processes, real.runsc, step=Step.CREATE)
    stage = Stage(
        ports=real.ports, state_dir=real.state, gpus=desk, assignment=admitted(with_spec(containers=rows)), note=note,
        runtime=Runtime(path=real.runsc, version=version, sha256="0" * 64, flags=GlobalFlags(),
                        machine=platform.machine(), greenroom="0", nvproxy=Nvproxy.OFF),
    )  # fmt: skip
    await real.ports.files.make_directory(stage.directory.logs)
    return Steps(stage)


async def said_by(stage, name, count):
    def lines():
        path = stage.directory.log(name)
        return path.read_text().splitlines() if path.exists() else []

    await wait_until(lambda: len(lines()) >= count)
    return lines()


async def gpus_seen(stage):
    """What the container reads, as its own user."""
    sandbox: Any = stage.sandbox
    finished = await sandbox.execute(
        "trainer", ("/bin/cat", "/run/greenroom/gpus.json"), deadline_s=10, user="1000:1000"
    )
    return [
        (each["now"]["minor"], each["atSnapshot"] and each["atSnapshot"]["minor"])
        for each in json.loads(finished.stdout)["gpus"]
    ]


async def perform(steps, actor, *commands):
    for command in commands:
        await steps.perform(command, actor)


async def test_a_container_sees_exactly_what_it_was_granted_and_after_a_resume_what_changed(tmp_path, rootfs):
    need(Tool.MKNOD)
    before = fingerprint(rootfs)
    async with open_stage(tmp_path, rootfs) as real:
        steps = await steps_of(real, mock_desk(tmp_path / "one", 2, 3, 5), rootfs)
        stage = steps.stage
        actor = Actor(state=State.CREATING, containers=(ContainerFate(name="trainer"), ContainerFate(name="logger")))
        await perform(steps, actor, *UP, c.CreateSandbox(), c.VerifyContainers())
        assert await said_by(stage, "trainer", len(SAID)) == SAID
        assert await gpus_seen(stage) == [(2, None), (3, None)]
        assert not [line for line in await said_by(stage, "logger", 3) if "nvidia" in line or "greenroom" in line]

        proven: Any = await steps.perform(c.SaveSnapshot(), actor)
        actor = attrs.evolve(actor, origin=proven.snapshot, last_good=proven.snapshot)
        await steps.perform(c.ReleaseSandbox(undo=UNDO), actor)
        assert real.left() == []

        stage.gpus = mock_desk(tmp_path / "two", 7, 9)
        await perform(steps, actor, *UP, c.RestoreSandbox(snapshot=proven.snapshot), c.VerifyContainers())
        assert await gpus_seen(stage) == [(7, 2), (9, 3)]
        await steps.perform(c.StopContainers(undo=UNDO, grace_s=0.0), actor)
        assert real.left() == []
        assert stage.gpus.grants("a1") == ()
    assert fingerprint(rootfs) == before
