"""A state directory with snapshots, a runsc that says its version, and an assignment."""

import json
import platform
from typing import Any

import attrs
from blake3 import blake3

from actors.assignment import SnapshotScope
from actors.bundle.capabilities import Claims
from actors.bundle.config import Membership, container_config
from actors.codec import plain
from actors.layout import StateDir
from actors.manifest import (
    CHECKPOINT_FILES,
    Manifest,
    RuntimeFacts,
    SnapshotContainer,
    SnapshotFile,
    SnapshotGpu,
    as_json,
    shape_of,
)
from actors.runsc.flags import GlobalFlags
from actors.strict_json import canonical
from supervisor.host.wall import HostWall
from tests.actors.assignments import admitted, with_spec
from tests.fakes.performer import a_snapshot

ONE, TWO, THREE, FOUR = (a_snapshot(number).id for number in (1, 2, 3, 4))
VERSION = "release-20240729.0"
GPU = SnapshotGpu(ordinal=0, uuid="GPU-a", model="H100", minor=0, pci_bus_id="0000:01:00.0")


class Place:
    """A state directory with snapshots in it, a runsc that says its version, and an assignment."""

    def __init__(self, directory):
        self.root, self.state = directory, StateDir(directory / "state")
        (directory / "rootfs").mkdir()
        self.runsc = directory / "runsc"
        self.runsc.write_text(f"#!/bin/sh\necho runsc version {VERSION}\n")
        self.runsc.chmod(0o755)
        self.document = directory / "a1.json"
        self.assign()

    def assign(self, *argv, **more):
        self._assign({"name": "main", "rootfs": "rootfs", "command": list(argv or ("/bin/app",)), **more})

    def give_bundle(self, **more):
        config = {"ociVersion": "1.0.2", "process": {"args": ["/bin/app"], "cwd": "/"}, "root": {"path": "../rootfs"}}
        (self.root / "bundle").mkdir()
        (self.root / "bundle/config.json").write_text(json.dumps({**config, **more}))
        self._assign({"name": "main", "bundle": "bundle"})

    def _assign(self, spec):
        document = {
            "apiVersion": "greenroom.dev/v1alpha1",
            "kind": "WorkerAssignment",
            "metadata": {"uid": "a1", "generation": 1},
            "spec": {"desiredState": "Running", "containers": [spec]},
        }
        self.document.write_text(json.dumps(document))

    def snapshot(self, name=ONE, uid="a1", *, minute=1, **changes):
        """Put a whole snapshot there; returns its directory."""
        directory = self.state.actor(uid).snapshot(name)
        directory.mkdir(parents=True)
        for each in CHECKPOINT_FILES:
            (directory / each).write_bytes(f"{each} of {name}".encode())
        made = attrs.evolve(self.manifest(directory, name, uid, minute), **changes)
        (directory / "manifest.json").write_bytes(canonical(as_json(made)))
        return directory

    def manifest(self, directory, name, uid, minute):
        (container,) = admitted(
            with_spec(containers=[{"name": "main", "rootfs": "r", "command": ["/bin/app"]}])
        ).containers
        source: Any = container.source
        config = container_config(
            source, membership=Membership(name="main", sandbox_id="s"), hostname="h", limits=container.limits,
            claims=Claims.NONE,
        )  # fmt: skip
        return Manifest(
            actor=uid, id=name, created_at=f"2026-11-29T15:{minute:02d}:00.000Z", generation=4,
            scope=SnapshotScope.FULL, greenroom="0.1.0", boot_id="b", arch=platform.machine(),
            cpu_features=HostWall().cpu_features(),
            runsc=RuntimeFacts(version=VERSION, sha256="a" * 64, platform="systrap", flags=GlobalFlags().as_list()),
            driver=None, toolkit=None, volumes=(),
            containers=(
                SnapshotContainer(name="main", image_digest=None, shape=shape_of(config), gpus=(), exited=None),
            ),
            files=tuple(
                SnapshotFile(name=each.name, size_bytes=len(data), blake3=blake3(data).hexdigest())
                for each in sorted(directory.iterdir())
                for data in [each.read_bytes()]
            ),
        )  # fmt: skip

    def status(self, uid, good, state="Suspended"):
        path = self.state.actor(uid).status
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"uid": uid, "state": state, "lastGoodSnapshot": good and {"id": good}}))

    def assigned(self, uid, uri):
        path = self.state.actor(uid).assignment
        path.parent.mkdir(parents=True, exist_ok=True)
        document = plain(admitted(with_spec(snapshot={"uri": uri})))
        path.write_text(json.dumps({"v": 1, "assignment": document}))

    def left(self, uid="a1"):
        return sorted(path.name for path in self.state.actor(uid).snapshots.iterdir())


def last(err):
    return err.splitlines()[-1]
