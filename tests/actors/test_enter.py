"""The enter program: in its cgroup before the command's first instruction, or not begun at all."""

import os
import struct
import subprocess

import pytest

from actors.enter_elf import CANNOT_ENTER, enter_elf
from actors.static_elf import EM_AARCH64, EM_X86_64, ENTRY, UnsupportedMachineError
from tests.host.cgroup_trees import a_real_cgroup
from tests.needs import Tool, need, want

HEADERS_BYTES = 120


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "enter"
    path.write_bytes(enter_elf(os.uname().machine))
    path.chmod(0o755)
    return path


def run(*argv):
    env = {"PATH": "/usr/bin:/bin", "KEPT": "yes"}
    return subprocess.run([*map(str, argv)], env=env, capture_output=True, text=True, check=False)


def test_the_command_begins_in_the_cgroup_with_its_arguments_and_its_environment(program):
    need(Tool.ROOT)
    want(Tool.CGROUPS)
    with a_real_cgroup() as cgroup:
        script = 'grep ^0:: /proc/self/cgroup; echo "$1" $KEPT; ls /proc/self/fd; exit 7'
        ended = run(program, cgroup / "cgroup.procs", "/bin/sh", "-c", script, "sh", "a b")
    assert (ended.stdout, ended.returncode) == (f"0::/{cgroup.name}\na b yes\n0\n1\n2\n3\n", 7)


def test_a_zero_is_what_it_writes_and_nothing_is_made(program, tmp_path):
    there = tmp_path / "there"
    there.write_text("?")
    assert run(program, there, "/bin/echo", "begun").stdout == "begun\n"
    assert there.read_text() == "0"
    absent = tmp_path / "absent"
    ended = run(program, absent, "/bin/echo", "begun")
    assert (ended.stdout, ended.returncode, absent.exists()) == ("", CANNOT_ENTER, False)


def test_one_that_the_kernel_does_not_let_in_begins_nothing(program):
    need(Tool.ROOT)
    want(Tool.CGROUPS)
    with a_real_cgroup() as cgroup:
        (cgroup / "inner").mkdir()
        (cgroup / "inner" / "cgroup.type").write_text("threaded")  # the one above it takes no process in any more
        (cgroup / "inner" / "leaf").mkdir()
        ended = run(program, cgroup / "inner" / "leaf" / "cgroup.procs", "/bin/echo", "begun")
    assert (ended.stdout, ended.returncode) == ("", CANNOT_ENTER)


def test_a_command_that_is_not_there_is_no_success(program):
    assert run(program, "/dev/null", "/no/such/command").returncode == CANNOT_ENTER


def test_there_is_none_for_another_machine():
    with pytest.raises(UnsupportedMachineError, match="riscv64"):
        enter_elf("riscv64")


@pytest.mark.parametrize(("machine", "number"), [("x86_64", EM_X86_64), ("aarch64", EM_AARCH64)])
def test_every_check_leads_to_the_one_way_out_and_the_zero_is_what_stands_last(machine, number):
    elf = enter_elf(machine)
    assert struct.unpack_from("<H", elf, 18) == (number,)
    code, zero = elf[HEADERS_BYTES:-1], ENTRY + len(elf) - HEADERS_BYTES - 1
    assert elf[-1:] == b"0"
    if machine == "x86_64":
        targets = {
            at + 6 + struct.unpack_from("<i", code, at + 2)[0]
            for at in (code.index(b"\x0f\x88"), code.index(b"\x0f\x85"))
        }
        assert struct.pack("<I", zero) in code
        assert targets == {code.index(bytes.fromhex("bf7c000000"))}
    else:
        words = struct.unpack(f"<{len(code) // 4}I", code)
        leaps = {0xB7F80000: (5, 14), 0x54000001: (5, 19)}
        targets = set()
        for at, word in enumerate(words):
            for pattern, (shift, bits) in leaps.items():
                field = ((1 << bits) - 1) << shift
                if word & ~field == pattern:
                    targets.add(at + (word & field) // (1 << shift))
        assert len(targets) == 1
        assert words[targets.pop()] == 0xD2800000 | CANNOT_ENTER << 5
        low, high = words.index(0xD2800000 | (zero & 0xFFFF) << 5 | 1), words.index(0xF2A00000 | (zero >> 16) << 5 | 1)
        assert high == low + 1
