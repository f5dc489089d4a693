"""The words before a command that starts a gofer, so that what it makes in a rootfs is not made in the given one.

Source: `actors.cover_elf`; filesystems/overlayfs of the kernel's documentation (how paths are written in options).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from pathlib import Path

_SPECIAL: Final = str.maketrans({character: f"\\{character}" for character in "\\,:"})


@attrs.frozen(kw_only=True)
class Cover:
    """What lies over a container's rootfs, for its gofer alone.

    Attributes:
        program: the cover program.
        rootfs: what is covered.
        scratch: a directory of ours, empty, where what is written goes while the gofer lives.
    """

    program: Path
    rootfs: Path
    scratch: Path

    def words(self) -> tuple[str, ...]:
        """What comes before the command."""
        upper, work = self.scratch / "upper", self.scratch / "work"
        named = {"lowerdir": self.rootfs, "upperdir": upper, "workdir": work}
        options = ",".join(f"{name}={str(path).translate(_SPECIAL)}" for name, path in named.items())
        return (str(self.program), str(self.rootfs), str(self.scratch), str(upper), str(work), options)
