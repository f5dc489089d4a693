"""The fields of `spec` that are about the whole actor: snapshot, suspend, network, durable volumes."""

from __future__ import annotations

import enum
import re
from typing import TYPE_CHECKING, Final

import attrs

from statemachine.reasons import Reason

from .assignment import (
    ColdStart,
    Egress,
    Network,
    OnLiveCuda,
    Port,
    SnapshotAt,
    SnapshotScope,
    Suspend,
)
from .document import Spot
from .document.decoding import Field, Record
from .document.fields import given_text, list_of, word_of
from .document.wording import shown
from .names import label
from .not_built import Feature, refuse_unbuilt
from .probes import port_number
from .stores.uris import read_uri

if TYPE_CHECKING:
    from .document import Node

_PORTS_MAX: Final = 1024
_VOLUMES_MAX: Final = 64
_URI_BYTES_MAX: Final = 4096
_URI: Final = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<rest>\S+)")
_FILE_SCHEME: Final = "file"


class _SnapshotSource(enum.StrEnum):
    """The words that `snapshot.from` may say."""

    NONE = "None"


def snapshot(node: Node, spot: Spot) -> SnapshotAt | ColdStart:
    """`{uri: …}` or `{from: None}`."""
    record = Record.closed(node, spot, ("uri", "from"))
    if record.require_one("uri", "from") == "from":
        # Only one word is possible, so its value says nothing more.
        _ = record.required("from", word_of(_SnapshotSource)).value
        return ColdStart.WANTED
    return SnapshotAt(record.required("uri", _snapshot_uri).value)


def _snapshot_uri(node: Node, spot: Spot) -> str:
    """Of a snapshot: in a directory of any name, or in a store."""
    text = _uri(node, spot)
    return text if text.startswith(f"{_FILE_SCHEME}:") else _in_store(text, spot)


def _store_uri(node: Node, spot: Spot) -> str:
    """Of a store that snapshots go to."""
    return _in_store(_uri(node, spot), spot)


def _uri(node: Node, spot: Spot) -> str:
    text = given_text(node, spot)
    match = _URI.fullmatch(text)
    if match is None or not text.isprintable() or len(text.encode()) > _URI_BYTES_MAX:
        spot.refuse(Reason.INVALID_VALUE, f"{spot.name} {shown(text)} must be a URI such as file:///absolute/path")
    if match["scheme"] == _FILE_SCHEME and not match["rest"].startswith("/"):
        spot.refuse(Reason.INVALID_VALUE, f"{spot.name} {shown(text)} must have an absolute path: file:///…")
    return text


def _in_store(text: str, spot: Spot) -> str:
    try:
        read_uri(text)
    except ValueError as error:
        # Not repeated: who writes a password into a URI does not want to read it in a log.
        spot.refuse(Reason.INVALID_VALUE, f"{spot.name} is no URI of a store: {error}")
    return text


@attrs.frozen
class SuspendFields:
    """`suspend` while the volumes that a Data scope needs are not known yet; `scope` is where the scope stands."""

    suspend: Suspend = attrs.field(factory=Suspend)
    scope: Spot | None = None


def suspend(node: Node, spot: Spot) -> SuspendFields:
    """`{scope, onLiveCuda, uri}`; a Data scope is looked at by `check_data_scope`."""
    record = Record.closed(node, spot, ("scope", "onLiveCuda", "uri"))
    scope = record.optional("scope", word_of(SnapshotScope), SnapshotScope.FULL)
    on_live_cuda = record.optional("onLiveCuda", word_of(OnLiveCuda), OnLiveCuda.REFUSE)
    uri = record.optional("uri", _store_uri, None)
    wanted = Suspend(scope=scope.value, on_live_cuda=on_live_cuda.value, uri=uri.value)
    return SuspendFields(wanted, scope.spot)


def check_data_scope(suspended: Field[SuspendFields], volumes: Field[tuple[str, ...]]) -> None:
    """Report a Data snapshot of an actor that has no durable volumes."""
    if not suspended.is_usable or suspended.value.suspend.scope is not SnapshotScope.DATA:
        return
    at = suspended.value.scope or suspended.spot
    if volumes.is_usable and not volumes.value:
        at.report(Reason.NO_DURABLE_VOLUME, "scope Data saves durable volumes, and spec.durableVolumes has none")


def network(node: Node, spot: Spot) -> Network:
    """`{ports: [{containerPort, workerPort}], egress}`."""
    record = Record.closed(node, spot, ("ports", "egress"))
    ports = record.optional("ports", _ports, ())
    egress = record.optional("egress", word_of(Egress), Egress.ALLOW)
    if ports.is_usable and ports.value:
        refuse_unbuilt(Feature.NETWORK_PORTS, ports.spot)
    if egress.is_usable and egress.value is not Egress.ALLOW:
        refuse_unbuilt(Feature.NETWORK_EGRESS, egress.spot)
    return Network(ports=ports.value, egress=egress.value)


def _ports(node: Node, spot: Spot) -> tuple[Port, ...]:
    ports = list_of(_port, most=_PORTS_MAX)(node, spot)
    taken = [port.worker_port for port in ports]
    for number in sorted({number for number in taken if taken.count(number) > 1}):
        spot.refuse(Reason.INVALID_VALUE, f"{spot.name} forwards workerPort {number} more than once")
    return ports


def _port(node: Node, spot: Spot) -> Port:
    record = Record.closed(node, spot, ("containerPort", "workerPort"))
    inside = record.required("containerPort", port_number)
    outside = record.required("workerPort", port_number)
    return Port(container_port=inside.value, worker_port=outside.value)


def durable_volumes(node: Node, spot: Spot) -> tuple[str, ...]:
    """`[{name: …}]`, names unique."""
    names = list_of(_volume_name, most=_VOLUMES_MAX)(node, spot)
    for index, name in enumerate(names):
        if name in names[:index]:
            spot.refuse(Reason.INVALID_VALUE, f"{spot.name} has {shown(name)} more than once")
    return names


def _volume_name(node: Node, spot: Spot) -> str:
    record = Record.closed(node, spot, ("name",))
    return record.required("name", label).value
