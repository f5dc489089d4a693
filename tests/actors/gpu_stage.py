"""A stage for the steps of an actor with claims: four GPUs, a spec for them, and an image."""

import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from actors.gpu.desk import KeptSpec
from actors.gpu.links import Library
from actors.steps.performer import Steps
from statemachine import commands as c
from statemachine.problem import Problem, ProblemError
from tests.actors.assignments import BASE, admitted, with_spec
from tests.actors.step_stage import an_actor
from tests.fakes.gpus import FakeDesk
from tests.fakes.sandbox import STATE, a_stage
from tests.gpu.making import gpu, spec

MINORS = (2, 3, 5, 7)
LIBRARY = "/usr/lib64/libcuda.so.570.1"
UP = (c.DetectGpus(), c.GenerateSpec(), c.PartitionGpus(), c.InjectEdits())


def kept_spec(*minors, **more):
    given = {"driver": "570.1", "toolkit": "1.20.0", "libraries": (Library(path=LIBRARY, soname="libcuda.so.1"),)}
    made = more.pop("spec", None) or spec(*minors)
    path = STATE.cdi / "00ff" / "nvidia.json"
    return KeptSpec(**{"identity": "00ff", "path": path, "spec": made, **given, **more})


def a_desk(*minors, **kept):
    return FakeDesk([gpu(minor) for minor in minors], kept_spec(*minors, **kept))


def gpu_stage(*, desk=None, bundles=(), minors=MINORS, **claims):
    """`gpu_stage(trainer=1, logger=0)`; containers named in `bundles` are given as that config.json."""
    stage, _, _ = a_stage(gpus=desk or a_desk(*minors))
    files: Any = stage.ports.files
    files.put(BASE / "rootfs/bin/app", b"")
    rows = []
    for name, count in claims.items():
        row: dict[str, Any] = {"name": name, "resources": {"limits": {"nvidia.com/gpu": str(count)}}}
        if name in dict(bundles):
            files.put(BASE / f"bundles/{name}/config.json", json.dumps(dict(bundles)[name]).encode())
            files.put(BASE / f"bundles/{name}/rootfs/bin/app", b"")
            row["bundle"] = f"bundles/{name}"
        else:
            row |= {"rootfs": "rootfs", "command": ["/bin/app"]}
        rows.append(row)
    stage.assignment = admitted(with_spec(containers=rows))
    stage.activation = stage.sandbox = None
    files.content = {path: data for path, data in files.content.items() if STATE.sandboxes not in path.parents}
    put_nodes(files, *minors)
    return stage


def put_nodes(files, *minors, uvm=511):
    files.put_device("/dev/nvidiactl", 195, 255)
    files.put_device("/dev/nvidia-uvm", uvm, 0)
    for minor in minors:
        files.put_device(f"/dev/nvidia{minor}", 195, minor)


async def bring_up(stage, *, origin=None, until=c.InjectEdits, **memory):
    """Perform the steps up to one of them; what each answered. `memory` is more of what the machine remembers."""
    actor = attrs.evolve(an_actor() if origin is None else an_actor_from(origin), **memory)
    answers = []
    for command in UP:
        answers.append(await Steps(stage).perform(command, actor))
        if isinstance(command, until):
            break
    return answers


def an_actor_from(snapshot):
    return attrs.evolve(an_actor(), origin=snapshot)


def config_of(stage, name):
    return json.loads(stage.ports.files.content[stage.activation / "bundles" / name / "config.json"])


def identity_of(stage, name):
    return json.loads(stage.ports.files.content[stage.activation / "gpus" / name / "gpus.json"])


def nodes_of(config):
    return [device["path"] for device in config["linux"].get("devices", ())]


def links_of(stage):
    """The links of every directory of links, by directory."""
    found: dict[Path, dict[str, str]] = {}
    for path, target in stage.ports.files.targets.items():
        found.setdefault(path.parent, {})[path.name] = target
    return found


def with_common(*, hook=None, **changes):
    """A desk whose spec has other common edits; `hook` is the toolkit's own hook program."""
    made = spec(*MINORS)
    other = attrs.evolve(made, container_edits=attrs.evolve(made.container_edits, **changes))
    return a_desk(*MINORS, spec=other, hook=hook)


def given(**changes):
    config: dict[str, Any] = {
        "ociVersion": "1.0.2",
        "process": {"args": ["/bin/app"], "cwd": "/", "env": ["PATH=/bin"]},
        "root": {"path": "rootfs"},
        "linux": {},
    }
    return {**config, **changes}


async def problem_of(awaitable) -> Problem:
    with pytest.raises(ProblemError) as caught:
        await awaitable
    return caught.value.problem
