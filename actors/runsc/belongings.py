"""What an activation has beside its processes, and no look at them could tell: written into its record.

A later life of the worker needs it to go on with a sandbox that outlived the one before: which GPUs are in it, what a
snapshot of it must say, whose ends its file servers do not show.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from actors.codec import plain, structure
from actors.gpu.desk import SpecFacts
from actors.gpu.inventory import Gpu
from actors.manifest import Shape

if TYPE_CHECKING:
    from actors.strict_json import JsonObject


@attrs.frozen
class Granted:
    """The GPUs of one container, by ordinal."""

    container: str
    gpus: tuple[Gpu, ...]


@attrs.frozen(kw_only=True)
class Belongings:
    """Of one activation.

    Attributes:
        runtime_sha256: hex digest of the runsc that made it.
        granted: what each container has, in the order of declaration; nothing of an actor that claims no GPU.
        spec: the CDI spec that they were injected by.
        shapes: of the containers of which no config.json in it tells what a snapshot must say: they had exited before
            the one that it was restored from, or another bundle was forced upon what was saved.
        doubted: the containers whose gofer is no sign of their end any more (see `Sandbox.ended`).
    """

    runtime_sha256: str
    granted: tuple[Granted, ...] = ()
    spec: SpecFacts | None = None
    shapes: Mapping[str, Shape] = attrs.field(factory=dict)
    doubted: tuple[str, ...] = ()

    def as_json(self) -> JsonObject:
        """Return the form of the activation's record."""
        document: JsonObject = plain(self)
        return document

    @classmethod
    def from_json(cls, document: JsonObject) -> Belongings:
        """Read the form of the activation's record.

        Raises:
            ValueError: it is not that form.
        """
        return structure(document, cls)
