"""Where a container has cuda-checkpoint, and for which drivers it is."""

from pathlib import Path

import pytest

from actors.gpu.cuda_checkpoint import is_driver_new_enough, places_in
from tests.fakes.files import FakeFiles

pytestmark = pytest.mark.anyio

ROOT = Path("/images/app")


def config(*mounts, path="PATH=/usr/local/bin:/usr/bin"):
    return {"root": {"path": str(ROOT)}, "process": {"env": ["A=b", path]}, "mounts": list(mounts)}


def bind(destination, source, **more):
    return {"destination": destination, "source": source, "type": "bind", **more}


def files_with(*programs, mode=0o755):
    files = FakeFiles()
    for program in programs:
        put(files, program, mode)
    return files


def put(files, program, mode=0o755):
    files.put(Path(program), b"ELF")
    files.modes[Path(program)] = mode


def link(files, path, target):
    files.put(Path(path), b"")
    files.targets[Path(path)] = target


async def test_it_is_looked_for_in_the_directories_of_the_containers_path_in_their_order():
    files = files_with("/images/app/usr/bin/cuda-checkpoint", "/images/app/usr/local/bin/cuda-checkpoint")
    assert await places_in(files, config()) == ("/usr/local/bin/cuda-checkpoint", "/usr/bin/cuda-checkpoint")
    assert await places_in(files, config(path="PATH=/usr/bin")) == ("/usr/bin/cuda-checkpoint",)
    assert await places_in(files, config(path="PATH=bin:.:/opt")) == ()


async def test_without_a_path_the_usual_directories_count():
    files = files_with("/images/app/usr/bin/cuda-checkpoint")
    assert await places_in(files, {"root": {"path": str(ROOT)}}) == ("/usr/bin/cuda-checkpoint",)


@pytest.mark.parametrize("mode", [0o644, 0o600])
async def test_a_file_that_nobody_can_execute_is_no_program(mode):
    assert await places_in(files_with("/images/app/usr/bin/cuda-checkpoint", mode=mode), config()) == ()


async def test_a_program_that_is_mounted_is_there_and_one_that_is_covered_is_not():
    files = files_with("/driver/bin/cuda-checkpoint", "/images/app/usr/bin/cuda-checkpoint")
    at = "/usr/bin/cuda-checkpoint"
    assert await places_in(files, config(bind("/usr/local/bin", "/driver/bin"))) == (
        "/usr/local/bin/cuda-checkpoint", at,
    )  # fmt: skip
    assert await places_in(files, config(bind("/usr/local/bin/cuda-checkpoint/", "/driver/bin/cuda-checkpoint"))) == (
        "/usr/local/bin/cuda-checkpoint", at,
    )  # fmt: skip
    assert await places_in(files, config({"destination": "/usr/bin", "type": "tmpfs"})) == ()
    assert await places_in(files, config(bind("/usr", "/empty"))) == ()
    # Of two, the later one is what is seen.
    assert await places_in(
        files, config({"destination": "/usr", "type": "tmpfs"}, bind("/usr/bin", "/driver/bin"))
    ) == (at,)


async def test_a_mount_beside_it_covers_nothing():
    files = files_with("/images/app/usr/bin/cuda-checkpoint")
    assert await places_in(files, config(bind("/usr/bi", "/x"), bind("/usr/binary", "/x"))) == (
        "/usr/bin/cuda-checkpoint",
    )


@pytest.mark.parametrize(("at", "target"), [("bin", "/opt"), ("bin/cuda-checkpoint", "/opt/cuda-checkpoint")])
async def test_a_link_leads_within_the_image_and_never_out_of_it(at, target):
    files = files_with("/opt/cuda-checkpoint", "/images/app/usr/x")
    link(files, f"/images/app/usr/{at}", target)
    assert await places_in(files, config()) == ()
    put(files, "/images/app/opt/cuda-checkpoint")
    assert await places_in(files, config()) == ("/usr/bin/cuda-checkpoint",)


async def test_a_directory_that_is_mounted_at_its_place_is_no_program():
    files = files_with("/driver/cuda-checkpoint/x")
    assert await places_in(files, config(bind("/usr/bin/cuda-checkpoint", "/driver/cuda-checkpoint"))) == ()


@pytest.mark.parametrize(
    ("version", "is_new_enough"),
    [("550.54.14", True), ("580.65.06", True), ("1000.1", True), ("549.99", False), ("535.129.03", False), ("?", True)],
)
def test_a_driver_before_550_is_too_old_and_one_that_nobody_knows_is_tried(version, is_new_enough):
    assert is_driver_new_enough(version) is is_new_enough
