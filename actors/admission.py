"""Admission: from a document's bytes to a `WorkerAssignment`, or to every problem it has, in document order.

Two phases. Decoding is pure: the reader, every field, every rule over several fields, and what this version does not
perform. Then the paths that the document names are looked for, whether or not decoding found problems, and all problems
are reported together.

An explicit null is an absent field, as for Kubernetes. Only in arguments and values of variables the YAML words `null`
and `~` are text like any other; JSON null, and nothing at all, is absent there too, or a mistake as an item of a list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from statemachine.problem import Step
from statemachine.reasons import Reason

from .actor_settings import SuspendFields, check_data_scope, durable_volumes, network, snapshot, suspend
from .assignment import DesiredState, Lifecycle, Network, RestartPolicy, SandboxClass, WorkerAssignment
from .containers import ContainerFields, check_mounts, container_fields
from .content import content_digest, mutable_difference
from .document import Finding, Findings, RefusedError, Spot, UnsetError, raise_if_any, read_document
from .document.decoding import Field, Record
from .document.fields import some_of, whole, word_of
from .given_paths import GivenPath, GivenPaths, missing_paths
from .kinds import Kind, kind_of
from .names import label, report_duplicate_containers, subdomain, uid
from .probes import lifecycle
from .quantity import INT64_MAX
from .resources import Claim, device_counts, overdrafts

if TYPE_CHECKING:
    from pathlib import Path

    from .document import Node
    from .ports import Files

__all__ = ["Decoded", "admit", "decode", "decode_assignment", "mutable_difference"]

_CONTAINERS_MAX: Final = 64
_GRACE_SECONDS_MAX: Final = 86_400
_SPEC_FIELDS: Final = (
    "desiredState", "sandboxClass", "reservation", "snapshot", "suspend", "restartPolicy",
    "terminationGracePeriodSeconds", "durableVolumes", "lifecycle", "network", "containers",
)  # fmt: skip


@attrs.frozen(kw_only=True)
class Decoded:
    """What decoding found.

    Attributes:
        assignment: the assignment; None when there is any finding.
        findings: the problems, in document order.
        given_paths: the paths to look for, also of a document with problems.
    """

    assignment: WorkerAssignment | None
    findings: tuple[Finding, ...]
    given_paths: tuple[GivenPath, ...]


async def admit(data: bytes, *, base: Path, files: Files) -> WorkerAssignment:
    """Read, decode and check one WorkerAssignment.

    Args:
        data: the document.
        base: the absolute directory that its relative paths are below.
        files: where the paths are looked for.

    Raises:
        ProblemError: every problem, in document order.
        ValueError: `base` is not absolute.
    """
    decoded = decode_assignment(read_document(data), base)
    missing = await missing_paths(decoded.given_paths, files)
    raise_if_any((*decoded.findings, *missing))
    return _sound(decoded)


def decode(data: bytes, *, base: Path) -> WorkerAssignment:
    """Read and decode one WorkerAssignment without a look at the file system.

    Raises:
        ProblemError: every problem, in document order.
        ValueError: `base` is not absolute.
    """
    decoded = decode_assignment(read_document(data), base)
    raise_if_any(decoded.findings)
    return _sound(decoded)


def decode_assignment(node: Node, base: Path) -> Decoded:
    """Decode a tree; pure, and never raises for what the document says."""
    findings = Findings(Step.ADMISSION)
    paths = GivenPaths(base)
    assignment = None
    spot = Spot(findings, node.place)
    try:
        _require_kind(node, spot)
        assignment = _assignment(node, spot, paths)
    except (RefusedError, UnsetError):
        # Why is among the findings; the reader lets no document through that is null.
        pass
    found = findings.in_document_order()
    return Decoded(assignment=None if found else assignment, findings=found, given_paths=paths.given)


def _sound(decoded: Decoded) -> WorkerAssignment:
    if decoded.assignment is None:
        message = "a document without findings decodes to an assignment"
        raise AssertionError(message)
    return decoded.assignment


def _require_kind(node: Node, spot: Spot) -> None:
    kind = kind_of(node, spot)
    if kind is not Kind.WORKER_ASSIGNMENT:
        message = f"kind must be {Kind.WORKER_ASSIGNMENT} here, not {kind}"
        Record.open(node, spot).at("kind").refuse(Reason.UNSUPPORTED_KIND, message)


@attrs.frozen(kw_only=True)
class _Metadata:
    uid: str
    name: str
    namespace: str
    generation: int


def _metadata(node: Node, spot: Spot) -> _Metadata:
    record = Record.closed(node, spot, ("uid", "name", "namespace", "generation"))
    uid_field = record.required("uid", uid)
    name = record.optional("name", subdomain, "")
    namespace = record.optional("namespace", label, "")
    generation = record.required("generation", whole(1, INT64_MAX))
    return _Metadata(uid=uid_field.value, name=name.value, namespace=namespace.value, generation=generation.value)


def _assignment(node: Node, spot: Spot, paths: GivenPaths) -> WorkerAssignment:
    record = Record.closed(node, spot, ("apiVersion", "kind", "metadata", "spec"))
    metadata = record.required("metadata", _metadata)
    spec = record.required("spec", lambda part, at: _spec(part, at, paths))
    meta = metadata.value
    unnumbered = attrs.evolve(
        spec.value, uid=meta.uid, name=meta.name, namespace=meta.namespace, generation=meta.generation
    )
    return attrs.evolve(unnumbered, digest=content_digest(unnumbered))


def _spec(node: Node, spot: Spot, paths: GivenPaths) -> WorkerAssignment:
    """The spec as an assignment that has no metadata yet."""
    record = Record.closed(node, spot, _SPEC_FIELDS)
    desired = record.required("desiredState", word_of(DesiredState))
    sandbox = record.optional(
        "sandboxClass", word_of(SandboxClass, Reason.SANDBOX_CLASS_UNSUPPORTED), SandboxClass.GVISOR
    )
    reservation = record.optional("reservation", lambda part, at: device_counts(part, at, "the reservation"), None)
    snapshot_field = record.optional("snapshot", snapshot, None)
    suspend_field = record.optional("suspend", suspend, SuspendFields())
    restart = record.optional("restartPolicy", word_of(RestartPolicy), RestartPolicy.NEVER)
    grace = record.optional("terminationGracePeriodSeconds", whole(0, _GRACE_SECONDS_MAX), 30)
    volumes = record.optional("durableVolumes", durable_volumes, ())
    hooks = record.optional("lifecycle", lifecycle, Lifecycle())
    network_field = record.optional("network", network, Network())
    containers = record.required(
        "containers", some_of(lambda part, at: container_fields(part, at, paths), most=_CONTAINERS_MAX)
    )
    check_data_scope(suspend_field, volumes)
    if containers.is_usable:
        report_duplicate_containers(container.name for container in containers.value)
        check_mounts(containers.value, volumes)
        _check_claims(containers.value, reservation)
    return WorkerAssignment(
        uid="",
        generation=0,
        digest="",
        desired_state=desired.value,
        containers=tuple(container.build() for container in containers.value),
        sandbox_class=sandbox.value,
        reservation=reservation.value,
        snapshot=snapshot_field.value,
        suspend=suspend_field.value.suspend,
        restart_policy=restart.value,
        termination_grace_s=grace.value,
        durable_volumes=volumes.value,
        lifecycle=hooks.value,
        network=network_field.value,
    )


def _check_claims(
    containers: tuple[ContainerFields, ...], reservation: Field[tuple[tuple[str, int], ...] | None]
) -> None:
    resources = [fields.resources.value for fields in containers if fields.resources.is_usable]
    claims = [claim for part in resources for claim in part.claims]
    reserved = reservation.value if reservation.is_usable else None
    if reserved is not None:
        _report_overdrafts(claims, dict(reserved))


def _report_overdrafts(claims: list[Claim], reserved: dict[str, int]) -> None:
    """Report ClaimsExceedReservation."""
    for draft in overdrafts(claims, reserved):
        message = (
            f"the containers claim {draft.total} {draft.last.device_class} together ({draft.holders}); "
            f"the reservation is {draft.available}"
        )
        draft.last.spot.report(Reason.CLAIMS_EXCEED_RESERVATION, message)
