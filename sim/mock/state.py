"""What a mock GPU node's state file says: the GPUs as they are now, the driver that is loaded, and scripted failures.

The words are those of the simulated world. The NVML of the node (`nvml_stub.c`) reads the same file, at every call;
docs/gpu.md describes it for those who write it.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import attrs
import orjson

from actors import codec, strict_json
from sim.world.gpus import Gpu
from sim.world.nvml import Return, Symbol, Trouble

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT_VERSION: Final = 1
_CUDA_VERSIONS: Final[Mapping[str, int]] = MappingProxyType({"535": 12_020, "550": 12_040, "570": 12_080})
_NEWEST_CUDA_VERSION: Final = 13_000


class StateError(ValueError):
    """Raised when a state file is none, and why."""


def _is_outcome(_fault: object, _field: object, value: int | str) -> None:
    if value not in {*map(int, Return), *map(str, Trouble)}:
        raise ValueError(f"{value!r} is no code that NVML returns, nor one of {', '.join(Trouble)}")


@attrs.frozen(kw_only=True)
class Fault:
    """What the calls of one function of NVML do instead of what they should.

    Attributes:
        symbol: the function.
        what: the number of the code it returns, `hang` or `crash`.
        minor: of the only GPU that is meant.
        times_max: how often in each process; None is always.
    """

    symbol: Symbol
    what: int | str = attrs.field(validator=_is_outcome)
    minor: int | None = None
    times_max: int | None = None


@attrs.frozen(kw_only=True)
class NodeState:
    """How a mock node is now.

    Attributes:
        format_version: of the file.
        loaded_version: of the driver's module; None while there is none. Another one than the libraries' is the
            mismatch of an upgrade.
        cuda_version: the newest CUDA that the driver knows: 13000 is 13.0.
        may_open_devices: whether the device cgroup lets anybody in.
        gpus: in the order of NVML's index.
        faults: the first that fits counts.
    """

    format_version: int = FORMAT_VERSION
    loaded_version: str | None
    cuda_version: int
    may_open_devices: bool = True
    gpus: tuple[Gpu, ...]
    faults: tuple[Fault, ...] = ()

    def gpu(self, minor: int) -> Gpu:
        """The GPU with this minor.

        Raises:
            KeyError: there is none.
        """
        for gpu in self.gpus:
            if gpu.minor == minor:
                return gpu
        raise KeyError(minor)

    def with_gpu(self, changed: Gpu) -> NodeState:
        """The same, with one GPU as it is from now on."""
        return attrs.evolve(self, gpus=tuple(changed if gpu.minor == changed.minor else gpu for gpu in self.gpus))


def cuda_version(driver_version: str) -> int:
    """The newest CUDA that a driver knows."""
    return _CUDA_VERSIONS.get(driver_version.partition(".")[0], _NEWEST_CUDA_VERSION)


def write_state(state: NodeState) -> bytes:
    """The file's text, for people too."""
    return orjson.dumps(codec.plain(state), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def read_state(data: bytes) -> NodeState:
    """What a file says.

    Raises:
        StateError: it is not one of ours.
    """
    try:
        document = strict_json.parse(data)
        state = codec.structure(document, NodeState)
    except (strict_json.StrictJsonError, codec.CodecError) as error:
        raise StateError(str(error)) from error
    # Also what a reader would take for something else: an unknown key, a number in quotes.
    if orjson.loads(orjson.dumps(codec.plain(state))) != document:
        raise StateError("$: a key is unknown or missing, or a value has another type than it should")
    if state.format_version != FORMAT_VERSION:
        raise StateError(f"$.formatVersion: {state.format_version} is not {FORMAT_VERSION}")
    return state
