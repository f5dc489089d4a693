"""Specs that others wrote, found by CDI's discovery: whose device is a GPU's, and where this pod has its files."""

import json
from pathlib import Path

import attrs
import pytest

from actors.gpu.granted_edits import granted_edits
from actors.gpu.spec_identity import still_hold
from sim.world import scenery
from sim.world.gpus import Driver
from sim.world.nvidia_ctk import Ctk
from statemachine.problem import ProblemError, Step
from statemachine.reasons import Reason
from tests.gpu.pods import DRIVER, Pod

pytestmark = pytest.mark.anyio

REFRESH = Path("/var/run/cdi/nvidia.yaml")
CONTROL = [{"path": "/dev/nvidiactl"}, {"path": "/dev/nvidia-uvm"}]


def node(minor):
    return {"path": f"/dev/nvidia{minor}"}


def put(pod, path, devices, *, kind="nvidia.com/gpu", common=None):
    """A file with devices by name: their minors, or their whole edits."""
    given = [
        {"name": name, "containerEdits": edits if isinstance(edits, dict) else {"deviceNodes": list(map(node, edits))}}
        for name, edits in devices.items()
    ]
    spec = {"cdiVersion": "0.5.0", "kind": kind, "devices": given, "containerEdits": common or {"deviceNodes": CONTROL}}
    scenery.put_file(pod.disk, Path(path), json.dumps(spec).encode())
    pod.pass_s(1)


def refresh(pod, *flags, path=REFRESH, env=()):
    """What the toolkit's refresh service does on the node."""
    ended = Ctk(pod.disk, pod.gpus, dict(env)).call(["cdi", "generate", f"--output={path}", *flags])
    assert ended.code == 0, ended.stderr
    pod.pass_s(1)


async def made(pod, last=None):
    return await pod.host_source().make(pod.inventory, DRIVER, last)


async def refused(pod):
    with pytest.raises(ProblemError) as raised:
        await made(pod)
    assert {problem.step for problem in raised.value.problems} == {Step.GENERATE}
    return raised.value.problems


def nodes_of(spec, gpu):
    return {each.path for each in granted_edits(spec, [gpu]).device_nodes if each.path[-1].isdigit()}


async def granted(pod):
    """The spec that is found, after each GPU was had from it alone."""
    made_ = await made(pod)
    for gpu in pod.inventory.usable:
        assert nodes_of(made_.kept.spec, gpu) == {gpu.path}
    return made_.kept


# ---- who writes specs


async def test_the_file_of_the_refresh_service_is_taken_as_it_is():
    pod = Pod()
    refresh(pod)
    kept = await granted(pod)
    assert (kept.path, kept.toolkit, kept.driver) == (REFRESH, None, DRIVER)
    assert not pod.processes.argvs
    assert pod.specs() == {}


async def test_the_file_of_the_device_plugin_has_names_by_uuid_and_a_kind_of_its_own():
    pod = Pod()
    first, second = pod.inventory.gpus
    path = "/var/run/cdi/k8s.device-plugin.nvidia.com-gpu.json"
    put(pod, path, {first.uuid: [2], second.uuid: [3]}, kind="k8s.device-plugin.nvidia.com/gpu")
    assert (await granted(pod)).spec.kind == "k8s.device-plugin.nvidia.com/gpu"


async def test_files_of_a_dra_driver_are_put_together_each_device_with_its_own_common_edits():
    pod = Pod()
    for name, minor in (("c1", 2), ("c2", 3)):
        common = {"deviceNodes": CONTROL, "env": [f"CLAIM_{name.upper()}=1"]}
        path = f"/var/run/cdi/k8s.gpu.nvidia.com-claim_{name}.yaml"
        put(pod, path, {f"{name}-gpu-0": [minor]}, kind="k8s.gpu.nvidia.com/claim", common=common)
    kept = await granted(pod)
    first, second = pod.inventory.gpus
    assert granted_edits(kept.spec, [first]).env == ("CLAIM_C1=1",)
    assert granted_edits(kept.spec, [second]).env == ("CLAIM_C2=1",)
    assert [device.name for device in kept.spec.devices] == [first.uuid, second.uuid]
    assert str(kept.path).endswith("claim_c1.yaml")


async def test_devices_by_index_are_told_by_their_nodes():
    pod = Pod()
    put(pod, REFRESH, {"0": [3], "1": [2], "all": [2, 3]})
    assert (await granted(pod)).path == REFRESH


async def test_a_name_by_uuid_is_surer_than_a_node_and_any_is_surer_than_all():
    pod = Pod(4)
    (gpu,) = pod.inventory.gpus
    put(pod, "/var/run/cdi/a-management.json", {"all": [4]}, kind="management.nvidia.com/gpu")
    put(pod, "/etc/cdi/by-index.json", {"0": [4]}, kind="a.com/gpu")
    assert (await granted(pod)).path == Path("/etc/cdi/by-index.json")
    put(pod, "/etc/cdi/by-uuid.json", {gpu.uuid: [4]}, kind="b.com/gpu")
    assert (await granted(pod)).path == Path("/etc/cdi/by-uuid.json")


async def test_with_one_gpu_and_nothing_else_all_is_that_gpu():
    pod = Pod(4)
    put(pod, REFRESH, {"all": [4]})
    assert (await granted(pod)).path == REFRESH


# ---- which of several


async def test_var_run_wins_over_etc():
    pod = Pod()
    refresh(pod, path="/etc/cdi/nvidia.yaml")
    refresh(pod)
    assert (await granted(pod)).path == REFRESH


async def test_var_run_wins_whatever_the_kinds_are():
    pod = Pod()
    first, second = pod.inventory.gpus
    put(pod, "/etc/cdi/a.json", {first.uuid: [2], second.uuid: [3]}, kind="a.com/gpu")
    put(pod, "/var/run/cdi/b.json", {first.uuid: [2], second.uuid: [3]}, kind="b.com/gpu")
    assert (await granted(pod)).path == Path("/var/run/cdi/b.json")


async def test_a_device_that_another_file_settles_comes_from_that_one_and_the_others_from_their_own():
    pod = Pod()
    first, second = pod.inventory.gpus
    for path, uuids in (("/etc/cdi/low.json", (first.uuid, second.uuid)), ("/var/run/cdi/high.json", (first.uuid,))):
        common = {"deviceNodes": CONTROL, "env": [f"FROM={Path(path).stem}"]}
        put(pod, path, {uuid: [2 if uuid == first.uuid else 3] for uuid in uuids}, common=common)
    spec = (await granted(pod)).spec
    assert granted_edits(spec, [first]).env == ("FROM=high",)
    assert granted_edits(spec, [second]).env == ("FROM=low",)


async def test_one_file_with_all_gpus_is_taken_before_one_with_some():
    pod = Pod()
    first, _ = pod.inventory.gpus
    put(pod, "/var/run/cdi/one.json", {first.uuid: [2]}, kind="a.com/gpu")
    refresh(pod, path="/etc/cdi/nvidia.yaml")
    assert (await granted(pod)).path == Path("/etc/cdi/nvidia.yaml")


async def test_names_that_two_files_of_one_directory_define_are_nobodys():
    pod = Pod()
    refresh(pod)
    refresh(pod, path="/var/run/cdi/copy.json")
    problems = await refused(pod)
    assert {problem.reason for problem in problems} == {Reason.CDI_DEVICE_UNRESOLVED}
    assert "is defined by" in problems[0].detail


async def test_a_broken_file_hides_none_of_the_others_and_is_named_when_they_do_not_do():
    pod = Pod()
    first, second = pod.inventory.gpus
    scenery.put_file(pod.disk, Path("/var/run/cdi/broken.json"), b"{")
    put(pod, REFRESH, {first.uuid: [2]})
    problems = await refused(pod)
    assert [problem.subject for problem in problems] == [second.uuid]
    assert f"nvidia.com/gpu={first.uuid}" in problems[0].message
    assert "/var/run/cdi/broken.json" in problems[0].detail
    put(pod, REFRESH, {first.uuid: [2], second.uuid: [3]})
    await granted(pod)


async def test_without_any_file_each_gpu_is_named_with_where_it_was_looked_for():
    problems = await refused(Pod())
    assert [problem.subject for problem in problems] == [gpu.uuid for gpu in Pod().inventory.gpus]
    assert "/etc/cdi or /var/run/cdi" in problems[0].message
    assert "--cdi-source pod" in problems[0].hint


async def test_a_gpu_that_is_only_had_in_mig_devices_is_unsupported():
    pod = Pod(4)
    edits = {"deviceNodes": [node(4), {"path": "/dev/nvidia-caps/nvidia-cap12"}]}
    put(pod, REFRESH, {"0:0": edits})
    (problem,) = await refused(pod)
    assert problem.reason is Reason.MIG_UNSUPPORTED


# ---- what of it is in this pod


async def test_a_spec_of_the_host_is_seen_below_the_roots_of_this_pod():
    pod = Pod(driver=Driver(root=Path("/run/nvidia/driver"), dev_root=Path("/host")))
    refresh(pod, "--driver-root=/run/nvidia/driver", "--dev-root=/host")
    text = pod.disk.read(pod.disk.find_regular(REFRESH)).replace(b"/run/nvidia/driver", b"").replace(b"/host", b"")
    scenery.put_file(pod.disk, REFRESH, text)
    spec = (await granted(pod)).spec
    assert {mount.host_path.startswith("/run/nvidia/driver/usr/") for mount in spec.container_edits.mounts} == {True}
    assert {each.source.startswith("/host/dev/") for each in spec.container_edits.device_nodes} == {True}
    assert {mount.container_path.startswith("/usr/") for mount in spec.container_edits.mounts} == {True}


async def test_the_hosts_own_driver_root_is_told_by_its_libraries():
    pod = Pod(driver=Driver(root=Path("/opt/driver")))
    refresh(pod, "--driver-root=/opt/driver", "--dev-root=/")
    text = pod.disk.read(pod.disk.find_regular(REFRESH)).replace(b"/opt/driver", b"/srv/nvidia")
    scenery.put_file(pod.disk, REFRESH, text)
    spec = (await granted(pod)).spec
    assert {mount.host_path.startswith("/opt/driver/usr/") for mount in spec.container_edits.mounts} == {True}


async def test_files_that_are_not_in_this_pod_are_a_reason():
    pod = Pod()
    refresh(pod)
    pod.disk.remove(pod.disk.find_directory(Path("/usr/lib64")), f"libcuda.so.{DRIVER}")
    (problem,) = await refused(pod)
    assert problem.reason is Reason.GENERATE_FAILED
    assert problem.subject == f"/usr/lib64/libcuda.so.{DRIVER}"


async def test_a_node_that_is_not_in_this_pod_is_a_reason():
    pod = Pod()
    refresh(pod)
    pod.gpus.remove_node("nvidia-uvm")
    assert {problem.reason for problem in await refused(pod)} == {Reason.CDI_DEVICE_UNRESOLVED}


# ---- as long as it is right


async def test_it_is_read_again_only_when_something_changed():
    pod = Pod()
    refresh(pod)
    first = await made(pod)
    assert first.stamps is not None
    assert await still_hold(pod.files, first.stamps)
    assert (await made(pod, first)).kept is first.kept
    pod.disk.append(pod.disk.find_regular(REFRESH), b"# a word more\n")
    pod.pass_s(1)
    assert not await still_hold(pod.files, first.stamps)
    again = await made(pod, first)
    assert again.kept is first.kept  # it says the same


async def test_what_says_something_else_has_another_identity():
    pod = Pod()
    first, second = pod.inventory.gpus
    put(pod, REFRESH, {first.uuid: [2], second.uuid: [3]})
    before = await made(pod)
    put(pod, REFRESH, {first.uuid: [2], second.uuid: [3], "all": [2, 3]})
    after = await made(pod, before)
    assert after.kept.identity != before.kept.identity
    assert attrs.evolve(after.kept, identity="", spec=before.kept.spec) == attrs.evolve(before.kept, identity="")


async def test_a_file_that_comes_is_noticed():
    pod = Pod()
    refresh(pod, path="/etc/cdi/nvidia.yaml")
    first = await made(pod)
    refresh(pod)
    assert first.stamps is not None
    assert not await still_hold(pod.files, first.stamps)


async def test_the_directories_and_the_nodes_are_watched():
    assert await Pod().host_source().watched() == (Path("/etc/cdi"), Path("/var/run/cdi"), Path("/dev"))
