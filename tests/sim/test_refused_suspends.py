"""Suspends that are refused in the simulated world: the actor runs on untouched, and can be suspended afterwards."""

import pytest
import trio

from sim.documents import IDLE, actor, container
from sim.engine import run
from sim.faults import Fail, Fault, When
from sim.world import scenery
from sim.world.gpus import ComputeProcess, Driver, some_gpus
from sim.world.nvml import Return, Symbol
from sim.world.runsc.programs import Program, exits_with
from sim.world.runsc.settings import Flavour
from sim.world.world import ROOTFS, Machine
from statemachine.states import State

CUDA = Program((("open", "/dev/nvidia-uvm"), ("open", "/dev/nvidia2"), ("sleep", float("inf"), True)), name="holds")
LETS_GO = Program(
    (("open", "/dev/nvidia2"), ("sleep", 20.0, True), ("close", "/dev/nvidia2"), ("sleep", float("inf"), True)),
    name="lets go",
)
LARGE = Program((("grow", 64 << 20), ("sleep", float("inf"), True)), name="large")
PROGRAMS: dict[tuple[str, ...], Program] = {
    ("cuda",): CUDA,
    ("lets-go",): LETS_GO,
    ("large",): LARGE,
    ("fails",): exits_with(3, after_s=1.0),
}
TOUCHING = (" pause ", " checkpoint ", " delete ", " resume ", " restore ")


def machine(flavour=Flavour.R24):
    return Machine(
        flavour=flavour,
        programs=PROGRAMS,
        gpus=some_gpus(2, minors=(2, 3)),
        driver=Driver(version="550.90.12" if flavour is Flavour.HEAD else "550.90.07"),
    )


def on_gpu(*command, **spec):
    claimed = container("main", command, resources={"limits": {"nvidia.com/gpu": 1}})
    return actor("a1", claimed, container("beside"), **spec)


async def started(here, document):
    await here.submit(document)
    await here.wait(State.RUNNING)
    # The first looks of NVML are done.
    await trio.sleep(5)


def told(problem, *words):
    """The reason, and which words are not in the message."""
    return problem["reason"], [each for each in words if each not in problem["message"]]


async def refused(here):
    """Ask for a suspend, which is refused and touches nothing; returns the problem."""
    before = here.world.files_below(here.world.state.actor("a1").snapshots)
    seen, (sandbox,) = len(here.world.ledger.calls), here.world.sandboxes_of("a1")
    await here.ask("suspend", uid="a1")
    await here.until(State.RUNNING)
    status = await here.status()
    assert status["error"]["step"] == "suspend"
    commands = [call.argument for call in here.world.ledger.calls[seen:] if call.method == "run"]
    assert [each for each in commands if any(word in each for word in TOUCHING)] == []
    assert here.world.files_below(here.world.state.actor("a1").snapshots) == before
    assert here.world.sandboxes_of("a1") == [sandbox]
    counted = len(here.output(container="beside"))
    await trio.sleep(1)
    assert len(here.output(container="beside")) > counted
    return status["error"]


def played(scenario, **options):
    record = run(scenario, **options)
    assert [said for said in record.log if said.event == "fault"] == []
    return record


def test_a_container_that_failed_refuses_with_its_code():
    async def life(here):
        await started(here, actor("a1", container("main", ["fails"]), container("beside")))
        assert told(await refused(here), "main", "exit code 3") == ("ContainerExited", [])

    assert "Thawing" in played(life, machine=machine()).states("a1")


def test_a_snapshot_that_does_not_fit_is_refused_with_both_numbers_and_made_once_there_is_room():
    async def life(here):
        await started(here, actor("a1", container("main", ["large"]), container("beside")))
        here.world.fill_disk(slack_bytes=32 << 20)
        assert told(await refused(here), "68.0 MiB", "32.0 MiB are free") == ("InsufficientDisk", [])
        here.world.make_room()
        await here.suspend()
        await here.resume()

    assert "Suspended" in played(life, machine=machine()).states("a1")


@pytest.mark.parametrize(("error", "reason"), [("EROFS", "StateUnwritable"), ("ENOSPC", "InsufficientDisk")])
def test_a_target_that_cannot_be_written_is_refused(error, reason):
    when = When(port="files", method="replace_for_boot", argument="/probe$")
    fault = Fault(id="target", when=when, what=Fail(error))

    async def life(here):
        await started(here, actor("a1", container("beside")))
        assert told(await refused(here), "nothing can be written") == (reason, [])
        await here.suspend()

    record = played(life, machine=machine(), faults=[fault])
    assert [len(report.fired) for report in record.faults] == [1]


def test_a_command_that_is_executed_inside_refuses_until_it_has_ended():
    async def life(here):
        await started(here, actor("a1", container("beside")))
        for sandbox in here.world.execution.sandboxes.values():
            sentry = sandbox.sentry
            inside = next(each for each in sentry.containers.values() if not each.is_root)
            sentry.start_process(inside, exits_with(0, after_s=100), trio.current_time(), (None, None), is_foreign=True)
            sandbox.begin()
        assert told(await refused(here), "executed inside") == ("OperationInProgress", [])
        await trio.sleep(100)
        await here.suspend()

    played(life, machine=machine())


# --------------------------------------------------------------------------------------------------- live CUDA contexts


@pytest.mark.parametrize("flavour", Flavour)
def test_open_device_files_refuse(flavour):
    async def life(here):
        await started(here, on_gpu("cuda"))
        assert told(await refused(here), "the sandbox holds /dev/nvidia-uvm, /dev/nvidia2 open") == (
            "LiveCudaContext",
            [],
        )

    played(life, machine=machine(flavour))


def test_a_process_that_nvml_tells_of_refuses_with_its_pid_until_it_is_gone():
    async def life(here):
        await started(here, on_gpu(*IDLE))
        here.world.gpus.occupy(2, ComputeProcess(pid=4711, used_bytes=1 << 30))
        # Of another actor's GPU nothing follows.
        here.world.gpus.occupy(3, ComputeProcess(pid=5, used_bytes=1 << 30))
        await trio.sleep(5)
        problem = await refused(here)
        assert told(problem, "process computes on /dev/nvidia2: pid 4711") == ("LiveCudaContext", [])
        assert "nvidia3" not in problem["message"]
        here.world.gpus.occupy(2)
        # What NVML has told before is not held against it: it is asked again.
        await here.suspend()

    played(life, machine=machine())


def test_nvml_that_does_not_answer_has_not_said_no():
    async def life(here):
        await started(here, on_gpu(*IDLE))
        fault = here.world.gpus.spoil(Symbol.DRIVER_VERSION, Return.UNKNOWN)
        await trio.sleep(5)
        assert told(await refused(here), "NVML_ERROR_UNKNOWN") == ("NvmlUnavailable", [])
        here.world.gpus.heal(fault)
        await trio.sleep(30)
        fault = here.world.gpus.spoil(Symbol.COMPUTE_PROCESSES, Return.NO_PERMISSION)
        await trio.sleep(5)
        assert told(await refused(here), "does not say which processes compute") == ("NvmlUnavailable", [])
        here.world.gpus.heal(fault)
        await trio.sleep(5)
        await here.suspend()

    played(life, machine=machine())


def test_wait_suspends_once_the_application_has_let_go_by_itself():
    async def life(here):
        await started(here, on_gpu("lets-go", suspend={"onLiveCuda": "Wait"}))
        began_s = trio.current_time()
        await here.suspend()
        assert 10 < trio.current_time() - began_s < 20

    record = played(life, machine=machine())
    assert record.states("a1").count("Suspending") == 1


def test_wait_gives_up_after_its_time_and_the_actor_runs_on():
    async def life(here):
        await started(here, on_gpu("cuda", suspend={"onLiveCuda": "Wait"}))
        began_s = trio.current_time()
        assert told(await refused(here), "still open after 240 s") == ("LiveCudaContext", [])
        assert 240 <= trio.current_time() - began_s < 260

    played(life, machine=machine())


def test_a_wait_ends_at_once_when_the_actor_is_to_be_stopped():
    async def life(here):
        await started(here, on_gpu("cuda", suspend={"onLiveCuda": "Wait"}, terminationGracePeriodSeconds=0))
        await here.ask("suspend", uid="a1")
        await trio.sleep(10)
        assert (await here.status())["state"] == "Suspending"
        began_s = trio.current_time()
        await here.stop()
        assert trio.current_time() - began_s < 5

    played(life, machine=machine())


def put_program(here):
    scenery.put_file(here.world.disk, ROOTFS / "bin/cuda-checkpoint", b"\x7fELF cuda-checkpoint", mode=0o755)


@pytest.mark.parametrize("env", [[{"name": "PATH", "value": "/bin"}], []])
def test_checkpoint_saves_the_context_with_the_program_of_the_image_and_it_is_open_after_the_resume(env):
    async def life(here):
        put_program(here)
        document = on_gpu("cuda", suspend={"onLiveCuda": "Checkpoint"})
        document["spec"]["containers"][0]["env"] = env
        await started(here, document)
        await here.suspend()
        await here.resume()
        (sandbox,) = here.world.execution.sandboxes.values()
        assert any(each.path == "/dev/nvidia2" for each in sandbox.open_files())
        await here.suspend()

    record = played(life, machine=machine(Flavour.HEAD))
    saves = [call.argument for call in record.calls if " checkpoint " in call.argument]
    assert len(saves) == 2
    assert all("--cuda-checkpoint-path=/bin/cuda-checkpoint --cuda-checkpoint-sequential" in each for each in saves)


@pytest.mark.parametrize(
    ("flavour", "has_program", "reason", "words"),
    [
        (Flavour.R24, True, "CudaCheckpointUnsupported", "has no flags for cuda-checkpoint"),
        (Flavour.HEAD, False, "CudaCheckpointNotFound", "container main has no cuda-checkpoint in its PATH"),
    ],
)
def test_what_is_missing_for_checkpoint_refuses_with_a_reason_of_its_own(flavour, has_program, reason, words):
    async def life(here):
        if has_program:
            put_program(here)
        await started(here, on_gpu("cuda", suspend={"onLiveCuda": "Checkpoint"}))
        assert told(await refused(here), words, "/dev/nvidia2") == (reason, [])

    played(life, machine=machine(flavour))


def test_without_a_context_checkpoint_needs_nothing():
    async def life(here):
        await started(here, on_gpu(*IDLE, suspend={"onLiveCuda": "Checkpoint"}))
        await here.suspend()
        await here.resume()

    assert "Suspended" in played(life, machine=machine()).states("a1")
