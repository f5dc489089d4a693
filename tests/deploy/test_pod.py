"""The pod of deploy/base in a container of a real OCI runtime: its probes, its work, its settings and its end."""

from __future__ import annotations

import signal
import tomllib

import pytest

from tests.actors.stage import make_rootfs
from tests.deploy.objects import BASE, DEPLOY, settings_text
from tests.deploy.pod import Pod, put_config_map
from tests.needs import Tool, need
from tests.real.oci import make_root
from tests.real.process import wait_until
from tests.real.scenery import whole_lines

pytestmark = [pytest.mark.runsc, pytest.mark.long]

COUNTER = (DEPLOY / "examples" / "counter.yaml").read_text()


@pytest.fixture
def pod(tmp_path):
    need(Tool.RUNSC, Tool.BUSYBOX, Tool.ROOT, Tool.NAMESPACES, Tool.OCI_RUNTIME)
    bundles, image = tmp_path / "bundles", tmp_path / "image"
    make_rootfs(bundles / "busybox")
    make_root(image)
    pod = Pod(tmp_path, image=image, images=bundles)
    put_config_map(pod.volumes / "settings", {"settings.toml": settings_text(BASE)})
    put_config_map(pod.volumes / "assignments", {"counter.yaml": COUNTER})
    yield pod
    pod.give_up()


def test_a_pod_becomes_ready_runs_what_its_config_map_says_and_leaves_a_message(pod):
    pod.begin()
    wait_until(lambda: pod.asks("readiness") == 200)
    assert pod.asks("liveness") == 200
    assert "\ngreenroom_ready 1.0\n" in pod.page("http://127.0.0.1:8080/metrics")[1]
    pod.reach("counter", "Running")
    wait_until(lambda: whole_lines(pod.state.actor("counter").log("tick"))[:3] == ["1", "2", "3"])
    modes = {each.name: oct(each.stat().st_mode & 0o777) for each in (pod.state.root, pod.run_dir)}
    assert modes == {"state": "0o700", "run": "0o755"}
    code = pod.end(signal.SIGTERM)
    assert (code, pod.status_file("counter")["state"]) == (0, "Suspended")
    assert "counter: Suspended; snapshot s" in pod.termination_log.read_text()


def test_the_settings_of_a_live_pod_are_those_of_its_config_map_once_it_is_told(pod):
    pod.begin()
    text = settings_text(BASE)
    before = tomllib.loads(text)["max_actors"]
    changed = text.replace(f"max_actors = {before}", f"max_actors = {before + 1}")
    assert changed != text
    put_config_map(pod.volumes / "settings", {"settings.toml": changed})
    # As docs/operating.md says; the shell is the image's.
    pod.execute("kill -HUP 1")
    wait_until(lambda: b'"reloaded"' in pod.log.read_bytes())
    assert f"\ngreenroom_actors_max {before + 1}.0\n" in pod.page("http://127.0.0.1:8080/metrics")[1]
    assert pod.end(signal.SIGTERM) == 0


def test_a_document_that_goes_from_the_config_map_ends_its_actor(pod):
    pod.begin()
    pod.reach("counter", "Running")
    (pod.volumes / "assignments" / "counter.yaml").unlink()
    put_config_map(pod.volumes / "assignments", {})
    pod.reach("counter", "Terminated")
    assert pod.end(signal.SIGTERM) == 0
