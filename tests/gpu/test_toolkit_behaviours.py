"""What the toolkit's hooks and groups come to in a container of Greenroom (behaviours I9, I11, I15 and I16)."""

import attrs
import pytest

from actors.cdi import ContainerEdits, Device, DeviceNode, Hook
from actors.gpu.granted_edits import granted_edits
from actors.gpu.hooks import LinkRequest, plan_hooks
from actors.gpu.injection_plan import OwnFiles, plan_injection, with_gpus
from actors.gpu.links import PRIVATE_DIRECTORY, Library, Link, plan_links
from tests.gpu.making import CONTROL, gpu, host, spec

OWN = OwnFiles(links="/links", identity="/gpus.json")


def of_group(*gids):
    """A spec of 1.19 and newer for a GPU whose node not everybody may open, and that of another with group 5."""
    mine = ContainerEdits(device_nodes=(DeviceNode(path="/dev/nvidia2", gid=gids[0]),), additional_gids=gids)
    other = ContainerEdits(device_nodes=(DeviceNode(path="/dev/nvidia3", gid=5),), additional_gids=(5,))
    common = ContainerEdits(device_nodes=CONTROL, additional_gids=(33,))
    devices = (Device(name="GPU-2", container_edits=mine), Device(name="GPU-3", container_edits=other))
    return attrs.evolve(spec(common=common), devices=devices)


@pytest.mark.parametrize("row", ["I9", "I11"])
def test_i9_i11_the_groups_of_a_containers_own_nodes_are_carried_into_its_process_and_no_others(row):
    assert granted_edits(of_group(44), [gpu(2)]).additional_gids == (33, 44), row
    plan = plan_injection(of_group(44, 33, 44), [gpu(2)], container="x", own=OWN, found=host(2, 3))
    assert plan is not None
    # In one order and each once: a restore compares them.
    assert plan.edits.additional_gids == (33, 44)
    pristine = {"ociVersion": "1.0.2", "process": {"user": {"uid": 1000, "gid": 44, "additionalGids": [7]}}}
    made = with_gpus(pristine, plan)
    assert set(made["process"]["user"]["additionalGids"]) == {7, 33, 44}
    assert made["process"]["user"]["gid"] == 44


@pytest.mark.parametrize("value", ["a::b::c", "/a::/b::/c", "a", "a:b", "::"])
def test_i15_what_is_no_link_is_no_link_here_and_the_hooks_others_are(value):
    args = ("nvidia-cdi-hook", "create-symlinks", "--link", value, "--link", "libx.so.1::/lib/libx.so")
    plan = plan_hooks([Hook(hook_name="createContainer", path="/h", args=args)])
    assert plan.links == (LinkRequest("libx.so.1", "/lib/libx.so"),)
    (skipped,) = plan.skipped
    # The hook ends with an error for it, and the container does not start; ours starts, and the log says why.
    assert skipped.why == f"no link: {value}"


LIBRARY = Library(path="/lib/libx.so.5", soname="libx.so.1")
LINKS = (Link("libx.so.1", LIBRARY.path), Link("libx.so.5", LIBRARY.path))


def test_i16_a_link_that_is_there_with_the_same_target_is_left_as_it_is():
    # There is the library's own link, which a hook asks for once more.
    plan = plan_links([LIBRARY], [LinkRequest("libx.so.5", "/lib/libx.so.1")])
    assert (plan.links, plan.skipped) == (LINKS, ())


def test_i16_a_link_that_is_there_with_another_target_keeps_it_only_where_it_is_the_librarys_own():
    other = Library(path="/lib/libx.so.6", soname=None)
    plan = plan_links([LIBRARY, other], [LinkRequest("libx.so.6", "/lib/libx.so.1")])
    # The hook would replace it; which library has a name is what the library itself says.
    assert plan.links == (*LINKS, Link("libx.so.6", other.path))
    assert [each.name for each in plan.skipped] == ["libx.so.1"]


@pytest.mark.parametrize("image", ["/lib", "/usr/local/lib:/lib", PRIVATE_DIRECTORY])
def test_i16_a_file_or_link_of_the_image_is_replaced_by_coming_after_ours(image):
    # The hook would replace a file in the rootfs, which is not ours to write to: ours is found before it.
    plan = plan_injection(spec(2), [gpu(2)], container="x", own=OWN, found=host(2))
    made = with_gpus({"ociVersion": "1.0.2", "process": {"env": [f"LD_LIBRARY_PATH={image}"]}}, plan)
    (folders,) = [each for each in made["process"]["env"] if each.startswith("LD_LIBRARY_PATH=")]
    assert folders.removeprefix("LD_LIBRARY_PATH=").split(":")[0] == PRIVATE_DIRECTORY
    assert [mount["source"] for mount in made["mounts"] if mount["destination"] == PRIVATE_DIRECTORY] == ["/links"]
