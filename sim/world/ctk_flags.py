"""The flags of `nvidia-ctk cdi generate` 1.20, each of which can come from the environment too."""

from __future__ import annotations

import re
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PREFIX: Final = "NVIDIA_CTK_CDI_GENERATE_"
# The main name of each flag, and the variable that it comes from when it is not given.
_VALUES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "output": "NVIDIA_CTK_CDI_OUTPUT_FILE_PATH",
        "format": f"{_PREFIX}OUTPUT_FORMAT",
        "mode": f"{_PREFIX}MODE",
        "driver-root": "NVIDIA_CTK_DRIVER_ROOT",
        "dev-root": "NVIDIA_CTK_DEV_ROOT",
        "nvidia-cdi-hook-path": "NVIDIA_CTK_CDI_HOOK_PATH",
        "ldconfig-path": f"{_PREFIX}LDCONFIG_PATH",
        "vendor": f"{_PREFIX}VENDOR",
        "class": f"{_PREFIX}CLASS",
        "csv.compat-container-root": f"{_PREFIX}CSV_CONTAINER_COMPAT_ROOT",
    }
)
_LISTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "device-name-strategy": f"{_PREFIX}DEVICE_NAME_STRATEGIES",
        "library-search-path": f"{_PREFIX}LIBRARY_SEARCH_PATHS",
        "config-search-path": f"{_PREFIX}CONFIG_SEARCH_PATHS",
        "csv.file": f"{_PREFIX}CSV_FILES",
        "csv.ignore-pattern": f"{_PREFIX}CSV_IGNORE_PATTERNS",
        "disable-hook": f"{_PREFIX}DISABLED_HOOKS",
        "enable-hook": f"{_PREFIX}ENABLED_HOOKS",
        "feature-flag": f"{_PREFIX}FEATURE_FLAGS",
        "device-id": f"{_PREFIX}DEVICE_IDS",
    }
)
_SWITCHES: Final[Mapping[str, str]] = MappingProxyType({"no-all-device": f"{_PREFIX}NO_ALL_DEVICE"})
_ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "discovery-mode": "mode",
        "nvidia-ctk-path": "nvidia-cdi-hook-path",
        "cdi-vendor": "vendor",
        "cdi-class": "class",
        "disable-hooks": "disable-hook",
        "enable-hooks": "enable-hook",
        "feature-flags": "feature-flag",
        "device-ids": "device-id",
        "device": "device-id",
        "devices": "device-id",
    }
)
_FEATURES_NOT_MODELLED: Final = frozenset({"enable-explicit-driver-libraries", "enable-coherent-annotations"})
_STRATEGIES: Final = frozenset({"index", "uuid", "type-index"})
_NOT_MODELLED: Final = frozenset({"csv", "gdrcopy", "gds", "imex", "management", "mofed", "nvswitch", "wsl"})
_EXTENSIONS: Final[Mapping[str, str]] = MappingProxyType({".json": "json", ".yaml": "yaml", ".yml": "yaml"})


class UsageError(Exception):
    """Raised for a command line that is refused.

    Args:
        text: what is said.
        is_in_flags: the flags cannot be read at all, rather than that a value is wrong.
    """

    def __init__(self, text: str, *, is_in_flags: bool = False) -> None:
        super().__init__(text)
        self.is_in_flags = is_in_flags


class NotModelledError(Exception):
    """Raised for what the real program can do and the model cannot."""


@attrs.frozen(kw_only=True)
class Flags:
    """What was asked for; empty is the default of the program."""

    output: str
    format: str
    mode: str
    driver_root: str
    dev_root: str
    hook: str
    ldconfig: str
    vendor: str
    cdi_class: str
    strategies: tuple[str, ...]
    library_search_paths: tuple[str, ...]
    disabled_hooks: tuple[str, ...]
    device_ids: tuple[str, ...]
    features: frozenset[str]
    no_all_device: bool

    @property
    def output_path(self) -> Path | None:
        """The file that is written; None is stdout. Any extension but two is followed by that of the format."""
        if not self.output:
            return None
        path = Path(self.output)
        return path if path.suffix in {".json", ".yaml"} else path.with_name(f"{path.name}.{self.format}")


def read_flags(words: Sequence[str], env: Mapping[str, str]) -> Flags:
    """Read a command line; what stands there and is no flag is passed over, as the real one does.

    Raises:
        UsageError: it is refused.
        NotModelledError: it asks for what is not modelled.
    """
    given = _split(words)
    for name, variable in {**_VALUES, **_LISTS, **_SWITCHES}.items():
        if name not in given and env.get(variable):
            given[name] = [env[variable]]

    def value(name: str, default: str = "") -> str:
        return given.get(name, [default])[-1]

    def values(name: str) -> tuple[str, ...]:
        return tuple(each for text in given.get(name, ()) for each in text.split(","))

    flags = Flags(
        output=value("output"),
        format=_format(value("output"), value("format", "yaml").lower()),
        mode=value("mode", "auto").lower(),
        driver_root=value("driver-root"),
        dev_root=value("dev-root"),
        hook=value("nvidia-cdi-hook-path"),
        ldconfig=value("ldconfig-path"),
        vendor=value("vendor", "nvidia.com"),
        cdi_class=value("class", "gpu"),
        strategies=values("device-name-strategy") or ("index", "uuid"),
        library_search_paths=values("library-search-path"),
        disabled_hooks=values("disable-hook"),
        device_ids=_ids(values("device-id")),
        features=frozenset(values("feature-flag")),
        no_all_device=value("no-all-device", "false") == "true",
    )
    _require_known(flags, given)
    return flags


def _ids(given: tuple[str, ...]) -> tuple[str, ...]:
    """Which devices; none is all. Of the two words that are no device the first one counts, wherever it stands."""
    word = next((each for each in given if each in {"all", "none"}), "")
    return () if word == "all" else given


def _format(output: str, asked: str) -> str:
    """The extension of the output decides, whatever is asked for."""
    if asked not in {"json", "yaml"}:
        raise UsageError(f"invalid output format: {asked}")
    return _EXTENSIONS.get(Path(output).suffix.lower(), asked)


def _require_known(flags: Flags, given: Mapping[str, list[str]]) -> None:
    """Look at the values, in the order of the real program."""
    if flags.mode in _NOT_MODELLED:
        raise NotModelledError(f"--mode={flags.mode}")
    if flags.mode not in {"auto", "nvml"}:
        raise UsageError(f"invalid discovery mode: {flags.mode}")
    for strategy in flags.strategies:
        if strategy not in _STRATEGIES:
            raise UsageError(f"invalid device name strategy: {strategy}")
    for what, name in (("vendor", flags.vendor), ("class", flags.cdi_class)):
        wrong = _wrong_name(name)
        if wrong is not None:
            raise UsageError(f"invalid CDI {what} name: invalid {what}. {wrong}")
    if "enable-hook" in given or flags.features & _FEATURES_NOT_MODELLED:
        raise NotModelledError("--enable-hook or a feature flag")


def _wrong_name(name: str) -> str | None:
    """What is wrong with a vendor or class; one letter is a case of its own, see `nvidia_ctk`."""
    if not name:
        return "empty name"
    if not re.match(r"[A-Za-z]", name):
        return f'"{name}", should start with letter'
    bad = re.search(r"[^A-Za-z0-9_.-]", name[:-1])
    if bad is not None:
        return f"invalid character '{bad[0]}' in name \"{name}\""
    return None if re.search(r"[A-Za-z0-9]\Z", name) else f'"{name}", should end with a letter or digit'


def _split(words: Sequence[str]) -> dict[str, list[str]]:
    """Values by the main name of their flag: `--a=b`, `--a b`, one dash or two."""
    given: dict[str, list[str]] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            continue
        written, equals, text = word.lstrip("-").partition("=")
        name = _ALIASES.get(written, written)
        if name not in {**_VALUES, **_LISTS, **_SWITCHES}:
            raise UsageError(f"flag provided but not defined: -{written}", is_in_flags=True)
        if not equals and name in _SWITCHES:
            text = "true"
        elif not equals:
            if not rest:
                raise UsageError(f"flag needs an argument: {word}", is_in_flags=True)
            text = rest.pop(0)
        given.setdefault(name, []).append(text)
    return given
