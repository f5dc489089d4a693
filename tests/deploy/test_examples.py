"""The assignments of deploy/examples, as a worker of deploy/ would take them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from actors.quantity import parse_quantity
from tests.deploy.objects import CLASS, DEPLOY, GPU, container, mounts
from tests.needs import beside_interpreter_or_in_path

EXAMPLES = sorted((DEPLOY / "examples").iterdir())
BUNDLES = "/srv/bundles"
CONFIG = {"ociVersion": "1.1.0", "root": {"path": "rootfs"}, "process": {"args": ["/bin/true"], "cwd": "/"}}


def validate(path: Path) -> subprocess.CompletedProcess[str]:
    greenroom = beside_interpreter_or_in_path("greenroom")
    assert greenroom
    return subprocess.run([greenroom, "validate", path], capture_output=True, text=True, timeout=60, check=False)


def unpacked(path: Path, directory: Path) -> Path:
    """The example, with the root filesystems and bundles that it names below another directory."""
    text = path.read_text()
    for each in yaml.safe_load(text)["spec"]["containers"]:
        place = directory / Path(each.get("rootfs", each.get("bundle"))).relative_to(BUNDLES)
        (place / "rootfs").mkdir(parents=True)
        (place / "config.json").write_text(json.dumps(CONFIG))
    moved = directory / path.name
    moved.write_text(text.replace(BUNDLES, str(directory)))
    return moved


def test_there_are_examples():
    assert {path.name for path in EXAMPLES} == {"counter.yaml", "trainer.yaml"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_taken_where_what_it_names_is_unpacked(path, tmp_path):
    ended = validate(unpacked(path, tmp_path))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


@pytest.mark.long  # builds the real kustomize
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_names_only_what_the_pod_mounts_and_the_tree_is_missed_where_it_is_not(path):
    ended = validate(path)
    assert ended.returncode == 1
    assert f'"{BUNDLES}/' in ended.stdout
    for name in ("base", GPU):
        assert mounts(name)[BUNDLES]["readOnly"]


@pytest.mark.long  # as above
def test_the_gpu_example_claims_no_more_than_the_worker_of_the_overlay_has():
    spec = yaml.safe_load((DEPLOY / "examples" / "trainer.yaml").read_text())["spec"]
    resources = container(GPU)["resources"]["limits"]
    assert spec["reservation"] == {CLASS: resources[CLASS]}
    memory = sum(parse_quantity(each["resources"]["limits"]["memory"]).bytes_ceil for each in spec["containers"])
    assert memory < parse_quantity(resources["memory"]).bytes_ceil
