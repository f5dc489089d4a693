"""Whether an actor has a live CUDA context: what each of two witnesses says, and what they come to.

    device files   which of the driver's nodes the sandbox has open: whoever has a context has them open, and gVisor
                   saves no open one
    NVML           which processes compute on the GPUs of the grant; it is told every few seconds

Either alone is enough. A witness that does not answer has not said no.

Source: gVisor 20260905, pkg/sentry/control/state_cuda.go: a process with an open device of nvproxy's may be a CUDA
process; nvidia-ml-py 13.615.
"""

from __future__ import annotations

import posixpath
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import attrs

from .granted_edits import GPU_MAJOR

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from actors.ports import OpenFile
    from statemachine.problem import Problem

    from .inventory import Gpu

# Of nvidia<N>, nvidiactl and nvidia-modeset the major says it; nvidia-uvm has another one at each boot.
_NAME: Final = re.compile(r"nvidia(?:\d+|ctl|-modeset|-uvm(?:-tools)?|-cap\d+|-caps-imex-channels)", re.ASCII)
_SHOWN_MAX: Final = 8


def _unchangeable(processes: Mapping[str, tuple[int, ...]]) -> Mapping[str, tuple[int, ...]]:
    return MappingProxyType(dict(processes))


@attrs.frozen(kw_only=True)
class Witnesses:
    """What the witnesses say.

    Attributes:
        files: the driver's device nodes that are held open, by their names in /dev, sorted.
        processes: the pids that compute, by the path of the GPU; no GPU without any.
        unanswered: why a witness does not answer.
    """

    files: tuple[str, ...] = ()
    processes: Mapping[str, tuple[int, ...]] = attrs.field(factory=dict, converter=_unchangeable, hash=False)
    unanswered: Problem | None = None

    @property
    def is_live(self) -> bool:
        """Whether one of them says that there is a context."""
        return bool(self.files or self.processes)

    @property
    def is_clear(self) -> bool:
        """Whether both say that there is none."""
        return not self.is_live and self.unanswered is None

    @property
    def may_be_old(self) -> bool:
        """Whether all that speaks for a context is NVML's word, which may be of before it was closed."""
        return not self.files and bool(self.processes)

    def __str__(self) -> str:
        """What speaks for a context, for a message."""
        said = [f"the sandbox holds {_some(self.files)} open"] if self.files else []
        for path, pids in self.processes.items():
            word = "process computes" if len(pids) == 1 else "processes compute"
            said.append(f"{word} on {path}: pid {_some(map(str, pids))}")
        return "; ".join(said)


def device_files(held: Iterable[OpenFile]) -> tuple[str, ...]:
    """Which of the driver's device nodes are among open files, by their names in /dev."""
    found = set()
    for each in held:
        name = posixpath.basename(each.path)
        if each.device is not None and (each.device[0] == GPU_MAJOR or _NAME.fullmatch(name)):
            found.add(f"/dev/{name}")
    return tuple(sorted(found))


def computing(told: Mapping[str, tuple[int, ...]], granted: Iterable[Gpu]) -> dict[str, tuple[int, ...]]:
    """Who computes on the GPUs of a grant, by their paths."""
    return {gpu.path: told[gpu.uuid] for gpu in granted if told.get(gpu.uuid)}


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    rest = f" and {len(listed) - _SHOWN_MAX} more" if len(listed) > _SHOWN_MAX else ""
    return ", ".join(listed[:_SHOWN_MAX]) + rest
