"""The demo's second story: an actor with GPUs, of which each container sees its own and no other.

A trainer and an evaluator claim one GPU each, a logger none. While the actor is suspended somebody else takes the GPU
that the trainer had; after the resume ordinal 0 is still the trainer's first GPU, and gpus.json says which one it is.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

import anyio
import attrs

from actors.gpu.identity_file import IDENTITY_PATH
from statemachine.states import State
from supervisor.cli.telling import Telling, require

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

UID: Final = "gpus"
CLAIMS: Final = {"trainer": 1, "eval": 1, "logger": 0}
"""How many GPUs each container claims."""
NEIGHBOUR: Final = "neighbour"
_VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
_SEPARATOR: Final = "|"
LOOK: Final = (
    f'while true; do echo $(ls -d /dev/nvidia* 2>/dev/null) "{_SEPARATOR}" ${_VISIBLE} "{_SEPARATOR}" '
    f"$(cat {IDENTITY_PATH} 2>/dev/null); sleep 0.1; done"
)
"""What each container runs: it writes what it sees, one line each time."""
COMMAND: Final = ("/bin/sh", "-c", LOOK)
_CONTROL: Final = frozenset({"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"})


@attrs.frozen(kw_only=True)
class Seen:
    """What a container sees.

    Attributes:
        nodes: the names in /dev.
        visible: NVIDIA_VISIBLE_DEVICES.
        gpus: by ordinal, the minor of the GPU that it has, and of the one at the snapshot.
    """

    nodes: tuple[str, ...]
    visible: str
    gpus: tuple[tuple[int, int | None], ...]

    @property
    def granted(self) -> tuple[str, ...]:
        """The nodes of GPUs."""
        return tuple(name for name in self.nodes if name not in _CONTROL)


def seen(paths: list[str], visible: str, identity: str) -> Seen:
    """What these paths below /dev, this variable and this gpus.json come to; empty where there is none."""
    gpus: list[Any] = json.loads(identity)["gpus"] if identity else []
    require([each["ordinal"] for each in gpus] == list(range(len(gpus))), f"ordinals are not in order: {identity}")
    return Seen(
        nodes=tuple(path.removeprefix("/dev/") for path in paths),
        visible=visible,
        gpus=tuple((each["now"]["minor"], each["atSnapshot"] and each["atSnapshot"]["minor"]) for each in gpus),
    )


class Eyes(Protocol):
    """Looks from inside a container."""

    @property
    def remark(self) -> str:
        """What is to be known of what it sees after a resume."""
        ...

    async def look(self, container: str) -> Seen:
        """What it sees from now on."""
        ...


@attrs.frozen
class LogEyes:
    """What the containers themselves write."""

    telling: Telling

    remark: ClassVar[str] = (
        "gVisor keeps the names in /dev that it saved; which GPU is at an ordinal now is what gpus.json says."
    )

    async def look(self, container: str) -> Seen:
        """The first line that was begun and ended after now."""
        size_bytes = await self.telling.log_bytes(UID, container)
        lines = await self.telling.written(UID, container, least=2, offset_bytes=size_bytes)
        paths, visible, identity = lines[1].decode().split(_SEPARATOR, 2)
        return seen(paths.split(), visible.strip(), identity.strip())


@attrs.frozen(kw_only=True)
class GpuStory:
    """One telling of it.

    Attributes:
        telling: how it is told.
        base: the directory in which there is a root file system `rootfs`.
        eyes: look from inside.
        where: what the first line says of the node.
        verdict: how the last line begins.
    """

    telling: Telling
    base: Path
    eyes: Eyes
    where: str
    verdict: str

    async def play(self) -> None:
        """All of it.

        Raises:
            ProblemError: something failed, or is not as it must be.
            TimeoutError: something did not come.
        """
        telling, say = self.telling, self.telling.say
        say("")
        telling.head(f"with GPUs: {self.where}")
        await telling.ask("submit", document=document(UID, COMMAND, CLAIMS), base=str(self.base))
        await telling.reach(UID, State.RUNNING)
        before = await self._look("what each container sees")
        for name, (claim, found) in _with_claims(before).items():
            require(found.granted == tuple(f"nvidia{now}" for now, _ in found.gpus), f"{name} sees {found}")
            require(len(found.gpus) == claim, f"{name} claims {claim} and sees {found}")
        await telling.ask("suspend", uid=UID)
        await telling.reach(UID, State.SUSPENDED)
        await telling.ask(
            "submit", document=document(NEIGHBOUR, ("/bin/sleep", "inf"), {"main": 1}), base=str(self.base)
        )
        await telling.wait(NEIGHBOUR, State.RUNNING)
        await telling.ask("resume", uid=UID)
        await telling.reach(UID, State.RUNNING)
        after = await self._look("after the resume; a neighbour has the trainer's first one now")
        if self.eyes.remark:
            say(f"  {self.eyes.remark}\n")
        held = [now for found in after.values() for now, _ in found.gpus]
        require(before["trainer"].gpus[0][0] not in held, f"the neighbour's GPU was given to others as well: {held}")
        for name, found in after.items():
            was = tuple(at_snapshot for _, at_snapshot in found.gpus)
            require(was == tuple(now for now, _ in before[name].gpus), f"{name} does not know what it had: {found}")
        for uid in (UID, NEIGHBOUR):
            await telling.ask("stop", uid=uid)
            await telling.wait(uid, State.TERMINATED)
        free = (await telling.ask("status"))["worker"]["gpus"]
        require(all(gpu["state"] == "Free" for gpu in free), f"a GPU is still held: {free}")
        say(
            f"{self.verdict}: each container saw exactly the GPUs that it claims and those that claim none saw "
            "none; ordinals held over suspend and resume; all GPUs are free again."
        )

    async def _look(self, title: str) -> dict[str, Seen]:
        found: dict[str, Seen] = {}

        async def look(name: str) -> None:
            found[name] = await self.eyes.look(name)

        async with anyio.create_task_group() as group:
            for name in CLAIMS:
                group.start_soon(look, name)
        rows = [("container", "claim", "in /dev", _VISIBLE, "gpus.json, by ordinal")]
        rows += [
            (name, str(claim), " ".join(sight.nodes) or "-", sight.visible or "-", _told(sight))
            for name, (claim, sight) in _with_claims(found).items()
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        self.telling.say(f"\n  {title}:\n")
        for row in rows:
            self.telling.say(
                "  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
            )
        self.telling.say("")
        return found


def document(uid: str, command: tuple[str, ...], claims: Mapping[str, int]) -> str:
    """The assignment of an actor whose containers all run this, with their claims."""
    containers = [
        {"name": name, "rootfs": "rootfs", "command": [command[0]], "args": list(command[1:])}
        | ({"resources": {"limits": {"nvidia.com/gpu": claim}}} if claim else {})
        for name, claim in claims.items()
    ]
    return json.dumps(
        {
            "apiVersion": "greenroom.dev/v1alpha1",
            "kind": "WorkerAssignment",
            "metadata": {"uid": uid, "name": uid, "namespace": "demo", "generation": 1},
            "spec": {"desiredState": "Running", "terminationGracePeriodSeconds": 1, "containers": containers},
        }
    )


def _with_claims(found: Mapping[str, Seen]) -> dict[str, tuple[int, Seen]]:
    return {name: (claim, found[name]) for name, claim in CLAIMS.items()}


def _told(sight: Seen) -> str:
    told = [
        f"{ordinal}: nvidia{now}" + ("" if was is None else f", was nvidia{was}")
        for ordinal, (now, was) in enumerate(sight.gpus)
    ]
    return "; ".join(told) or "-"
