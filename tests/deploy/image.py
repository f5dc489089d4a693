"""The image of deploy/Containerfile, built by buildah on a Debian that debootstrap makes: no registry is asked."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs

from tests.deploy.containerfile import CONTAINERFILE, read
from tests.needs import ROOT, Tool, find

BOUND_S: Final = 1800.0
_CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
_NAME: Final = "greenroom-under-test"


@attrs.frozen
class Builder:
    """A buildah that keeps everything below one directory.

    Attributes:
        directory: it.
    """

    directory: Path

    def __call__(self, *arguments: object) -> str:
        """Run it; returns what it says."""
        store = ("--root", self.directory / "store", "--runroot", self.directory / "run", "--storage-driver", "vfs")
        return _run(str(find(Tool.IMAGE_BUILDER)), *store, *arguments)


def _run(*argv: object) -> str:
    ended = subprocess.run(
        [*map(str, argv)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert ended.returncode == 0, f"{argv}: {ended.stdout[-2000:]}{ended.stderr[-2000:]}"
    return ended.stdout.strip()


@contextmanager
def built_image(directory: Path) -> Iterator[Path]:
    """Build it; the root filesystem of a container of it, which is gone afterwards."""
    buildah = Builder(directory)
    base = read()[0]["BASE"]
    _make_base(buildah, base)
    try:
        buildah("build", "--isolation", "chroot", "--pull-never", "--layers=false", *_as_this_machine(directory),
                "--file", CONTAINERFILE, "--tag", _NAME, ROOT)  # fmt: skip
        container = buildah("from", "--pull-never", f"localhost/{_NAME}")
        yield Path(buildah("mount", container))
    finally:
        buildah("umount", "--all")
        buildah("rm", "--all")
        shutil.rmtree(directory / "store")


def _make_base(buildah: Builder, base: str) -> None:
    """Debian itself, under the name that the Containerfile has for it."""
    (suite,) = re.findall(r":(\w+)-slim$", base)
    mirror = _run(ROOT / "scripts" / "debian-archives").splitlines()[0]
    debian = buildah.directory / "debian"
    _run(str(find(Tool.DEBOOTSTRAP)), "--variant=minbase", suite, debian, mirror)
    container = buildah("from", "scratch")
    buildah("copy", "--quiet", container, debian, "/")
    buildah("commit", "--quiet", container, base)
    buildah("rm", container)
    shutil.rmtree(debian)


def _as_this_machine(directory: Path) -> list[str]:
    """How this machine's pip reaches its index: by certificates of its own, perhaps."""
    if not _CERTIFICATES.exists():
        return []
    settings = directory / "pip.conf"
    settings.write_text("[global]\ncert = /etc/machine.crt\n")
    return ["--volume", f"{_CERTIFICATES}:/etc/machine.crt:ro", "--volume", f"{settings}:/etc/pip.conf:ro"]
