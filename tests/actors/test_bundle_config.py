"""The config.json of containers that are given as a rootfs, and of pause."""

import json
from pathlib import Path

import attrs
import pytest

from actors.assignment import Container, DesiredState, Resources, Rootfs, User, WorkerAssignment
from actors.bundle.activation_tree import (
    ContainerFiles,
    activation_tree,
    bundle_directory,
    confine_path,
    cover_path,
    identity_path,
    pause_bundle,
    programs_for_claims,
    scratch_path,
)
from actors.bundle.capabilities import SETS, Claims, claims_of
from actors.bundle.composing import compose_each
from actors.bundle.config import Membership, container_config, hostname_of, pause_config
from actors.bundle.mounts import Mount, normalised_options
from actors.confine_elf import confine_elf
from actors.cover_elf import cover_elf
from actors.ports import NewDirectory, NewFile
from actors.strict_json import canonical
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from tests.actors.memory_files import DIRECTORY, MemoryFiles

GOLDEN = Path(__file__).parent / "golden"
SUB = Membership(name="web", sandbox_id="c0")
ROOTFS = Rootfs(
    path=Path("/images/web"),
    argv=("serve", "--on"),
    env=(("MODE", "fast"), ("PATH", "/app/bin")),
    working_dir="/app",
    user=User(uid=1000, gid=1001, additional_gids=(4, 5)),
)
LIMITS = Resources(cpu_milli=500, memory_bytes=1 << 30, devices=(("nvidia.com/gpu", 1),))


def config(source=ROOTFS, limits=Resources(), claims=Claims.NONE, **more):
    return container_config(source, membership=SUB, hostname="trainer-7", limits=limits, claims=claims, **more)


@pytest.mark.parametrize(
    ("name", "document"),
    [
        ("rootfs", config()),
        ("rootfs-with-device", config(limits=LIMITS, claims=Claims.DEVICES)),
        ("rootfs-bare", config(Rootfs(path=Path("/images/bare"), argv=("sh",), capabilities=()))),
        ("pause", pause_config(Path("/s/a1/bundles/pause/rootfs"), hostname="trainer-7")),
    ],
)
def test_the_document_is_word_for_word_the_one_that_was_approved(name, document):
    """A difference is a change of what runs, and of what a snapshot is compared with: look, then replace the file."""
    assert canonical(document) == (GOLDEN / f"{name}.json").read_bytes()


def test_the_same_input_gives_the_same_bytes():
    assert canonical(config()) == canonical(config())


def test_mknod_is_lost_as_soon_as_any_container_of_the_actor_claims_a_device():
    plain = Container(name="web", source=ROOTFS)
    claiming = Container(name="trainer", source=ROOTFS, limits=LIMITS)
    assert claims_of([plain]) is Claims.NONE
    assert claims_of([plain, claiming]) is Claims.DEVICES

    source = attrs.evolve(ROOTFS, capabilities=("CAP_MKNOD", "CAP_SYS_ADMIN", "CAP_MKNOD"))
    without, sets = (
        config(source, claims=claims)["process"]["capabilities"] for claims in (Claims.DEVICES, Claims.NONE)
    )
    assert set(without) == set(sets) == set(SETS)
    assert "CAP_MKNOD" not in json.dumps(without)
    assert sets["bounding"] == sets["effective"] == sets["permitted"] == ["CAP_MKNOD", "CAP_SYS_ADMIN"]
    assert sets["ambient"] == sets["inheritable"] == []


def test_pause_can_do_nothing():
    document = pause_config(Path("/r"), hostname="h")
    assert not any(document["process"]["capabilities"].values())
    assert document["process"]["user"] == {"uid": 65534, "gid": 65534}
    assert document["root"]["readonly"] is True
    assert "devices" not in document["linux"]
    assert document["linux"]["resources"]["devices"] == [{"allow": False, "access": "rwm"}]


@pytest.mark.parametrize(
    ("cpu_milli", "quota_us"), [(1, 1_000), (10, 1_000), (11, 1_100), (500, 50_000), (1000, 100_000), (2500, 250_000)]
)
def test_a_cpu_limit_becomes_a_quota_of_the_period_not_below_what_the_kernel_takes(cpu_milli, quota_us):
    cpu = config(limits=Resources(cpu_milli=cpu_milli))["linux"]["resources"]["cpu"]
    assert cpu == {"quota": quota_us, "period": 100_000}


@pytest.mark.parametrize(
    ("name", "hostname"),
    [("trainer-7", "trainer-7"), ("a.b", "a.b"), ("", "u1"), ("white space", "u1"), ("-x", "u1"), ("x" * 64, "u1")],
)
def test_the_hostname_is_the_actors_name_or_else_its_uid(name, hostname):
    assignment = WorkerAssignment(
        uid="u1", generation=1, desired_state=DesiredState.RUNNING, containers=(), digest="", name=name
    )
    assert hostname_of(assignment) == hostname


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ((), []),
        (("rw", "nosuid", "ro"), ["nosuid", "ro"]),
        (("ro", "rw"), ["rw"]),
        (("size=1", "mode=755", "size=2"), ["mode=755", "size=2"]),
        (("rbind", "rprivate", "ro", "rbind"), ["rbind", "ro", "rprivate"]),
        (("nosuid", "nodev", "suid"), ["nodev", "suid"]),
        (("atime", "relatime"), ["relatime"]),
        (("private", "rslave"), ["rslave"]),
    ],
)
def test_mount_options_have_one_form(given, normal):
    assert normalised_options(given) == normal
    assert normalised_options(normal) == normal


def test_extra_mounts_come_last():
    mount = Mount(destination="/data", type="bind", source="/v/work", options=("rw", "rbind"))
    mounts = config(extra_mounts=(mount,))["mounts"]
    assert mounts[-1] == {"destination": "/data", "type": "bind", "source": "/v/work", "options": ["rbind", "rw"]}
    assert [each["destination"] for each in mounts[:-1]] == ["/proc", "/dev", "/dev/pts", "/dev/shm", "/sys"]


# ---------------------------------------------------------------------------------------------------------- written


ACTIVATION = Path("/s/a1")
PAUSE = pause_bundle(ACTIVATION, hostname="trainer-7", machine="x86_64")


def modes_of(tree, path=ACTIVATION):
    """The modes of a tree, by the whole path."""
    found = {path: tree.mode}
    for name, entry in tree.entries.items():
        found |= modes_of(entry, path / name) if isinstance(entry, NewDirectory) else {path / name: entry.mode}
    return found


@pytest.mark.anyio
async def test_a_bundle_is_written_below_its_activation_and_its_rootfs_is_only_looked_at():
    files = MemoryFiles({"/images/web": DIRECTORY})
    container = Container(name="web", source=ROOTFS)
    composed = await compose_each(files, [container], sandbox_id="c0", hostname="trainer-7", claims=Claims.NONE)
    made = {name: ContainerFiles(config=document) for name, document in composed.items()}
    await files.make_tree(ACTIVATION, activation_tree(PAUSE, made))
    directory = bundle_directory(ACTIVATION, "web")
    assert directory == Path("/s/a1/bundles/web")
    assert files.content[directory / "config.json"] == (GOLDEN / "rootfs.json").read_bytes()
    assert {path for path in files.content if Path("/images") in path.parents} == {Path("/images/web")}
    assert {path.name for path in files.content if path.parent == ACTIVATION} == {"bundles"}


@pytest.mark.anyio
async def test_everything_of_an_activation_stands_where_it_is_said_to_be():
    files, bare = MemoryFiles(), ContainerFiles(config={})
    granted = attrs.evolve(bare, identity=b"which", is_covered=True)
    programs = programs_for_claims("x86_64")
    await files.make_tree(ACTIVATION, activation_tree(PAUSE, {"web": granted, "logger": bare}, programs))
    assert files.content[confine_path(ACTIVATION)] == confine_elf("x86_64")
    assert files.content[cover_path(ACTIVATION)] == cover_elf("x86_64")
    assert files.content[identity_path(ACTIVATION, "web")] == b"which"
    assert files.content[scratch_path(ACTIVATION, "web")] is DIRECTORY
    for path in (identity_path(ACTIVATION, "logger"), scratch_path(ACTIVATION, "logger")):
        assert path not in files.content
    assert files.content[bundle_directory(ACTIVATION, "logger") / "config.json"] == canonical({})


def test_only_what_a_containers_user_reads_or_runs_is_open_to_everybody():
    granted = ContainerFiles(config={}, identity=b"which", is_covered=True)
    modes = modes_of(activation_tree(PAUSE, {"web": granted}, programs_for_claims("x86_64")))
    identity, rootfs = identity_path(ACTIVATION, "web"), bundle_directory(ACTIVATION, "pause") / "rootfs"
    programs = {confine_path(ACTIVATION), cover_path(ACTIVATION), rootfs / "pause"}
    open_to_all = {identity: 0o644} | dict.fromkeys(
        {identity.parent, *programs, *(each.parent for each in programs)}, 0o755
    )
    assert {path: mode for path, mode in modes.items() if mode & 0o077} == open_to_all
    assert {mode for path, mode in modes.items() if path not in open_to_all} == {0o600, 0o700}


def test_what_may_hold_a_secret_is_in_no_representation():
    made = ContainerFiles(config=config(Rootfs(path=Path("/i"), argv=("sh",), env=(("TOKEN", "s3cret"),))))
    assert "s3cret" not in f"{made} {activation_tree(PAUSE, {'web': made})}"


@pytest.mark.anyio
@pytest.mark.parametrize("content", [{}, {"/images/web": b"a file"}])
async def test_a_rootfs_that_is_no_directory_is_refused_by_name(content):
    container = Container(name="web", source=ROOTFS)
    with pytest.raises(ProblemError) as refused:
        await compose_each(MemoryFiles(content), [container], sandbox_id="c0", hostname="h", claims=Claims.NONE)
    problem = refused.value.problem
    assert (problem.reason, problem.subject) == (Reason.ROOTFS_NOT_FOUND, "web")
    assert "/images/web" in problem.message


@pytest.mark.anyio
async def test_the_bundle_of_pause_has_its_program_in_it():
    files = MemoryFiles()
    await files.make_tree(ACTIVATION, activation_tree(PAUSE, {}))
    directory = bundle_directory(ACTIVATION, "pause")
    assert files.content[directory / "config.json"] == (GOLDEN / "pause.json").read_bytes()
    assert files.content[directory / "rootfs/pause"].startswith(b"\x7fELF")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/a", "a\0"])
def test_a_name_that_leads_elsewhere_is_in_no_tree(name):
    with pytest.raises(ValueError, match="no name in a directory"):
        NewDirectory({name: NewFile(b"")})
