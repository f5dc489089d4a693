"""The objects of deploy/, put together by the real kustomize, and what a worker started by them is told."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any, Final

import yaml
from click.testing import CliRunner

from supervisor.cli.run import run
from tests import go_programs
from tests.needs import ROOT

DEPLOY: Final = ROOT / "deploy"
BASE, GPU = "base", "overlays/gpu"
CLASS: Final = "nvidia.com/gpu"
SETTINGS: Final = {"name": "greenroom-settings"}
_BOUND_S: Final = 60.0


@functools.cache
def _built(name: str) -> str:
    return _build(DEPLOY / name)


def _build(directory: Path) -> str:
    argv = [str(go_programs.kustomize()), "build", str(directory)]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=_BOUND_S, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def objects(name: str) -> list[dict[str, Any]]:
    """All objects of a kustomization."""
    return list(yaml.safe_load_all(_built(name)))


def worker_with_component(name: str, component: str, directory: Path) -> dict[str, Any]:
    """The Deployment of a kustomization of somebody's own, which takes one of ours and a component.

    Args:
        name: of our kustomization.
        component: of its name.
        directory: an empty one.
    """
    above = PurePath(*[".."] * (len(directory.resolve().parts) - 1)) / DEPLOY.resolve().relative_to("/")
    parts = {"resources": [str(above / name)], "components": [str(above / "components" / component)]}
    (directory / "kustomization.yaml").write_text(yaml.safe_dump(parts))
    (found,) = [each for each in yaml.safe_load_all(_build(directory)) if each["kind"] == "Deployment"]
    assert isinstance(found, dict)
    return found


def of_kind(name: str, kind: str) -> list[dict[str, Any]]:
    """Those of one kind."""
    return [each for each in objects(name) if each["kind"] == kind]


def the(name: str, kind: str) -> dict[str, Any]:
    """The only one of a kind."""
    (found,) = of_kind(name, kind)
    return found


def pod(name: str) -> dict[str, Any]:
    """What the Deployment says of its pods."""
    spec: dict[str, Any] = the(name, "Deployment")["spec"]["template"]["spec"]
    return spec


def container(name: str) -> dict[str, Any]:
    """The worker's container."""
    (found,) = pod(name)["containers"]
    assert isinstance(found, dict)
    return found


def variables(name: str) -> dict[str, str]:
    """The variables with a value of their own."""
    return {each["name"]: each["value"] for each in container(name).get("env", []) if "value" in each}


def mounts(name: str) -> dict[str, dict[str, Any]]:
    """Each mount by its path, with its volume as `volume`."""
    volumes = {each["name"]: each for each in pod(name)["volumes"]}
    return {each["mountPath"]: {**each, "volume": volumes[each["name"]]} for each in container(name)["volumeMounts"]}


def settings_text(name: str) -> str:
    """The file of settings that the pod has."""
    text = the(name, "ConfigMap")["data"]["settings.toml"]
    assert isinstance(text, str)
    return text


def told(name: str, directory: Path) -> Mapping[str, Any]:
    """What `greenroom run` understands of the pod's arguments, variables and file of settings.

    Args:
        name: of the kustomization.
        directory: where the file of settings may be written; it is in the pod what the mount is.
    """
    (config,) = [path for path, mount in mounts(name).items() if mount["volume"].get("configMap") == SETTINGS]
    (directory / "settings.toml").write_text(settings_text(name))
    arguments = [each.replace(config, str(directory)) for each in container(name)["args"]]
    with CliRunner(env=variables(name)).isolation(), run.make_context("run", arguments) as context:
        return dict(context.params)
