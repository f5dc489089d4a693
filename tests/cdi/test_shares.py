"""Aliases and shares: which names mean one device, and which give no more than was allotted (behaviours I1 to I3)."""

import pytest

from actors.cdi import join_aliases, permitted, require_permitted, shares, subset
from tests.cdi.making import LOW, device, loaded, refusal, registry, spec


def gpu(name, *paths):
    return device(name, deviceNodes=[{"path": path} for path in paths])


CONTROL = {"deviceNodes": [{"path": "/dev/nvidiactl"}]}
TWO = spec(
    gpu("0", "/dev/nvidia0"),
    gpu("1", "/dev/nvidia1"),
    gpu("GPU-0", "/dev//nvidia0"),
    gpu("GPU-1", "/dev/nvidia1"),
    gpu("all", "/dev/nvidia1", "/dev/nvidia0"),
    device("none", env=["NVCT_EMPTY_DEVICE="]),
    device("other", env=["NVCT_EMPTY_DEVICE="]),
    containerEdits=CONTROL,
)
ONE = spec(gpu("0", "/dev/nvidia0"), gpu("GPU-0", "/dev/nvidia0"), gpu("all", "/dev/nvidia0"), containerEdits=CONTROL)
CAP = "/dev/nvidia-caps/nvidia-cap"
MIG = spec(
    gpu("0:0", "/dev/nvidia0", f"{CAP}1", f"{CAP}2"),
    gpu("0:1", "/dev/nvidia0", f"{CAP}3", f"{CAP}4"),
    gpu("MIG-a", "/dev/nvidia0", f"{CAP}1", f"{CAP}2"),
    gpu("all", "/dev/nvidia0", f"{CAP}1", f"{CAP}2", f"{CAP}3", f"{CAP}4"),
    containerEdits=CONTROL,
)


def groups(content):
    made = loaded(content)
    return [group.names for group in join_aliases((each.name, each.container_edits) for each in made.devices)]


def test_i1_an_index_and_a_uuid_are_one_device_and_all_is_another():
    assert groups(TWO) == [("0", "GPU-0"), ("1", "GPU-1"), ("all",), ("none",), ("other",)]


def test_i2_all_is_the_one_device_where_there_is_one():
    assert groups(ONE) == [("0", "GPU-0", "all")]


def test_i3_mig_devices_share_their_parent_and_stay_apart():
    assert groups(MIG) == [("0:0", "MIG-a"), ("0:1",), ("all",)]


def test_a_registry_joins_names_over_files():
    files = {f"{LOW}/x.json": ONE, f"{LOW}/y.json": {**ONE, "kind": "k8s.vv.com/gpu"}}
    (group,) = registry(files).aliases()
    assert group.names == tuple(
        f"{kind}={name}" for kind in ("k8s.vv.com/gpu", "vv.com/gpu") for name in ("0", "GPU-0", "all")
    )
    assert group.nodes == {"/dev/nvidia0"}


def test_a_host_path_is_what_makes_a_node_the_same():
    nodes = [{"path": "/dev/a", "hostPath": "/dev/x"}]
    assert groups(spec(device("a", deviceNodes=nodes), gpu("b", "/dev/x"), gpu("c", "/dev/a"))) == [("a", "b"), ("c",)]


def test_shares_tell_common_own_and_foreign_nodes():
    found = shares(loaded(TWO), ["0"])
    assert [sorted(part) for part in (found.common, found.own, found.foreign)] == [
        ["/dev/nvidiactl"],
        ["/dev/nvidia0"],
        ["/dev/nvidia1"],
    ]
    found = shares(loaded(MIG), ["0:0"])
    assert found.foreign == {f"{CAP}3", f"{CAP}4"}
    assert shares(loaded(TWO), ["all"]).foreign == set()
    kfd = spec(
        gpu("0", "/dev/card0"),
        gpu("1", "/dev/kfd", "/dev/card1"),
        containerEdits={"deviceNodes": [{"path": "/dev/kfd"}]},
    )
    assert shares(loaded(kfd), ["0"]).foreign == {"/dev/card1"}


@pytest.mark.parametrize(
    ("content", "allotted", "names"),
    [
        (TWO, ["0"], ("0", "GPU-0")),
        (TWO, ["GPU-1"], ("1", "GPU-1")),
        (TWO, ["0", "1"], ("0", "1", "GPU-0", "GPU-1", "all")),
        (TWO, ["all"], ("0", "1", "GPU-0", "GPU-1", "all")),
        (TWO, ["none"], ("none",)),
        (TWO, [], ()),
        (ONE, ["GPU-0"], ("0", "GPU-0", "all")),
        (MIG, ["0:0"], ("0:0", "MIG-a")),
        (MIG, ["MIG-a", "0:1"], ("0:0", "0:1", "MIG-a", "all")),
    ],
)
def test_all_is_given_only_to_whom_all_is_allotted(content, allotted, names):
    assert permitted(loaded(content), allotted) == names
    require_permitted(loaded(content), names, allotted=allotted)


def test_what_gives_more_is_refused_by_name():
    found = refusal(require_permitted, loaded(TWO), ["GPU-0", "all", "1"], allotted=["0"])
    assert [(str(each.reason), each.value) for each in found] == [("NotAllotted", "all"), ("NotAllotted", "1")]


@pytest.mark.parametrize("function", [shares, permitted, subset])
def test_names_that_are_none_are_all_told(function):
    found = refusal(function, loaded(TWO), ["0", "x", "y"])
    assert [(str(each.reason), each.value) for each in found] == [("Unresolvable", "x"), ("Unresolvable", "y")]


def test_a_subset_keeps_the_order_and_what_belongs_to_all():
    part = subset(loaded(TWO), ["all", "0"])
    assert [each.name for each in part.devices] == ["0", "all"]
    assert part.container_edits == loaded(TWO).container_edits
