"""Merging and rewriting of specs as the container toolkit itself does it (behaviours I6 to I8 and I12 to I14).

The same specs are given to the toolkit's own functions, built from its module, and to ours.
"""

import json

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actors.cdi import Spec, load
from actors.gpu.rerooting import rerooted
from sim.world.cdi_edits import edits_of, simplified, with_merged
from tests.gpu.oracle.toolkit import transforming

QUICK = settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def toolkit():
    with transforming() as answering:
        yield answering


PATHS = st.sampled_from(["/driver", "/driver/lib.so", "/driver/a/b", "/other", "/dev/nvidia0", "/x/driver/y"])
STAGES = st.sampled_from(["createContainer", "createRuntime", "startContainer", "prestart", "poststop"])
NODES = st.builds(
    lambda path, host, gid: {"path": path} | ({"hostPath": host} if host else {}) | ({"gid": gid} if gid else {}),
    PATHS,
    st.none() | PATHS,
    st.sampled_from([0, 44]),
)
MOUNTS = st.builds(
    lambda host, path: {"hostPath": host, "containerPath": path, "options": ["ro", "bind"]}, PATHS, PATHS
)
ARGUMENTS = PATHS | st.builds("{}::{}".format, PATHS, PATHS) | st.sampled_from(["hook", "--link", "--x=/driver/y"])
HOOKS = st.builds(
    lambda stage, path, args: {"hookName": stage, "path": path} | ({"args": args} if args else {}),
    STAGES,
    PATHS,
    st.lists(ARGUMENTS, max_size=3),
)
EDITS = st.builds(
    edits_of,
    env=st.lists(st.sampled_from(["FOO=BAR", "A=b", "C="]), max_size=3),
    deviceNodes=st.lists(NODES, max_size=3),
    mounts=st.lists(MOUNTS, max_size=3),
    hooks=st.lists(HOOKS, max_size=3),
    additionalGids=st.lists(st.sampled_from([5, 44, 33]), max_size=3),
)
# What has nothing but groups is no device for the toolkit; nor is it one that it makes.
OF_DEVICES = EDITS.filter(lambda edits: set(edits) - {"additionalGids"})
SPECS = st.builds(
    lambda devices, common: {
        "cdiVersion": "0.7.0",
        "kind": "nvidia.com/gpu",
        "devices": [{"name": f"d{at}", "containerEdits": each} for at, each in enumerate(devices)],
        "containerEdits": common,
    },
    st.lists(OF_DEVICES, min_size=1, max_size=3),
    EDITS,
)


def comparable(spec):
    """Without the order of what is at one path, which the toolkit does not fix."""
    every = [spec["containerEdits"], *(device["containerEdits"] for device in spec["devices"])]
    for edits in every:
        for key, path in (("deviceNodes", "path"), ("mounts", "containerPath")):
            if key in edits:
                assert [each[path].count("/") for each in edits[key]] == sorted(e[path].count("/") for e in edits[key])
                edits[key] = sorted(edits[key], key=lambda each: json.dumps(each, sort_keys=True))
    return spec


@QUICK
@given(SPECS)
def test_i8_simplifying_is_what_the_toolkit_does(toolkit, spec):
    assert comparable(simplified(spec)) == comparable(toolkit("simplify", spec))


@QUICK
@given(SPECS, st.sampled_from(["all", "all", "d0"]))
def test_i6_i7_merging_is_what_the_toolkit_does(toolkit, spec, name):
    theirs, ours = toolkit("merge", spec, name=name), with_merged(spec, name)
    if name == "d0":
        assert ours == theirs == spec
    else:
        assert comparable(ours) == comparable(theirs)


def model(spec):
    """Devices and common edits, every node with its path on the host: the toolkit writes that out even for the same."""
    made = spec if isinstance(spec, Spec) else load(json.dumps(spec).encode(), "x.json")

    def written_out(edits):
        nodes = tuple(attrs.evolve(node, host_path=node.source) for node in edits.device_nodes)
        return attrs.evolve(edits, device_nodes=nodes)

    return written_out(made.container_edits), [written_out(device.container_edits) for device in made.devices]


ROOTS = st.sampled_from(
    [("/driver", "/host"), ("/", "/host"), ("/driver", "/"), ("/driver/a", "/driver"), ("/x", "/x")]
)


@QUICK
@given(SPECS, ROOTS)
def test_i12_i13_i14_rewriting_roots_is_what_the_toolkit_does(toolkit, spec, roots):
    old, new = roots
    ours = rerooted(load(json.dumps(spec).encode(), "x.json"), old, new)
    assert model(ours) == model(toolkit("reroot", spec, old=old, new=new))


def test_i12_the_toolkit_of_1_20_takes_a_root_for_the_beginning_of_a_name_and_we_do_not(toolkit):
    mount = {"hostPath": "/driver-backup/lib.so", "containerPath": "/lib.so"}
    edits = {"mounts": [mount]}
    spec = {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [{"name": "d", "containerEdits": edits}],
        "containerEdits": {},
    }
    theirs = toolkit("reroot", spec, old="/driver", new="/host")
    assert theirs["devices"][0]["containerEdits"]["mounts"][0]["hostPath"] == "/host/-backup/lib.so"
    (device,) = rerooted(load(json.dumps(spec).encode(), "x.json"), "/driver", "/host").devices
    assert device.container_edits.mounts[0].host_path == mount["hostPath"]
