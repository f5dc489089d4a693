"""The GPUs that a CDI spec tells of: by UUID where it has them, by their nodes in any case."""

from pathlib import Path

import attrs
import pytest

from actors.cdi import ContainerEdits, Device, DeviceNode, load
from actors.gpu.granted_edits import granted_edits, host_nodes
from actors.gpu.inventory import MINOR_MAX
from actors.gpu.spec_inventory import UNKNOWN_MAJOR, nodes_as_specified, spec_inventory
from tests.gpu.making import spec

SAMPLES = Path(__file__).resolve().parents[3] / "shared" / "data" / "cdi"


def minors(found):
    return [gpu.minor for gpu in found.inventory.gpus]


def test_gpus_are_those_of_the_nodes_by_minor_with_the_uuids_of_their_devices():
    found = spec_inventory(spec(7, 2, 5))
    assert minors(found) == [2, 5, 7]
    assert [gpu.uuid for gpu in found.inventory.gpus] == ["GPU-2", "GPU-5", "GPU-7"]
    assert found.named == {"GPU-2", "GPU-5", "GPU-7"}
    (warning,) = found.warnings
    assert "NVML was not asked" in warning


def test_where_a_spec_has_no_uuids_they_are_made_up_and_said_to_be():
    found = spec_inventory(spec(7, 2, alias=False))
    assert minors(found) == [2, 7]
    assert found.named == frozenset()
    assert any("not by UUID" in warning for warning in found.warnings)


@pytest.mark.parametrize("alias", [True, False])
def test_each_gpu_of_it_can_be_granted_by_that_very_spec(alias):
    given = spec(7, 2, 5, alias=alias)
    for gpu in spec_inventory(given).inventory.usable:
        edits = granted_edits(given, [gpu])
        assert [node.path for node in edits.device_nodes if node.path == gpu.path]


def test_a_gpu_that_is_only_in_a_device_with_others_is_there_too():
    only_all = attrs.evolve(spec(0, 1), devices=spec(0, 1).devices[-1:])
    assert minors(spec_inventory(only_all)) == [0, 1]


def test_a_mig_device_makes_its_gpu_one_that_nobody_is_granted():
    nodes = (DeviceNode(path="/dev/nvidia3"), DeviceNode(path="/dev/nvidia-caps/nvidia-cap12"))
    mig = Device(name="0:0", container_edits=ContainerEdits(device_nodes=nodes))
    given = attrs.evolve(spec(2), devices=(*spec(2).devices, mig))
    found = spec_inventory(given).inventory
    assert [(gpu.minor, gpu.is_usable) for gpu in found.gpus] == [(2, True), (3, False)]


def test_a_spec_without_gpus_tells_of_none_and_odd_numbers_are_none():
    odd = Device(
        name="x", container_edits=ContainerEdits(device_nodes=(DeviceNode(path=f"/dev/nvidia{MINOR_MAX + 1}"),))
    )
    assert minors(spec_inventory(attrs.evolve(spec(), devices=(odd,)))) == []


def test_nodes_have_the_numbers_of_the_spec_or_those_that_nvidia_always_has():
    common = ContainerEdits(
        device_nodes=(
            DeviceNode(path="/dev/nvidiactl"),
            DeviceNode(path="/dev/nvidia-uvm"),
            DeviceNode(path="/dev/nvidia-modeset", host_path="/host/modeset", major=195, minor=254, file_mode=0o600),
        )
    )
    nodes = nodes_as_specified(spec(2, common=common))
    found = nodes.found
    assert {path: (node.major, node.minor, node.mode) for path, node in found.items()} == {
        "/dev/nvidiactl": (195, 255, 0o666),
        "/dev/nvidia-uvm": (UNKNOWN_MAJOR, 0, 0o666),
        "/host/modeset": (195, 254, 0o600),
        "/dev/nvidia2": (195, 2, 0o666),
    }
    assert nodes.unknown == ("/dev/nvidia-uvm",)
    # They are what an injection takes for a host's.
    complete, _ = host_nodes(granted_edits(spec(2), spec_inventory(spec(2)).inventory.gpus).device_nodes, found.get)
    assert {node.path for node in complete} == {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia2"}


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the samples are not beside this checkout")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("01-single-t4-ctk-1.17.yaml", [0]),
        ("02-multi-4gpu-ctk-1.20.yaml", [0, 1, 2, 3]),
        ("07-gke-device-plugin-home-kubernetes.json", None),
        ("18-nvml-mock.yaml", None),
    ],
)
def test_the_gpus_of_real_specs_are_found(name, expected):
    found = spec_inventory(load((SAMPLES / name).read_bytes(), name))
    assert minors(found)
    assert expected is None or minors(found) == expected
