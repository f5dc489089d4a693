"""The pause program: a second reader finds it well-formed, and the kernel runs it."""

import contextlib
import io
import os
import platform
import signal
import subprocess
import time
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from actors.pause_elf import pause_elf
from actors.static_elf import UnsupportedMachineError

PAUSE_SYSCALL = {"x86_64": "34", "aarch64": "73"}


@pytest.mark.parametrize(
    ("machine", "size_bytes", "elf_machine"), [("x86_64", 145, "EM_X86_64"), ("aarch64", 172, "EM_AARCH64")]
)
def test_a_second_reader_finds_one_loaded_segment_with_the_entry_in_it(machine, size_bytes, elf_machine):
    program = pause_elf(machine)
    elf = ELFFile(io.BytesIO(program))
    [segment] = elf.iter_segments()

    assert len(program) == size_bytes
    assert (elf.elfclass, elf.little_endian, elf["e_type"], elf["e_machine"]) == (64, True, "ET_EXEC", elf_machine)
    assert (segment["p_type"], segment["p_filesz"], segment["p_memsz"]) == ("PT_LOAD", size_bytes, size_bytes)
    assert segment["p_flags"] == 5
    assert segment["p_vaddr"] % segment["p_align"] == segment["p_offset"] % segment["p_align"]
    assert segment["p_vaddr"] < elf["e_entry"] < segment["p_vaddr"] + size_bytes
    assert list(elf.iter_sections()) == []


def test_both_machines_jump_back_to_the_beginning_of_their_wait():
    assert pause_elf("x86_64")[-11:-9] == bytes((0xEB, 256 - 9))
    assert pause_elf("aarch64")[-16:-12] == (0x1400_0000 | (-24 // 4 & 0x3FF_FFFF)).to_bytes(4, "little")


def test_with_an_argument_it_exits_with_0_at_once(tmp_path):
    program = tmp_path / "pause"
    program.write_bytes(pause_elf(platform.machine()))
    program.chmod(0o755)
    assert subprocess.run([program, "exit"], timeout=60, check=False).returncode == 0


def test_another_machine_is_refused_with_the_known_ones():
    with pytest.raises(UnsupportedMachineError, match=r"riscv64.*aarch64, x86_64"):
        pause_elf("riscv64")


def test_the_kernel_runs_it_it_waits_and_dies_of_sigkill(tmp_path):
    machine = platform.machine()
    program = tmp_path / "pause"
    program.write_bytes(pause_elf(machine))
    program.chmod(0o755)
    process = subprocess.Popen([program])
    try:
        _wait_until(lambda: _syscall(process.pid) == PAUSE_SYSCALL[machine])
        os.kill(process.pid, signal.SIGSTOP)
        os.kill(process.pid, signal.SIGCONT)
        _wait_until(lambda: _syscall(process.pid) == PAUSE_SYSCALL[machine])
        assert process.poll() is None
    finally:
        process.kill()
        assert process.wait(timeout=60) == -signal.SIGKILL


def _syscall(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/syscall").read_text().split()[0]
    return None


def _wait_until(holds, within_s=90.0):
    end = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)
