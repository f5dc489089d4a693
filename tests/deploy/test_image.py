"""The image that deploy/Containerfile makes, in the pod that deploy/base describes."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest

from tests.actors.stage import make_rootfs
from tests.deploy.containerfile import read
from tests.deploy.image import built_image
from tests.deploy.objects import BASE, DEPLOY, container, settings_text
from tests.deploy.pod import Pod, put_config_map
from tests.needs import Tool, need, want
from tests.real.process import wait_until

pytestmark = [pytest.mark.runsc, pytest.mark.campaign]

COUNTER = (DEPLOY / "examples" / "counter.yaml").read_text()


class PodOfImage(Pod):
    """The pod with the image itself in it, and nothing of this machine."""

    def document(self, *flags):
        made = super().document(*flags)
        (entry,) = read()[1][-1].all("ENTRYPOINT")
        made["process"]["args"] = [*entry.exec_form, *container(BASE)["args"]]
        (path,) = read()[1][-1].all("ENV")
        made["process"]["env"] = [path.rest]
        ours = {each["mountPath"] for each in container(BASE)["volumeMounts"]} | {"/dev/termination-log"}
        made["mounts"] = [each for each in made["mounts"] if each["type"] != "bind" or each["destination"] in ours]
        return made

    def says(self, *command):
        """What a command says that `kubectl exec` would run."""
        argv = self.oci("exec", self.name, *command)
        return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout


def test_the_image_runs_the_pod_of_the_base_and_its_commands_ask_the_worker(tmp_path):
    need(Tool.RUNSC, Tool.BUSYBOX, Tool.ROOT, Tool.NAMESPACES, Tool.OCI_RUNTIME, Tool.PACKAGE_INDEX)
    want(Tool.IMAGE_BUILDER, Tool.DEBOOTSTRAP)
    make_rootfs(tmp_path / "bundles" / "busybox")
    with built_image(tmp_path) as image:
        pod = PodOfImage(tmp_path, image=image, images=tmp_path / "bundles")
        put_config_map(pod.volumes / "settings", {"settings.toml": settings_text(BASE)})
        put_config_map(pod.volumes / "assignments", {"counter.yaml": COUNTER})
        try:
            pod.begin()
            wait_until(lambda: '"Running"' in pod.says("greenroom", "status", "counter", "--json"))
            assert json.loads(pod.says("greenroom", "status", "--json"))["worker"]["ready"]
            pod.says("/bin/sh", "-c", "kill -HUP 1")
            wait_until(lambda: b'"reloaded"' in pod.log.read_bytes())
            code = pod.end(signal.SIGTERM)
            assert (code, pod.status_file("counter")["state"]) == (0, "Suspended")
            assert "counter: Suspended; snapshot s" in pod.termination_log.read_text()
        finally:
            pod.give_up()
