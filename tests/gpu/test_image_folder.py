"""A folder of an image is where the container would find it, whatever links are on the way."""

import errno
from pathlib import Path

import pytest

from actors.gpu.hooks import CudaCompat
from actors.gpu.image_folder import compat_folder
from actors.ports.rooted import find_in
from tests.actors.memory_files import MemoryFiles

ROOTFS = Path("/images/one")
FOLDER = "/usr/local/cuda/compat"


def links_of(links):
    """How the links of an image read, and how often one was asked for."""
    targets, reads = {ROOTFS / name: target for name, target in links.items()}, []

    def read_link(path):
        reads.append(path)
        return targets.get(path)

    return read_link, reads


@pytest.mark.parametrize(
    ("links", "found"),
    [
        ({}, "usr/local/cuda/compat"),
        ({"usr/local/cuda": "cuda-12.9"}, "usr/local/cuda-12.9/compat"),
        ({"usr/local/cuda": "/opt/cuda"}, "opt/cuda/compat"),
        ({"usr/local/cuda": "/etc/alternatives/cuda", "etc/alternatives/cuda": "/opt/cuda"}, "opt/cuda/compat"),
        ({"usr/local/cuda": "../../../../../../etc"}, "etc/compat"),
        ({"usr": "/", "usr/local": "x"}, "local/cuda/compat"),
        ({"usr/local/cuda/compat": "."}, "usr/local/cuda"),
    ],
)
def test_no_link_leads_out_of_the_image(links, found):
    assert find_in(ROOTFS, FOLDER, links_of(links)[0]) == ROOTFS / found


@pytest.mark.parametrize("links", [{"usr": "usr"}, {"usr/local": "/usr/local/local"}, {"usr": "/opt", "opt": "/usr"}])
def test_a_ring_of_links_is_given_up_soon(links):
    read_link, reads = links_of(links)
    with pytest.raises(OSError) as caught:
        find_in(ROOTFS, FOLDER, read_link)
    assert caught.value.errno == errno.ELOOP
    assert len(reads) < 200


@pytest.mark.anyio
async def test_nothing_is_looked_at_where_no_hook_asks_for_it():
    image = MemoryFiles({ROOTFS / "usr/local/cuda/compat/libcuda.so.580.1": b""})
    image.fail("list_directory", ROOTFS / FOLDER.lstrip("/"), errno.EIO)
    assert await compat_folder(image, ROOTFS, None) is None


@pytest.mark.anyio
@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.EOVERFLOW])
async def test_an_image_that_cannot_be_looked_into_has_no_such_folder(number):
    image = MemoryFiles({ROOTFS / "usr/local/cuda/compat/libcuda.so.580.1": b""})
    compat = CudaCompat(host_driver="570.1")
    image.fail("list_directory", ROOTFS / "usr/local/cuda/compat", number)
    assert await compat_folder(image, ROOTFS, compat) is None
