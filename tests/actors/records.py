"""The record of an activation that was never there."""

from pathlib import Path

from actors.runsc.flags import GlobalFlags
from actors.runsc.record import SandboxRecord


def a_record(**changes):
    """Activation a1 of actor a1, nothing of which runs yet."""
    return SandboxRecord(
        **{
            "activation": "a1",
            "actor": "a1",
            "boot_id": "boot-1",
            "runtime_path": Path("/usr/bin/runsc"),
            "runtime_version": "0.0~20240729.0",
            "flags": GlobalFlags(),
            "container_ids": {"pause": "c0"},
            **changes,
        }
    )
