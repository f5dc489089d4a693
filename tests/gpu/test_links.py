from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.cdi import Mount
from actors.gpu import links
from actors.gpu.hooks import LinkRequest
from actors.gpu.links import Library, Link, is_file_name, is_library, plan_links, read_libraries
from tests.actors.memory_files import MemoryFiles
from tests.gpu.libraries import library

CUDA = Library(path="/usr/lib64/libcuda.so.570.1", soname="libcuda.so.1")
ML = Library(path="/usr/lib64/libnvidia-ml.so.570.1", soname="libnvidia-ml.so.1")


def made(*libraries, requests=()):
    return {link.name: link.target for link in plan_links(libraries, requests).links}


def skipped(*libraries, requests=()):
    return [(each.name, each.why) for each in plan_links(libraries, requests).skipped]


def test_a_library_is_found_by_its_own_name_and_by_its_soname():
    assert made(CUDA, ML) == {
        "libcuda.so.1": CUDA.path,
        "libcuda.so.570.1": CUDA.path,
        "libnvidia-ml.so.1": ML.path,
        "libnvidia-ml.so.570.1": ML.path,
    }
    assert skipped(CUDA, ML) == []


def test_a_library_without_a_soname_or_with_its_own_name_as_such_has_one_link():
    assert made(Library(path="/l/liba.so.1", soname=None)) == {"liba.so.1": "/l/liba.so.1"}
    assert made(Library(path="/l/liba.so.1", soname="liba.so.1")) == {"liba.so.1": "/l/liba.so.1"}


@pytest.mark.parametrize("soname", ["../libcuda.so.1", "/etc/ld.so.preload", "a/b", "", ".", "..", "a\nb", "x" * 256])
def test_a_soname_that_leads_out_of_the_directory_is_skipped_and_the_library_stays(soname):
    odd = Library(path=CUDA.path, soname=soname)
    assert made(odd) == {"libcuda.so.570.1": CUDA.path}
    ((name, why),) = skipped(odd)
    assert "no file name" in why
    assert name.isprintable()
    assert len(name) <= 255


@pytest.mark.parametrize(
    "requests",
    [
        # as toolkits before 1.18 write it, and as those from then on do, in any order
        [("libcuda.so.1", "/usr/lib64/libcuda.so")],
        [("libcuda.so.1", "/usr/lib64/libcuda.so"), ("libcuda.so.570.1", "/usr/lib64/libcuda.so.1")],
        [("libcuda.so.570.1", "/usr/lib64/libcuda.so.1"), ("libcuda.so.1", "/usr/lib64/libcuda.so")],
        [("/usr/lib64/libcuda.so.570.1", "/usr/lib64/libcuda.so")],
        [("../lib64/./libcuda.so.1", "/usr/lib64//libcuda.so")],
    ],
)
def test_a_hooks_link_leads_to_the_library_itself_through_no_other_link(requests):
    found = made(CUDA, requests=[LinkRequest(*each) for each in requests])
    assert found == {"libcuda.so": CUDA.path, "libcuda.so.1": CUDA.path, "libcuda.so.570.1": CUDA.path}


@pytest.mark.parametrize(
    "request_",
    [
        LinkRequest("../card0", "/dev/dri/by-path/pci-0000:3b:00.0-card"),
        LinkRequest("libother.so.1", "/usr/lib64/libother.so"),
        LinkRequest("libcuda.so.1", "/usr/lib/libcuda.so"),
        LinkRequest("a.so", "/usr/lib64/a.so"),
    ],
    ids=str,
)
def test_a_link_that_leads_to_no_library_is_skipped(request_):
    assert made(CUDA, requests=[request_]) == made(CUDA)
    ((name, why),) = skipped(CUDA, requests=[request_])
    assert name == request_.path
    assert "leads to no library" in why


def test_links_in_a_ring_are_skipped():
    ring = [LinkRequest("b.so", "/l/a.so"), LinkRequest("a.so", "/l/b.so")]
    assert made(CUDA, requests=ring) == made(CUDA)
    assert len(skipped(CUDA, requests=ring)) == 2


def test_of_two_that_want_one_name_the_first_gets_it_and_what_was_read_comes_before_what_a_hook_says():
    other = Library(path="/usr/lib/libcuda.so.560.1", soname="libcuda.so.1")
    wrong = LinkRequest("libcuda.so.560.1", "/usr/lib/libcuda.so.1")
    assert made(CUDA, other, requests=[wrong])["libcuda.so.1"] == CUDA.path
    assert made(other, CUDA)["libcuda.so.1"] == other.path
    assert skipped(CUDA, other, requests=[wrong]) == [
        ("libcuda.so.1", f"leads to {CUDA.path} already, not to {other.path}")
    ]


def test_a_librarys_own_name_comes_before_anothers_soname():
    odd = Library(path="/l/liba.so.1", soname="libcuda.so.570.1")
    assert made(odd, CUDA)["libcuda.so.570.1"] == CUDA.path


NAMES = st.sampled_from(["liba.so", "liba.so.1", "liba.so.2", "libb.so.1", "../x", "a/b", ".", ""]) | st.text(
    max_size=5
)
LIBRARIES = st.lists(st.builds(Library, path=NAMES.map("/l/{}".format), soname=st.none() | NAMES), max_size=5)
REQUESTS = st.lists(st.builds(LinkRequest, NAMES, NAMES.map("/l/{}".format)), max_size=5)


@given(LIBRARIES, REQUESTS)
def test_every_link_is_a_file_name_stands_once_and_leads_to_a_mounted_library(libraries, requests):
    plan = plan_links(libraries, requests)
    names = [link.name for link in plan.links]
    assert names == sorted(set(names))
    assert all(map(is_file_name, names))
    assert {link.target for link in plan.links} <= {each.path for each in libraries}
    assert plan_links(libraries, [*requests, *requests]) == plan


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/l/libcuda.so.570.133.20", True),
        ("/l/libcuda.so", True),
        ("/l/libGLX_nvidia.so.0", True),
        ("/usr/bin/nvidia-smi", False),
        ("/lib/firmware/nvidia/570.1/gsp_ga10x.bin", False),
        ("/etc/x.so.conf/", False),
        ("libcuda.so.1", False),
        ("/l/.so", False),
    ],
)
def test_libraries_are_known_by_their_names(path, expected):
    assert is_library(Mount(host_path="/x", container_path=path)) is expected


def mount(name, at="/usr/lib64"):
    return Mount(host_path=f"/driver/{name}", container_path=f"{at}/{name}")


def test_sonames_are_read_from_the_host_and_what_cannot_be_read_is_a_reason():
    files = MemoryFiles(
        {
            "/driver/libcuda.so.570.1": library(b"libcuda.so.1"),
            "/driver/libold.so.570.1": library(ident=b"\x7fELF\x01\x01\x01" + bytes(9)),
            "/driver/libplain.so": library(None),
        }
    )
    mounts = [
        *map(mount, ["libcuda.so.570.1", "libgone.so.570.1", "libold.so.570.1", "libplain.so"]),
        Mount(host_path="/driver/smi", container_path="/usr/bin/nvidia-smi"),
    ]
    found, odd = anyio.run(read_libraries, files, mounts)
    assert found == (CUDA, Library(path="/usr/lib64/libplain.so", soname=None))
    assert [(each.name, each.why) for each in odd] == [
        ("/driver/libgone.so.570.1", "it cannot be read: No such file or directory"),
        ("/driver/libold.so.570.1", "it is not for 64 bits, little-endian"),
    ]


def test_so_many_libraries_are_read_and_no_more(monkeypatch):
    monkeypatch.setattr(links, "LIBRARIES_MAX", 3)
    files = MemoryFiles({f"/driver/lib{number}.so": library() for number in range(9)})
    found, odd = anyio.run(read_libraries, files, [mount(f"lib{number}.so") for number in range(9)])
    assert len(found) == 3
    assert [each.why for each in odd] == ["there are more than 3"]


def test_from_mounts_and_hooks_to_links():
    files = MemoryFiles({Path("/driver/libcuda.so.570.1"): library(b"libcuda.so.1")})
    found, _ = anyio.run(read_libraries, files, [mount("libcuda.so.570.1")])
    plan = plan_links(found, [LinkRequest("libcuda.so.1", "/usr/lib64/libcuda.so")])
    assert plan.links == tuple(Link(name, CUDA.path) for name in ("libcuda.so", "libcuda.so.1", "libcuda.so.570.1"))
