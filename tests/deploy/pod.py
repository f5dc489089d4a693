"""The pod that the objects of deploy/ describe, in a real OCI runtime: what a kubelet would make of them.

The image is not ours but the root filesystem of tests/real/oci.py; the command is the one that the image has as its
entry point. Volumes are directories of the test, ConfigMaps files behind one symlink that is exchanged, as they are in
a pod.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs

from actors.layout import StateDir
from tests.deploy import objects
from tests.needs import ROOT
from tests.real import oci

DATA = "..data"


def put_config_map(directory: Path, files: dict[str, str]) -> None:
    """Write or exchange the files of a ConfigMap, all at once."""
    directory.mkdir(parents=True, exist_ok=True)
    version = f"..{len(list(directory.iterdir()))}"
    (directory / version).mkdir()
    for name, text in files.items():
        (directory / version / name).write_text(text)
        if not (directory / name).is_symlink():
            (directory / name).symlink_to(f"{DATA}/{name}")
    (directory / f"{DATA}.new").symlink_to(version)
    (directory / f"{DATA}.new").rename(directory / DATA)


@attrs.define
class Pod(oci.WorkerContainer):
    """The worker's pod of one of the kustomizations.

    Attributes:
        name_of_objects: which.
    """

    name_of_objects: str = attrs.field(default=objects.BASE, kw_only=True)

    @property
    def volumes(self) -> Path:
        """Where the volumes are on this machine."""
        return self.directory / "volumes"

    @property
    def state(self) -> StateDir:
        return StateDir(self.volumes / "state")

    @property
    def run_dir(self) -> Path:
        return self.volumes / "run"

    @property
    def termination_log(self) -> Path:
        return self.directory / "termination-log"

    def document(self, *flags: object) -> dict[str, Any]:
        """The OCI configuration."""
        assert not flags, "a pod is told what its objects say"
        self.termination_log.touch()
        spec = objects.container(self.name_of_objects)
        security = spec["securityContext"]
        argv = [sys.executable, str(ROOT / "greenroom.py"), "run", *spec["args"]]
        readable = (ROOT, oci.INTERPRETER, oci.STDLIB)
        capabilities = [f"CAP_{each}" for each in security["capabilities"]["add"]]
        made = oci.config(argv, self.image, capabilities=capabilities, writable=(), readable=readable)
        made["process"]["env"] += [f"{name}={text}" for name, text in objects.variables(self.name_of_objects).items()]
        made["process"]["noNewPrivileges"] = not security["allowPrivilegeEscalation"]
        made["root"]["readonly"] = security["readOnlyRootFilesystem"]
        mounts = objects.mounts(self.name_of_objects)
        # A volume over what the runtime has put there, such as /tmp, takes its place; the checkout may be below it.
        early = [each for each in made["mounts"] if each["type"] != "bind" and each["destination"] not in mounts]
        ours = [each for each in made["mounts"] if each["type"] == "bind"]
        made["mounts"] = early
        for path, mount in mounts.items():
            source = self.images if "hostPath" in mount["volume"] else self.volumes / mount["name"]
            source.mkdir(parents=True, exist_ok=True)
            if "emptyDir" in mount["volume"]:
                source.chmod(0o777)  # as a kubelet makes it
            access = "ro" if mount.get("readOnly", False) else "rw"
            made["mounts"].append(
                {"destination": path, "type": "bind", "source": str(source), "options": ["rbind", access]}
            )
        message = {
            "destination": spec["terminationMessagePath"],
            "type": "bind",
            "source": str(self.termination_log),
            "options": ["bind", "rw"],
        }
        made["mounts"] += [*ours, message]
        return made

    def asks(self, probe: str) -> int:
        """The status with which the worker answers one of its probes, as a kubelet asks it: at the pod's address."""
        get = objects.container(self.name_of_objects)[f"{probe}Probe"]["httpGet"]
        (port,) = (each["containerPort"] for each in objects.container(self.name_of_objects)["ports"])
        return self.page(f"http://127.0.0.1:{port}{get['path']}")[0]

    def page(self, url: str) -> tuple[int, str]:
        """A page's status and text."""
        argv = self.oci("exec", self.name, "/bin/busybox", "wget", "-S", "-q", "-O", "-", url)
        ended = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        status = re.search(r"HTTP/1\.1 (\d+)", ended.stderr)
        return int(status[1]) if status else 0, ended.stdout
