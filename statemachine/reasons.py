"""The reason catalogue: every stable word that says why something was refused or failed.

A reason is never renamed: users match on it. What each means and what to do about it is in `catalogue`.
To add one: a member of `Reason`, a row in `CATALOGUE`, and the code that raises it.
"""

from __future__ import annotations

import enum
from typing import Final


class Reason(enum.StrEnum):
    """A stable CamelCase word of the catalogue."""

    # documents
    EMPTY_DOCUMENT = "EmptyDocument"
    NOT_UTF8 = "NotUtf8"
    DOCUMENT_TOO_LARGE = "DocumentTooLarge"
    TOO_DEEP = "TooDeep"
    ALIASES_REFUSED = "AliasesRefused"
    MULTIPLE_DOCUMENTS = "MultipleDocuments"
    MALFORMED_DOCUMENT = "MalformedDocument"
    DUPLICATE_KEY = "DuplicateKey"
    UNREADABLE_FILE = "UnreadableFile"
    UNSUPPORTED_KIND = "UnsupportedKind"
    UNKNOWN_FIELD = "UnknownField"
    MISSING_FIELD = "MissingField"
    WRONG_TYPE = "WrongType"
    INVALID_VALUE = "InvalidValue"
    INVALID_UID = "InvalidUid"
    # quantities and claims
    INVALID_QUANTITY = "InvalidQuantity"
    NEGATIVE_QUANTITY = "NegativeQuantity"
    FRACTIONAL_DEVICE = "FractionalDevice"
    REQUEST_WITHOUT_LIMIT = "RequestWithoutLimit"
    REQUEST_NOT_EQUAL_LIMIT = "RequestNotEqualLimit"
    CLAIMS_EXCEED_RESERVATION = "ClaimsExceedReservation"
    UNSUPPORTED_DEVICE_CLASS = "UnsupportedDeviceClass"
    UNKNOWN_RESOURCE = "UnknownResource"
    SANDBOX_CLASS_UNSUPPORTED = "SandboxClassUnsupported"
    # containers and paths
    INVALID_CONTAINER_NAME = "InvalidContainerName"
    DUPLICATE_CONTAINER = "DuplicateContainer"
    ROOTFS_NOT_FOUND = "RootfsNotFound"
    BUNDLE_NOT_FOUND = "BundleNotFound"
    INVALID_BUNDLE = "InvalidBundle"
    # generations and operations
    GENERATION_CONFLICT = "GenerationConflict"
    IMMUTABLE_FIELD = "ImmutableField"
    NOTHING_TO_SUSPEND = "NothingToSuspend"
    OPERATION_IN_PROGRESS = "OperationInProgress"
    ACTOR_NOT_FOUND = "ActorNotFound"
    ACTOR_TERMINATED = "ActorTerminated"
    WAIT_TIMEOUT = "WaitTimeout"
    STATE_UNREACHABLE = "StateUnreachable"
    INTAKE_UNREADABLE = "IntakeUnreadable"
    NOT_SUPPORTED = "NotSupported"
    # the worker
    WORKER_FULL = "WorkerFull"
    WORKER_STARTING = "WorkerStarting"
    WORKER_DRAINING = "WorkerDraining"
    WORKER_UNREACHABLE = "WorkerUnreachable"
    PEER_REFUSED = "PeerRefused"
    ADDRESS_UNAVAILABLE = "AddressUnavailable"
    STATE_DIR_IN_USE = "StateDirInUse"
    STATE_UNWRITABLE = "StateUnwritable"
    STATE_CORRUPT = "StateCorrupt"
    NEWER_FORMAT = "NewerFormat"
    SUPERVISOR_RESTARTED = "SupervisorRestarted"
    INVALID_REQUEST = "InvalidRequest"
    PROCESSES_UNREADABLE = "ProcessesUnreadable"
    OUTPUT_UNWRITABLE = "OutputUnwritable"
    SUBREAPER_REFUSED = "SubreaperRefused"
    PROC_UNAVAILABLE = "ProcUnavailable"
    PIDFD_UNAVAILABLE = "PidfdUnavailable"
    CAPABILITY_MISSING = "CapabilityMissing"
    SYSCALL_REFUSED = "SyscallRefused"
    FILE_LIMIT_LOW = "FileLimitLow"
    CGROUP_UNAVAILABLE = "CgroupUnavailable"
    CONFIG_REFUSED = "ConfigRefused"
    NOTHING_TO_RELOAD = "NothingToReload"
    RESTART_NEEDED = "RestartNeeded"
    TRACING_UNAVAILABLE = "TracingUnavailable"
    INTERNAL = "Internal"
    # the runtime and the sandbox
    RUNTIME_UNAVAILABLE = "RuntimeUnavailable"
    RUNTIME_TOO_OLD = "RuntimeTooOld"
    RUNTIME_FAILED = "RuntimeFailed"
    COMMAND_NOT_FOUND = "CommandNotFound"
    STEP_DEADLINE_EXCEEDED = "StepDeadlineExceeded"
    SANDBOX_DIED = "SandboxDied"
    CONTAINER_FAILED = "ContainerFailed"
    CONTAINER_EXITED = "ContainerExited"
    FILE_SERVER_LOST = "FileServerLost"
    COMPLETED = "Completed"
    CANCELLED = "Cancelled"
    # suspend and restore
    LIVE_CUDA_CONTEXT = "LiveCudaContext"
    CUDA_CHECKPOINT_UNSUPPORTED = "CudaCheckpointUnsupported"
    CUDA_DRIVER_TOO_OLD = "CudaDriverTooOld"
    CUDA_CHECKPOINT_NOT_FOUND = "CudaCheckpointNotFound"
    NO_DURABLE_VOLUME = "NoDurableVolume"
    HOOK_FAILED = "HookFailed"
    INSUFFICIENT_DISK = "InsufficientDisk"
    OPEN_DELETED_FILE = "OpenDeletedFile"
    SNAPSHOT_MISSING = "SnapshotMissing"
    SNAPSHOT_CORRUPT = "SnapshotCorrupt"
    SNAPSHOT_INCOMPATIBLE = "SnapshotIncompatible"
    SNAPSHOT_NOT_UPLOADED = "SnapshotNotUploaded"
    STORE_UNREACHABLE = "StoreUnreachable"
    RESTORED_NOT_SERVING = "RestoredNotServing"
    COULD_NOT_THAW = "CouldNotThaw"
    BUNDLE_CHANGED = "BundleChanged"
    # GPUs
    GPU_NOT_DETECTED = "GpuNotDetected"
    GPU_LOST = "GpuLost"
    GPU_ERROR_REPORTED = "GpuErrorReported"
    INSUFFICIENT_GPUS = "InsufficientGpus"
    NVML_UNAVAILABLE = "NvmlUnavailable"
    TOOLKIT_NOT_FOUND = "ToolkitNotFound"
    CDI_MODE_REQUIRED = "CdiModeRequired"
    GENERATE_FAILED = "GenerateFailed"
    CDI_DEVICE_UNRESOLVED = "CdiDeviceUnresolved"
    MIG_UNSUPPORTED = "MigUnsupported"
    DRIVER_UNSUPPORTED_BY_RUNTIME = "DriverUnsupportedByRuntime"
    MOUNT_MISSING = "MountMissing"
    # network
    NETWORK_UNAVAILABLE = "NetworkUnavailable"
    PORT_TAKEN = "PortTaken"
    # the simulator
    INVALID_TRACE = "InvalidTrace"
    INVALID_ROW = "InvalidRow"
    INVALID_RESULT = "InvalidResult"
    SWEEP_UNAVAILABLE = "SweepUnavailable"
    SWEEP_INCOMPLETE = "SweepIncomplete"


R = Reason
OF_THE_DOCUMENT: Final = frozenset({
    R.EMPTY_DOCUMENT, R.NOT_UTF8, R.DOCUMENT_TOO_LARGE, R.TOO_DEEP, R.ALIASES_REFUSED, R.MULTIPLE_DOCUMENTS,
    R.MALFORMED_DOCUMENT, R.DUPLICATE_KEY, R.UNSUPPORTED_KIND, R.UNKNOWN_FIELD, R.MISSING_FIELD, R.WRONG_TYPE,
    R.INVALID_VALUE, R.INVALID_UID, R.INVALID_QUANTITY, R.NEGATIVE_QUANTITY, R.FRACTIONAL_DEVICE,
    R.REQUEST_WITHOUT_LIMIT, R.REQUEST_NOT_EQUAL_LIMIT, R.CLAIMS_EXCEED_RESERVATION, R.UNSUPPORTED_DEVICE_CLASS,
    R.UNKNOWN_RESOURCE, R.SANDBOX_CLASS_UNSUPPORTED, R.INVALID_CONTAINER_NAME, R.DUPLICATE_CONTAINER, R.NOT_SUPPORTED,
    R.NO_DURABLE_VOLUME,
})  # fmt: skip
"""Why a document is refused for what it says: the same text is refused again, whatever happens around it.

What is not here may be right by now: a path that was absent, a worker that was full, a fault of ours.
"""
