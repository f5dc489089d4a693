"""Who has to do something about a reason: the catalogue by those who read it, for docs/operating.md. Pure.

What is to be done is the catalogue's hint. A reason has one who acts first; its message may still point to another one.
"""

from __future__ import annotations

import enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from .catalogue import CATALOGUE
from .reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping


class WhoActs(enum.Enum):
    """Who can change what a reason names; the value is the title of the group and a sentence about it."""

    AUTHOR = (
        "Whoever writes the assignment",
        "The document asks for what cannot be. Nothing was begun, and the same text is refused again.",
    )
    APPLICATION = (
        "Whoever builds the application and its image",
        "The worker did its part; what runs inside, or the files that it was given, did not.",
    )
    CALLER = (
        "Whoever gives the work: a control plane, or a person with the command line",
        "Wait, ask another worker, or ask for something else. Nothing is wrong with the worker.",
    )
    OPERATOR = (
        "Whoever runs the workers: the pod and the disk",
        "Something around the worker is missing or full. `greenroom doctor` in the pod looks at most of it.",
    )
    NODE = (
        "Whoever runs the GPU nodes: driver, toolkit, device plugin",
        "The pod's GPUs are not there as they should be. Actors without a claim run on.",
    )
    STORE = (
        "Whoever keeps snapshots and their stores",
        "What was saved cannot be read, restored or sent as it is. The actor's error names its last good snapshot.",
    )
    NOBODY = ("Nobody", "It is told, and that is all.")
    US = ("The makers of Greenroom", "Please report it.")


R, W = Reason, WhoActs
_BY_WHO: Final[Mapping[WhoActs, tuple[Reason, ...]]] = MappingProxyType(
    {
        W.AUTHOR: (
            R.EMPTY_DOCUMENT, R.NOT_UTF8, R.DOCUMENT_TOO_LARGE, R.TOO_DEEP, R.ALIASES_REFUSED, R.MULTIPLE_DOCUMENTS,
            R.MALFORMED_DOCUMENT, R.DUPLICATE_KEY, R.UNREADABLE_FILE, R.UNSUPPORTED_KIND, R.UNKNOWN_FIELD,
            R.MISSING_FIELD, R.WRONG_TYPE, R.INVALID_VALUE, R.INVALID_UID, R.INVALID_QUANTITY, R.NEGATIVE_QUANTITY,
            R.FRACTIONAL_DEVICE, R.REQUEST_WITHOUT_LIMIT, R.REQUEST_NOT_EQUAL_LIMIT, R.CLAIMS_EXCEED_RESERVATION,
            R.UNSUPPORTED_DEVICE_CLASS, R.UNKNOWN_RESOURCE, R.SANDBOX_CLASS_UNSUPPORTED, R.INVALID_CONTAINER_NAME,
            R.DUPLICATE_CONTAINER, R.GENERATION_CONFLICT, R.IMMUTABLE_FIELD, R.NOTHING_TO_SUSPEND, R.NOT_SUPPORTED,
            R.NO_DURABLE_VOLUME, R.PORT_TAKEN,
        ),
        W.APPLICATION: (
            R.ROOTFS_NOT_FOUND, R.BUNDLE_NOT_FOUND, R.INVALID_BUNDLE, R.COMMAND_NOT_FOUND, R.CONTAINER_FAILED,
            R.CONTAINER_EXITED, R.HOOK_FAILED, R.OPEN_DELETED_FILE, R.LIVE_CUDA_CONTEXT, R.CUDA_CHECKPOINT_NOT_FOUND,
            R.RESTORED_NOT_SERVING, R.GPU_ERROR_REPORTED,
        ),
        W.CALLER: (
            R.OPERATION_IN_PROGRESS, R.ACTOR_NOT_FOUND, R.ACTOR_TERMINATED, R.WAIT_TIMEOUT, R.STATE_UNREACHABLE,
            R.WORKER_FULL, R.WORKER_STARTING, R.WORKER_DRAINING, R.WORKER_UNREACHABLE, R.PEER_REFUSED,
            R.INVALID_REQUEST, R.SUPERVISOR_RESTARTED, R.INSUFFICIENT_GPUS, R.GPU_LOST, R.GPU_NOT_DETECTED,
            R.INVALID_TRACE, R.INVALID_ROW, R.INVALID_RESULT,
            R.SWEEP_UNAVAILABLE, R.SWEEP_INCOMPLETE,
        ),
        W.OPERATOR: (
            R.INTAKE_UNREADABLE, R.ADDRESS_UNAVAILABLE, R.STATE_DIR_IN_USE, R.STATE_UNWRITABLE, R.STATE_CORRUPT,
            R.NEWER_FORMAT, R.PROCESSES_UNREADABLE, R.OUTPUT_UNWRITABLE, R.SUBREAPER_REFUSED, R.PROC_UNAVAILABLE,
            R.PIDFD_UNAVAILABLE, R.SYSCALL_REFUSED, R.CAPABILITY_MISSING, R.FILE_LIMIT_LOW, R.CGROUP_UNAVAILABLE,
            R.CONFIG_REFUSED, R.NOTHING_TO_RELOAD, R.RESTART_NEEDED, R.TRACING_UNAVAILABLE,
            R.RUNTIME_UNAVAILABLE, R.RUNTIME_TOO_OLD,
            R.RUNTIME_FAILED, R.STEP_DEADLINE_EXCEEDED, R.SANDBOX_DIED, R.FILE_SERVER_LOST, R.INSUFFICIENT_DISK,
            R.COULD_NOT_THAW, R.NETWORK_UNAVAILABLE,
        ),
        W.NODE: (
            R.NVML_UNAVAILABLE, R.TOOLKIT_NOT_FOUND, R.CDI_MODE_REQUIRED, R.GENERATE_FAILED, R.CDI_DEVICE_UNRESOLVED,
            R.MIG_UNSUPPORTED, R.DRIVER_UNSUPPORTED_BY_RUNTIME, R.CUDA_CHECKPOINT_UNSUPPORTED, R.CUDA_DRIVER_TOO_OLD,
        ),
        W.STORE: (
            R.SNAPSHOT_MISSING, R.SNAPSHOT_CORRUPT, R.SNAPSHOT_INCOMPATIBLE, R.SNAPSHOT_NOT_UPLOADED,
            R.STORE_UNREACHABLE, R.BUNDLE_CHANGED, R.MOUNT_MISSING,
        ),
        W.NOBODY: (R.COMPLETED, R.CANCELLED),
        W.US: (R.INTERNAL,),
    }
)  # fmt: skip
WHO_ACTS: Final[Mapping[Reason, WhoActs]] = MappingProxyType(
    {reason: who for who, reasons in _BY_WHO.items() for reason in reasons}
)
"""Who acts on each reason; a test holds that each has one, and only one."""


def as_markdown() -> str:
    """All reasons: one section for each who acts, one row a reason, in the order of the catalogue."""
    parts = []
    for who in WhoActs:
        title, sentence = who.value
        lines = [f"### {title}", "", sentence, "", "| reason | what it means | what to do |", "|---|---|---|"]
        for reason, text in CATALOGUE.items():
            if WHO_ACTS.get(reason) is who:
                lines.append(f"| `{reason}` | {_cell(text.sentence)} | {_cell(text.hint)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
