"""Who may ask at the control socket, and how often. The kernel says who it is (SO_PEERCRED), before a byte is read.

Whoever asks there can have anything run as root in this pod: an assignment names any directory as a root filesystem,
and a given bundle's hooks run beside the worker. So nobody may but root, which the worker is, and the users that the
worker was told of. The mode of the socket's file alone would not do: one careless chmod takes it away.

Those who may ask wait when they ask more often than any person or program needs to, each user for himself.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import anyio
import attrs

from statemachine.problem import Problem, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from actors.ports import Peer

ROOT: Final = 0
REQUESTS_PER_S: Final = 100.0
"""In the long run, of one user over all his connections."""
REQUESTS_AT_ONCE: Final = 1000
"""After a pause: as many documents as a worker may have actors."""

_OWNER_ALONE: Final = 0o600
_EVERYBODY: Final = 0o666


@attrs.frozen
class Peers:
    """Who may ask.

    Attributes:
        uids: besides root.
    """

    uids: frozenset[int] = frozenset()

    @property
    def socket_mode(self) -> int:
        """Of the socket's file, which only lets in or not: who it is is looked at afterwards."""
        return _EVERYBODY if self.uids - {ROOT} else _OWNER_ALONE

    def may_ask(self, peer: Peer) -> bool:
        """Whether somebody may ask."""
        return peer.uid == ROOT or peer.uid in self.uids


def refusal_of(peer: Peer) -> Problem:
    """What somebody is told who may not ask."""
    return Problem(
        step=Step.ADMISSION,
        reason=Reason.PEER_REFUSED,
        subject="control socket",
        message=f"uid {peer.uid} may not ask this worker",
    )


class Pace:
    """When each user's next request has its turn."""

    def __init__(self) -> None:
        # Until when the requests so far would have lasted, had they come evenly.
        self._lasting_s: dict[int, float] = {}

    async def turn(self, uid: int) -> None:
        """Wait until a request of a user is not too soon; mostly that is at once."""
        now_s = anyio.current_time()
        begins_s = max(self._lasting_s.get(uid, -math.inf), now_s - REQUESTS_AT_ONCE / REQUESTS_PER_S)
        self._lasting_s[uid] = ends_s = begins_s + 1 / REQUESTS_PER_S
        if ends_s > now_s:
            await anyio.sleep(ends_s - now_s)
