"""The plan of one container and its config.json: case by case, whatever the image brings, and twice is once."""

import copy
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.assignment import Resources, Rootfs
from actors.bundle.capabilities import Claims
from actors.bundle.config import Membership, container_config, pause_config
from actors.cdi import ContainerEdits, Hook, HostNode, Mount, load
from actors.gpu.granted_edits import GPU_NODE, granted_edits
from actors.gpu.hooks import plan_hooks
from actors.gpu.injection_plan import MARKER, OwnFiles, gpus_brought, plan_injection, with_gpus
from actors.strict_json import canonical
from statemachine.reasons import Reason
from tests.gpu.making import CONTROL, LIBRARY, LINKS, gpu, host, problems, spec

OWN = OwnFiles(links="/state/cdi/x/lib", identity="/state/sandboxes/y/gpus.json")


def plan(*minors, given_spec=None, **more):
    found = more.pop("found", host(2, 3, 5, 7))
    gpus = [gpu(minor) for minor in minors]
    return plan_injection(given_spec or spec(2, 3, 5, 7), gpus, container="trainer", own=OWN, found=found, **more)


def document(*env, **more):
    rootfs = Rootfs(path=Path("/images/trainer"), argv=("train",), env=())
    made = container_config(
        rootfs,
        membership=Membership(name="trainer", sandbox_id="s1"),
        hostname="trainer-7",
        limits=Resources(),
        claims=Claims.DEVICES,
    )
    made["process"]["env"] = list(env) or ["PATH=/bin"]
    return {**made, **more}


def env_of(made):
    return made["process"]["env"]


def test_a_container_with_a_grant_gets_its_nodes_with_type_numbers_and_mode_and_nobody_elses():
    made = with_gpus(document(), plan(3, 5))
    assert made["linux"]["devices"] == [
        {"path": "/dev/nvidia-uvm", "type": "c", "major": 511, "minor": 0, "fileMode": 0o666},
        {"path": "/dev/nvidia3", "type": "c", "major": 195, "minor": 3, "fileMode": 0o666},
        {"path": "/dev/nvidia5", "type": "c", "major": 195, "minor": 5, "fileMode": 0o666},
        {"path": "/dev/nvidiactl", "type": "c", "major": 195, "minor": 255, "fileMode": 0o666},
    ]
    rules = made["linux"]["resources"]["devices"]
    assert rules[0] == {"allow": False, "access": "rwm"}
    assert [(rule["type"], rule["major"], rule["minor"], rule["access"]) for rule in rules[1:]] == [
        ("c", 511, 0, "rwm"),
        ("c", 195, 3, "rwm"),
        ("c", 195, 5, "rwm"),
        ("c", 195, 255, "rwm"),
    ]


@pytest.mark.parametrize(
    "pristine",
    [
        document("NVIDIA_VISIBLE_DEVICES=all", "LD_LIBRARY_PATH=/x:"),
        pause_config(Path("/state/pause"), hostname="h"),
        {"ociVersion": "1.0.2", "annotations": {MARKER: "x"}, "hooks": {"prestart": [{"path": "/x"}]}},
    ],
    ids=["trainer", "pause", "given"],
)
def test_a_container_without_a_grant_has_the_same_document_byte_for_byte(pristine):
    before = canonical(pristine)
    assert plan() is None
    made = with_gpus(pristine, plan(), current=document())
    assert made is pristine
    assert canonical(made) == before


def test_making_a_plan_and_a_document_changes_nothing_that_was_given():
    pristine, given_spec = document("NVIDIA_VISIBLE_DEVICES=all"), spec(2, 3)
    before, spec_before = copy.deepcopy(pristine), copy.deepcopy(given_spec)
    with_gpus(pristine, plan(2, given_spec=given_spec))
    assert (pristine, given_spec) == (before, spec_before)


# -------------------------------------------------------------------------------------------------------- environment


@pytest.mark.parametrize(
    "image",
    [
        [],
        ["NVIDIA_VISIBLE_DEVICES=all"],
        ["NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_VISIBLE_DEVICES=all"],
        ["NVIDIA_VISIBLE_DEVICES"],
        ["NVIDIA_VISIBLE_DEVICES=GPU-7"],
    ],
)
@pytest.mark.parametrize("said", [(), ("NVIDIA_VISIBLE_DEVICES=void",), ("NVIDIA_VISIBLE_DEVICES=0",)])
def test_exactly_one_void_ends_in_the_environment(image, said):
    given_spec = spec(2, common=ContainerEdits(device_nodes=CONTROL, env=said))
    made = with_gpus(document("PATH=/bin", *image), plan(2, given_spec=given_spec))
    assert [entry for entry in env_of(made) if entry.startswith("NVIDIA_VISIBLE")] == ["NVIDIA_VISIBLE_DEVICES=void"]
    assert env_of(made)[0] == "PATH=/bin"


def test_a_variable_of_the_spec_stands_once_and_wins_over_the_images():
    common = ContainerEdits(device_nodes=CONTROL, env=("CUDA_X=old", "CUDA_X=cdi", "NVIDIA_CTK=1"))
    image = ["CUDA_X=image", "PATH=/bin", "CUDA_X=again", "OTHER"]
    made = with_gpus(document(*image), plan(2, given_spec=spec(2, common=common)))
    assert sorted(env_of(made)) == [
        "CUDA_X=cdi",
        "LD_LIBRARY_PATH=/run/greenroom/lib",
        "NVIDIA_CTK=1",
        "NVIDIA_VISIBLE_DEVICES=void",
        "OTHER",
        "PATH=/bin",
    ]


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ([], "/run/greenroom/lib"),
        (["LD_LIBRARY_PATH="], "/run/greenroom/lib"),
        (["LD_LIBRARY_PATH"], "/run/greenroom/lib"),
        (["LD_LIBRARY_PATH=/opt/app/lib"], "/run/greenroom/lib:/opt/app/lib"),
        (["LD_LIBRARY_PATH=/a::/b:/a:"], "/run/greenroom/lib:/a:/b"),
        (["LD_LIBRARY_PATH=/b:/run/greenroom/lib"], "/run/greenroom/lib:/b"),
        (["LD_LIBRARY_PATH=/a", "LD_LIBRARY_PATH=/b"], "/run/greenroom/lib:/b"),
    ],
)
def test_the_private_directory_comes_first_in_the_library_path_and_each_folder_once(image, expected):
    made = with_gpus(document("PATH=/bin", *image), plan(2))
    assert [entry for entry in env_of(made) if entry.startswith("LD_LIB")] == [f"LD_LIBRARY_PATH={expected}"]


def test_an_images_newer_cuda_comes_before_the_driver():
    made = with_gpus(document(), plan(2, compat_folder="/usr/local/cuda/compat"))
    assert "LD_LIBRARY_PATH=/usr/local/cuda/compat:/run/greenroom/lib" in env_of(made)


def test_a_document_without_a_process_gets_its_environment():
    made = with_gpus({"ociVersion": "1.0.2"}, plan(2))
    assert "NVIDIA_VISIBLE_DEVICES=void" in env_of(made)


# ------------------------------------------------------------------------------------------------------ mounts, hooks


def mounts_of(made, *destinations):
    return [mount for mount in made["mounts"] if mount["destination"] in destinations]


def test_driver_mounts_have_their_options_in_one_form():
    library, private, identity = LIBRARY.container_path, "/run/greenroom/lib", "/run/greenroom/gpus.json"
    assert mounts_of(with_gpus(document(), plan(2)), library, private, identity) == [
        {
            "destination": identity,
            "type": "bind",
            "source": OWN.identity,
            "options": ["bind", "nodev", "noexec", "nosuid", "ro"],
        },
        {
            "destination": private,
            "type": "bind",
            "source": OWN.links,
            "options": ["bind", "nodev", "nosuid", "ro"],
        },
        {
            "destination": library,
            "type": "bind",
            "source": LIBRARY.host_path,
            "options": ["nodev", "nosuid", "rbind", "ro", "rprivate"],
        },
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), ["bind"]),
        (("ro",), ["bind", "ro"]),
        (("rbind", "rshared", "ro", "ro"), ["rbind", "ro"]),
        (("shared", "bind"), ["bind"]),
        (("rw", "bind", "ro"), ["bind", "ro"]),
    ],
)
def test_a_driver_mount_is_a_bind_mount_that_is_not_shared(options, expected):
    mount = Mount(host_path="/h", container_path="/usr/bin//nvidia-smi/", options=options)
    common = ContainerEdits(device_nodes=CONTROL, mounts=(mount,))
    (made,) = mounts_of(with_gpus(document(), plan(2, given_spec=spec(2, common=common))), "/usr/bin/nvidia-smi")
    assert (made["options"], made["type"]) == (expected, "bind")


def test_a_destination_stands_once_and_ours_are_not_for_a_spec_to_take():
    taken = Mount(host_path="/evil", container_path="/run/greenroom/lib", options=("bind",))
    common = ContainerEdits(device_nodes=CONTROL, mounts=(LIBRARY, taken, LIBRARY))
    made = with_gpus(document(), plan(2, given_spec=spec(2, common=common)))
    destinations = [mount["destination"] for mount in made["mounts"]]
    assert len(destinations) == len(set(destinations))
    assert mounts_of(made, "/run/greenroom/lib")[0]["source"] == OWN.links


def test_hooks_are_done_by_greenroom_and_not_written():
    assert granted_edits(spec(2, 3, 5, 7), [gpu(2)]).hooks
    assert "hooks" not in with_gpus(document(), plan(2))


def test_hooks_that_are_written_are_the_known_ones_with_the_trusted_program_and_no_environment():
    odd = attrs.evolve(LINKS, env=("LD_PRELOAD=/evil.so",), path="/evil/nvidia-cdi-hook")
    new = Hook(hook_name="createContainer", path="/usr/bin/nvidia-cdi-hook", args=("nvidia-cdi-hook", "new"))
    prestart = attrs.evolve(LINKS, hook_name="prestart")
    common = ContainerEdits(device_nodes=CONTROL, hooks=(odd, new, LINKS, prestart))
    made = plan(2, given_spec=spec(2, common=common), trusted_hook="/toolkit/nvidia-cdi-hook")
    assert with_gpus(document(), made)["hooks"] == {
        "createContainer": [{"path": "/toolkit/nvidia-cdi-hook", "args": list(LINKS.args)}]
    }
    assert [each.name for each in plan_hooks(common.hooks).skipped] == ["new", "create-symlinks"]


# ----------------------------------------------------------------------------------------------------- twice, and anew


def test_the_same_plan_again_is_no_change():
    made = with_gpus(document(), plan(2))
    assert with_gpus(document(), plan(2), current=made) is made
    assert with_gpus(document(), plan(2)) == made
    assert made["annotations"][MARKER]
    assert made["annotations"].items() > document()["annotations"].items()


def test_another_plan_leaves_nothing_of_the_first():
    first = with_gpus(document(), plan(2, 3, compat_folder="/c"))
    then = with_gpus(document(), plan(5), current=first)
    assert then == with_gpus(document(), plan(5))
    assert "/dev/nvidia2" not in canonical(then).decode()


@pytest.mark.parametrize(
    "other",
    [
        {"minors": (3,)},
        {"minors": (2, 3)},
        {"found": host(2, 3, 5, 7, uvm=510)},
        {"compat_folder": "/c"},
        {"trusted_hook": "/toolkit/nvidia-cdi-hook"},
        {"given_spec": spec(2, common=ContainerEdits(device_nodes=CONTROL))},
    ],
    ids=str,
)
def test_whatever_changes_the_document_changes_the_marker(other):
    other = dict(other)
    made, then = plan(2), plan(*other.pop("minors", (2,)), **other)
    assert made.digest != then.digest
    assert with_gpus(document(), then, current=with_gpus(document(), made)) == with_gpus(document(), then)


def test_another_origin_is_made_anew_with_the_same_plan():
    made = with_gpus(document(), plan(2))
    assert with_gpus(document("NEW=1"), plan(2), current=made) == with_gpus(document("NEW=1"), plan(2))


def test_a_marker_that_an_image_brings_means_nothing():
    brought = document(annotations={MARKER: plan(2).digest})
    assert len(with_gpus(brought, plan(2))["linux"]["devices"]) == 3


def test_the_order_in_a_spec_changes_nothing():
    common = spec(2).container_edits
    backwards = ContainerEdits(
        **{
            **attrs.asdict(common, recurse=False),
            "mounts": common.mounts[::-1],
            "device_nodes": common.device_nodes[::-1],
            "additional_gids": (),
        }
    )
    assert plan(2, given_spec=spec(2, common=backwards)).digest == plan(2).digest


# ------------------------------------------------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("brought", "path"),
    [
        ({"linux": {"devices": [{"path": "/dev/nvidia7", "type": "c", "major": 195, "minor": 7}]}}, "/dev/nvidia7"),
        ({"linux": {"devices": [{"path": "/dev/card", "type": "c", "major": 195, "minor": 7}]}}, "/dev/card"),
        ({"mounts": [{"destination": "/dev/card", "source": "/dev/nvidia7", "type": "bind"}]}, "/dev/nvidia7"),
        ({"mounts": [{"destination": "/dev/nvidia7", "source": "/x", "type": "bind"}]}, "/dev/nvidia7"),
        ({"mounts": [{"destination": "/x", "source": "/b/../dev/./nvidia7", "type": "bind"}]}, "/b/../dev/./nvidia7"),
        ({"mounts": [{"destination": "//dev//nvidia7", "source": "/x", "type": "bind"}]}, "//dev//nvidia7"),
        ({"mounts": [{"destination": "dev/nvidia7", "source": "/x", "type": "bind"}]}, "dev/nvidia7"),
        ({"linux": {"devices": [{"path": "/dev/x/../nvidia7", "type": "c"}]}}, "/dev/x/../nvidia7"),
    ],
)
def test_a_bundle_that_brings_a_gpu_of_its_own_is_refused(brought, path):
    assert gpus_brought(document(**brought)) == (path,)
    (problem,) = problems(with_gpus, document(**brought), plan(2))
    assert (problem.reason, problem.subject) == (Reason.INVALID_BUNDLE, "trainer")
    assert path in problem.message


def test_a_bundles_other_devices_and_mounts_stay():
    null = {"path": "/dev/null", "type": "c", "major": 1, "minor": 3, "fileMode": 0o666}
    control = {"path": "/dev/nvidiactl", "type": "c", "major": 195, "minor": 255, "fileMode": 0o600}
    made = with_gpus(document(linux={"devices": [null, control]}), plan(2))
    assert made["linux"]["devices"][0] == null
    assert [node["fileMode"] for node in made["linux"]["devices"] if node["path"] == "/dev/nvidiactl"] == [0o666]


def test_a_document_that_cannot_be_edited_is_refused():
    (problem,) = problems(with_gpus, document(mounts={}), plan(2))
    assert problem.reason == Reason.INVALID_BUNDLE


def test_a_plan_that_cannot_be_made_is_refused_before_there_is_any_document():
    assert problems(plan, 2, found=host(3))[0].subject == "/dev/nvidia2"
    assert problems(plan, 9)[0].reason == Reason.CDI_DEVICE_UNRESOLVED


# -------------------------------------------------------------------------------------------------- many, and the real

ENTRIES = st.lists(
    st.sampled_from(["A=1", "A", "PATH=/bin", "NVIDIA_VISIBLE_DEVICES=all", "LD_LIBRARY_PATH=:/a::", "CUDA_X=i"])
)
MINORS = st.lists(st.sampled_from([2, 3, 5, 7]), min_size=1, unique=True)


@given(ENTRIES, MINORS)
def test_whatever_the_image_says_its_own_gpus_are_what_a_container_gets(entries, minors):
    pristine = document()
    pristine["process"]["env"] = entries
    made = with_gpus(pristine, plan(*sorted(minors)))
    nodes = [node["path"] for node in made["linux"]["devices"] if GPU_NODE.fullmatch(node["path"])]
    assert nodes == [f"/dev/nvidia{minor}" for minor in sorted(minors)]
    variables = [entry.partition("=")[0] for entry in env_of(made)]
    ours = {"NVIDIA_VISIBLE_DEVICES", "LD_LIBRARY_PATH"}
    assert all(variables.count(name) == 1 for name in ours)
    assert [entry for entry in env_of(made) if entry.partition("=")[0] == "A"] == [
        entry for entry in entries if entry.partition("=")[0] == "A"
    ]
    assert "" not in next(each for each in env_of(made) if each.startswith("LD_LIB")).partition("=")[2].split(":")


SAMPLES = Path(__file__).resolve().parents[3] / "shared" / "data" / "cdi"
OF_TOOLKITS = sorted(path for path in SAMPLES.glob("*ctk*") if "-gpu-" in path.name or "4gpu" in path.name)


def every_node():
    """A host that has whatever node it is asked for."""
    numbers = {"/dev/nvidiactl": (195, 255), "/dev/nvidia-uvm": (511, 0), "/dev/nvidia-uvm-tools": (511, 1)}

    def found(path):
        gpu_node = GPU_NODE.fullmatch(path)
        major, minor = (195, int(gpu_node[1])) if gpu_node else numbers.get(path, (226, 0))
        return HostNode(type="c", major=major, minor=minor, mode=0o666)

    return found


@pytest.mark.skipif(not OF_TOOLKITS, reason="the samples are not beside this checkout")
@pytest.mark.parametrize("path", OF_TOOLKITS, ids=lambda path: path.stem)
def test_every_toolkits_spec_gives_one_gpu_and_nothing_of_the_other(path):
    given_spec = load(path.read_bytes(), path.name)
    made = plan(1, given_spec=given_spec, found=every_node())
    assert made is not None
    document_ = with_gpus(document(), made)
    nodes = {node["path"] for node in document_["linux"]["devices"]}
    assert {node for node in nodes if GPU_NODE.fullmatch(node)} == {"/dev/nvidia1"}
    assert all(node["type"] == "c" and "fileMode" in node for node in document_["linux"]["devices"])
    assert "hooks" not in document_
    assert env_of(document_).count("NVIDIA_VISIBLE_DEVICES=void") == 1
    skipped = plan_hooks(granted_edits(given_spec, [gpu(1)]).hooks).skipped
    assert {each.name for each in skipped} >= {"update-ldcache"}
