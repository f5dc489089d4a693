"""The settings of a worker that several commands take, each read in one way: `run`, `doctor` and `plan`.

A flag wins over its variable GREENROOM_…, that over the variable that the peers use for the same thing, that over the
file, that over the default. An empty variable is none. What `doctor` or `plan` is told in this way is what a worker
would be told that is started beside it.
"""

from __future__ import annotations

import tomllib
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict
from urllib.parse import urlsplit

import click

from actors.ports import DriverPlaces, TcpAddress
from actors.runsc.nvproxy import Nvproxy
from actors.stores.uris import read_uri
from statemachine.wording import file_label
from supervisor.cli.places import PLACE
from supervisor.host.surroundings import is_regular, read_small
from supervisor.settings import CdiSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

CONTEXT: Final[dict[str, Any]] = {"auto_envvar_prefix": "GREENROOM"}
"""The settings of a command's context that let each of its options have a variable."""

DRIVER_ROOT_VARIABLES: Final = ("GREENROOM_DRIVER_ROOT", "ATE_NVIDIA_DRIVER_ROOT")
TOOLKIT_DIR_VARIABLES: Final = ("GREENROOM_TOOLKIT_DIR", "ATE_NVIDIA_TOOLKIT_HOST_PATH")
"""In the order in which they win; the second of each is the peers' own."""

NAMES: Final = frozenset(
    {
        "state_dir", "run_dir", "assignments", "runsc", "platform", "network", "nvproxy", "dev_root", "proc_root",
        "driver_root", "toolkit_dir", "cdi_source", "gpu_monitor", "snapshot_store", "max_actors", "on_drain",
        "drain_timeout", "termination_message", "cgroups", "cgroup_root", "http_listen",
        "metrics_per_actor", "otlp_endpoint", "container_output",
        "control_uid", "backend", "log_format", "log_level",
    }
)  # fmt: skip
"""Every setting of a worker, which a file of settings may have; a test holds it against the options of `run`."""

REPEATED: Final = frozenset({"control_uid"})
"""Those that may be given several times; in a file as a list."""
UID_MAX: Final = (1 << 32) - 2

_CONFIG: Final = "greenroom.config"
"""Where click's context keeps the path of the file."""

SETTINGS_BYTES_MAX: Final = 64 << 10
"""Of a file of settings: what is larger is another file."""


PORT_MAX: Final = 65535
PORT_DIGITS_MAX: Final = 5
IPV6: Final = 6


FileValue = str | tuple[str, ...]
"""What a file says of a setting, as flags would: a text, or those of one that may be given several times."""


class StoreAt(click.ParamType[str]):
    """The URI of a store for snapshots."""

    name = "uri"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Read it, or say what is wrong."""
        text = str(value)
        try:
            read_uri(text)
        except ValueError as error:
            self.fail(f"it is no URI of a store: {error}", param, ctx)
        return text


class ListenAt(click.ParamType[TcpAddress]):
    """A TCP address to listen at. Names are not resolved: a probe must not wait for somebody else's DNS."""

    name = "host:port"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> TcpAddress:
        """Read it, or say what is wrong."""
        if isinstance(value, TcpAddress):
            return value
        host, colon, port = str(value).rpartition(":")
        is_bracketed = host.startswith("[") and host.endswith("]")
        try:
            address = ip_address(host[1:-1] if is_bracketed else host)
        except ValueError:
            self.fail(f"{value!r} is not HOST:PORT with a numeric host, as 0.0.0.0:8080 or [::]:8080", param, ctx)
        is_port = port.isascii() and port.isdecimal() and len(port) <= PORT_DIGITS_MAX and int(port) <= PORT_MAX
        if not colon or not is_port or is_bracketed != (address.version == IPV6):
            self.fail(f"{value!r} is not HOST:PORT, as 0.0.0.0:8080 or [::]:8080", param, ctx)
        return TcpAddress(str(address), int(port))


class CollectorAt(click.ParamType[str]):
    """The address of an OpenTelemetry collector. What is wrong is not repeated: it may have a password."""

    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Read it, or say what is wrong."""
        text = str(value)
        try:
            found = urlsplit(text)
            is_whole = found.scheme in {"http", "https"} and bool(found.hostname) and found.port != 0
        except ValueError:
            is_whole = False
        else:
            is_whole = is_whole and not (found.query or found.fragment or "@" in found.netloc)
        if not is_whole or not text.isascii() or not text.isprintable() or " " in text:
            hint = "headers are in OTEL_EXPORTER_OTLP_HEADERS"
            self.fail(f"it is no http://HOST:PORT or https://HOST:PORT of a collector; {hint}", param, ctx)
        return text


class GpuSettings(TypedDict):
    """What `gpu_options` say, by the names of `Settings`."""

    places: DriverPlaces
    toolkit_dir: Path | None
    cdi_source: CdiSource
    nvproxy: Nvproxy
    gpu_monitor: Path | None


def _together(options: Iterable[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """The options as one decorator; `--help` shows them in this order."""
    listed = tuple(options)

    def decorate(command: Any) -> Any:
        for option in reversed(listed):
            command = option(command)
        return command

    return decorate


def _from_file(ctx: click.Context, _param: click.Parameter, path: Path | None) -> Path | None:
    """The file's values become defaults; those of settings that this command has no use for are passed over."""
    if path is None:
        return None
    ctx.default_map = file_values(path)
    ctx.meta[_CONFIG] = path.absolute()
    return path


def config_path(ctx: click.Context) -> Path | None:
    """The file of settings that a command was given, if any."""
    path: Path | None = ctx.meta.get(_CONFIG)
    return path


def file_values(path: Path) -> dict[str, FileValue]:
    """The settings that a file has, as `settings_in` tells them.

    Raises:
        BadParameter: it cannot be read, or is none.
    """
    if not is_regular(path):
        raise click.BadParameter(f"{path} is not a file")
    try:
        data = read_small(path, limit_bytes=SETTINGS_BYTES_MAX + 1)
    except OSError as error:
        raise click.BadParameter(f"{path} cannot be used: {error}") from error
    return settings_in(data, path)


def settings_in(data: bytes, path: Path) -> dict[str, FileValue]:
    """The settings that a file has, by their names, as the texts that flags would be.

    Raises:
        BadParameter: it is too large or no TOML, or something in it is no setting of a worker.
    """
    if len(data) > SETTINGS_BYTES_MAX:
        raise click.BadParameter(f"{path} is larger than {SETTINGS_BYTES_MAX >> 10} KiB")
    try:
        values = tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"{path} is no TOML: {_why_no_toml(error)}") from error
    defaults: dict[str, FileValue] = {}
    for key, value in values.items():
        name = key.replace("-", "_")
        if name not in NAMES:
            raise click.BadParameter(f"{path} has an unknown setting: {file_label(key)}")
        each = value if name in REPEATED and isinstance(value, list) else [value]
        if any(isinstance(one, bool) or not isinstance(one, str | int | float) for one in each):
            raise click.BadParameter(f"{path}: {key} must be a text or a number")
        # As text, so that it is read by the same rule as a flag.
        defaults[name] = tuple(map(str, each)) if name in REPEATED else str(value)
    return defaults


def _why_no_toml(error: ValueError | RecursionError) -> str:
    match error:
        case tomllib.TOMLDecodeError():
            return str(error)
        case UnicodeDecodeError(start=start):
            return f"byte {start} is not UTF-8"
        case RecursionError():
            return "its brackets are too deep"
        case _:  # Python's own limit, in Python's own words
            return "a number in it has thousands of digits"


state_dir_option: Callable[[Any], Any] = click.option(
    "--state-dir", type=PLACE, default="/var/lib/greenroom", show_default=True, help="What outlives the process."
)
run_dir_option: Callable[[Any], Any] = click.option(
    "--run-dir", type=PLACE, default="/run/greenroom", show_default=True, help="The control socket's directory."
)
runsc_option: Callable[[Any], Any] = click.option(
    "--runsc", type=PLACE, help="runsc  [default: beside the interpreter, then PATH]"
)
platform_option: Callable[[Any], Any] = click.option(
    "--platform",
    type=click.Choice(["systrap", "ptrace", "kvm"]),
    default="systrap",
    show_default=True,
    help="gVisor's platform.",
)
network_option: Callable[[Any], Any] = click.option(
    "--network", type=click.Choice(["none", "host"]), default="none", show_default=True
)
config_option: Callable[[Any], Any] = click.option(
    "--config",
    type=click.Path(path_type=Path),
    callback=_from_file,
    is_eager=True,
    expose_value=False,
    help="TOML file with any settings of a worker.",
)
gpu_options: Callable[[Any], Any] = _together(
    (
        click.option(
            "--dev-root",
            type=PLACE,
            default="/",
            show_default=True,
            help="The directory that the /dev with the GPUs' nodes is in.",
        ),
        click.option(
            "--proc-root", type=PLACE, default="/proc", show_default=True, help="What /proc is, with the driver's part."
        ),
        click.option(
            "--driver-root",
            type=PLACE,
            default="/",
            show_default=True,
            envvar=DRIVER_ROOT_VARIABLES,
            help="The directory that the driver's libraries and programs are below.",
        ),
        click.option(
            "--toolkit-dir",
            type=PLACE,
            envvar=TOOLKIT_DIR_VARIABLES,
            help="The NVIDIA container toolkit  [default: /usr/local/nvidia/toolkit, /opt/nvidia-toolkit, then PATH]",
        ),
        click.option(
            "--cdi-source",
            type=click.Choice([str(each) for each in CdiSource]),
            default=str(CdiSource.POD),
            show_default=True,
            help="Who writes the CDI spec: the toolkit, in this pod, or somebody else, on the host.",
        ),
        click.option(
            "--nvproxy",
            type=click.Choice([str(each) for each in Nvproxy]),
            default=str(Nvproxy.AUTO),
            show_default=True,
            help="Whether gVisor passes calls on to the driver; off is for mock nodes only.",
        ),
        click.option(
            "--gpu-monitor",
            type=PLACE,
            help="The program that tells of the GPUs  [default: our own, which asks the driver's NVML]",
        ),
    )
)
"""Where the driver and the toolkit are, and what is made of them."""


def gpu_settings(values: Mapping[str, Any]) -> GpuSettings:
    """The settings that `gpu_options` were given, out of all values of a command; every path absolute."""
    toolkit, monitor = values["toolkit_dir"], values["gpu_monitor"]
    return GpuSettings(
        places=DriverPlaces(
            dev_root=values["dev_root"].absolute(),
            proc_root=values["proc_root"].absolute(),
            driver_root=values["driver_root"].absolute(),
        ),
        toolkit_dir=None if toolkit is None else toolkit.absolute(),
        cdi_source=CdiSource(values["cdi_source"]),
        nvproxy=Nvproxy(values["nvproxy"]),
        gpu_monitor=None if monitor is None else monitor.absolute(),
    )
