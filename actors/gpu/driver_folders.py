"""Where below a driver root its libraries may be; names only, for us and for the monitor's process."""

from __future__ import annotations

from typing import Final

NVML: Final = "libnvidia-ml.so.1"
"""The name that programs load NVML by."""
SEARCHED: Final = (
    *("usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu"),
    *("lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"),
)
"""Where nvidia-ctk looks by itself, below the driver root."""
FURTHER: Final = ("usr/local/nvidia/lib64", "usr/local/nvidia/lib", "usr/lib", "lib")
"""Where it has to be told to look; the first is that of GKE's device plugin."""
