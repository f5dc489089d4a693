"""Who computes on a GPU, as the real NVML tells it: directly, or by way of a server of MPS's."""

from types import SimpleNamespace

import pynvml
import pytest

from supervisor.gpu_monitor.looking import NvmlError
from supervisor.gpu_monitor.nvml import DriverLibrary

DIRECTLY, BY_MPS = "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses"


def listing(*pids):
    return lambda _handle: [SimpleNamespace(pid=pid) for pid in pids]


def failing(code):
    def fails(_handle):
        raise pynvml.NVMLError(code)

    return fails


@pytest.fixture
def told(monkeypatch):
    """The pids that come of what the two functions do."""

    def tell(directly, by_mps):
        monkeypatch.setattr(pynvml, DIRECTLY, directly)
        monkeypatch.setattr(pynvml, BY_MPS, by_mps)
        return DriverLibrary("/", "/", "/proc").compute_pids(object())

    return tell


def test_both_lists_count_and_a_pid_of_nobody_here_does_not(told):
    assert told(listing(7, 0), listing(9)) == (7, 9)
    assert told(listing(), listing(9)) == (9,)


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_NOT_SUPPORTED])
def test_a_library_or_a_gpu_without_mps_has_nobody_there(told, code):
    assert told(listing(7), failing(code)) == (7,)


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_NO_PERMISSION, pynvml.NVML_ERROR_GPU_IS_LOST])
def test_whatever_else_fails_is_no_answer(told, code):
    for functions in ((listing(7), failing(code)), (failing(code), listing(7))):
        with pytest.raises(NvmlError):
            told(*functions)
