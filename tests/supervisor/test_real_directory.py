"""The watched directory as a file system makes it: what is no file and no name, a directory that comes and goes."""

import json
import os
import shutil

import pytest

from statemachine.states import State
from supervisor import directory_intake
from tests.supervisor.intakes import a_real_intake
from tests.supervisor.stands import a_document

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def short_times(monkeypatch):
    monkeypatch.setattr(directory_intake, "RESCAN_AFTER_S", 0.2)
    monkeypatch.setattr(directory_intake, "RETRY_S", 0.05)


def put(intake, name="x.yaml", **changes):
    """As it should be done: beside it, then renamed."""
    beside = intake.directory / f".{name}"
    beside.write_bytes(a_document(**changes))
    beside.rename(intake.directory / name)


async def test_a_file_is_admitted_when_it_is_renamed_into_place(tmp_path):
    async with a_real_intake(tmp_path) as intake:
        put(intake)
        await intake.running()
        put(intake, generation=2)
        await intake.running(generation=2)
        assert intake.on_stage() == {"a1": (State.RUNNING, 2)}


async def test_what_is_no_file_is_refused_and_holds_up_nothing(tmp_path):
    async with a_real_intake(tmp_path) as intake:
        os.mkfifo(intake.directory / "fifo.yaml")
        (intake.directory / "dir.yaml").mkdir()
        (intake.directory / "loop.yaml").symlink_to("loop.yaml")
        (intake.directory / "away.yaml").symlink_to("nowhere")
        (intake.directory / "null.yaml").symlink_to("/dev/null")
        (intake.directory / "zero.yaml").symlink_to("/dev/zero")
        (intake.directory / "huge.yaml").touch()
        os.truncate(intake.directory / "huge.yaml", 1 << 40)
        put(intake)
        await intake.running()
        for name in ("fifo", "dir", "loop", "away", "null", "zero"):
            assert await intake.refused(f"{name}.yaml") == ["UnreadableFile"]
        assert await intake.refused("huge.yaml") == ["DocumentTooLarge"]


async def test_a_symlink_to_a_document_is_followed(tmp_path):
    async with a_real_intake(tmp_path) as intake:
        (tmp_path / "elsewhere").write_bytes(a_document())
        (intake.directory / "x.yaml").symlink_to(tmp_path / "elsewhere")
        await intake.running()
        assert intake.on_stage() == {"a1": (State.RUNNING, 1)}


async def test_a_name_that_is_no_text_or_as_long_as_can_be_ends_nothing(tmp_path, logs):
    async with a_real_intake(tmp_path) as intake:
        long = "x" * 250 + ".yaml"
        other = "x" * 249 + "y.yaml"
        raw = os.fsdecode(b"\xff\xfe.yaml")
        (intake.directory / long).write_bytes(b"")
        (intake.directory / other).write_bytes(b"{")
        (intake.directory / raw).write_bytes(b"")
        assert await intake.refused(other) == ["MalformedDocument"]
        assert await intake.refused(long) == ["EmptyDocument"]
        assert await intake.refused("\\udcff\\udcfe.yaml") == ["EmptyDocument"]
        # Whoever looks into refused/ finds each, under a name that a file may have.
        await intake.eventually(lambda: len(list(intake.refusals.glob("*.json"))) == 3)
        told = {json.loads(path.read_bytes())["file"] for path in intake.refusals.glob("*.json")}
        assert told == {long, other, "\\udcff\\udcfe.yaml"}
        (intake.directory / long).unlink()
        (intake.directory / other).unlink()
        (intake.directory / raw).unlink()
        await intake.eventually(lambda: not intake.worker.refused and not list(intake.refusals.iterdir()))
        put(intake)
        await intake.running()
    assert all(str(value).isprintable() for line in logs for value in line.values())


async def test_a_file_that_is_replaced_again_and_again_ends_with_its_last_content(tmp_path):
    async with a_real_intake(tmp_path) as intake:
        for generation in range(1, 60):
            put(intake, generation=generation)
        await intake.running(generation=59)
        assert intake.worker.refused == {}


async def test_a_file_that_is_written_in_pieces_is_admitted_when_it_is_whole(tmp_path):
    async with a_real_intake(tmp_path) as intake:
        data = a_document()
        with (intake.directory / "x.yaml").open("wb", buffering=0) as file:
            file.write(data[:50])
            await intake.refused("x.yaml")
            file.write(data[50:])
        await intake.running()
        assert intake.worker.refused == {}


@pytest.mark.parametrize("how", ["moved", "removed"])
async def test_a_directory_that_vanishes_and_comes_back_ends_nothing(tmp_path, how):
    async with a_real_intake(tmp_path) as intake:
        put(intake)
        await intake.running()
        rootfs, away = intake.directory / "rootfs", tmp_path / "away"
        if how == "moved":
            intake.directory.rename(away)
        else:
            shutil.rmtree(intake.directory)
        assert await intake.refused(directory_intake.DIRECTORY) == ["IntakeUnreadable"]
        if how == "moved":
            away.rename(intake.directory)
        else:
            rootfs.mkdir(parents=True)
            put(intake)
        await intake.eventually(lambda: not intake.worker.refused)
        put(intake, "y.yaml", uid="a2")
        await intake.running("a2")
        assert intake.state() is State.RUNNING


async def test_the_actor_of_a_removed_file_ends(tmp_path):
    async with a_real_intake(tmp_path) as intake:
        put(intake)
        put(intake, "y.yaml", uid="a2")
        await intake.running()
        await intake.running("a2")
        (intake.directory / "x.yaml").rename(intake.directory / "z.yaml")
        (intake.directory / "y.yaml").unlink()
        await intake.ended("a2")
        assert intake.state() is State.RUNNING
