"""A mock node's own monitor, which needs no NVML; what it tells is in tests/contract/test_gpus_contract.py."""

import os
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path

import anyio
import attrs
import pytest

import greenroom
from actors.gpu.facts import ErrorFact, InventoryFact, XidFact, decode_lines
from sim.mock.fake_hardware import MockHardware
from sim.mock.layout import STATE_FILE
from sim.mock.state import Fault
from sim.world.nvml import Nvml, NvmlError, Return, Symbol
from supervisor.host.composition import open_host_ports
from tests.contract.gpu_nodes import BOUND_S, MockGpuNode
from tests.sim.mock.nodes import make_node_without_compiler


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_node_without_compiler(tmp_path_factory.mktemp("mock") / "node", "--gpus=2", "--minors=3,2")


@pytest.fixture
def node(made):
    yield made
    made.reset()


@contextmanager
def telling(node, period="0.05"):
    """The program itself, as whoever starts it has it; its stdout is a pipe here."""
    directory = node.directory
    argv = [node.monitor, directory / "driver", directory, directory / "proc", period]
    with subprocess.Popen(argv, env={}, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def told(process):
    """The facts of its next line."""
    facts, rest = decode_lines(process.stdout.readline())
    assert rest == b""
    return facts


def until(process, kind):
    while True:
        for fact in told(process):
            if isinstance(fact, kind):
                return fact


def test_it_needs_neither_an_environment_nor_an_nvml(node):
    with telling(node) as process:
        (fact,) = told(process)
        assert (fact.driver, [gpu.minor for gpu in fact.inventory.gpus]) == ("580.65.06", [2, 3])


def test_it_ends_when_nobody_listens_any_more(node):
    with telling(node) as process:
        told(process)
        process.stdout.close()
        assert process.wait(BOUND_S) == 0
        assert process.stderr.read() == b""


@pytest.mark.parametrize("symbol", [Symbol.INIT, Symbol.UUID, Symbol.EVENT_SET_WAIT])
def test_a_crash_of_nvml_is_its_death_by_sigsegv(node, symbol):
    node.script(f"{symbol}=crash")
    with telling(node) as process:
        assert process.wait(BOUND_S) == -signal.SIGSEGV
        assert process.stderr.read() == b""


def test_an_xid_is_told_at_once_however_long_it_is_to_the_next_look(node):
    with telling(node, period="3600") as process:
        until(process, InventoryFact)
        for _ in node.state().gpus:
            told(process)  # who computes there; now it waits
        node.script("3=xid:48")
        assert until(process, XidFact) == XidFact(gpu=node.state().gpu(3).uuid, xid=48)


def test_a_damaged_state_file_is_an_unknown_error_until_it_is_mended(node):
    with telling(node) as process:
        until(process, InventoryFact)
        damage(node.directory / STATE_FILE)
        assert until(process, ErrorFact).error == "NVML_ERROR_UNKNOWN"
        node.reset()
        assert len(until(process, InventoryFact).inventory.gpus) == 2


def test_without_a_state_file_no_driver_is_loaded(node):
    (node.directory / STATE_FILE).unlink()
    with telling(node) as process:
        assert until(process, ErrorFact).error == "NVML_ERROR_DRIVER_NOT_LOADED"
        node.reset()
        assert len(until(process, InventoryFact).inventory.gpus) == 2


def damage(path):
    path.write_text("{")


def code_of(call):
    try:
        call()
    except NvmlError as error:
        return error.code
    return 0


def test_a_fault_with_a_bound_is_counted_over_other_changes_of_the_state(node):
    fault = Fault(symbol=Symbol.INIT, what=int(Return.UNKNOWN), times_max=2)
    node.put(attrs.evolve(node.state(), faults=(fault,)))
    nvml = Nvml(MockHardware(node.directory), node.nvml)
    codes = []
    for word in ("2=xid:13", "2=process:7", "2=idle"):
        codes.append(code_of(nvml.init))
        node.script(word)
    assert codes == [Return.UNKNOWN, Return.UNKNOWN, 0]


def test_the_same_fault_goes_on_counting_when_it_was_gone_in_between(node):
    scripted = attrs.evolve(node.state(), faults=(Fault(symbol=Symbol.INIT, what=int(Return.UNKNOWN), times_max=2),))
    nvml = Nvml(MockHardware(node.directory), node.nvml)
    codes = []
    for state in (scripted, attrs.evolve(scripted, faults=()), scripted, scripted):
        node.put(state)
        codes.append(code_of(nvml.init))
    assert codes == [Return.UNKNOWN, 0, Return.UNKNOWN, 0]


@pytest.mark.parametrize(("spoil", "code"), [(Path.unlink, Return.DRIVER_NOT_LOADED), (damage, Return.UNKNOWN)])
def test_what_was_scripted_is_over_with_a_state_file_that_cannot_be_read(node, spoil, code):
    node.put(attrs.evolve(node.state(), faults=(Fault(symbol=Symbol.INIT, what=int(Return.GPU_NOT_FOUND)),)))
    nvml = Nvml(MockHardware(node.directory), node.nvml)
    assert code_of(nvml.init) is Return.GPU_NOT_FOUND
    spoil(node.directory / STATE_FILE)
    assert code_of(nvml.init) is code


def test_an_xid_from_before_it_was_looked_at_is_not_told(node):
    node.script("2=xid:13")
    hardware = MockHardware(node.directory)
    heard = []
    hardware.listeners.append(lambda minor, xid: heard.append((minor, xid)))
    hardware.refresh()
    assert heard == []
    node.script("2=xid:48", "3=xid:31")
    hardware.refresh()
    hardware.refresh()
    assert sorted(heard) == [(2, 48), (3, 31)]


def test_a_gpu_that_is_in_the_state_no_more_is_lost(node):
    hardware = MockHardware(node.directory)
    nvml = Nvml(hardware, node.nvml)
    nvml.init()
    handle = nvml.handle_by_index(0)
    state = node.state()
    node.put(attrs.evolve(state, gpus=state.gpus[1:]))
    assert code_of(lambda: nvml.uuid(handle)) is Return.GPU_IS_LOST


# ---- as --gpu-monitor


@pytest.mark.anyio
async def test_a_worker_takes_the_program_that_was_named_in_place_of_its_own(node):
    places = MockGpuNode(node).places
    async with (
        open_host_ports(roots=[], gpu_monitor=node.monitor) as ports,
        ports.gpus.monitor(places) as monitor,
    ):
        with anyio.fail_after(BOUND_S):
            facts, _ = decode_lines(await monitor.receive())
        assert isinstance(facts[0], InventoryFact)


@pytest.mark.anyio
async def test_a_monitor_that_is_not_there_is_an_error_of_the_call(node, tmp_path):
    async with open_host_ports(roots=[], gpu_monitor=tmp_path / "none") as ports:
        with pytest.raises(FileNotFoundError):
            async with ports.gpus.monitor(MockGpuNode(node).places):
                pass


def test_the_doctor_hears_it_too(node, capsys):
    directory = node.directory
    roots = [f"--dev-root={directory}", f"--proc-root={directory}/proc", f"--driver-root={directory}/driver"]
    greenroom.run(["doctor", *roots, f"--toolkit-dir={node.toolkit.parent}", f"--gpu-monitor={node.monitor}"])
    lines = {line.split()[1]: line for line in capsys.readouterr().out.splitlines() if line[:1] != " "}
    assert lines["nvml"].startswith("ok ")
    assert node.state().gpu(3).uuid in lines["nvml"]


def test_what_stands_there_can_be_executed(node):
    assert os.access(node.monitor, os.X_OK)
