"""The CUDA program against a libcuda that is no GPU's: what it calls, what it says, and that it is not to be fooled."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gpu_check import cuda
from tests.needs import Tool, find, need

PROGRAM = Path(cuda.__file__)
STUB = PROGRAM.with_name("libcuda_stub.c")


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    need(Tool.COMPILER)
    made: Path = tmp_path_factory.mktemp("stub") / "libcuda.so.1"
    argv = [str(find(Tool.COMPILER)), "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", str(made), str(STUB)]
    subprocess.run(argv, check=True, timeout=60)
    return made


class Program:
    def __init__(self, library: Path, calls: Path) -> None:
        self._library, self._calls = library, calls

    def start(self, *words: str, **settings: str) -> "subprocess.Popen[str]":
        argv = [sys.executable, "-I", str(PROGRAM), f"--library={self._library}", *words]
        env = {"STUB_CALLS": str(self._calls), **settings}
        return subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def told(self, *words: str, **settings: str) -> tuple[int, dict[str, Any]]:
        with self.start(*words, **settings) as process:
            out, _ = process.communicate(timeout=60)
        (line,) = out.splitlines()
        return process.returncode, json.loads(line)

    def calls(self) -> list[str]:
        return self._calls.read_text().splitlines()


@pytest.fixture
def program(library, tmp_path):
    return Program(library, tmp_path / "calls")


def test_it_computes_and_says_on_what(program):
    code, told = program.told()
    assert (code, told) == (
        0,
        {
            "ok": True, "driverVersion": 13000, "devices": 1, "device": "Stub GPU",
            "uuid": "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", "words": 65536,
        },
    )  # fmt: skip


def test_it_makes_a_context_first_and_gives_everything_back(program):
    program.told()
    calls = program.calls()
    assert calls[:5] == ["cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDevicePrimaryCtxRetain"]
    assert calls.index("cuLaunchKernel") < calls.index("cuCtxSynchronize")
    assert calls[-2:] == ["cuMemFree_v2", "cuDevicePrimaryCtxRelease_v2"]


FUNCTIONS = (
    "cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetUuid",
    "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuCtxSynchronize", "cuMemAlloc_v2", "cuMemsetD32_v2",
    "cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2", "cuModuleLoadData", "cuModuleGetFunction", "cuLaunchKernel",
)  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_call_that_fails_is_named_and_what_was_taken_is_given_back(program, function):
    code, told = program.told(STUB_FAILS=function)
    assert (code, told) == (1, {"ok": False, "error": f"{function}: CUDA_ERROR_LAUNCH_FAILED (719)"})
    calls = program.calls()
    assert ("cuMemFree_v2" in calls) is ("cuMemAlloc_v2" in calls and function != "cuMemAlloc_v2")
    retained = "cuDevicePrimaryCtxRetain" in calls and function != "cuDevicePrimaryCtxRetain"
    assert ("cuDevicePrimaryCtxRelease_v2" in calls) is retained


@pytest.mark.parametrize(
    ("function", "error"),
    [
        ("cuMemsetD32_v2", "memset: 1 of 65536 words are wrong; [65535] is"),
        ("cuLaunchKernel", "kernel: 1 of 65536 words are wrong; [7] is"),
    ],
)
def test_one_wrong_word_is_found(program, function, error):
    code, told = program.told(STUB_WRONG=function)
    assert (code, told["ok"]) == (1, False)
    assert told["error"].startswith(error)


def test_without_a_device_it_says_so(program):
    assert program.told(STUB_DEVICES="0") == (1, {"ok": False, "error": "cuDeviceGetCount: there is no device"})


def test_an_older_target_is_tried_when_the_first_is_refused(program):
    assert program.told(STUB_REFUSES=cuda.TARGETS[0])[0] == 0
    assert program.calls().count("cuModuleLoadData") == 2
    code, told = program.told(STUB_REFUSES=".target")
    assert (code, told) == (1, {"ok": False, "error": "cuModuleLoadData: unknown error (218)"})


def test_it_holds_its_context_until_stdin_ends(program):
    with program.start("--hold") as process:
        assert json.loads(process.stdout.readline())["ok"]
        assert process.poll() is None
        assert "cuDevicePrimaryCtxRelease_v2" not in program.calls()
        process.stdin.close()
        assert process.wait(60) == 0
    assert program.calls()[-1] == "cuDevicePrimaryCtxRelease_v2"


def test_a_library_that_is_none_is_said(tmp_path):
    (tmp_path / "libcuda.so.1").write_text("nothing")
    for path in (tmp_path / "libcuda.so.1", tmp_path / "absent.so"):
        argv = [sys.executable, "-I", str(PROGRAM), f"--library={path}"]
        ended = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 1
        assert json.loads(ended.stdout)["error"].startswith(f"{path} cannot be loaded")


def test_a_library_without_a_function_is_said(tmp_path):
    need(Tool.COMPILER)
    empty = tmp_path / "libcuda.so.1"
    argv = [str(find(Tool.COMPILER)), "-shared", "-x", "c", os.devnull, "-o", str(empty)]
    subprocess.run(argv, check=True, timeout=60)
    ended = subprocess.run(
        [sys.executable, "-I", str(PROGRAM), f"--library={empty}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert json.loads(ended.stdout) == {"ok": False, "error": "cuInit: the library has no such function"}


def test_it_needs_no_package_and_runs_from_wherever_it_is_put(program, library, tmp_path):
    alone = tmp_path / "alone.py"
    shutil.copyfile(PROGRAM, alone)
    argv = [sys.executable, "-I", "-S", str(alone), f"--library={library}"]
    ended = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, json.loads(ended.stdout)["ok"]) == (0, True)
