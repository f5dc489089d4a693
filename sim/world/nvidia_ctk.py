"""`nvidia-ctk` 1.20 as a program of a simulated machine: `--version` and `cdi generate` in the mode nvml.

Flags, defaults, environment, words and exit codes were measured with version 1.20.0 against a stub of NVML. What the
real program would take and this one does not know is a `NotModelledError`, which ends the scenario.
"""

from __future__ import annotations

import datetime as dt
import posixpath
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import orjson
import yaml

from sim.world.cdi_edits import GenerateError, Request, require_valid
from sim.world.cdi_generation import Generation, find_nvml
from sim.world.ctk_flags import Flags, NotModelledError, UsageError, read_flags
from sim.world.nodes import Regular

if TYPE_CHECKING:
    from sim.world.disk import SimDisk
    from sim.world.gpu_node import GpuNode
    from sim.world.nodes import Directory

_NAME: Final = "NVIDIA Container Toolkit CLI"
_COMMIT: Final = "0" * 40
_HOOK: Final = "nvidia-cdi-hook"
_QUIET: Final = frozenset({"--quiet", "-quiet"})
_SECOND_NS: Final = 1_000_000_000
_PANIC: Final = "panic: runtime error: slice bounds out of range [1:0]\n\ngoroutine 1 [running]:\n"
_CODE_OF_PANIC: Final = 2
_CODE_OF_NO_HELP: Final = 3
_TEMPORARY_MODE: Final = 0o600
_SPEC_MODE: Final = 0o644
_DIRECTORY_MODE: Final = 0o755


@attrs.frozen(kw_only=True)
class Ended:
    """How a call ended, and what it said."""

    code: int
    stdout: bytes = b""
    stderr: bytes = b""


class PanicError(Exception):
    """Raised where the Go program panics."""


class Ctk:
    """One call of nvidia-ctk. Everything happens in one moment; how long it takes is its caller's affair.

    Args:
        disk: the machine's.
        gpus: its GPUs and their driver.
        env: the whole environment.
    """

    def __init__(self, disk: SimDisk, gpus: GpuNode, env: Mapping[str, str]) -> None:
        self._disk = disk
        self._gpus = gpus
        self._env = env
        self._logged: list[tuple[str, str]] = []
        self._is_quiet = env.get("NVIDIA_CTK_QUIET") == "true"

    def call(self, arguments: Sequence[str]) -> Ended:
        """Run one command line to its end.

        Raises:
            NvmlHangs, NvmlCrashes: as the library does.
            NotModelledError: the real program would have done something that is not modelled.
        """
        words = [word for word in arguments if word not in _QUIET]
        self._is_quiet |= len(words) < len(arguments)
        match words:
            case ["--version" | "-v", *_]:
                version = self._gpus.toolkit.version
                return Ended(code=0, stdout=f"{_NAME} version {version}\ncommit: {_COMMIT}\n".encode())
            case ["cdi", "generate", *rest]:
                ended = self._generate(rest)
            case [word] | ["cdi", word] if not word.startswith("-") and word != "cdi":
                return Ended(code=_CODE_OF_NO_HELP, stderr=f"No help topic for '{word}'\n".encode())
            case _:
                raise NotModelledError(" ".join(("nvidia-ctk", *arguments)))
        return attrs.evolve(ended, stderr=self.log() + ended.stderr)

    def _generate(self, words: Sequence[str]) -> Ended:
        try:
            flags = read_flags(words, self._env)
        except UsageError as error:
            self._say("error", str(error))
            usage = f"Incorrect Usage: {error}\n\n" if error.is_in_flags else ""
            return Ended(code=1, stderr=usage.encode())
        try:
            return Ended(code=0, stdout=self._write(flags, self._spec(flags)))
        except GenerateError as error:
            self._say("error", str(error))
            return Ended(code=1)
        except PanicError:
            return Ended(code=_CODE_OF_PANIC, stderr=_PANIC.encode())

    # ---- the spec

    def _spec(self, flags: Flags) -> dict[str, Any]:
        # Measured: this name is parsed with a function that cannot take one letter.
        if 1 in {len(flags.vendor), len(flags.cdi_class)}:
            raise PanicError
        driver_root = flags.driver_root or "/"
        folders = tuple(filter(posixpath.isabs, self._env.get("PATH", "").split(":")))
        request = Request(
            driver_root=driver_root,
            dev_root=flags.dev_root or driver_root,
            library_folders=flags.library_search_paths,
            binary_folders=folders,
            kind=f"{flags.vendor}/{flags.cdi_class}",
            strategies=flags.strategies,
            ids=flags.device_ids,
            hook=flags.hook or self._find_hook(folders),
            disabled_hooks=frozenset(flags.disabled_hooks),
            ldconfig=flags.ldconfig,
            has_all_device=self._has_all_device(flags),
            has_groups="no-additional-gids-for-device-nodes" not in flags.features,
        )
        library = find_nvml(self._disk, request)
        if library is None:
            self._say("warning", "Ignoring error in locating libnvidia-ml.so.1: libnvidia-ml.so.1: not found")
            library = Path(driver_root) / "usr/lib64/libnvidia-ml.so.1"
        else:
            self._say("info", f"Using {library.parent / self._disk.find(library).name}")
        if flags.mode == "auto":
            self._say("info", "Auto-detected mode as 'nvml'")
        return Generation(self._disk, self._gpus.load_nvml(library), library, request, self._say).make()

    def _has_all_device(self, flags: Flags) -> bool:
        if "none" in flags.device_ids and not flags.no_all_device:
            self._say("warning", "Disabling generation of 'all' device")
        return not flags.no_all_device and "none" not in flags.device_ids

    def _find_hook(self, folders: Sequence[str]) -> str:
        for folder in folders:
            if self._is_file(f"{folder}/{_HOOK}"):
                return f"{folder}/{_HOOK}"
        self._say("warning", f"Failed to locate {_HOOK}: {_HOOK}: not found")
        return f"/usr/bin/{_HOOK}"

    def _is_file(self, path: str) -> bool:
        try:
            return isinstance(self._disk.find(Path(path)), Regular)
        except OSError:
            return False

    # ---- where it goes

    def _write(self, flags: Flags, spec: dict[str, Any]) -> bytes:
        """Write the spec where it is wanted; returns what goes to stdout."""
        self._say("info", f"Generated CDI spec with version {spec['cdiVersion']}")
        path = flags.output_path
        failing = "failed to write spec: " if path else "failed to write CDI spec to STDOUT: failed to write spec: "
        folder = path.parent if path else Path(self._env.get("TMPDIR") or "/tmp")  # noqa: S108 - what the real one uses
        try:
            self._look_at_neighbours(folder)
            require_valid(spec)
        except GenerateError as error:
            raise GenerateError(f"{failing}{error}") from None
        data = _as_json(spec) if flags.format == "json" else _as_yaml(spec)
        if path is None:
            return data
        try:
            self._save(path, data)
        except GenerateError as error:
            raise GenerateError(f"{failing}{error}") from None
        return b""

    def _look_at_neighbours(self, folder: Path) -> None:
        """Measured: whatever spec stands beside the output is parsed too, and one with a class of one letter panics."""
        try:
            directory = self._disk.find_directory(folder)
        except OSError:
            return
        for name in sorted(self._disk.names(directory)):
            node = directory.entries[name]
            if name.endswith((".json", ".yaml")) and isinstance(node, Regular):
                vendor, _, kind = _kind_of(self._disk.read(node)).partition("/")
                if 1 in {len(vendor), len(kind)}:
                    raise PanicError

    def _save(self, path: Path, data: bytes) -> None:
        """Write beside it and rename; what cannot be finished is left where it is, as the real one leaves it."""
        directory = self._make_directory(path.parent)
        temporary = f"spec.{int(self._disk.fresh_suffix(), 16)}.tmp"
        where = path.parent / temporary
        node = _try(
            f"failed to create Spec file: open {where}", self._disk.create, directory, temporary, _TEMPORARY_MODE
        )
        failing = f"failed to write Spec file: write {where}"
        if _try(failing, self._disk.append, node, data) < len(data):
            raise GenerateError(f"{failing}: no space left on device")
        failing = f"failed to write Spec file: rename {where} {path}"
        _try(failing, self._disk.rename, directory, temporary, directory, path.name)
        self._disk.change_mode(node, _SPEC_MODE)

    def _make_directory(self, path: Path) -> Directory:
        """The directory at a path, made with its parents."""
        failing = "failed to create Spec dir: mkdir"
        try:
            return self._disk.find_directory(path)
        except FileNotFoundError:
            above = self._make_directory(path.parent)
        except OSError as error:
            raise GenerateError(f"{failing} {path}: {(error.strerror or '').lower()}") from None
        made: Directory = _try(f"{failing} {path}", self._disk.make_directory, above, path.name, _DIRECTORY_MODE)
        return made

    # ---- the log

    def _say(self, level: str, text: str) -> None:
        self._logged.append((level, text))

    def log(self) -> bytes:
        """What it has written to stderr so far."""
        at = dt.datetime.fromtimestamp(self._disk.now_ns() // _SECOND_NS, tz=dt.UTC)
        time = at.strftime("%Y-%m-%dT%H:%M:%SZ")
        wanted = [line for line in self._logged if not self._is_quiet or line[0] == "error"]
        lines = (f"time={_quoted(time)} level={level} msg={_quoted(text)}\n" for level, text in wanted)
        return "".join(lines).encode()


def _quoted(text: str) -> str:
    return orjson.dumps(text).decode()


def _try(failing: str, work: Callable[..., Any], *arguments: Any) -> Any:
    """Do what the kernel may refuse, and tell it in Go's words."""
    try:
        return work(*arguments)
    except OSError as error:
        raise GenerateError(f"{failing}: {(error.strerror or '').lower()}") from None


def _kind_of(data: bytes) -> str:
    """The kind of a spec; nothing for what is none."""
    try:
        document = yaml.safe_load(data)
    except yaml.YAMLError:
        return ""
    kind = document.get("kind") if isinstance(document, dict) else None
    return kind if isinstance(kind, str) else ""


def _as_json(spec: dict[str, Any]) -> bytes:
    return orjson.dumps(spec)


def _as_yaml(spec: dict[str, Any]) -> bytes:
    text: str = yaml.dump(spec, Dumper=_Plain, sort_keys=False, explicit_start=True, indent=4)
    return text.encode()


class _Plain(yaml.SafeDumper):
    """Writes an object out each time it is met: the real program knows no anchors."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the method takes it
        return True
