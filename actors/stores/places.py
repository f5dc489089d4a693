"""Where a snapshot lies in a store: its manifest, and its actor's chunks, which all snapshots of the actor share.

<store>/<uid>/<snapshot id>/manifest.json
<store>/<uid>/chunks/<BLAKE3>
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from actors.manifest import MANIFEST_NAME
from actors.stores.uris import is_plain, read_uri
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from actors.ports import SnapshotStore, Stores
    from actors.stores.uris import StoreUri

CHUNKS_NAME: Final = "chunks"
_NAMES_MIN: Final = 2


@attrs.frozen
class ActorPlace:
    """Where the snapshots of one actor lie. Keys are those of the store that `uri` names.

    Attributes:
        uri: `<store>/<uid>`.
    """

    uri: StoreUri

    def chunk(self, blake3: str) -> str:
        """The key of a chunk."""
        return f"{CHUNKS_NAME}/{blake3}"

    def manifest(self, snapshot_id: str) -> str:
        """The key of a snapshot's manifest."""
        return f"{snapshot_id}/{MANIFEST_NAME}"

    def open(self, stores: Stores) -> SnapshotStore:
        """The objects of the actor."""
        return stores.open(str(self.uri))


@attrs.frozen
class SnapshotPlace:
    """Where one snapshot lies.

    Attributes:
        actor: where those of its actor lie.
        id: its name there.
    """

    actor: ActorPlace
    id: str

    @property
    def uid(self) -> str:
        """The actor's."""
        return self.actor.uri.names[-1]

    @property
    def manifest(self) -> str:
        """The key of its manifest."""
        return self.actor.manifest(self.id)

    def __str__(self) -> str:
        return str(self.actor.uri.below(self.id))


def store_of(uri: str, *, step: Step) -> StoreUri:
    """Read the URI of a store.

    Raises:
        ProblemError: NotSupported.
    """
    try:
        return read_uri(uri)
    except ValueError as error:
        message = f"{_shown(uri)} is no URI of a snapshot store: {error}"
        raise ProblemError(
            Problem(step=step, reason=Reason.NOT_SUPPORTED, subject=_shown(uri), message=message)
        ) from error


def actor_place(uri: str, *, step: Step) -> ActorPlace:
    """Read the URI of all snapshots of an actor, `<store>/<uid>`.

    Raises:
        ProblemError: NotSupported; SnapshotMissing when it names no actor.
    """
    place = store_of(uri, step=step)
    if not place.names:
        raise ProblemError(_nothing_there(uri, step))
    return ActorPlace(place)


def snapshot_place(uri: str, *, step: Step) -> SnapshotPlace:
    """Read the URI of a snapshot, `<store>/<uid>/<id>`.

    Raises:
        ProblemError: NotSupported; SnapshotMissing when it names no snapshot.
    """
    place = store_of(uri, step=step)
    if len(place.names) < _NAMES_MIN or place.names[-1] == CHUNKS_NAME or not is_plain(place.names[-1]):
        raise ProblemError(_nothing_there(uri, step))
    return SnapshotPlace(ActorPlace(place.above), place.names[-1])


def snapshot_uri(store: str, uid: str, snapshot_id: str, *, step: Step = Step.SUSPEND) -> str:
    """The URI of a snapshot in a store.

    Raises:
        ProblemError: NotSupported for what is no URI of a store.
    """
    return str(store_of(store, step=step).below(uid, snapshot_id))


def is_stored_uri(uri: str) -> bool:
    """Whether a snapshot with this URI can only lie in a store; a `file:` URI may name a directory of the worker."""
    return uri.partition(":")[0] in {"s3", "gs", "az", "memory"}


def _nothing_there(uri: str, step: Step) -> Problem:
    message = f"{uri} names no snapshot; one is called STORE/UID/ID"
    return Problem(step=step, reason=Reason.SNAPSHOT_MISSING, subject=uri, message=message)


def _shown(uri: str) -> str:
    """A text that was to be a URI, without the user and the password that it may have."""
    scheme, slashes, rest = uri.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{slashes}{host.rpartition('@')[2]}{slash}{path.partition('?')[0]}"
