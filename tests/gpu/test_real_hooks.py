"""The real nvidia-cdi-hook on scratch bundles, and what Greenroom does instead of running it: both come to the same."""

from __future__ import annotations

import json
import posixpath
import shutil
import subprocess
from pathlib import Path

import attrs
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from actors.cdi import Hook, Spec, SpecFormat, encode, read_spec
from actors.gpu.hooks import DEFAULT_COMPAT_FOLDER, HookPlan, plan_hooks
from actors.gpu.links import Library, is_library, plan_links
from tests.go_programs import nvidia_cdi_hook
from tests.gpu.test_real_toolkit import generate
from tests.sim.mock.nodes import make_node

_LINKS_MAX = 40


@attrs.frozen
class Bundle:
    """A scratch bundle with a rootfs that hooks may write to."""

    directory: Path

    @classmethod
    def new(cls, directory: Path) -> Bundle:
        shutil.rmtree(directory, ignore_errors=True)
        (directory / "rootfs").mkdir(parents=True)
        (directory / "config.json").write_text(json.dumps({"ociVersion": "1.2.0", "root": {"path": "rootfs"}}))
        return cls(directory)

    def inside(self, path: str) -> Path:
        return self.directory / "rootfs" / path.lstrip("/")

    def put(self, path: str) -> None:
        self.inside(path).parent.mkdir(parents=True, exist_ok=True)
        self.inside(path).touch()

    def run(self, hook: Hook) -> int:
        """Run a hook as a runtime does: the container's state on stdin."""
        state = {"ociVersion": "1.2.0", "id": "c", "status": "creating", "pid": 0, "bundle": str(self.directory)}
        argv = [str(nvidia_cdi_hook()), *hook.args[1:]]
        env = {"PATH": "/usr/bin:/bin"}
        ended = subprocess.run(
            argv, input=json.dumps(state), env=env, capture_output=True, text=True, timeout=60, check=False
        )
        return ended.returncode

    def end_of(self, path: str) -> str | None:
        """The file in the container at the end of a path, by its own name; None when there is none."""
        at = posixpath.normpath(path)
        for _ in range(_LINKS_MAX):
            there = self.inside(at)
            if not there.is_symlink():
                return at if there.is_file() else None
            at = posixpath.normpath(posixpath.join(posixpath.dirname(at), str(there.readlink())))
        return None

    def compat_folders(self) -> list[str]:
        configured = self.inside("/etc/ld.so.conf.d")
        return [path.read_text().strip() for path in configured.iterdir()] if configured.exists() else []


def hook(*args: str) -> Hook:
    return Hook(hook_name="createContainer", path="/usr/bin/nvidia-cdi-hook", args=("nvidia-cdi-hook", *args))


def links_hook(*links: tuple[str, str]) -> Hook:
    return hook("create-symlinks", *(word for target, path in links for word in ("--link", f"{target}::{path}")))


def planned(plan: HookPlan, libraries: tuple[Library, ...]) -> dict[str, str]:
    return {link.name: link.target for link in plan_links(libraries, plan.links).links}


# ---- create-symlinks

FULL = ("/l/liba.so.1.2", "/l/libb.so.1.2")
NAMES = ("liba.so", "liba.so.1", "libb.so", "libb.so.1", "libc.so")
TARGETS = ("liba.so.1.2", "/l/libb.so.1.2", "../l/liba.so.1", "libb.so", "/l/libc.so", "./liba.so", "/k/absent")


QUICK = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
PAIRS = st.lists(
    st.tuples(st.sampled_from(TARGETS), st.sampled_from(NAMES)), min_size=1, unique_by=lambda pair: pair[1]
)


def test_a_link_leads_where_the_hooks_link_leads(tmp_path):
    nvidia_cdi_hook()

    @QUICK
    @example([("liba.so.1", "liba.so"), ("liba.so.1.2", "liba.so.1")])
    @example([("liba.so", "liba.so.1"), ("liba.so.1", "liba.so")])
    @given(PAIRS)
    def check(pairs):
        links = [(target, f"/l/{name}") for target, name in pairs]
        bundle = Bundle.new(tmp_path / "bundle")
        for path in FULL:
            bundle.put(path)
        asked = links_hook(*links)
        assert bundle.run(asked) == 0
        ours = planned(plan_hooks([asked]), tuple(Library(path=path, soname=None) for path in FULL))
        for _, path in links:
            assert ours.get(posixpath.basename(path)) == bundle.end_of(path), path

    check()


def test_two_hooks_lead_where_one_after_the_other_leads(tmp_path):
    bundle = Bundle.new(tmp_path / "bundle")
    bundle.put(FULL[0])
    hooks = [links_hook(("liba.so.1", "/l/liba.so")), links_hook(("liba.so.1.2", "/l/liba.so.1"))]
    assert [bundle.run(each) for each in hooks] == [0, 0]
    ours = planned(plan_hooks(hooks), (Library(path=FULL[0], soname=None),))
    assert ours["liba.so"] == ours["liba.so.1"] == bundle.end_of("/l/liba.so") == FULL[0]


@pytest.mark.parametrize("link", ["a::b::/l/c", "a", "a:/l/b"])
def test_what_the_hook_refuses_as_no_link_is_skipped(tmp_path, link):
    asked = hook("create-symlinks", "--link", link)
    assert Bundle.new(tmp_path / "bundle").run(asked) == 1
    plan = plan_hooks([asked])
    assert plan.links == ()
    assert len(plan.skipped) == 1


def test_a_path_that_leads_out_stays_inside_with_the_hook_and_is_skipped_by_us(tmp_path):
    bundle = Bundle.new(tmp_path / "bundle")
    asked = links_hook(("a", "/../../../out"))
    before = {path for path in tmp_path.rglob("*") if "rootfs" not in path.parts}
    bundle.run(asked)
    assert {path for path in tmp_path.rglob("*") if "rootfs" not in path.parts} == before
    assert plan_hooks([asked]).links == ()


# ---- enable-cuda-compat


@pytest.mark.parametrize(
    "names",
    [
        (),
        ("libcuda.so.590.48.01",),
        ("libcuda.so.580.105.08",),
        ("libcuda.so.570.124.06",),
        ("libcuda.so.590.48.01", "libcuda.so.610.57.04"),
        ("libcuda.so.1", "libcuda.so"),
        ("libcuda.so.590.48.01", "libcuda.so.1", "libcuda.so", "libnvidia-nvvm.so.590.48.01"),
        ("libcudadebugger.so.590.48.01",),
    ],
    ids=str,
)
@pytest.mark.parametrize("folder", [DEFAULT_COMPAT_FOLDER, "/opt/compat"])
@pytest.mark.parametrize("version", ["580.65.06", ""])
def test_the_images_own_cuda_goes_first_when_the_hook_says_so(tmp_path, names, folder, version):
    bundle = Bundle.new(tmp_path / "bundle")
    for name in names:
        bundle.put(f"{folder}/{name}")
    options = [f"--host-driver-version={version}"] if version else []
    if folder != DEFAULT_COMPAT_FOLDER:
        options.append(f"--cuda-compat-container-root={folder}")
    asked = hook("enable-cuda-compat", *options)
    assert bundle.run(asked) == 0
    compat = plan_hooks([asked]).cuda_compat
    assert compat is not None
    chosen = compat.folder_for(names)
    assert bundle.compat_folders() == ([] if chosen is None else [chosen])


# ---- all of a spec that the real nvidia-ctk wrote


@pytest.fixture(scope="module")
def spec(tmp_path_factory) -> Spec:
    nvidia_cdi_hook()
    folder = tmp_path_factory.mktemp("mock")
    return generate(make_node(folder / "node", "--gpus=2", "--minors=5,2"), folder).spec()


def test_every_name_that_the_hooks_of_a_real_spec_make_is_in_the_private_directory(tmp_path, spec):
    bundle = Bundle.new(tmp_path / "bundle")
    libraries = tuple(
        Library(path=mount.container_path, soname=None) for mount in spec.container_edits.mounts if is_library(mount)
    )
    for each in libraries:
        bundle.put(each.path)
    plan = plan_hooks(spec.container_edits.hooks)
    for each in spec.container_edits.hooks:
        if each.args[1] in {"create-symlinks", "enable-cuda-compat"}:
            assert bundle.run(each) == 0
    made = {path for path in bundle.inside("/").rglob("*") if path.is_symlink()}
    ours = planned(plan, libraries)
    for path in made:
        inside = f"/{path.relative_to(bundle.inside('/'))}"
        assert ours[path.name] == bundle.end_of(inside)
    assert {path.name for path in made} >= {"libcuda.so", "libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-nvvm.so.4"}
    assert set(ours) == {path.name for path in made} | {posixpath.basename(each.path) for each in libraries}


def test_what_of_a_real_spec_is_not_done_is_known_by_name(spec):
    every = [*spec.container_edits.hooks, *(each for device in spec.devices for each in device.container_edits.hooks)]
    assert {each.name for each in plan_hooks(every).skipped} == {
        "apply-cuda-memory-limits",
        "disable-device-node-modification",
        "update-application-profile",
        "update-ldcache",
    }


def test_a_written_spec_is_read_as_it_was(spec):
    again = read_spec(encode(spec, SpecFormat.JSON), "spec.json").spec
    assert again == spec
