"""`/healthz`, `/readyz` and `/metrics`: what a kubelet and a scraper ask of a worker, over HTTP.

They stand at `http.sock` in the run directory, for whoever may be root there, and at a TCP address where one is given.
They stand from before anything is taken over until everything is left, so that a probe is answered meanwhile.
"""

from __future__ import annotations

import math
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import anyio
import attrs
import orjson
import structlog

from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from supervisor.host.background import open_background
from supervisor.http_server import Answer, HttpServer, Page
from supervisor.metrics.exposing import OPENMETRICS, Metrics
from supervisor.refusals import no_socket

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from actors.ports import Net, Ports
    from supervisor.health import Health
    from supervisor.http_server import Door
    from supervisor.settings import Settings

JSON: Final = "application/json"
FRESH_S: Final = 0.5
"""So long a text of the metrics is told to everybody: who asks without end costs the worker next to nothing."""

_log = structlog.get_logger("greenroom.http")


@asynccontextmanager
async def serving_pages(ports: Ports, settings: Settings, health: Health, metrics: Metrics) -> AsyncIterator[None]:
    """Serve them while the body lasts.

    Raises:
        ProblemError: StateDirInUse, StateUnwritable, AddressUnavailable.
    """
    server = HttpServer(pages_of(health, metrics), now_s=ports.wall.now_s)
    metrics.connections = lambda: server.connections
    async with AsyncExitStack() as stack:
        doors = await _open_doors(ports.net, settings, stack)
        async with open_background() as tasks:
            for door in doors:
                tasks.start_soon(_serve, server, door, name="http")
            yield


def pages_of(health: Health, metrics: Metrics) -> dict[str, Page]:
    """The pages, by their paths."""

    async def healthz(_accept: str) -> Answer:
        return _told("alive", health.ailments())

    async def readyz(_accept: str) -> Answer:
        return _told("ready", health.obstacles())

    return {"/healthz": healthz, "/readyz": readyz, "/metrics": _MetricsPage(metrics).answer}


@attrs.define
class _MetricsPage:
    """`/metrics`: made for one at a time, and shared by all who ask soon after."""

    metrics: Metrics
    _turn: anyio.Lock = attrs.field(factory=anyio.Lock, init=False)
    _made: dict[bool, tuple[float, Answer]] = attrs.field(factory=dict, init=False)

    async def answer(self, accept: str) -> Answer:
        """The text in the format that is asked for."""
        is_open = OPENMETRICS in accept
        async with self._turn:
            made_s, answer = self._made.get(is_open, (-math.inf, None))
            if answer is None or anyio.current_time() - made_s >= FRESH_S:
                answer = Answer(*await self.metrics.text(accept))
                self._made[is_open] = anyio.current_time(), answer
        return answer


async def _open_doors(net: Net, settings: Settings, stack: AsyncExitStack) -> list[Door]:
    doors: list[Door] = []
    try:
        doors.append(await stack.enter_async_context(net.listen_unix(settings.http_socket)))
    except OSError as error:
        raise ProblemError(no_socket(settings.http_socket, error)) from error
    address = settings.http_listen
    if address is not None:
        try:
            listener = await stack.enter_async_context(net.listen_tcp(address))
        except OSError as error:
            raise ProblemError(_unavailable(str(address), error)) from error
        doors.append(listener)
        _log.info("listening", address=str(listener.address))
    return doors


async def _serve(server: HttpServer, door: Door) -> None:
    """No actor ends because a scraper cannot be let in any more; a probe that finds nobody says so to the kubelet."""
    try:
        await server.serve(door)
    except* OSError as group:
        for error in group.exceptions:
            _log.error("not_listening", message=str(error))


def _told(word: str, problems: Sequence[Problem]) -> Answer:
    reasons: list[dict[str, Any]] = [
        {"reason": str(each.reason), "subject": each.subject, "message": each.message, "hint": each.hint}
        for each in problems
    ]
    status = HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK
    return Answer(orjson.dumps({word: not problems, "reasons": reasons}) + b"\n", JSON, status)


def _unavailable(address: str, error: OSError) -> Problem:
    return Problem(
        step=Step.SUPERVISE,
        reason=Reason.ADDRESS_UNAVAILABLE,
        subject=address,
        message=f"health and metrics cannot be served at {address}: {error.strerror or error}",
    )
