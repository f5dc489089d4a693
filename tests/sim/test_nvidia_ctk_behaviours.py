"""nvidia-ctk in the simulated world does what the toolkit was seen to do (behaviours I1 to I11, I18 and I20)."""

from pathlib import Path

import orjson
import pytest

from actors.cdi import HostNode, load
from actors.gpu.inventory import Gpu as OwnGpu
from actors.gpu.inventory import Inventory
from actors.gpu.spec_check import problems_of
from actors.gpu.toolkit_errors import ToolkitFailure, failure_of
from sim.engine import run
from sim.world import scenery
from sim.world.cdi_edits import simplified, with_merged
from sim.world.gpus import MigInstance, some_gpus
from sim.world.nodes import Special, SpecialNode
from sim.world.world import Machine, World
from tests.sim.test_nvidia_ctk_failures import FAILURES
from tests.sim.toolkit import INTO_OUT, OUT, TWO, UUIDS, generate, minors_of, spec_at

ONE = Machine(gpus=some_gpus(1))
MIGS = tuple(
    MigInstance(uuid=f"MIG-00000000-0000-4000-8000-{instance:012d}", gpu_instance=instance) for instance in (1, 5)
)


def names(spec):
    return [device["name"] for device in spec["devices"]]


def edits(spec, name):
    (found,) = [device["containerEdits"] for device in spec["devices"] if device["name"] == name]
    return found


def test_i1_two_gpus_are_two_indices_two_uuids_and_all():
    async def scenario(here):
        await generate(here, INTO_OUT)
        assert names(spec_at(here)) == ["0", "1", *UUIDS, "all"]

    run(scenario, machine=TWO)


def test_i2_one_gpu_is_its_index_its_uuid_and_all():
    async def scenario(here):
        await generate(here, INTO_OUT)
        assert names(spec_at(here)) == ["0", ONE.gpus[0].uuid, "all"]

    run(scenario, machine=ONE)


def test_i3_a_gpu_in_mig_mode_is_its_instances_and_not_itself():
    async def scenario(here):
        here.world.gpus.split(3, *MIGS)
        await generate(here, INTO_OUT)
        first, second = (["/dev/nvidia3", f"/dev/nvidia-caps/nvidia-cap{at}", f"/dev/nvidia-caps/nvidia-cap{at + 1}"]
                         for at in (3, 5))  # fmt: skip
        assert minors_of(spec_at(here)) == {
            "0:0": first,
            "0:1": second,
            "1": ["/dev/nvidia2"],
            UUIDS[1]: ["/dev/nvidia2"],
            MIGS[0].uuid: first,
            MIGS[1].uuid: second,
            "all": ["/dev/nvidia2", "/dev/nvidia3", *first[1:], *second[1:]],
        }
        await generate(here, INTO_OUT, "--device-name-strategy=type-index", "--no-all-device")
        assert names(spec_at(here)) == ["gpu1", "mig0:0", "mig0:1"]

    run(scenario, machine=TWO)


@pytest.mark.parametrize("name", ["0:1", MIGS[1].uuid])
def test_an_instance_is_had_by_its_place_or_its_uuid(name):
    async def scenario(here):
        here.world.gpus.split(3, *MIGS)
        await generate(here, INTO_OUT, f"--device-id={name}")
        assert names(spec_at(here)) == ["0:1", MIGS[1].uuid, "all"]

    run(scenario, machine=TWO)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("0:2", "failed to get MIG handle by index: Not Found"),
        ("1:0", "failed to get MIG handle by index: Not Found"),
        ("9:0", "failed to get parent device handle: Invalid Argument"),
        ("MIG-00000000-0000-4000-8000-000000000009", "failed to get device handle from UUID: Not Found"),
    ],
)
def test_an_instance_that_is_not_there_is_an_error(name, text):
    async def scenario(here):
        here.world.gpus.split(3, *MIGS)
        finished = await generate(here, INTO_OUT, f"--device-id={name}")
        assert finished.exit.code == 1
        assert text in finished.stderr.decode()

    run(scenario, machine=TWO)


def test_nodes_of_an_instance_that_are_missing_are_only_a_warning_and_a_missing_list_of_them_an_error():
    async def scenario(here):
        here.world.gpus.split(3, MIGS[0])
        here.world.gpus.remove_node("nvidia-caps/nvidia-cap3")
        here.world.gpus.remove_node("nvidia-caps/nvidia-cap4")
        assert (await generate(here, INTO_OUT)).exit.code == 0
        assert minors_of(spec_at(here))["0:0"] == ["/dev/nvidia3"]
        disk = here.world.disk
        disk.remove(disk.find_directory(Path("/proc/driver/nvidia-caps")), "mig-minors")
        finished = await generate(here, INTO_OUT)
        assert finished.exit.code == 1
        assert b"error getting MIG capability device paths" in finished.stderr

    run(scenario, machine=TWO)


def test_instances_are_gone_after_a_boot_and_the_mode_is_not():
    async def scenario(here):
        here.world.gpus.split(3, *MIGS)
        await here.reboot()
        assert here.world.gpus.instances(3) == ()
        assert here.world.gpus.gpu(3).is_in_mig_mode

    run(scenario, machine=TWO)


@pytest.mark.parametrize("ids", ["none", "none,0", "0,none"])
def test_i4_none_is_one_device_with_a_marker_and_there_is_no_all(ids):
    async def scenario(here):
        finished = await generate(here, INTO_OUT, f"--device-id={ids}")
        assert finished.exit.code == 0
        spec = spec_at(here)
        assert spec["devices"] == [{"name": "none", "containerEdits": {"env": ["NVCT_EMPTY_DEVICE="]}}]
        assert spec["containerEdits"]["deviceNodes"]
        assert spec["cdiVersion"] == "0.3.0"

    run(scenario, machine=TWO)


def test_i5_a_device_that_is_asked_for_is_there_under_its_names_and_all_is_just_it():
    async def scenario(here):
        await generate(here, INTO_OUT, "--device-id=1")
        nodes = ["/dev/nvidia2"]
        assert minors_of(spec_at(here)) == {"1": nodes, UUIDS[1]: nodes, "all": nodes}

    run(scenario, machine=TWO)


# ---- merging


def spec_of(*devices, **common):
    named = [{"name": f"d{at}", "containerEdits": each} for at, each in enumerate(devices)]
    return {"cdiVersion": "0.5.0", "kind": "a.b/c", "devices": named, "containerEdits": common}


NODE = {"path": "/dev/nvidia0"}
HOOK = {"hookName": "createContainer", "path": "/hook", "args": ["hook", "x"]}


def test_i6_a_name_that_is_taken_gets_no_merged_device():
    spec = spec_of({"deviceNodes": [NODE]}, {"env": ["A=b"]})
    assert with_merged(spec, "d1") == spec


def test_i7_a_hook_of_two_devices_is_once_in_what_is_merged():
    spec = with_merged(spec_of({"hooks": [HOOK], "env": ["A=b"]}, {"hooks": [HOOK], "env": ["C=d"]}), "all")
    assert edits(spec, "all") == {"env": ["A=b", "C=d"], "hooks": [HOOK]}
    assert edits(spec, "d0") == {"env": ["A=b"], "hooks": [HOOK]}


def test_i8_a_variable_that_all_have_is_not_in_a_device_unless_it_would_have_nothing_else():
    spec = simplified(spec_of({"env": ["FOO=BAR"], "deviceNodes": [NODE]}, {"env": ["FOO=BAR"]}, env=["FOO=BAR"]))
    assert edits(spec, "d0") == {"deviceNodes": [NODE]}
    assert edits(spec, "d1") == {"env": ["FOO=BAR"]}
    assert spec["containerEdits"] == {"env": ["FOO=BAR"]}


def test_groups_stay_with_a_device_and_are_sorted():
    spec = with_merged(
        spec_of({"deviceNodes": [NODE], "additionalGids": [44, 5, 44]}, {"env": ["A=b"]}, additionalGids=[44]), "all"
    )
    assert edits(spec, "d0")["additionalGids"] == [5, 44]
    assert edits(spec, "all")["additionalGids"] == [5, 44]


# ---- groups of nodes


def set_node(world: World, name: str, *, gid: int, mode: int) -> None:
    node = world.disk.find(world.gpus.dev / name)
    assert isinstance(node, SpecialNode)
    node.gid = gid
    world.disk.change_mode(node, mode)


@pytest.mark.parametrize(
    ("row", "gid", "mode", "groups"),
    [
        ("I9", 44, 0o660, [44]),
        ("I11", 44, 0o664, [44]),
        ("write only", 44, 0o662, [44]),
        ("everybody", 44, 0o666, []),
        ("root's", 0, 0o660, []),
    ],
)
def test_i9_i11_the_group_of_a_node_that_not_everybody_may_read_and_write_is_listed(row, gid, mode, groups):
    async def scenario(here):
        set_node(here.world, "nvidia3", gid=gid, mode=mode)
        await generate(here, INTO_OUT)
        spec = spec_at(here)
        for name in ("0", UUIDS[0], "all"):
            assert edits(spec, name).get("additionalGids", []) == groups, row
        assert "additionalGids" not in edits(spec, "1")
        assert spec["cdiVersion"] == ("0.7.0" if groups else "0.5.0")
        (node,) = edits(spec, "0")["deviceNodes"]
        assert node.get("gid", 0) == gid

    run(scenario, machine=TWO)


def test_groups_of_control_nodes_are_those_of_all_devices_and_a_feature_flag_leaves_groups_out():
    async def scenario(here):
        set_node(here.world, "nvidiactl", gid=44, mode=0o660)
        await generate(here, INTO_OUT)
        assert spec_at(here)["containerEdits"]["additionalGids"] == [44]
        await generate(here, INTO_OUT, "--feature-flag=no-additional-gids-for-device-nodes")
        assert "additionalGids" not in spec_at(here)["containerEdits"]
        assert spec_at(here)["cdiVersion"] == "0.5.0"

    run(scenario, machine=TWO)


# ---- what ends well and cannot be used


def pod(world: World) -> None:
    """A pod's /dev, which has graphics nodes of a GPU and not the GPU's."""
    world.gpus.make_drm_nodes(2, 1)
    for name in ("nvidia3", "nvidiactl", "nvidia-uvm", "dri/card1", "dri/renderD129"):
        node = world.disk.find(world.gpus.dev / name)
        assert isinstance(node, SpecialNode)
        path = Path("/pod/dev") / name
        scenery.put_special(world.disk, path, Special.CHARACTER_DEVICE, mode=node.mode, device=node.device)


def test_i18_a_gpu_with_graphics_nodes_alone_is_generated_and_our_check_refuses_it():
    async def scenario(here):
        pod(here.world)
        scenery.put_symlink(here.world.disk, Path("/pod/dev/dri/by-path/pci-0000:3b:00.0-card"), "../card1")
        finished = await generate(here, INTO_OUT, "--dev-root=/pod")
        assert finished.exit.code == 0
        assert b"Could not locate /dev/nvidia2" in finished.stderr
        spec = spec_at(here)
        assert minors_of(spec)["1"] == ["/dev/dri/card1", "/dev/dri/renderD129"]
        (hook,) = edits(spec, "1")["hooks"]
        # As in the real one: the link's place keeps the root.
        assert hook["args"][2:] == ["--link", "../card1::/pod/dev/dri/by-path/pci-0000:3b:00.0-card"]
        problems.extend(
            problems_of(
                load(orjson.dumps(spec), "x.json"),
                Inventory(OwnGpu(uuid=g.uuid, minor=g.minor, pci_bus_id=g.pci_bus_id, model=g.model) for g in TWO.gpus),
                lstat=lambda path: lstat(here.world, path),
                exists=lambda _: True,
            )
        )

    def lstat(world, path):
        try:
            node = world.disk.find(Path(path), follow=False)
        except FileNotFoundError:
            return None
        major, minor = node.device
        return HostNode(type="c", major=major, minor=minor, mode=node.mode)

    problems: list[object] = []
    run(scenario, machine=TWO)
    (problem,) = problems
    assert getattr(problem, "subject", "") == f"nvidia.com/gpu={UUIDS[1]}"


def test_i20_a_foreign_spec_beside_the_output_makes_it_panic_and_a_private_directory_does_not():
    async def scenario(here):
        foreign = b"cdiVersion: 0.5.0\nkind: vendor.com/x\n"
        scenery.put_file(here.world.disk, OUT.with_name("other.yaml"), foreign)
        finished = await generate(here, INTO_OUT)
        assert finished.exit.code == 2
        assert failure_of(2, finished.stderr.decode()) is ToolkitFailure.CRASHED
        scenery.put_directory(here.world.disk, Path("/run/private"), mode=0o700)
        assert (await generate(here, "--output=/run/private/spec.json", TMPDIR="/run/private")).exit.code == 0

    run(scenario, machine=TWO)


CLASSES = {
    "no library": ToolkitFailure.LIBRARY_NOT_FOUND,
    "no driver": ToolkitFailure.DRIVER_NOT_LOADED,
    "another driver": ToolkitFailure.VERSION_MISMATCH,
    "no access": ToolkitFailure.NVML_FAILED,
    "lost as it is counted": ToolkitFailure.OTHER,
    "no gpus": ToolkitFailure.NO_GPUS,
    "nodes elsewhere": ToolkitFailure.GPU_WITHOUT_NODES,
    "an instance": ToolkitFailure.MIG_DEVICE,
    "one id twice": ToolkitFailure.DUPLICATE_DEVICE,
    **dict.fromkeys(("an index too high", "a uuid of nobody", "no id"), ToolkitFailure.UNKNOWN_DEVICE),
    **dict.fromkeys(
        ("a mode", "a strategy", "a format", "a vendor", "a class", "a flag", "no value"), ToolkitFailure.BAD_ARGUMENTS
    ),
}


@pytest.mark.parametrize(("name", "failure"), FAILURES.items(), ids=FAILURES)
def test_i19_every_failure_of_the_tool_is_of_a_class_that_is_known(name, failure):
    spoil, flags, _ = failure

    async def scenario(here):
        spoil(here.world)
        finished = await generate(here, INTO_OUT, *flags)
        found = failure_of(finished.exit.code or 0, finished.stderr.decode())
        assert found is CLASSES.get(name, ToolkitFailure.GPU_LOST)

    run(scenario, machine=TWO)
