"""Actions inside an actor as documents write them: wake-up probes and the hooks around a suspend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from statemachine.reasons import Reason

from .assignment import (
    ExecAction,
    HttpGetAction,
    Lifecycle,
    SignalAction,
    TcpSocketAction,
    WakeupProbe,
)
from .document.decoding import Record, attempt
from .document.fields import any_text, given_text, seconds, some_of, whole
from .document.wording import nearest, shown
from .not_built import Feature, refuse_unbuilt

if TYPE_CHECKING:
    from .document import Node, Spot

ARGUMENTS_MAX: Final = 1024
_PROBE_SECONDS_MAX: Final = 3600
_PORT_MAX: Final = 65535
SIGNALS: Final = (
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
    "STKFLT", "CHLD", "CONT", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR",
    "SYS",
)  # fmt: skip
"""Signals that a process can handle; KILL and STOP cannot tell it anything. Source: signal(7)."""

port_number = whole(1, _PORT_MAX)


def wakeup_probe(node: Node, spot: Spot) -> WakeupProbe:
    """`{exec: [...] | httpGet: {path, port} | tcpSocket: {port}, timeoutSeconds}`."""
    record = Record.closed(node, spot, ("exec", "httpGet", "tcpSocket", "timeoutSeconds"))
    action = attempt(spot, lambda: _probe_action(record))
    timeout = record.optional("timeoutSeconds", seconds(_PROBE_SECONDS_MAX), 30.0)
    return WakeupProbe(action=action.value, timeout_s=timeout.value)


def _probe_action(record: Record) -> ExecAction | HttpGetAction | TcpSocketAction:
    match record.require_one("exec", "httpGet", "tcpSocket"):
        case "exec":
            return record.required("exec", _exec).value
        case "httpGet":
            http = record.required("httpGet", _http_get).value
            refuse_unbuilt(Feature.HTTP_PROBES, record.at_key("httpGet"))
            return http
        case _:
            tcp = record.required("tcpSocket", _tcp_socket).value
            refuse_unbuilt(Feature.TCP_PROBES, record.at_key("tcpSocket"))
            return tcp


def _exec(node: Node, spot: Spot) -> ExecAction:
    argv = some_of(any_text, most=ARGUMENTS_MAX)(node, spot)
    if not argv[0]:
        spot.refuse(Reason.INVALID_VALUE, f"{spot.name}: the command's name is empty")
    return ExecAction(argv)


def _http_get(node: Node, spot: Spot) -> HttpGetAction:
    record = Record.closed(node, spot, ("path", "port"))
    path = record.optional("path", _http_path, "/")
    port = record.required("port", port_number)
    return HttpGetAction(path=path.value, port=port.value)


def _http_path(node: Node, spot: Spot) -> str:
    text = given_text(node, spot)
    if not text or not text.isprintable() or " " in text:
        spot.refuse(Reason.INVALID_VALUE, f"{spot.name} {shown(text)} is not the path of a URL")
    return text if text.startswith("/") else f"/{text}"


def _tcp_socket(node: Node, spot: Spot) -> TcpSocketAction:
    record = Record.closed(node, spot, ("port",))
    return TcpSocketAction(record.required("port", port_number).value)


def lifecycle(node: Node, spot: Spot) -> Lifecycle:
    """`{preSuspend, postResume}`, each `{exec: [...]}` or `{signal: NAME}`."""
    record = Record.closed(node, spot, ("preSuspend", "postResume"))
    before = record.optional("preSuspend", _hook, None)
    after = record.optional("postResume", _hook, None)
    return Lifecycle(pre_suspend=before.value, post_resume=after.value)


def _hook(node: Node, spot: Spot) -> ExecAction | SignalAction:
    record = Record.closed(node, spot, ("exec", "signal"))
    if record.require_one("exec", "signal") == "exec":
        return record.required("exec", _exec).value
    return record.required("signal", _signal).value


def _signal(node: Node, spot: Spot) -> SignalAction:
    text = given_text(node, spot)
    name = text.removeprefix("SIG")
    if name not in SIGNALS:
        guess = nearest(name, SIGNALS)
        better = f"; did you mean {guess}?" if guess else ""
        spot.refuse(Reason.INVALID_VALUE, f"{shown(text)} is not a signal that a process can handle{better}")
    return SignalAction(name)
