"""A folder of an image is where the container would find it, whatever links are on the way."""

import errno
from pathlib import Path

import pytest

from actors.gpu.hooks import CudaCompat
from actors.gpu.image_folder import compat_folder, find_in_image
from tests.actors.memory_files import MemoryFiles

pytestmark = pytest.mark.anyio

ROOTFS = Path("/images/one")
FOLDER = "/usr/local/cuda/compat"


class Image(MemoryFiles):
    """Links of an image, and how often one was asked for."""

    def __init__(self, links=(), content=()):
        super().__init__(content)
        self.targets = {ROOTFS / name: target for name, target in dict(links).items()}
        self.reads = 0

    async def read_link(self, path):
        self.reads += 1
        return await super().read_link(path)


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
async def test_no_link_leads_out_of_the_image(links, found):
    assert await find_in_image(Image(links), ROOTFS, FOLDER) == ROOTFS / found


@pytest.mark.parametrize("links", [{"usr": "usr"}, {"usr/local": "/usr/local/local"}, {"usr": "/opt", "opt": "/usr"}])
async def test_a_ring_of_links_is_given_up_soon(links):
    image = Image(links)
    with pytest.raises(OSError) as caught:
        await find_in_image(image, ROOTFS, FOLDER)
    assert caught.value.errno == errno.ELOOP
    assert image.reads < 200


async def test_nothing_is_looked_at_where_no_hook_asks_for_it():
    image = Image()
    assert await compat_folder(image, ROOTFS, None) is None
    assert image.reads == 0


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.EOVERFLOW])
async def test_an_image_that_cannot_be_looked_into_has_no_such_folder(number):
    image = Image(content={ROOTFS / "usr/local/cuda/compat/libcuda.so.580.1": b""})
    compat = CudaCompat(host_driver="570.1")
    image.fail("list_directory", ROOTFS / "usr/local/cuda/compat", number)
    assert await compat_folder(image, ROOTFS, compat) is None
