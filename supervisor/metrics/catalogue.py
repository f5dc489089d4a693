"""Every metric: name, kind, labels, and what it means. docs/metrics.md is generated from here (`make docs`).

Names follow Prometheus: a prefix, base units (`_seconds`, `_bytes`), `_total` at the end of what only grows. The values
of labels come from closed sets (states, steps, reasons, outcomes), so that the number of series has a bound that does
not depend on what users send; only those of `PER_ACTOR` name actors, and a worker tells them only when it is asked
to (`--metrics-per-actor`).
"""

from __future__ import annotations

import enum
from typing import Final

import attrs


class Kind(enum.StrEnum):
    """What a metric is."""

    COUNTER = "counter"
    """Only grows, until the worker begins anew."""
    GAUGE = "gauge"
    """Goes up and down."""
    HISTOGRAM = "histogram"
    """How many took at most so long."""


@attrs.frozen(kw_only=True)
class Metric:
    """One metric.

    Attributes:
        name: as a scraper sees it; of a histogram without `_bucket`, `_sum` and `_count`.
        kind: what it is.
        means: one sentence, which the scraper gets too.
        labels: the names of its labels, with what each is one of.
    """

    name: str
    kind: Kind
    means: str
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def label_names(self) -> tuple[str, ...]:
        """In the order of their values."""
        return tuple(name for name, _ in self.labels)

    @property
    def unit(self) -> str:
        """What it is counted in."""
        stem = self.name.removesuffix("_total")
        return next((unit for unit in ("seconds", "bytes") if stem.endswith(f"_{unit}")), "1")


C, G, H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM
_STEP: Final = ("step", "a step of an actor, as in the errors of `status`")
_REASON: Final = ("reason", "a reason of reasons.md")
_OUTCOME: Final = "outcome"

TRANSITIONS: Final = Metric(
    name="greenroom_transitions_total",
    kind=C,
    means="Changes of actors from one state to another.",
    labels=(("from", "the state before"), ("to", "the state after")),
)
STEP_DURATION: Final = Metric(
    name="greenroom_step_duration_seconds",
    kind=H,
    means="How long the steps of actors took, their own cleanup included.",
    labels=(_STEP, (_OUTCOME, "`done`, `failed`, `cancelled`: another request came, or its time was over")),
)
FAILURES: Final = Metric(
    name="greenroom_failures_total",
    kind=C,
    means="Errors that actors came to have, each once.",
    labels=(_STEP, _REASON),
)
NOTICES: Final = Metric(
    name="greenroom_notices_total",
    kind=C,
    means="Troubles with which an actor ran on, as an error that the driver reported of its GPU.",
    labels=(_REASON,),
)
RESTARTS: Final = Metric(
    name="greenroom_restarts_total",
    kind=C,
    means="Starts of actors anew under their restartPolicy, after a backoff.",
)
REFUSALS: Final = Metric(
    name="greenroom_refusals_total",
    kind=C,
    means="Documents and requests that were refused, each problem once.",
    labels=(_REASON,),
)
ADMISSION_DURATION: Final = Metric(
    name="greenroom_admission_duration_seconds",
    kind=H,
    means="How long it took until a document was admitted or refused; what is tried again counts again.",
    labels=((_OUTCOME, "`admitted`, `refused`"),),
)
UPLOAD_DURATION: Final = Metric(
    name="greenroom_upload_duration_seconds",
    kind=H,
    means="How long tries took to bring a snapshot to its store.",
    labels=((_OUTCOME, "`stored`, `failed`"),),
)
HEARD: Final = (
    TRANSITIONS,
    STEP_DURATION,
    FAILURES,
    NOTICES,
    RESTARTS,
    REFUSALS,
    ADMISSION_DURATION,
    UPLOAD_DURATION,
)
"""Counted as it happens."""

READY: Final = Metric(
    name="greenroom_ready", kind=G, means="1 while the worker takes on work, as /readyz says; else 0."
)
ACTOR_STATES: Final = Metric(
    name="greenroom_actor_states",
    kind=G,
    means="Actors in each state; one that is Terminated is remembered for a day.",
    labels=(("state", "a state of machine.md"),),
)
ACTORS_MAX: Final = Metric(
    name="greenroom_actors_max", kind=G, means="How many actors that are not Terminated may be here (--max-actors)."
)
EVENTS_WAITING: Final = Metric(
    name="greenroom_events_waiting", kind=G, means="Events in the queues of all actors that none has taken yet."
)
FILES_REFUSED: Final = Metric(
    name="greenroom_files_refused", kind=G, means="Files of the assignments directory that stand refused now."
)
GPUS: Final = Metric(
    name="greenroom_gpus",
    kind=G,
    means="GPUs of the pod.",
    labels=(("state", "as in `status`: `Free`, `Held`, `Lost` (a GPU that is withheld, too)"),),
)
XIDS: Final = Metric(
    name="greenroom_xids_total",
    kind=C,
    means="Errors (XIDs) that the driver has reported of GPUs, whoever held them.",
    labels=(("policy", "what is made of one, see gpu.md"),),
)
MONITORS: Final = Metric(
    name="greenroom_gpu_monitors_replaced_total",
    kind=C,
    means="Monitors of the GPUs that ended, hung or said what cannot be, and were replaced.",
)
SPECS: Final = Metric(
    name="greenroom_cdi_generations_total",
    kind=C,
    means="Times that the worker's CDI spec was asked for and made, shared by all who waited.",
    labels=((_OUTCOME, "`made`, `kept`: the one that was there still held, `failed`"),),
)
SPECS_RUNNING: Final = Metric(
    name="greenroom_cdi_generations_running", kind=G, means="CDI specs in the making: never more than 1."
)
SPECS_WAITING: Final = Metric(
    name="greenroom_cdi_generations_waiting", kind=G, means="Steps of actors that wait for the CDI spec."
)
STUCK: Final = Metric(
    name="greenroom_stuck_processes",
    kind=G,
    means="Processes of the NVIDIA toolkit that were killed and do not end; beside one no CDI spec is made.",
)
UPLOADS_PENDING: Final = Metric(
    name="greenroom_uploads_pending", kind=G, means="Actors whose snapshot has not reached its store yet."
)
SNAPSHOTS: Final = Metric(
    name="greenroom_snapshots", kind=G, means="Actors whose last good snapshot is on this worker's disk."
)
SNAPSHOT_BYTES: Final = Metric(
    name="greenroom_snapshot_bytes", kind=G, means="Room that those snapshots take, as their manifests say."
)
STATE_FREE: Final = Metric(
    name="greenroom_state_free_bytes", kind=G, means="Room that is left on the file system of the state directory."
)
CONNECTIONS: Final = Metric(
    name="greenroom_http_connections", kind=G, means="Connections to the pages of health and metrics."
)
BUILD: Final = Metric(
    name="greenroom_build_info",
    kind=G,
    means="Always 1; its labels say what runs.",
    labels=(("version", "of Greenroom"), ("runsc", "version of the runtime, empty while it is not known yet")),
)
PROPORTIONAL: Final = Metric(
    name="greenroom_proportional_memory_bytes",
    kind=G,
    means="Memory of the worker's own process, pages that it shares divided among those who share them (PSS).",
)
THREADS: Final = Metric(name="greenroom_threads", kind=G, means="Threads of the worker's own process.")
REAPED: Final = Metric(
    name="greenroom_zombies_reaped_total",
    kind=C,
    means="Zombies of strangers that the worker took away, as PID 1 has to.",
)
CPU: Final = Metric(
    name="process_cpu_seconds_total",
    kind=C,
    means="CPU time of the worker's own process; sandboxes and tools not included.",
)
RESIDENT: Final = Metric(
    name="process_resident_memory_bytes", kind=G, means="Memory of the worker's own process (RSS)."
)
OPEN_FILES: Final = Metric(name="process_open_fds", kind=G, means="Descriptors that the worker's own process has open.")
OPEN_FILES_MAX: Final = Metric(name="process_max_fds", kind=G, means="How many descriptors it may have open.")
STARTED: Final = Metric(
    name="process_start_time_seconds", kind=G, means="When the worker began, in seconds since 1970 UTC."
)
SEEN: Final = (
    READY,
    ACTOR_STATES,
    ACTORS_MAX,
    EVENTS_WAITING,
    FILES_REFUSED,
    GPUS,
    XIDS,
    MONITORS,
    SPECS,
    SPECS_RUNNING,
    SPECS_WAITING,
    STUCK,
    UPLOADS_PENDING,
    SNAPSHOTS,
    SNAPSHOT_BYTES,
    STATE_FREE,
    CONNECTIONS,
    BUILD,
    CPU,
    RESIDENT,
    PROPORTIONAL,
    THREADS,
    OPEN_FILES,
    OPEN_FILES_MAX,
    STARTED,
    REAPED,
)
"""Looked at when somebody scrapes."""

_UID: Final = ("uid", "the actor's")
ACTOR_CPU: Final = Metric(
    name="greenroom_actor_cpu_seconds_total",
    kind=C,
    means="CPU time of an actor since its present activation began.",
    labels=(_UID,),
)
ACTOR_MEMORY: Final = Metric(
    name="greenroom_actor_memory_bytes",
    kind=G,
    means="Memory of an actor, page cache included.",
    labels=(_UID,),
)
ACTOR_WORKING_SET: Final = Metric(
    name="greenroom_actor_working_set_bytes",
    kind=G,
    means="Memory of an actor without the page cache that the kernel would give up first.",
    labels=(_UID,),
)
ACTOR_OOM_KILLS: Final = Metric(
    name="greenroom_actor_oom_kills_total",
    kind=C,
    means="Processes of an actor that ended since its activation began because its memory was used up.",
    labels=(_UID,),
)
ACTOR_GPU_MEMORY: Final = Metric(
    name="greenroom_actor_gpu_memory_bytes",
    kind=G,
    means="Memory in use on the GPUs that an actor holds.",
    labels=(_UID,),
)
PER_ACTOR: Final = (ACTOR_CPU, ACTOR_MEMORY, ACTOR_WORKING_SET, ACTOR_OOM_KILLS, ACTOR_GPU_MEMORY)
"""With `--metrics-per-actor` only: for each actor that is not Terminated, of which there are at most --max-actors."""

METRICS: Final = HEARD + SEEN + PER_ACTOR


def as_markdown() -> str:
    """All of them as the table of docs/metrics.md."""
    lines = ["| metric | type | unit | labels | meaning |", "|---|---|---|---|---|"]
    for each in METRICS:
        labels = "; ".join(f"`{name}`: {what}" for name, what in each.labels)
        lines.append(f"| `{each.name}` | {each.kind} | {each.unit} | {labels} | {each.means} |")
    return "\n".join(lines) + "\n"
