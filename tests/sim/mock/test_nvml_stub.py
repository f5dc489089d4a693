"""The NVML of a mock node, asked through nvidia-ml-py by processes of their own: what the state file says, it says."""

import json
import signal
import time
from pathlib import Path

import attrs
import pynvml
import pytest

from sim.mock.state import Fault
from sim.world.gpus import GIB, ComputeProcess
from sim.world.nvml import TEXTS, Return, Symbol
from tests.sim.mock.nodes import MINORS, hear, make_node, send

INIT = "nvmlInit()\n"
FOR_EVER_MS = 3_600_000  # much longer than a child lives: an event that comes so late fails the test
ALL_FACTS = """
nvmlInit()
def facts(gpu):
    pci, memory = nvmlDeviceGetPciInfo(gpu), nvmlDeviceGetMemoryInfo(gpu)
    return dict(
        index=nvmlDeviceGetIndex(gpu), minor=nvmlDeviceGetMinorNumber(gpu), uuid=nvmlDeviceGetUUID(gpu),
        model=nvmlDeviceGetName(gpu), bus=pci.busId, legacy=pci.busIdLegacy, place=[pci.domain, pci.bus, pci.device],
        memory=[memory.total, memory.free, memory.used], mig=nvmlDeviceGetMigMode(gpu),
        mig_max=nvmlDeviceGetMaxMigDeviceCount(gpu), is_mig=nvmlDeviceIsMigDeviceHandle(gpu).value,
        processes=[[each.pid, each.usedGpuMemory] for each in nvmlDeviceGetComputeRunningProcesses(gpu)],
        others=nvmlDeviceGetGraphicsRunningProcesses(gpu) + nvmlDeviceGetMPSComputeRunningProcesses(gpu),
        events=nvmlDeviceGetSupportedEventTypes(gpu), used=nvmlDeviceGetUtilizationRates(gpu).gpu,
    )
tell(dict(
    driver=nvmlSystemGetDriverVersion(), nvml=nvmlSystemGetNVMLVersion(), cuda=nvmlSystemGetCudaDriverVersion(),
    gpus=list(map(facts, handles())),
))
nvmlShutdown()
"""
LISTEN = """
nvmlInit()
events = nvmlEventSetCreate()
for gpu in handles():
    nvmlDeviceRegisterEvents(gpu, nvmlEventTypeXidCriticalError, events)
tell("listening")
for line in sys.stdin:
    try:
        event = nvmlEventSetWait_v2(events, int(line))
        minor = next(m for m in range(255) if m == minors[ctypes.addressof(event.device.contents)])
        tell([minor, event.eventType, event.eventData, event.gpuInstanceId])
    except NVMLError as error:
        tell(error.value)
"""
# The handle of a lost GPU answers nothing any more: whose it is has to be known before.
KNOW_HANDLES = """
nvmlInit()
minors = {ctypes.addressof(gpu.contents): nvmlDeviceGetMinorNumber(gpu) for gpu in handles()}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_node(tmp_path_factory.mktemp("mock") / "node", "--gpus=4", f"--minors={','.join(map(str, MINORS))}")


@pytest.fixture
def node(made):
    made.reset()
    return made


def wait_until_paused(child) -> None:
    """Until a process is in pause(2), or in what stands for it on AArch64."""
    until_s = time.monotonic() + 60
    while Path(f"/proc/{child.pid}/syscall").read_text().split()[0] not in {"34", "73"}:
        assert time.monotonic() < until_s
        time.sleep(0.01)


def test_every_fact_comes_back_as_the_state_file_has_it(node):
    state = node.state()
    busy = ComputeProcess(pid=4242, used_bytes=3 * GIB), ComputeProcess(pid=7, used_bytes=1)
    node.put(state.with_gpu(attrs.evolve(state.gpu(5), processes=busy)).with_gpu(
        attrs.evolve(state.gpu(3), is_in_mig_mode=True, model='An "H200" \\ of ours', memory_bytes=141 * GIB)
    ))  # fmt: skip
    told = node.asked(ALL_FACTS)
    assert (told["driver"], told["nvml"], told["cuda"]) == ("580.65.06", "13.580.65.06", 13000)
    for index, (gpu, said) in enumerate(zip(node.state().gpus, told["gpus"], strict=True)):
        used = sum(each.used_bytes for each in gpu.processes)
        assert said == {
            "index": index,
            "minor": gpu.minor,
            "uuid": gpu.uuid,
            "model": gpu.model,
            "bus": gpu.pci_bus_id,
            "legacy": gpu.pci_bus_id[4:],
            "place": [0, int(gpu.pci_bus_id[9:11], 16), 0],
            "memory": [gpu.memory_bytes, gpu.memory_bytes - used, used],
            "mig": [int(gpu.is_in_mig_mode)] * 2,
            "mig_max": 7 * gpu.is_in_mig_mode,
            "is_mig": 0,
            "processes": [[each.pid, each.used_bytes] for each in gpu.processes],
            "others": [],
            "events": pynvml.nvmlEventTypeXidCriticalError,
            "used": 100 * bool(gpu.processes),
        }


def test_index_minor_and_bus_are_three_orders(node):
    gpus = node.asked(ALL_FACTS)["gpus"]
    minors, buses = [each["minor"] for each in gpus], [each["bus"] for each in gpus]
    assert minors == list(MINORS)
    assert [each["index"] for each in gpus] == [0, 1, 2, 3]
    by_bus = sorted(range(4), key=buses.__getitem__)
    by_minor = sorted(range(4), key=minors.__getitem__)
    assert len({(0, 1, 2, 3), tuple(by_bus), tuple(by_minor)}) == 3


def test_a_gpu_is_found_by_uuid_and_by_either_spelling_of_its_bus(node):
    gpu = node.state().gpu(5)
    spellings = [gpu.pci_bus_id, gpu.proc_bus_id, gpu.pci_bus_id.lower()]
    minor = "nvmlDeviceGetMinorNumber"
    asked = f"""
tell([{minor}(nvmlDeviceGetHandleByUUID({gpu.uuid!r}))]
     + [{minor}(nvmlDeviceGetHandleByPciBusId(bus)) for bus in {spellings}]
     + [code(nvmlDeviceGetHandleByUUID, "GPU-nobody"), code(nvmlDeviceGetHandleByPciBusId, "0000:ff:00.0"),
        code(nvmlDeviceGetHandleByIndex, 4)])
"""
    not_found, invalid = Return.NOT_FOUND, Return.INVALID_ARGUMENT
    assert node.asked(INIT + asked) == [5, 5, 5, 5, not_found, not_found, invalid]


def test_the_index_is_dense_over_the_nodes_that_are_there(node):
    path = node.directory / "dev" / "nvidia7"
    elsewhere = node.directory / "dev" / "elsewhere"
    path.rename(elsewhere)
    try:
        path.touch()  # a regular file is no device node
        minors = node.asked(INIT + "tell([nvmlDeviceGetMinorNumber(gpu) for gpu in handles()])")
    finally:
        elsewhere.rename(path)
    assert minors == [2, 5, 3]


def test_before_init_and_after_shutdown_nothing_is_answered(node):
    asked = "tell([code(library.nvmlDeviceGetCount_v2, None), library.nvmlDeviceGetCount_v2(None)]"
    asked += " + [nvmlInit() or nvmlShutdown() or library.nvmlDeviceGetCount_v2(None)])"
    assert node.asked(asked) == [0, Return.UNINITIALIZED, Return.UNINITIALIZED]


def test_a_function_returns_the_code_it_was_told_to(node):
    codes = []
    with node.child("for _ in sys.stdin: tell(code(nvmlInit))") as child:
        for code in Return:
            node.put(attrs.evolve(node.state(), faults=(Fault(symbol=Symbol.INIT, what=int(code)),)))
            send(child)
            codes.append(hear(child))
        child.communicate(timeout=60)
    assert codes == list(Return)


def test_error_strings_are_those_that_the_real_library_has(node):
    text = "library.nvmlErrorString.restype = ctypes.c_char_p\n"
    text += f"tell([library.nvmlErrorString(code).decode() for code in {list(map(int, Return))}])"
    ours = dict(zip(Return, node.asked(text), strict=True))
    # That one never comes from the library, which is missing then.
    assert {code: ours[code] for code in Return if code is not Return.LIBRARY_NOT_FOUND} == {
        code: text for code, text in TEXTS.items() if code is not Return.LIBRARY_NOT_FOUND
    }


def test_a_driver_that_is_gone_another_one_or_shut_off_fails_the_whole_library(node):
    fresh = node.state()
    codes = []
    for change in ({"loaded_version": None}, {"loaded_version": "570.124.06"}, {"may_open_devices": False}, {}):
        node.put(attrs.evolve(fresh, **change))
        codes.append(node.init_code())
    assert codes == [Return.DRIVER_NOT_LOADED, Return.LIB_RM_VERSION_MISMATCH, Return.UNKNOWN, 0]


def test_without_the_drivers_own_node_there_is_no_driver(node):
    path = node.directory / "dev" / "nvidiactl"
    elsewhere = node.directory / "dev" / "elsewhere"
    path.rename(elsewhere)
    try:
        code = node.init_code()
    finally:
        elsewhere.rename(path)
    assert code == Return.DRIVER_NOT_LOADED


def test_a_damaged_state_file_fails_the_whole_library_and_says_so(node):
    path = node.directory / "mock-node.json"
    path.write_text('{"gpus": [')
    with node.child("tell(code(nvmlInit))") as child:
        out, err = child.communicate(timeout=60)
    assert (json.loads(out), err) == (Return.UNKNOWN, f"mock NVML: {path} is not one JSON object\n")


def test_no_beginning_of_a_state_file_is_taken_for_one_nor_one_with_more_behind_it(node):
    node.script("5=xid:48", "5=process:1", "nvmlDeviceGetUUID@2=hang")
    path = node.directory / "mock-node.json"
    whole = path.read_bytes().rstrip()
    codes = set()
    with node.child("for _ in sys.stdin: tell(code(nvmlInit))") as child:
        for text in [*(whole[:length] for length in range(0, len(whole), 7)), whole + b"}", b"[]"]:
            path.write_bytes(text)
            send(child)
            codes.add(hear(child))
        path.write_bytes(whole)
        send(child)
        assert hear(child) == 0
        child.communicate(timeout=60)
    assert codes == {Return.UNKNOWN}


def test_a_lost_gpu_answers_nothing_while_it_is_lost_and_the_others_go_on(node):
    steps = """
gpu, other = nvmlDeviceGetHandleByIndex(0), nvmlDeviceGetHandleByIndex(1)
for line in sys.stdin:
    tell([nvmlDeviceGetCount(), code(nvmlDeviceGetUUID, gpu), code(nvmlDeviceGetHandleByIndex, 0),
          code(nvmlDeviceGetMigMode, gpu), code(nvmlDeviceGetUUID, other)])
"""
    answers = []
    with node.child(INIT + steps) as child:
        for word in ("devices=allowed", "7=lost", "7=healthy"):
            node.script(word)
            send(child)
            answers.append(hear(child))
        child.communicate(timeout=60)
    lost = Return.GPU_IS_LOST
    assert answers == [[4, 0, 0, 0, 0], [4, lost, lost, lost, 0], [4, 0, 0, 0, 0]]


def test_an_xid_is_told_once_to_who_waits_and_to_who_asks_later(node):
    with node.child(KNOW_HANDLES + LISTEN) as child:
        assert hear(child) == "listening"
        send(child, 0)
        assert hear(child) == Return.TIMEOUT
        send(child, FOR_EVER_MS)
        node.script("5=xid:48")
        xid = pynvml.nvmlEventTypeXidCriticalError
        assert hear(child) == [5, xid, 48, 0xFFFFFFFF]
        send(child, 0)
        assert hear(child) == Return.TIMEOUT
        node.script("7=lost", "3=xid:13")
        send(child, FOR_EVER_MS)
        send(child, FOR_EVER_MS)
        assert sorted([hear(child), hear(child)]) == [[3, xid, 13, 0xFFFFFFFF], [7, xid, 79, 0xFFFFFFFF]]
        node.reset()
        send(child, 0)
        assert hear(child) == Return.TIMEOUT
        node.script("2=xid:31")
        send(child, FOR_EVER_MS)
        assert hear(child)[:3] == [2, xid, 31]
        child.communicate(timeout=60)


def test_an_xid_from_before_is_told_to_nobody(node):
    node.script("5=xid:48")
    with node.child(KNOW_HANDLES + LISTEN) as child:
        out, _ = child.communicate("0\n", timeout=60)
    assert out.splitlines() == ['"listening"', str(int(Return.TIMEOUT))]


def test_what_hangs_never_returns_even_when_the_script_ends(node):
    node.script("nvmlDeviceGetUUID@2=hang")
    asked = """
tell(nvmlDeviceGetUUID(nvmlDeviceGetHandleByIndex(0)))
tell("asking")
nvmlDeviceGetUUID(nvmlDeviceGetHandleByIndex(1))
tell("answered")
"""
    handler = "import signal\nsignal.signal(signal.SIGWINCH, lambda *_: None)\n"
    with node.child(handler + INIT + asked) as child:
        assert hear(child) == node.state().gpu(7).uuid
        assert hear(child) == "asking"
        wait_until_paused(child)
        node.reset()
        child.send_signal(signal.SIGWINCH)  # has a handler, which a call that hangs outlives
        wait_until_paused(child)
        child.terminate()
        out, _ = child.communicate(timeout=60)
    assert (child.returncode, out) == (-signal.SIGTERM, "")


def test_a_crash_takes_its_process_along(node):
    node.script("nvmlSystemGetDriverVersion=crash")
    with node.child("nvmlInit()\ntell('before')\nnvmlSystemGetDriverVersion()") as child:
        out, _ = child.communicate(timeout=60)
    assert (child.returncode, out) == (-signal.SIGSEGV, '"before"\n')


def test_a_fault_can_mean_one_gpu_and_end_after_some_calls(node):
    twice = Fault(symbol=Symbol.UUID, what=int(Return.UNKNOWN), minor=5, times_max=2)
    node.put(attrs.evolve(node.state(), faults=(twice,)))
    asked = INIT + "tell([[code(nvmlDeviceGetUUID, gpu) for gpu in handles()] for _ in range(3)])"
    assert node.asked(asked) == [[0, 0, 999, 0], [0, 0, 999, 0], [0, 0, 0, 0]]


def test_every_function_of_the_simulated_nvml_can_be_spoiled(node):
    calls = {
        Symbol.DRIVER_VERSION: "nvmlSystemGetDriverVersion()",
        Symbol.COUNT: "nvmlDeviceGetCount()",
        Symbol.HANDLE_BY_UUID: f"nvmlDeviceGetHandleByUUID({node.state().gpus[0].uuid!r})",
        Symbol.EVENT_SET_CREATE: "nvmlEventSetCreate()",
        Symbol.REGISTER_EVENTS: "nvmlDeviceRegisterEvents(nvmlDeviceGetHandleByIndex(0), 8, nvmlEventSetCreate())",
        Symbol.EVENT_SET_WAIT: "nvmlEventSetWait_v2(nvmlEventSetCreate(), 0)",
        Symbol.EVENT_SET_FREE: "nvmlEventSetFree(nvmlEventSetCreate())",
        Symbol.INIT: "None",
        Symbol.SHUTDOWN: "nvmlShutdown()",
        Symbol.HANDLE_BY_INDEX: "nvmlDeviceGetHandleByIndex(0)",
        Symbol.PCI: "nvmlDeviceGetPciInfo(nvmlDeviceGetHandleByIndex(0))",
        Symbol.MIG_INSTANCE: "nvmlDeviceGetMigDeviceHandleByIndex(nvmlDeviceGetHandleByIndex(0), 0)",
    }
    codes = {}
    with node.child("for line in sys.stdin: tell(code(lambda: (nvmlInit(), eval(line))))") as child:
        for symbol in Symbol:
            node.put(attrs.evolve(node.state(), faults=(Fault(symbol=symbol, what=int(Return.NO_PERMISSION)),)))
            call = calls.get(symbol) or f"{symbol.removesuffix('_v3')}(nvmlDeviceGetHandleByIndex(0))"
            send(child, call)
            codes[symbol] = hear(child)
        child.communicate(timeout=60)
    assert codes == dict.fromkeys(Symbol, Return.NO_PERMISSION)


def test_what_only_instances_of_mig_are_asked_is_there_and_not_supported(node):
    names = [
        *("nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId", "nvmlDeviceGetAttributes_v2"),
        *("nvmlDeviceGetGpuInstanceById", "nvmlGpuInstanceGetComputeInstanceById", "nvmlGpuInstanceGetInfo"),
        *("nvmlComputeInstanceGetInfo_v2", "nvmlDeviceGetGpuInstanceProfileInfo"),
        *("nvmlGpuInstanceGetComputeInstanceProfileInfo", "nvmlDeviceGetDeviceHandleFromMigDeviceHandle"),
    ]
    codes = node.asked(INIT + f"tell([getattr(library, name)() for name in {names}])")
    assert codes == [Return.NOT_SUPPORTED] * len(names)
    assert node.asked(INIT + "tell(code(nvmlDeviceGetMigDeviceHandleByIndex, handles()[0], 0))") == Return.NOT_FOUND


def test_in_a_container_that_has_the_library_alone_there_is_no_driver(node):
    (node.directory / "mock-node.json").unlink()
    assert node.init_code() == Return.DRIVER_NOT_LOADED
