"""What each reason means, and what to do about it. `docs/reasons.md` is generated from it (`make docs`)."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import attrs

from .reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping


@attrs.frozen
class ReasonText:
    """What a reason means, and what to do about it."""

    sentence: str
    hint: str


R, T = Reason, ReasonText
CATALOGUE: Final[Mapping[Reason, ReasonText]] = MappingProxyType(
    {
        R.EMPTY_DOCUMENT: T("The document has no content.", "Write the document, then rename it into place."),
        R.NOT_UTF8: T(
            "The document is not UTF-8 text.",
            "Save it as UTF-8; a binary file does not belong in the assignments directory.",
        ),
        R.DOCUMENT_TOO_LARGE: T("The document is over 1 MiB.", "Keep payloads out of assignments; mount them instead."),
        R.TOO_DEEP: T(
            "The document nests deeper than 64 levels.", "Flatten it; no field of an assignment is that deep."
        ),
        R.ALIASES_REFUSED: T(
            "The document uses a YAML anchor, alias, merge key or tag.", "Write the value out in full."
        ),
        R.MULTIPLE_DOCUMENTS: T("The file holds more than one document.", "Use one file per document."),
        R.MALFORMED_DOCUMENT: T(
            "The text is neither valid YAML nor valid JSON.", "Check the line and column that are named."
        ),
        R.DUPLICATE_KEY: T("A key stands twice in one mapping.", "Remove one of them; no reader may choose for you."),
        R.UNREADABLE_FILE: T("The file cannot be read.", "Check that it exists, is a regular file and is readable."),
        R.UNSUPPORTED_KIND: T(
            "apiVersion or kind is not one that this program reads.",
            "Use apiVersion greenroom.dev/v1alpha1 and kind WorkerAssignment.",
        ),
        R.UNKNOWN_FIELD: T(
            "The document has a field that its kind does not have.",
            "Check the spelling; the nearest known field is named where there is one.",
        ),
        R.MISSING_FIELD: T("A required field is absent.", "Add it."),
        R.WRONG_TYPE: T("A field has a value of another type.", "Write the type that is named."),
        R.INVALID_VALUE: T("A field has a value outside its range or set.", "Use one of the values that are named."),
        R.INVALID_UID: T(
            "metadata.uid is not 1 to 63 letters, digits and dashes that begin with a letter or digit.",
            "Use a Kubernetes UID or a short name.",
        ),
        R.INVALID_QUANTITY: T(
            "A resource amount is not a Kubernetes quantity.",
            'Write "1", "500m", "1Gi" or the like, as a string or an integer.',
        ),
        R.NEGATIVE_QUANTITY: T("A resource amount is below zero.", "Use zero or more."),
        R.FRACTIONAL_DEVICE: T("A device was claimed in a fraction.", 'Devices are claimed whole: "1", "2".'),
        R.REQUEST_WITHOUT_LIMIT: T(
            "A device is requested without a limit.", "Set the limit; the request may be left out."
        ),
        R.REQUEST_NOT_EQUAL_LIMIT: T(
            "A device's request differs from its limit.", "Make them equal, or leave the request out."
        ),
        R.CLAIMS_EXCEED_RESERVATION: T(
            "The containers together claim more devices than the pool reserved.",
            "Lower the claims or raise the reservation.",
        ),
        R.UNSUPPORTED_DEVICE_CLASS: T(
            "This device class cannot be injected.", "Only nvidia.com/gpu can be claimed today."
        ),
        R.UNKNOWN_RESOURCE: T(
            "A resource name is neither a device class nor cpu, memory or ephemeral-storage.",
            "Device classes carry a domain, as in nvidia.com/gpu.",
        ),
        R.SANDBOX_CLASS_UNSUPPORTED: T("This sandbox class cannot hold what is asked.", "Use sandboxClass: gvisor."),
        R.INVALID_CONTAINER_NAME: T(
            "A container's name is not a DNS label, or is `pause`.",
            "Use lower-case letters, digits and dashes, at most 63.",
        ),
        R.DUPLICATE_CONTAINER: T("Two containers have the same name.", "Rename one."),
        R.ROOTFS_NOT_FOUND: T(
            "A container's rootfs is not a directory.",
            "Unpack the image first; relative paths are below the document's directory.",
        ),
        R.BUNDLE_NOT_FOUND: T(
            "A container's bundle directory or its config.json does not exist.",
            "Prepare the OCI bundle first; relative paths are below the document's directory.",
        ),
        R.INVALID_BUNDLE: T(
            "A bundle's config.json is not an OCI runtime configuration that can be run.",
            "Check the field that is named against the OCI runtime specification.",
        ),
        R.GENERATION_CONFLICT: T(
            "The same generation came again with other content.", "Raise metadata.generation with every change."
        ),
        R.IMMUTABLE_FIELD: T(
            "A field changed that cannot change while the actor lives.",
            "Stop the actor and submit a higher generation, or undo the change.",
        ),
        R.NOTHING_TO_SUSPEND: T(
            "Suspended is wanted, but the actor neither runs nor has a snapshot.",
            "Give snapshot.uri, or start the actor first.",
        ),
        R.OPERATION_IN_PROGRESS: T(
            "Another operation on this actor has not ended.", "Wait for it (`greenroom wait`), then try again."
        ),
        R.ACTOR_NOT_FOUND: T("No actor has this uid here.", "`greenroom status` lists the actors of this worker."),
        R.ACTOR_TERMINATED: T("The actor has ended for good.", "Submit it again with a higher generation."),
        R.WAIT_TIMEOUT: T(
            "The wished state was not reached in time.",
            "The operation goes on; look at `greenroom status` or wait longer.",
        ),
        R.STATE_UNREACHABLE: T(
            "The wished state cannot come any more without a new request.",
            "Ask for it with `greenroom resume`, `suspend` or `stop`, or submit a higher generation.",
        ),
        R.INTAKE_UNREADABLE: T(
            "The assignments directory is missing or cannot be read; nothing was ended because of it.",
            "Make the directory readable again; it is looked at anew by itself.",
        ),
        R.NOT_SUPPORTED: T(
            "The field belongs to a step that this version does not perform.",
            "Leave the field out, or use a version that performs it.",
        ),
        R.WORKER_FULL: T(
            "The worker holds as many actors as --max-actors allows.", "Terminate one, or raise --max-actors."
        ),
        R.WORKER_STARTING: T(
            "The worker takes over what an earlier life of it left, and takes no work yet.",
            "Wait: `/readyz` answers 200 when it does; its log says what it takes over.",
        ),
        R.WORKER_DRAINING: T(
            "The worker is shutting down and takes no new work.", "Send the assignment to another worker."
        ),
        R.WORKER_UNREACHABLE: T(
            "No worker answers on the control socket.",
            "Start `greenroom run`, or point --run-dir at its run directory.",
        ),
        R.PEER_REFUSED: T(
            "The user who asks is neither root nor one that the worker was told of.",
            "Ask as root, or start the worker with --control-uid and the uid of who asks.",
        ),
        R.ADDRESS_UNAVAILABLE: T(
            "The address of --http-listen cannot be listened at.",
            "Name an address of this machine and a port that nobody else listens at.",
        ),
        R.STATE_DIR_IN_USE: T(
            "Another process holds the state directory.", "Stop the other worker, or use another --state-dir."
        ),
        R.STATE_UNWRITABLE: T(
            "The state directory cannot be written.",
            "Check the path, its owner, the free space and that the file system is writable.",
        ),
        R.STATE_CORRUPT: T(
            "A state file could not be read; it was set aside.", "The file is kept beside its place for inspection."
        ),
        R.NEWER_FORMAT: T(
            "A state file was written by a newer version; it was set aside, not deleted.",
            "Run the newer version, or begin anew with a higher generation.",
        ),
        R.SUPERVISOR_RESTARTED: T(
            "The supervisor ended in the middle of something; what became of it, and of the sandbox, is in the message.",
            "`greenroom resume UID` goes on from the last good snapshot; without one it starts the actor anew.",
        ),
        R.INVALID_REQUEST: T(
            "A line on the control socket is not a request.", 'Send one JSON object a line: {"v": 1, "op": …}.'
        ),
        R.PROCESSES_UNREADABLE: T(
            "The processes of this machine could not be looked at or ended, so some of a sandbox may be left.",
            "Check /proc and the limit of open files; the worker's next start ends what is left.",
        ),
        R.OUTPUT_UNWRITABLE: T(
            "What a command prints or makes could not be written.",
            "Check where it goes: the disk may be full or read-only.",
        ),
        R.SUBREAPER_REFUSED: T(
            "The worker is not PID 1, and the kernel does not make it a subreaper.",
            "Start it as PID 1 of its container, or with a seccomp profile that lets prctl pass.",
        ),
        R.PROC_UNAVAILABLE: T(
            "There is no /proc, or it is that of another PID namespace than the worker's.",
            "Mount at /proc a proc of the container's own PID namespace, as container engines do.",
        ),
        R.PIDFD_UNAVAILABLE: T(
            "The kernel, or a seccomp filter, lets no process be held by a descriptor.",
            "Use Linux 5.4 or newer, and a seccomp profile that lets pidfd_open, pidfd_send_signal and waitid pass.",
        ),
        R.CAPABILITY_MISSING: T(
            "The worker lacks a capability that it needs, or that some actors need.",
            "Add it to securityContext.capabilities of the worker's container.",
        ),
        R.SYSCALL_REFUSED: T(
            "A system call that no sandbox can do without is refused to the worker, most often by a seccomp profile.",
            "Run the worker's container with seccompProfile Unconfined, or with one that lets the named calls pass.",
        ),
        R.FILE_LIMIT_LOW: T(
            "Fewer files may be open at once than as many actors as may come can need.",
            "Raise the hard limit of open files (RLIMIT_NOFILE) of the container, or lower --max-actors.",
        ),
        R.CGROUP_UNAVAILABLE: T(
            "The worker has no cgroup that it can divide among its actors, or an actor's cannot be made or removed.",
            "Give the worker's container a writable cgroup v2 of its own, or run with `--cgroups off`: no limit holds then.",
        ),
        R.CONFIG_REFUSED: T(
            "The file of settings cannot be used as it is now; nothing was changed.",
            "Correct what is named, and send SIGHUP again.",
        ),
        R.NOTHING_TO_RELOAD: T(
            "A reload was asked for, and the worker was started without --config.",
            "Start the worker with --config FILE; the assignments directory is looked at all the same.",
        ),
        R.RESTART_NEEDED: T(
            "The file of settings has been changed in something that a live worker cannot change.",
            "Restart the worker, or take that change back; what could be changed has been.",
        ),
        R.TRACING_UNAVAILABLE: T(
            "Spans are wanted and cannot be exported: the extra for it is not installed, or the collector takes none.",
            "Install `greenroom[otel]`; check the collector's address, which speaks OTLP over HTTP. No actor waits for it.",
        ),
        R.INTERNAL: T(
            "Greenroom met a condition that it should have excluded.",
            "This is a fault of ours: please report it with the log lines around it.",
        ),
        R.RUNTIME_UNAVAILABLE: T(
            "gVisor's runsc was not found or does not run here.",
            "`make setup` installs runsc; it needs root, user and PID namespaces.",
        ),
        R.RUNTIME_TOO_OLD: T("This runsc is older than 20240729.", "Install a newer runsc, or name one with --runsc."),
        R.RUNTIME_FAILED: T("A runsc command failed.", "The detail has runsc's own words."),
        R.COMMAND_NOT_FOUND: T(
            "A container's command does not exist in its rootfs.",
            "Check command and args, and that the rootfs is complete.",
        ),
        R.STEP_DEADLINE_EXCEEDED: T(
            "A step did not end before its deadline.", "Look at the worker's log for what it waited for."
        ),
        R.SANDBOX_DIED: T(
            "The sandbox ended by itself.", "Look at the containers' logs and the kernel's log (out of memory?)."
        ),
        R.CONTAINER_FAILED: T(
            "A container ended with a failure and no other container lives.", "Look at `greenroom logs UID -c NAME`."
        ),
        R.CONTAINER_EXITED: T(
            "An application container has exited, so the actor cannot be saved whole.",
            "Restart the actor, or let the container run.",
        ),
        R.FILE_SERVER_LOST: T(
            "The file server (gofer) of a container ended, and the container lives on without it.",
            "Suspend and resume the actor, which gives it a new one; files that it opens meanwhile may fail.",
        ),
        R.COMPLETED: T("Every container ended with exit code 0.", "Nothing is to be done."),
        R.CANCELLED: T("The operation was given up because another was asked for.", "Nothing is to be done."),
        R.LIVE_CUDA_CONTEXT: T(
            "A CUDA context is open, and it is not to be saved.",
            "Let the application close it (a preSuspend hook can tell it to), or set suspend.onLiveCuda.",
        ),
        R.CUDA_CHECKPOINT_UNSUPPORTED: T("This runsc cannot run cuda-checkpoint.", "Use a current one, or Wait."),
        R.CUDA_DRIVER_TOO_OLD: T("The driver is too old for cuda-checkpoint.", "Use one of release 550 or newer."),
        R.CUDA_CHECKPOINT_NOT_FOUND: T(
            "A container with a GPU has no cuda-checkpoint in its PATH, or has it elsewhere than the others.",
            "Put NVIDIA's cuda-checkpoint at the same place of each image, or let the application close its contexts.",
        ),
        R.NO_DURABLE_VOLUME: T(
            "A Data snapshot was asked of an actor without durable volumes.",
            "Declare durableVolumes, or use scope: Full.",
        ),
        R.HOOK_FAILED: T(
            "A hook of the actor (lifecycle.preSuspend or postResume) did not succeed.",
            "The detail has its last lines; after preSuspend the actor runs on, after postResume the snapshot is good.",
        ),
        R.INSUFFICIENT_DISK: T(
            "The disk has no room for the snapshot.", "Free space below the state directory; the actor runs on."
        ),
        R.OPEN_DELETED_FILE: T(
            "An application holds a deleted file open on a mount, which gVisor cannot save.",
            "Close the file, or keep scratch files on the container's own file system.",
        ),
        R.SNAPSHOT_MISSING: T(
            "There is no snapshot with a manifest at this place.",
            "Check the URI; a directory without manifest.json is not a snapshot.",
        ),
        R.SNAPSHOT_CORRUPT: T(
            "A file of the snapshot differs from its manifest.", "Use another snapshot; this one cannot be trusted."
        ),
        R.SNAPSHOT_INCOMPATIBLE: T(
            "The snapshot was taken under conditions that do not hold here.",
            "Restore with the runtime, flags and shape that the manifest names.",
        ),
        R.SNAPSHOT_NOT_UPLOADED: T(
            "The snapshot is good here but did not reach its store yet.", "It is tried again; check the store."
        ),
        R.STORE_UNREACHABLE: T(
            "The store of a snapshot does not answer, or refuses.",
            "Check the store, its endpoint and the credentials in the environment; the message has its words.",
        ),
        R.RESTORED_NOT_SERVING: T(
            "The actor was started or restored, but did not answer its probe in time.",
            "The snapshot is still good; check the application's log and the probe.",
        ),
        R.COULD_NOT_THAW: T(
            "The frozen sandbox could not be resumed and was ended.",
            "Resume from the last good snapshot, if one is named.",
        ),
        R.BUNDLE_CHANGED: T(
            "A container's bundle is not the one that the snapshot was taken of.",
            "Restore with the same image and arguments.",
        ),
        R.GPU_NOT_DETECTED: T(
            "A GPU is claimed, but this pod has none.", "Assign the actor to a GPU pool; check the device plugin."
        ),
        R.GPU_LOST: T("A granted GPU is gone or unhealthy.", "Resume the actor once GPUs are free."),
        R.GPU_ERROR_REPORTED: T(
            "The driver reported an error (XID) of a GPU that the actor holds; the actor runs on.",
            "Look at the application's log; docs/gpu.md says what each class of XIDs means.",
        ),
        R.INSUFFICIENT_GPUS: T("Not enough GPUs are free.", "The holders are named; wait, or suspend one of them."),
        R.NVML_UNAVAILABLE: T("NVML does not answer.", "Check the driver; this is not taken for `no GPUs`."),
        R.TOOLKIT_NOT_FOUND: T("nvidia-ctk was not found.", "Mount the toolkit and name it with --toolkit-dir."),
        R.CDI_MODE_REQUIRED: T("The pod got its GPU in legacy mode.", "Configure the device plugin for CDI."),
        R.GENERATE_FAILED: T("The CDI specification could not be generated.", "The detail has the tool's own words."),
        R.CDI_DEVICE_UNRESOLVED: T(
            "A CDI device name resolves to nothing.", "Known names are listed; regenerate the specification."
        ),
        R.MIG_UNSUPPORTED: T("MIG devices cannot be isolated inside a sandbox.", "Use full GPUs."),
        R.DRIVER_UNSUPPORTED_BY_RUNTIME: T(
            "This runsc does not know the host's driver.",
            "Use a runsc whose `nvproxy list-supported-drivers` names it.",
        ),
        R.MOUNT_MISSING: T("A mount that the snapshot needs is not there.", "Restore where the same files exist."),
        R.NETWORK_UNAVAILABLE: T(
            "The actor's network could not be made.", "Check the worker's capabilities and network mode."
        ),
        R.PORT_TAKEN: T("A worker port is taken by another actor.", "Use another workerPort."),
        R.INVALID_TRACE: T(
            "A line of a trace is not what it should be, or its time is before that of the line before it.",
            "Correct the line that is named; docs/traces.md has the format.",
        ),
        R.INVALID_ROW: T(
            "A row of a file that is imported as a trace cannot be used.",
            "Correct the rows that are named, or leave them out with --skip-bad.",
        ),
        R.INVALID_RESULT: T(
            "A file is not what a replay of the simulator has told.",
            "Give one that `greenroom sim replay --json` has written.",
        ),
        R.SWEEP_UNAVAILABLE: T(
            "A sweep cannot be made so: the extra for it is not installed, or the cluster cannot do it.",
            "Install `greenroom[sweep]`, on the cluster's workers too; check the scheduler's address.",
        ),
        R.SWEEP_INCOMPLETE: T(
            "Runs of a sweep were begun several times, and their process never came to its end.",
            "Look at what its last lines say; the same command makes only the rows that are missing.",
        ),
    }
)
