"""The cover program: what is made in a rootfs is not made in the given one, and nobody else sees it."""

import os
import struct
import subprocess
from pathlib import Path

import pytest

from actors.cover_elf import CANNOT_COVER, cover_elf
from actors.runsc.cover import Cover
from actors.static_elf import EM_AARCH64, EM_X86_64, ENTRY, UnsupportedMachineError
from tests.needs import Tool, need

HEADERS_BYTES = 120


@pytest.fixture
def cover(tmp_path):
    need(Tool.ROOT, Tool.NAMESPACES)
    program, rootfs, scratch = tmp_path / "cover", tmp_path / "a,b:c\\d e", tmp_path / "scratch"
    program.write_bytes(cover_elf(os.uname().machine))
    program.chmod(0o755)
    for directory in (rootfs, scratch):
        directory.mkdir()
    (rootfs / "there").write_text("given\n")
    return Cover(program=program, rootfs=rootfs, scratch=scratch)


def run(words, *command):
    env = {"PATH": "/usr/bin:/bin", "KEPT": "yes"}
    return subprocess.run([*words, *command], env=env, capture_output=True, text=True, check=False)


def test_what_the_command_makes_is_seen_by_it_and_nowhere_else(cover):
    changing = "mkdir -p usr/lib; echo new > usr/lib/x; echo changed > there"
    script = f'cd "$1"; cat there; {changing}; cat there usr/lib/x; echo $KEPT'
    ended = run(cover.words(), "/bin/sh", "-c", script, "sh", str(cover.rootfs))
    assert (ended.stdout, ended.returncode) == ("given\nchanged\nnew\nyes\n", 0)
    assert [(path.name, path.read_text()) for path in cover.rootfs.iterdir()] == [("there", "given\n")]
    assert not list(cover.scratch.iterdir())


def test_what_is_mounted_under_the_cover_is_not_mounted_outside(cover):
    ended = run(cover.words(), "/bin/sh", "-c", 'mount -t tmpfs none "$1" && exit 7', "sh", str(cover.rootfs))
    assert ended.returncode == 7
    # Others on the machine mount what they like.
    assert str(cover.rootfs.parent) not in Path("/proc/self/mountinfo").read_text()


@pytest.mark.parametrize("broken", [1, 2, 3, 4, 5])
def test_a_cover_that_cannot_be_laid_begins_nothing(cover, broken):
    words = list(cover.words())
    words[broken] = "/no/such" if broken < 5 else "lowerdir=/no/such"
    ended = run(words, "/bin/echo", "begun")
    assert (ended.stdout, ended.returncode) == ("", CANNOT_COVER)


def test_a_command_that_is_not_there_is_no_success(cover):
    assert run(cover.words(), "/no/such/command").returncode == CANNOT_COVER


def test_there_is_none_for_another_machine():
    with pytest.raises(UnsupportedMachineError, match="riscv64"):
        cover_elf("riscv64")


@pytest.mark.parametrize(("machine", "number"), [("x86_64", EM_X86_64), ("aarch64", EM_AARCH64)])
def test_every_check_leads_to_the_one_way_out(machine, number):
    program = cover_elf(machine)
    assert struct.unpack_from("<H", program, 18) == (number,)
    code = program[HEADERS_BYTES : program.index(b"overlay\0")]
    if machine == "x86_64":
        jumps = [at for at in range(len(code)) if code[at : at + 4] == bytes.fromhex("85c00f85")]
        targets = {at + 8 + struct.unpack_from("<i", code, at + 4)[0] for at in jumps}
        way_out = code.index(b"\xbf" + struct.pack("<I", CANNOT_COVER))
    else:
        words = struct.unpack(f"<{len(code) // 4}I", code)
        jumps = [at for at, word in enumerate(words) if word >> 24 == 0xB5]
        targets = {4 * (at + (words[at] >> 5 & 0x7FFFF)) for at in jumps}
        way_out = 4 * words.index(0xD280_0000 | CANNOT_COVER << 5)
    assert len(jumps) == 6
    assert targets == {way_out}


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_its_words_are_where_the_code_looks_for_them(machine):
    program = cover_elf(machine)
    overlay = ENTRY + program.index(b"overlay\0") - HEADERS_BYTES
    if machine == "x86_64":
        assert program.count(struct.pack("<I", overlay)) == 4
    else:
        low, high = 0xD280_0000 | (overlay & 0xFFFF) << 5, 0xF2A0_0000 | (overlay >> 16) << 5
        assert program.count(struct.pack("<2I", low, high)) == 3
        assert program.count(struct.pack("<2I", low | 2, high | 2)) == 1
