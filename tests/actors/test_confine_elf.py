"""The confine program: a second reader finds it well-formed, its filter judges every call, and the kernel runs it."""

import io
import platform
import stat
import struct
import subprocess

import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import example, given
from hypothesis import strategies as st

from actors.confine_elf import (
    CANNOT_CONFINE,
    CANNOT_EXECUTE,
    confine_at_terminal_elf,
    confine_elf,
    filter_program,
)
from actors.static_elf import UnsupportedMachineError
from tests.needs import Tool, need

MACHINES = ["x86_64", "aarch64"]
ARCH = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
CALLS = {"x86_64": {133: 1, 259: 2}, "aarch64": {33: 2}}
ALLOW, REFUSE = 0x7FFF_0000, 0x0005_0001
DEVICES = {stat.S_IFCHR, stat.S_IFBLK}


def judged(program, nr, arch, args):
    """Run BPF, the few instructions of it that are used, over one system call (struct seccomp_data)."""
    data = struct.pack("<IIQ6Q", nr, arch, 0, *args)
    at, accumulator = 0, 0
    for _ in range(len(program)):
        code, if_true, if_false, constant = program[at]
        at += 1
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, constant)
            case 0x54:
                accumulator &= constant
            case 0x15:
                at += if_true if accumulator == constant else if_false
            case 0x35:
                at += if_true if accumulator >= constant else if_false
            case 0x06:
                return constant
            case _:
                raise AssertionError(hex(code))
    raise AssertionError("it never returns")


@pytest.mark.parametrize("machine", MACHINES)
@given(st.integers(0, 500), st.lists(st.integers(0, (1 << 64) - 1), min_size=6, max_size=6))
@example(133, [0, stat.S_IFCHR | 0o666, 0, 0, 0, 0])
@example(259, [0, 0, stat.S_IFBLK, 0, 0, 0])
@example(259, [0, 0, 0xFFFF_0000 | stat.S_IFCHR, 0, 0, 0])
@example(33, [0, 0, stat.S_IFCHR, 0, 0, 0])
def test_only_calls_that_would_make_a_device_node_are_refused(machine, nr, args):
    index = CALLS[machine].get(nr)
    makes_one = index is not None and stat.S_IFMT(args[index] & 0o177777) in DEVICES
    assert judged(filter_program(machine), nr, ARCH[machine], args) == (REFUSE if makes_one else ALLOW)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("kind", [stat.S_IFIFO, stat.S_IFREG, stat.S_IFSOCK, stat.S_IFCHR, stat.S_IFBLK, 0])
def test_each_call_is_judged_by_its_mode_alone(machine, kind):
    for nr, index in CALLS[machine].items():
        for bits in (0, 0o7777, 0xFFFF_FFFF_FFFF_0000):
            args = [kind ^ 0o170000] * 6
            args[index] = kind | bits
            assert judged(filter_program(machine), nr, ARCH[machine], args) == (REFUSE if kind in DEVICES else ALLOW)


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_by_the_numbers_of_another_architecture_are_refused(machine):
    for arch in {0x4000_0003, *ARCH.values()} - {ARCH[machine]}:
        assert judged(filter_program(machine), 0, arch, [0] * 6) == REFUSE
    assert judged(filter_program(machine), 0x4000_0000 | 133, ARCH[machine], [0] * 6) == REFUSE


@pytest.mark.parametrize(("machine", "elf_machine"), [("x86_64", "EM_X86_64"), ("aarch64", "EM_AARCH64")])
def test_a_second_reader_finds_one_loaded_segment_with_entry_and_filter_in_it(machine, elf_machine):
    program = confine_elf(machine)
    elf = ELFFile(io.BytesIO(program))
    [segment] = elf.iter_segments()
    assert (elf["e_type"], elf["e_machine"], segment["p_flags"]) == ("ET_EXEC", elf_machine, 5)
    assert segment["p_filesz"] == segment["p_memsz"] == len(program)
    assert segment["p_vaddr"] < elf["e_entry"] < segment["p_vaddr"] + len(program)
    instructions = b"".join(struct.pack("<HBBI", *each) for each in filter_program(machine))
    at = program.index(instructions)
    count, address = struct.unpack("<HxxxxxxQ", program[at - 16 : at])
    assert (count, address) == (len(filter_program(machine)), segment["p_vaddr"] + at)
    assert program[at + len(instructions) :] == b"/dev/null\0"


def test_the_jumps_of_aarch64_lead_where_they_should():
    """No machine here runs it; each was also followed in an emulator when it was written."""
    program = confine_elf("aarch64")
    words = struct.unpack("<51I", program[120 : 120 + 4 * 51])
    broken, absent = words.index(0xD280_0000 | CANNOT_CONFINE << 5), words.index(0xD280_0000 | CANNOT_EXECUTE << 5)
    targets = {}
    for at, word in enumerate(words):
        if word >> 24 in {0x34, 0x35, 0xB4, 0xB5}:
            offset = word >> 5 & 0x7_FFFF
            targets[at] = at + (offset - (1 << 19) if offset >> 18 else offset)
        elif word >> 26 == 0b000101:
            offset = word & 0x3FF_FFFF
            targets[at] = at + (offset - (1 << 26) if offset >> 25 else offset)
    assert targets == {8: broken, 17: broken, 29: absent, 32: 28, 39: absent, 45: 37, absent + 1: broken + 1}


def test_there_is_none_for_another_machine():
    for make in (confine_elf, confine_at_terminal_elf):
        with pytest.raises(UnsupportedMachineError, match="riscv64"):
            make("riscv64")


@pytest.mark.parametrize(
    ("machine", "nops"), [("x86_64", b"\x90" * 23), ("aarch64", struct.pack("<9I", *[0xD503_201F] * 9))]
)
def test_the_one_for_terminals_differs_in_that_it_does_nothing_about_stdin_and_nowhere_else(machine, nops):
    usual, at_terminal = confine_elf(machine), confine_at_terminal_elf(machine)
    at, before = at_terminal.index(nops), 64 + 56  # the two headers, which tell the size
    assert at_terminal[before:at] == usual[before:at]
    assert at_terminal[at + len(nops) :] + b"/dev/null\0" == usual[at + len(nops) :]


# ---------------------------------------------------------------------------------------------------- it is executed


@pytest.fixture
def confine(tmp_path):
    path = tmp_path / "confine"
    path.write_bytes(confine_elf(platform.machine()))
    path.chmod(0o755)
    return path


def run(confine, *words, env=None):
    with confine.open("rb") as stdin:
        argv = [str(confine), *words]
        return subprocess.run(argv, stdin=stdin, capture_output=True, text=True, env=env or {}, timeout=90, check=False)


def test_the_first_file_that_there_is_becomes_the_command_with_its_words_and_environment(confine):
    said = run(
        confine, "/nope/sh", "/bin/sh", "/bin/false", "", "sh", "-c", "echo $0 $1 $A; exit 5", "x", "y", env={"A": "b"}
    )
    assert (said.returncode, said.stdout, said.stderr) == (5, "x y b\n", "")


def test_there_is_nothing_to_read_and_no_privilege_to_gain(confine):
    said = run(
        confine,
        "/bin/sh",
        "",
        "sh",
        "-c",
        "cat; grep -E 'NoNewPrivs|Seccomp:' /proc/self/status",
        env={"PATH": "/bin:/usr/bin"},
    )
    assert said.stdout.split() == ["NoNewPrivs:", "1", "Seccomp:", "2"]


def test_the_one_for_terminals_leaves_stdin_alone_and_confines_all_the_same(tmp_path):
    path = tmp_path / "confine"
    path.write_bytes(confine_at_terminal_elf(platform.machine()))
    path.chmod(0o755)
    script = "cat; grep -E 'NoNewPrivs|Seccomp:' /proc/self/status; exit 5"
    said = subprocess.run(
        [path, "/nope/sh", "/bin/sh", "", "sh", "-c", script], input="ours\n", capture_output=True, text=True,
        timeout=90, env={"PATH": "/bin:/usr/bin"}, check=False,
    )  # fmt: skip
    assert (said.returncode, said.stdout.split()) == (5, ["ours", "NoNewPrivs:", "1", "Seccomp:", "2"])


@pytest.mark.parametrize("words", [["/nope", "", "x"], ["", "x"], ["/nope"], []], ids=" ".join)
def test_without_a_file_that_can_be_executed_it_ends_with_127(confine, words):
    assert run(confine, *words).returncode == CANNOT_EXECUTE


def test_no_device_node_is_made_and_everything_else_is(confine, tmp_path):
    """As root, who may."""
    need(Tool.MKNOD)
    script = f"cd {tmp_path}; mknod c c 1 3; echo $?; mknod b b 8 0; echo $?; mknod p p; echo $?; touch f; echo $?"
    said = run(confine, "/bin/sh", "", "sh", "-c", script, env={"PATH": "/bin:/usr/bin"})
    assert said.stdout.split() == ["1", "1", "0", "0"]
    assert said.stderr.count("Operation not permitted") == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["confine", "f", "p"]
