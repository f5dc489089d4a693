"""The libraries of a mock driver: what readers of ELF say of them, and whether the dynamic linker loads them."""

import io
import platform
import subprocess
import sys
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from sim.mock.shared_library import MACHINES, shared_library
from tests.needs import cannot

LOAD = "import ctypes, sys; ctypes.CDLL(sys.argv[1]); print(open('/proc/self/maps').read().count(sys.argv[1]))"


def elf_of(soname: str, machine: str = "x86_64") -> Any:
    return ELFFile(io.BytesIO(shared_library(soname, machine)))


def sonames(part) -> list[str]:
    return [tag.soname for tag in part.iter_tags() if tag.entry.d_tag == "DT_SONAME"]


@pytest.mark.parametrize("soname", ["libcuda.so.1", "libnvidia-nvvm.so.4", "l", "lib" + "x" * 200])
def test_the_soname_is_read_back_from_the_segment_and_from_the_section(soname):
    elf = elf_of(soname)
    segment = next(each for each in elf.iter_segments() if each.header.p_type == "PT_DYNAMIC")
    section = elf.get_section_by_name(".dynamic")
    assert sonames(segment) == sonames(section) == [soname]
    assert section.header.sh_type == "SHT_DYNAMIC"
    assert elf.get_section(section.header.sh_link).name == ".dynstr"


@pytest.mark.parametrize(("machine", "named"), [("x86_64", "EM_X86_64"), ("aarch64", "EM_AARCH64")])
def test_it_is_a_library_of_its_machine(machine, named):
    header = elf_of("libcuda.so.1", machine).header
    assert (header.e_type, header.e_machine) == ("ET_DYN", named)
    assert machine in MACHINES


def test_every_part_is_where_its_header_says_and_inside_the_file():
    data = shared_library("libcuda.so.1", "x86_64")
    elf: Any = ELFFile(io.BytesIO(data))
    names = [section.name for section in elf.iter_sections()]
    assert names == ["", ".hash", ".dynsym", ".dynstr", ".dynamic", ".shstrtab"]
    ends = [section.header.sh_offset + section.header.sh_size for section in elf.iter_sections()]
    assert max(ends) <= elf.header.e_shoff
    assert elf.header.e_shoff + elf.header.e_shnum * elf.header.e_shentsize == len(data)
    assert elf.get_section_by_name(".dynsym").num_symbols() == 1


def test_all_that_the_dynamic_linker_reads_is_loaded_and_can_be_written():
    elf = elf_of("libcuda.so.1")
    load = next(each.header for each in elf.iter_segments() if each.header.p_type == "PT_LOAD")
    parts = [section.header for section in elf.iter_sections() if section.header.sh_flags]
    assert (load.p_vaddr, load.p_flags, load.p_memsz) == (load.p_offset, 6, load.p_filesz)
    assert len(parts) == 4
    assert max(part.sh_addr + part.sh_size for part in parts) <= load.p_filesz


def test_it_asks_for_no_stack_that_code_can_run_on():
    stack = next(each for each in elf_of("libcuda.so.1").iter_segments() if each.header.p_type == "PT_GNU_STACK")
    assert stack.header.p_flags & 1 == 0


def test_the_dynamic_linker_loads_it(tmp_path):
    machine = platform.machine()
    if machine not in MACHINES:
        cannot(f"libraries are written for {', '.join(MACHINES)}")
    path = tmp_path / "libcuda.so.580.65.06"
    path.write_bytes(shared_library("libcuda.so.1", machine))
    loaded = subprocess.run([sys.executable, "-c", LOAD, str(path)], capture_output=True, text=True, check=False)
    assert (loaded.returncode, loaded.stderr) == (0, "")
    assert int(loaded.stdout) > 0
