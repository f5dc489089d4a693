"""What a driver's module says of device files in `/proc/driver/nvidia/params`, and what a container would be shown.

With `ModifyDeviceFiles: 1` the driver's libraries make missing device nodes themselves, and put back the modes of those
that are there: in a container that was given some GPUs, those of all others would appear. The container toolkit has a
hook that covers the file with a copy that says 0. Greenroom runs no such hook, and runsc would skip it as well; so this
is for checks and for what is told to people.

Source: NVIDIA container toolkit 1.18 to 1.20, `disable-device-node-modification`; facts of nvidia-ctk, "Hooks".
"""

from __future__ import annotations

from typing import Final

PARAMS: Final = "/proc/driver/nvidia/params"
_ON: Final = "ModifyDeviceFiles: 1"
_OFF: Final = "ModifyDeviceFiles: 0"


def without_device_files(params: str | None) -> str | None:
    """The file with device files switched off; None where nothing is to be done.

    Only the exact line counts, without blanks around it: the module writes it so, and anything else is no setting that
    the libraries would read. A line that switches them off already wins.

    Args:
        params: the text of the file; None when there is none.
    """
    lines = (params or "").removesuffix("\n").split("\n")
    if _ON not in lines or _OFF in lines:
        return None
    return "".join(f"{_OFF if line == _ON else line}\n" for line in lines)


def lets_libraries_make_nodes(params: str | None) -> bool:
    """Whether the driver's libraries would make device nodes."""
    return without_device_files(params) is not None
