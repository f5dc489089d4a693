"""Specs of one root seen from another (behaviours I12 to I14)."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.cdi import ContainerEdits, Device, DeviceNode, Hook, Mount, Spec
from actors.gpu.rerooting import Rerooting, rerooted
from tests.gpu.making import LIBRARY, spec

ROWS = [
    ("/driver/lib.so", "/host/lib.so"),
    ("/driver", "/host"),
    ("/driver-backup/lib.so", "/driver-backup/lib.so"),
    ("/other", "/other"),
]
MORE = [
    ("/driver/", "/host"),
    ("/driver//lib.so", "/host/lib.so"),
    ("//driver/lib.so", "/host/lib.so"),
    ("/driver/../etc/passwd", "/driver/../etc/passwd"),
    ("/etc/../driver/lib.so", "/host/lib.so"),
    ("/", "/"),
    ("driver/lib.so", "driver/lib.so"),
    ("", ""),
    ("/x/driver/lib.so", "/x/driver/lib.so"),
]


@pytest.mark.parametrize("roots", [("/driver", "/host"), ("/driver/", "//host//"), ("/./driver", "/x/../host")])
@pytest.mark.parametrize(("path", "expected"), ROWS + MORE)
def test_i12_what_is_below_the_old_root_is_below_the_new_one_and_nothing_else_is(roots, path, expected):
    assert Rerooting(*roots).path(path) == expected


@pytest.mark.parametrize(
    ("old", "new", "path", "expected"),
    [
        ("/", "/host", "/dev/nvidia0", "/host/dev/nvidia0"),
        ("/", "/host", "/", "/host"),
        ("/host", "/", "/host/dev/nvidia0", "/dev/nvidia0"),
        ("/host", "/", "/host", "/"),
        ("/a", "/a/b", "/a/b/c", "/a/b/b/c"),
    ],
)
def test_the_top_is_a_root_as_any_other(old, new, path, expected):
    assert Rerooting(old, new).path(path) == expected


@pytest.mark.parametrize("roots", [("driver", "/host"), ("/driver", "host"), ("", "/"), ("/", "")])
def test_a_root_that_is_not_absolute_is_refused(roots):
    with pytest.raises(ValueError, match="no absolute path"):
        rerooted(spec(0), *roots)


LINK = "/driver/lib/libcuda.so.1::/driver/lib/libcuda.so"
NEW_LINK = "/host/lib/libcuda.so.1::/host/lib/libcuda.so"
OLD_ARGS = ("nvidia-cdi-hook", "create-symlinks", "--link", LINK, "--folder", "/driver/lib")
NEW_ARGS = ("nvidia-cdi-hook", "create-symlinks", "--link", NEW_LINK, "--folder", "/host/lib")


@pytest.mark.parametrize(
    ("stage", "path", "args"),
    [
        ("createContainer", "/host/bin/hook", OLD_ARGS),
        ("createRuntime", "/host/bin/hook", NEW_ARGS),
        ("prestart", "/host/bin/hook", NEW_ARGS),
        ("poststart", "/host/bin/hook", NEW_ARGS),
        ("poststop", "/host/bin/hook", NEW_ARGS),
        ("startContainer", "/driver/bin/hook", OLD_ARGS),
    ],
)
def test_i13_a_hooks_program_and_arguments_change_where_they_are_the_hosts(stage, path, args):
    hook = Hook(hook_name=stage, path="/driver/bin/hook", args=OLD_ARGS, env=("A=/driver",), timeout=3)
    (found,) = Rerooting("/driver", "/host").edits(ContainerEdits(hooks=(hook,))).hooks
    assert found == attrs.evolve(hook, path=path, args=args)


def test_i14_a_node_without_a_path_on_the_host_gets_one_and_keeps_its_path_in_the_container():
    node = DeviceNode(path="/dev/nvidia0", major=195, permissions="rwm")
    (found,) = Rerooting("/", "/host").edits(ContainerEdits(device_nodes=(node,))).device_nodes
    assert found == attrs.evolve(node, host_path="/host/dev/nvidia0")


def test_a_node_that_is_elsewhere_stays_as_it_is():
    node = DeviceNode(path="/dev/nvidia0")
    assert Rerooting("/driver", "/host").edits(ContainerEdits(device_nodes=(node,))).device_nodes == (node,)


def test_a_mount_comes_from_elsewhere_and_goes_where_it_went():
    mount = Mount(host_path="/driver/usr/lib64/x.so", container_path="/driver/usr/lib64/x.so", options=("ro",))
    (found,) = Rerooting("/driver", "/host").edits(ContainerEdits(mounts=(mount,))).mounts
    assert found == attrs.evolve(mount, host_path="/host/usr/lib64/x.so")


def test_the_common_edits_and_those_of_every_device_are_rewritten_and_all_else_stays():
    own = ContainerEdits(
        env=("DRIVER=/driver",), mounts=(Mount(host_path="/driver/x", container_path="/x"),), additional_gids=(44,)
    )
    made = attrs.evolve(
        spec(0), devices=(Device(name="0", container_edits=own, annotations={"a": "/driver"}),), annotations={"b": "c"}
    )
    found = rerooted(made, "/driver", "/host")
    (device,) = found.devices
    assert device.container_edits == attrs.evolve(own, mounts=(Mount(host_path="/host/x", container_path="/x"),))
    assert (device.annotations, found.annotations) == ({"a": "/driver"}, {"b": "c"})
    assert found.container_edits.mounts == (attrs.evolve(LIBRARY, host_path="/host/lib64/libcuda.so.570.1"),)
    assert (found.kind, found.cdi_version) == (made.kind, made.cdi_version)


def test_one_root_and_the_same_again_is_the_very_spec():
    made = spec(0)
    assert rerooted(made, "/driver", "/driver/") is made


PARTS = st.sampled_from(["driver", "driver2", "lib", "..", ".", ""])
PATHS = st.lists(PARTS, max_size=5).map("/".join).flatmap(lambda path: st.sampled_from([path, f"/{path}"]))
ROOTS = st.sampled_from(["/", "/driver", "/driver/lib", "/host"])


@given(PATHS, ROOTS)
def test_there_and_back_is_where_it_was_for_whatever_was_not_there_before(path, old):
    there, back = Rerooting(old, "/new"), Rerooting("/new", old)
    moved = there.path(path)
    if moved == path:
        assert old != "/" or not path.startswith("/")
    else:
        assert moved == "/new" or moved.startswith("/new/")
        assert there.path(back.path(moved)) == moved


@given(st.lists(PATHS.filter(bool), max_size=4), ROOTS, ROOTS)
def test_containers_see_the_same_names_whatever_the_roots(paths, old, new):
    edits = ContainerEdits(
        device_nodes=tuple(DeviceNode(path=path) for path in paths),
        mounts=tuple(Mount(host_path=path, container_path=path) for path in paths),
    )
    made = Spec(cdi_version="1.1.0", kind="a.b/c", devices=(Device(name="d", container_edits=edits),))
    (device,) = rerooted(made, old, new).devices
    assert [node.path for node in device.container_edits.device_nodes] == paths
    assert [mount.container_path for mount in device.container_edits.mounts] == paths
