"""Durable volumes in what is made for an activation: where they are mounted, and what that takes."""

import json
from pathlib import Path

import attrs
import pytest

from actors.assignment import Bundle, Container, VolumeMount
from actors.bundle.activation_tree import bundle_directory, cover_path
from actors.steps.bundles import prepare
from statemachine.problem import ProblemError, Step
from statemachine.reasons import Reason
from tests.actors.memory_files import DIRECTORY
from tests.fakes.sandbox import a_stage

pytestmark = pytest.mark.anyio

GIVEN = Path("/given/web")
CONFIG = {
    "ociVersion": "1.0.2",
    "process": {"args": ["/bin/app"], "cwd": "/", "user": {"uid": 0, "gid": 0}},
    "root": {"path": "rootfs"},
    "mounts": [{"destination": "/cache/deep", "type": "tmpfs", "source": "tmpfs"}],
}
AT = "/data"


def mounting(container, path=AT):
    return attrs.evolve(container, volume_mounts=(VolumeMount(name="work", mount_path=path),))


def staged(*containers):
    """A stage with a given bundle and a rootfs, and an assignment of these containers."""
    stage, _, _ = a_stage()
    files = stage.ports.files
    files.put(GIVEN / "config.json", json.dumps(CONFIG).encode())
    files.content[GIVEN / "rootfs"] = DIRECTORY
    (main,) = stage.assignment.containers
    files.content[main.source.path] = DIRECTORY
    made = containers or (mounting(main),)
    stage.assignment = attrs.evolve(stage.assignment, durable_volumes=("work",), containers=tuple(made))
    return stage


def config_of(stage, name):
    return json.loads(stage.ports.files.content[bundle_directory(stage.activation, name) / "config.json"])


async def prepared(stage):
    return await prepare(stage, stage.assignment.containers, step=Step.CREATE)


async def test_a_volume_is_bound_for_writing_from_the_actors_directory():
    stage = staged()
    await prepared(stage)
    (mount,) = [each for each in config_of(stage, "main")["mounts"] if each["destination"] == AT]
    assert mount == {
        "destination": AT,
        "type": "bind",
        "source": "/state/actors/a1/volumes/work",
        "options": ["nodev", "nosuid", "rbind", "rprivate", "rw"],
    }


async def test_what_is_made_for_a_mount_is_not_made_in_the_rootfs():
    stage = staged()
    plan = await prepared(stage)
    cover = plan.containers[0].cover
    assert cover is not None
    assert cover.rootfs == stage.assignment.containers[0].source.path
    assert cover_path(stage.activation) in stage.ports.files.content


async def test_without_a_volume_nothing_is_covered():
    stage = staged()
    stage.assignment = attrs.evolve(
        stage.assignment, containers=(attrs.evolve(stage.assignment.containers[0], volume_mounts=()),)
    )
    plan = await prepared(stage)
    assert plan.containers[0].cover is None
    assert cover_path(stage.activation) not in stage.ports.files.content


async def test_a_restore_compares_where_volumes_are_mounted_and_not_where_they_stand():
    stage = staged()
    await prepared(stage)
    (mount,) = [each for each in stage.shapes["main"].mounts if each.destination == AT]
    assert (mount.type, "source" in attrs.asdict(mount)) == ("bind", False)


async def test_the_root_of_the_sandbox_has_no_volume():
    stage = staged()
    await prepared(stage)
    assert [each["destination"] for each in config_of(stage, "pause")["mounts"]] == ["/proc"]


async def test_a_given_bundle_gets_its_volumes_beside_its_own_mounts():
    stage = staged(mounting(Container(name="web", source=Bundle(GIVEN))))
    await prepared(stage)
    assert [each["destination"] for each in config_of(stage, "web")["mounts"]] == ["/cache/deep", AT]


@pytest.mark.parametrize("path", ["/cache", "/cache/deep"])
async def test_no_volume_hides_what_a_given_bundle_mounts_itself(path):
    stage = staged(mounting(Container(name="web", source=Bundle(GIVEN)), path))
    with pytest.raises(ProblemError) as caught:
        await prepared(stage)
    assert (caught.value.problem.reason, caught.value.problem.subject) == (Reason.INVALID_BUNDLE, "web")
    assert "/cache" in caught.value.problem.message


async def test_a_volume_may_lie_within_what_a_given_bundle_mounts():
    stage = staged(mounting(Container(name="web", source=Bundle(GIVEN)), "/cache/deep/er"))
    await prepared(stage)
    assert [each["destination"] for each in config_of(stage, "web")["mounts"]] == ["/cache/deep", "/cache/deep/er"]
