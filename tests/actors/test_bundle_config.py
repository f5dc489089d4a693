"""The config.json of containers that are given as a rootfs, and of pause."""

import json
from pathlib import Path

import attrs
import pytest

from actors.assignment import Container, DesiredState, Resources, Rootfs, User, WorkerAssignment
from actors.bundle.capabilities import SETS, Claims, claims_of
from actors.bundle.config import Membership, container_config, hostname_of, pause_config
from actors.bundle.mounts import Mount, normalised_options
from actors.bundle.writer import bundle_directory, compose, write_bundle, write_pause_bundle
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


@pytest.mark.anyio
async def test_a_bundle_is_written_below_its_activation_and_its_rootfs_is_only_looked_at():
    files = MemoryFiles({"/images/web": DIRECTORY})
    activation = Path("/s/a1")
    container = Container(name="web", source=ROOTFS)
    document = await compose(files, container, membership=SUB, hostname="trainer-7", claims=Claims.NONE)
    directory = await write_bundle(files, bundle_directory(activation, "web"), document)
    assert directory == Path("/s/a1/bundles/web")
    assert files.content.pop(directory / "config.json") == (GOLDEN / "rootfs.json").read_bytes()
    assert {path for path in files.content if Path("/images") in path.parents} == {Path("/images/web")}


@pytest.mark.anyio
@pytest.mark.parametrize("content", [{}, {"/images/web": b"a file"}])
async def test_a_rootfs_that_is_no_directory_is_refused_by_name(content):
    container = Container(name="web", source=ROOTFS)
    with pytest.raises(ProblemError) as refused:
        await compose(MemoryFiles(content), container, membership=SUB, hostname="h", claims=Claims.NONE)
    problem = refused.value.problem
    assert (problem.reason, problem.subject) == (Reason.ROOTFS_NOT_FOUND, "web")
    assert "/images/web" in problem.message


@pytest.mark.anyio
async def test_the_bundle_of_pause_has_its_program_in_it():
    files = MemoryFiles()
    directory = await write_pause_bundle(files, Path("/s/a1"), hostname="trainer-7", machine="x86_64")
    assert files.content[directory / "config.json"] == (GOLDEN / "pause.json").read_bytes()
    assert files.content[directory / "rootfs/pause"].startswith(b"\x7fELF")
