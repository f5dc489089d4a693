import itertools

import pytest

from actors.gpu.inventory import UNSEEN, Gpu, Inventory, pci_bus_id
from tests.gpu.making import gpu, inventory


def minors(found):
    return [each.minor for each in found]


@pytest.mark.parametrize("order", list(itertools.permutations([7, 2, 5, 3])))
def test_gpus_are_in_the_order_of_their_minors_whatever_the_order_of_index_and_bus(order):
    found = Inventory(gpu(minor) for minor in order)
    assert minors(found.gpus) == [2, 3, 5, 7]
    assert [each.pci_bus_id for each in found.gpus] == sorted((each.pci_bus_id for each in found.gpus), reverse=True)


@pytest.mark.parametrize(
    ("name", "again"),
    [("uuid", {"uuid": "GPU-0"}), ("minor", {"minor": 0}), ("pci", {"pci_bus_id": "00000000:F0:00.0"})],
)
def test_two_gpus_with_one_name_are_refused(name, again):
    other = {"uuid": "GPU-x", "minor": 1, "pci_bus_id": "0000:01:00.0", "model": "m"}
    with pytest.raises(ValueError, match=name):
        Inventory([gpu(0), Gpu(**{**other, **again})])


def test_a_lost_gpu_and_one_in_mig_mode_cannot_be_granted():
    found = Inventory([gpu(0), gpu(1, lost="XID 79"), gpu(2, mig_devices=()), gpu(3, mig_devices=("MIG-a",))])
    assert minors(found.usable) == [0]
    assert minors(found.gpus) == [0, 1, 2, 3]


def test_the_path_has_the_minor_in_it():
    assert gpu(5).path == "/dev/nvidia5"


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("0000:3b:00.0", "0000:3b:00.0"),
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("00010000:AF:1f.7", "10000:af:1f.7"),
        ("0001:00:00.0", "0001:00:00.0"),
    ],
)
def test_a_place_on_the_bus_has_one_spelling(text, same):
    assert pci_bus_id(text) == same
    assert pci_bus_id(same.rjust(len(same))) == same


@pytest.mark.parametrize("text", ["", "3b:00.0", "0000:3b:00", "0000:3b:00.8", "0000:3b:00.0\n", "000000000:3b:00.0"])
def test_what_is_no_place_on_the_bus_is_refused(text):
    with pytest.raises(ValueError, match="no PCI bus id"):
        pci_bus_id(text)


@pytest.mark.parametrize(
    "odd",
    [
        {"uuid": "MIG-1"},
        {"uuid": "GPU-"},
        {"uuid": "GPU-a/b"},
        {"minor": -1},
        {"minor": 254},
        {"minor": 255},
        {"mig_devices": ("GPU-1",)},
    ],
    ids=str,
)
def test_what_is_no_gpu_is_refused(odd):
    with pytest.raises(ValueError, match="is no "):
        gpu(**{"minor": 0, **odd})


def test_the_first_cause_of_a_loss_stays():
    lost = inventory(0, 1).with_lost("GPU-1", "XID 79").with_lost("GPU-1", "NVML_ERROR_GPU_IS_LOST")
    assert [each.lost for each in lost.gpus] == [None, "XID 79"]
    assert lost.with_lost("GPU-9", "XID 79") == lost


def test_a_gpu_that_is_not_seen_again_is_lost_and_one_that_is_seen_healthy_is_back():
    first = inventory(0, 1, 2)
    then = first.succeeded_by(inventory(0, 2, lost={2: "XID 79"}))
    assert [(each.minor, each.lost) for each in then.gpus] == [(0, None), (1, UNSEEN), (2, "XID 79")]
    assert then.succeeded_by(first) == first


def test_a_cause_that_was_told_is_not_forgotten_when_the_gpu_is_not_seen_any_more():
    then = inventory(0, 1).with_lost("GPU-1", "XID 79").succeeded_by(inventory(0))
    assert [each.lost for each in then.gpus] == [None, "XID 79"]


def test_a_board_that_was_replaced_is_forgotten():
    new = gpu(1, uuid="GPU-new")
    assert inventory(0, 1).succeeded_by(Inventory([gpu(0), new])).gpus == (gpu(0), new)


def test_texts_of_the_driver_are_bounded_and_on_one_line():
    odd = gpu(0, model="H100\n" + "x" * 10_000)
    assert "\n" not in odd.model
    assert len(odd.model) <= 256
