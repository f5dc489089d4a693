"""The watched directory, on files in memory: what is admitted, refused and ended, and what never is."""

import errno
from collections import Counter

import anyio
import pytest

from statemachine import commands as c
from statemachine.states import State
from supervisor import directory_intake
from tests.actors.memory_files import DIRECTORY
from tests.supervisor.intakes import ASSIGNMENTS, a_running_file, an_intake, refusal
from tests.supervisor.stands import a_document

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("short_times")]


@pytest.mark.parametrize("name", ["x.yaml", "x.yml", "x.json"])
async def test_a_document_is_admitted_when_its_file_appears(name):
    async with an_intake() as intake:
        intake.write(name)
        await intake.running()
        assert intake.worker.refused == {}


@pytest.mark.parametrize("name", ["x.txt", "x.yaml.tmp", ".x.yaml", "..x.json", "yaml", "x.YAML", "x"])
async def test_other_files_and_dot_files_are_none_of_its_business(name):
    async with an_intake() as intake:
        intake.write(name)
        await intake.quiet()
        assert intake.worker.lives == ()
        assert intake.worker.refused == {}


async def test_files_that_were_there_before_are_admitted_too():
    async with an_intake() as intake:
        intake.files.put(ASSIGNMENTS / "x.yaml", a_document())
        intake.stand.ports.watch.tell()
        await intake.running()
        assert intake.on_stage() == {"a1": (State.RUNNING, 1)}


async def test_a_changed_file_is_admitted_anew():
    async with a_running_file() as intake:
        intake.write("x.yaml", generation=2)
        await intake.running(generation=2)
        assert intake.on_stage() == {"a1": (State.RUNNING, 2)}


async def test_a_file_that_is_told_to_have_changed_is_read_even_if_it_looks_the_same():
    """Written twice within one tick of the clock, to the same length: inode, size and mtime say nothing."""
    async with a_running_file() as intake:
        path = ASSIGNMENTS / "x.yaml"
        intake.files.content[path] = a_document(generation=2)
        intake.stand.ports.watch.tell("x.yaml")
        await intake.running(generation=2)
        assert intake.on_stage() == {"a1": (State.RUNNING, 2)}


async def test_an_exchange_of_all_files_behind_a_symlink_is_seen():
    """A mounted ConfigMap tells `..data` only."""
    async with a_running_file() as intake:
        intake.files.put(ASSIGNMENTS / "x.yaml", a_document(generation=2))
        intake.stand.ports.watch.tell("..data", "..2026_11_29")
        await intake.running(generation=2)
        assert intake.on_stage() == {"a1": (State.RUNNING, 2)}


REFUSED = {
    b"": "EmptyDocument",
    b"\x00\xff\xfe\x80binary": "NotUtf8",
    b"a: &a [x]\nb: [*a, *a]\n": "AliasesRefused",
    b"a: 1\n---\nb: 2\n": "MultipleDocuments",
    b"[" * 100 + b"]" * 100: "TooDeep",
    b"apiVersion: v1\nkind: Pod\n": "UnsupportedKind",
    b"{": "MalformedDocument",
    a_document(spec__containers="x"): "WrongType",
    a_document("../a1"): "InvalidUid",
    a_document("a/b"): "InvalidUid",
    a_document() + b" " * (1 << 20): "DocumentTooLarge",
    a_document(spec__containers__0__rootfs="nowhere"): "RootfsNotFound",
}


@pytest.mark.parametrize("data", REFUSED, ids=REFUSED.values())
async def test_a_bad_document_is_refused_with_its_reason_until_it_is_right(data):
    async with an_intake() as intake:
        if REFUSED[data] == "DocumentTooLarge":
            intake.files.put(ASSIGNMENTS / "x.yaml", data)
            intake.stand.ports.watch.tell("x.yaml")
        else:
            intake.write("x.yaml", data)
        assert REFUSED[data] in await intake.refused("x.yaml")
        await intake.eventually(lambda: refusal(intake, "x.yaml") is not None)
        document = refusal(intake, "x.yaml")
        assert document["file"] == "x.yaml"
        assert REFUSED[data] in [problem["reason"] for problem in document["problems"]]
        intake.write("x.yaml")
        await intake.running()
        await intake.eventually(lambda: refusal(intake, "x.yaml") is None)
        assert intake.worker.refused == {}


async def test_a_name_with_control_characters_shows_them_and_each_problem_says_where_in_the_document():
    async with an_intake() as intake:
        intake.write("a\x1b[2J\n\\n.yaml", spec__containers__0__name="UPPER")
        label = r"a\x1b[2J\n\\n.yaml"
        assert await intake.refused(label) == ["InvalidContainerName"]
        assert [problem.subject for problem in intake.worker.refused[label]] == ["spec.containers[0].name"]


@pytest.mark.parametrize("how", ["a change", "a rescan"])
async def test_a_refusal_goes_with_its_file(how):
    async with an_intake() as intake:
        intake.write("x.yaml", b"")
        await intake.eventually(lambda: refusal(intake, "x.yaml") is not None)
        if how == "a change":
            intake.remove("x.yaml")
        else:
            del intake.files.content[ASSIGNMENTS / "x.yaml"]
            intake.stand.ports.watch.tell()
        await intake.eventually(lambda: refusal(intake, "x.yaml") is None)
        assert intake.worker.refused == {}


@pytest.mark.parametrize("operation", ["stat", "read"])
async def test_a_file_that_cannot_be_read_is_read_as_soon_as_it_can_be(operation):
    """A change of its mode moves neither inode nor size nor mtime."""
    async with an_intake() as intake:
        intake.files.fail(operation, ASSIGNMENTS / "x.yaml", errno.EACCES)
        intake.write("x.yaml")
        assert await intake.refused("x.yaml") == ["UnreadableFile"]
        intake.files.heal(operation, ASSIGNMENTS / "x.yaml")
        intake.stand.ports.watch.tell("x.yaml")
        await intake.running()
        assert intake.worker.refused == {}


@pytest.mark.parametrize("operation", ["stat", "read"])
async def test_the_refusal_of_an_unreadable_file_goes_when_only_a_rescan_finds_it_gone(operation):
    async with an_intake() as intake:
        intake.files.fail(operation, ASSIGNMENTS / "x.yaml", errno.ELOOP)
        intake.write("x.yaml")
        assert await intake.refused("x.yaml") == ["UnreadableFile"]
        intake.files.failures.clear()
        del intake.files.content[ASSIGNMENTS / "x.yaml"]
        intake.stand.ports.watch.tell()
        await intake.eventually(lambda: intake.worker.refused == {})


async def test_what_was_refused_is_judged_anew_at_every_scan():
    async with an_intake() as intake:
        intake.write("x.yaml", spec__containers__0__rootfs="later")
        assert await intake.refused("x.yaml") == ["RootfsNotFound"]
        intake.files.content[ASSIGNMENTS / "later"] = DIRECTORY
        intake.stand.ports.watch.tell()
        await intake.running()


def counted(intake, operation):
    """Every call of a file operation from now on, by the name of the file."""
    calls: Counter[str] = Counter()
    original = getattr(intake.files, operation)

    async def count(path, **arguments):
        calls[path.name] += 1
        return await original(path, **arguments)

    setattr(intake.files, operation, count)
    return calls


async def test_what_only_another_text_can_make_right_is_read_once_and_what_may_be_right_by_now_again_and_again():
    async with an_intake() as intake:
        reads = counted(intake, "read")
        for number, data in enumerate(set(REFUSED) - {each for each in REFUSED if REFUSED[each] == "RootfsNotFound"}):
            intake.write(f"{number}.yaml", data)
            await intake.refused(f"{number}.yaml")
        intake.write("x.yaml", spec__containers__0__rootfs="later")
        await intake.refused("x.yaml")
        await intake.eventually(lambda: reads["x.yaml"] >= 5)
        intake.stand.ports.watch.tell()  # nor does a scan read them again
        await intake.quiet()
        assert {count for name, count in reads.items() if name != "x.yaml"} == {1}
        intake.files.content[ASSIGNMENTS / "later"] = DIRECTORY
        await intake.running()
        intake.write("0.yaml", uid="a0")
        await intake.running("a0")


async def test_nothing_is_looked_at_again_where_nothing_can_have_become_right():
    async with an_intake() as intake:
        intake.write("x.yaml", b"{")
        await intake.refused("x.yaml")
        await intake.quiet()
        looks = [counted(intake, operation) for operation in ("stat", "list_directory", "read")]
        await intake.some_rescans()
        assert looks == [{}, {}, {}]


async def test_a_refused_file_whose_actor_ended_meanwhile_is_judged_anew_without_a_change():
    async with an_intake() as intake:
        await intake.stand.running("a1", 5)
        intake.write("x.yaml", generation=5, spec__containers__0__rootfs="rootfs/.", spec__desiredState="Suspended")
        assert await intake.refused("x.yaml") == ["GenerationConflict"]
        intake.write("y.yaml", b"")
        await intake.refused("y.yaml")
        reads = counted(intake, "read")
        await intake.eventually(lambda: reads["x.yaml"] >= 3)
        assert reads["y.yaml"] == 0


async def test_whoever_asks_for_it_has_every_file_looked_at_again_that_no_watch_told_of():
    async with an_intake() as intake:
        intake.write("a.yaml", uid="a1")
        await intake.running("a1")
        intake.files.put(intake.directory / "b.yaml", a_document(uid="b1"))
        await intake.quiet()
        assert intake.state("b1") is None
        for uid in ("b1", "c1"):
            intake.files.put(intake.directory / f"{uid[0]}.yaml", a_document(uid=uid))
            intake.follower.look_again()
            await intake.running(uid)


async def test_exchanges_without_end_cost_a_few_scans_side_by_side_and_the_last_one_is_seen():
    async with an_intake() as intake:
        go, begun = anyio.Event(), []
        list_directory = intake.files.list_directory

        async def held(path):
            if path == ASSIGNMENTS:
                begun.append(path)
                await go.wait()
            return await list_directory(path)

        intake.files.list_directory = held
        for number in range(50):
            intake.stand.ports.watch.tell("..data", f"..{number}")
            await intake.quiet()
        assert len(begun) == directory_intake.SCANS_MAX
        intake.files.put(ASSIGNMENTS / "x.yaml", a_document())
        go.set()
        await intake.running()
        await intake.quiet()
        assert len(begun) == directory_intake.SCANS_MAX + 1


async def test_refusals_of_an_earlier_life_are_forgotten_and_strangers_beside_them_are_not():
    async with an_intake() as intake:
        refused = intake.stand.state.refused
        intake.files.put(refused / "old.yaml.json", b"{}")
        intake.files.put(refused / "note.txt", b"")
        intake.files.put(refused / "dir.json" / "x", b"")
        intake.files.fail("remove_file", refused / "dir.json", errno.EISDIR)
        again = directory_intake.DirectoryIntake(
            directory=ASSIGNMENTS,
            ports=intake.stand.ports.as_ports,
            state_dir=intake.stand.state,
            worker=intake.worker,
            admission=intake.stand.admission,
        )
        await again._forget_refusals()
        assert set(intake.files.below(refused)) == {"note.txt", "dir.json/x"}


@pytest.mark.parametrize("operation", ["replace", "remove_file"])
async def test_a_refusal_that_cannot_be_written_or_removed_costs_nothing_else(operation):
    async with an_intake() as intake:
        intake.files.fail(operation, "x.yaml.json", errno.ENAMETOOLONG)
        intake.write("x.yaml", b"")
        await intake.refused("x.yaml")
        intake.write("x.yaml")
        await intake.running()
        assert intake.worker.refused == {}


async def test_a_fault_of_ours_costs_one_file(monkeypatch):
    async with an_intake() as intake:
        original = intake.stand.admission.submit

        async def submit(_self, data, *, base):
            if b"bad" in data:
                raise ZeroDivisionError
            return await original(data, base=base)

        monkeypatch.setattr(type(intake.stand.admission), "submit", submit)
        intake.write("bad.yaml", uid="bad")
        assert await intake.refused("bad.yaml") == ["Internal"]
        intake.write("x.yaml")
        await intake.running()


async def test_an_actor_that_takes_its_time_holds_up_no_other_file():
    async with an_intake() as intake:
        intake.stand.prepare["a1"] = lambda performer: performer.hold(c.CreateSandbox, has_cleanup=True)
        intake.write("a1.yaml")
        await intake.eventually(lambda: intake.state() is State.CREATING)
        hold = intake.stand.performers["a1"].holds[c.CreateSandbox]
        intake.stand.prepare.clear()
        await hold.begun.wait()
        intake.write("a1.yaml", generation=2, spec__desiredState="Terminated")
        await hold.cancelled.wait()
        for generation in range(3, 8):
            intake.write("a1.yaml", generation=generation)
        intake.write("a2.yaml", uid="a2")
        await intake.running("a2")
        assert intake.on_stage()["a1"] == (State.ROLLING_BACK, 2)
        intake.files.put(ASSIGNMENTS / "a3.yaml", a_document("a3"))
        intake.stand.ports.watch.tell("..data")  # nor an exchange of all files, after one that meets it
        await intake.running("a3")
        intake.files.put(ASSIGNMENTS / "a4.yaml", a_document("a4"))
        intake.stand.ports.watch.tell("..data")
        await intake.running("a4")
        hold.cleanup.set()
        await intake.eventually(lambda: intake.worker.find("a1").assignment.generation == 7)
