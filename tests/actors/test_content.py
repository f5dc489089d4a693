"""The digest that tells same content from other content, and what a new generation may change."""

import attrs
import pytest

from actors import not_built
from actors.admission import decode, mutable_difference
from actors.assignment import (
    Bundle,
    ColdStart,
    Container,
    DesiredState,
    Egress,
    ExecAction,
    Lifecycle,
    Network,
    OnLiveCuda,
    Port,
    Resources,
    RestartPolicy,
    Rootfs,
    SignalAction,
    SnapshotAt,
    SnapshotScope,
    Suspend,
    User,
    VolumeMount,
    WakeupProbe,
    WorkerAssignment,
)
from actors.content import content_digest
from tests.actors.assignments import ABSENT, BASE, admitted, document, with_container, with_limits

PATH = BASE / "rootfs"
ROOTFS = Rootfs(path=PATH, argv=("/bin/app",))
MAIN = Container(name="main", source=ROOTFS)
OLD = WorkerAssignment(uid="a1", generation=1, desired_state=DesiredState.RUNNING, containers=(MAIN,), digest="")


def with_main(**changes):
    return attrs.evolve(OLD, containers=(attrs.evolve(MAIN, **changes),))


def with_rootfs(**changes):
    return with_main(source=attrs.evolve(ROOTFS, **changes))


CONTAINER = "spec.containers[0]"
IMMUTABLE = [
    (attrs.evolve(OLD, uid="a2"), ["metadata.uid"]),
    (attrs.evolve(OLD, name="n"), ["metadata.name"]),
    (attrs.evolve(OLD, namespace="n"), ["metadata.namespace"]),
    (attrs.evolve(OLD, reservation=()), ["spec.reservation"]),
    (attrs.evolve(OLD, termination_grace_s=31), ["spec.terminationGracePeriodSeconds"]),
    (attrs.evolve(OLD, durable_volumes=("v",)), ["spec.durableVolumes"]),
    (attrs.evolve(OLD, network=Network(ports=(Port(container_port=1, worker_port=2),))), ["spec.network.ports"]),
    (attrs.evolve(OLD, containers=(MAIN, attrs.evolve(MAIN, name="b"))), ["spec.containers"]),
    (with_main(name="b"), ["spec.containers"]),
    (with_main(source=Bundle(PATH)), [f"{CONTAINER}.bundle", f"{CONTAINER}.rootfs"]),
    (with_main(image_digest="sha256:" + "0" * 64), [f"{CONTAINER}.imageDigest"]),
    (with_main(limits=Resources(cpu_milli=1)), [f"{CONTAINER}.resources.limits"]),
    (with_main(volume_mounts=(VolumeMount(name="v", mount_path="/v"),)), [f"{CONTAINER}.volumeMounts"]),
    (with_main(wakeup_probe=WakeupProbe(action=ExecAction(("a",)))), [f"{CONTAINER}.wakeupProbe"]),
    (with_rootfs(path=BASE), [f"{CONTAINER}.rootfs"]),
    (with_rootfs(argv=("/bin/other",)), [f"{CONTAINER}.args"]),
    (with_rootfs(env=(("A", "b"),)), [f"{CONTAINER}.env"]),
    (with_rootfs(working_dir="/a"), [f"{CONTAINER}.workingDir"]),
    (with_rootfs(user=User(uid=1)), [f"{CONTAINER}.user"]),
    (with_rootfs(capabilities=()), [f"{CONTAINER}.capabilities"]),
]
MUTABLE = [
    attrs.evolve(OLD, desired_state=DesiredState.SUSPENDED),
    attrs.evolve(OLD, snapshot=SnapshotAt("file:///a")),
    attrs.evolve(OLD, snapshot=ColdStart.WANTED),
    attrs.evolve(OLD, suspend=Suspend(scope=SnapshotScope.DATA)),
    attrs.evolve(OLD, suspend=Suspend(on_live_cuda=OnLiveCuda.WAIT)),
    attrs.evolve(OLD, suspend=Suspend(uri="s3://a")),
    attrs.evolve(OLD, restart_policy=RestartPolicy.ON_FAILURE),
    attrs.evolve(OLD, lifecycle=Lifecycle(pre_suspend=SignalAction("USR1"))),
    attrs.evolve(OLD, lifecycle=Lifecycle(pre_suspend=ExecAction(("USR1",)))),
    attrs.evolve(OLD, network=Network(egress=Egress.DENY)),
]


@pytest.mark.parametrize(("new", "paths"), IMMUTABLE)
def test_what_may_not_change_is_named(new, paths):
    assert mutable_difference(OLD, new) == paths
    assert mutable_difference(new, OLD) == paths


@pytest.mark.parametrize("new", MUTABLE)
def test_what_may_change_is_not_named(new):
    assert mutable_difference(OLD, new) == []


def test_a_generation_and_a_digest_are_no_content():
    new = attrs.evolve(OLD, generation=2, digest="other")
    assert mutable_difference(OLD, new) == []
    assert content_digest(new) == content_digest(OLD)


def test_all_differences_are_named_at_once():
    new = attrs.evolve(with_rootfs(argv=("b",), working_dir="/a"), name="n", restart_policy=RestartPolicy.ON_FAILURE)
    assert mutable_difference(OLD, new) == ["metadata.name", f"{CONTAINER}.args", f"{CONTAINER}.workingDir"]


def test_every_difference_gives_another_digest():
    others = [OLD, *(new for new, _ in IMMUTABLE), *MUTABLE]
    assert len({content_digest(assignment) for assignment in others}) == len(others)


def test_every_field_is_either_compared_or_may_change():
    """A new field must be sorted into one of the two lists of this test and of the module."""
    immutable = {"uid", "name", "namespace", "sandbox_class", "reservation", "termination_grace_s", "durable_volumes"}
    mutable = {"desired_state", "snapshot", "suspend", "restart_policy", "lifecycle"}
    both = {"network", "containers"}
    no_content = {"generation", "digest"}
    fields = {field.name for field in attrs.fields(WorkerAssignment)}
    assert fields == immutable | mutable | both | no_content
    assert {field.name for field in attrs.fields(Network)} == {"ports", "egress"}
    container = {field.name for field in attrs.fields(Container)}
    compared = {"name", "source", "image_digest", "limits", "volume_mounts", "wakeup_probe"}
    assert container == compared | {"requests"}  # which are no content
    rootfs = {field.name for field in attrs.fields(Rootfs)}
    assert rootfs == {"path", "argv", "env", "working_dir", "user", "capabilities"}


SAME = [
    (with_limits({"cpu": "1000m"}), with_limits({"cpu": 1})),
    (with_limits({"cpu": 1}, {"cpu": "500m"}), with_limits({"cpu": 1})),
    (with_limits({}), document()),
    (with_container(rootfs="./x/../rootfs/"), document()),
    (with_container(rootfs=str(PATH)), document()),
    (with_container(command=ABSENT, args=["/bin/app"]), document()),
    (with_container(user="0:0"), document()),
    (document(metadata__generation=7), document()),
    (document(metadata__name=None), document()),
    (document(spec__suspend={"scope": "Full"}), document()),
    (document(spec__terminationGracePeriodSeconds=30), document()),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_same_said_in_other_words_has_the_same_digest(one, other):
    assert admitted(one).digest == admitted(other).digest


def test_a_digest_is_64_hex_digits_and_does_not_depend_on_the_format():
    yaml = (
        b"kind: WorkerAssignment\napiVersion: greenroom.dev/v1alpha1\nspec:\n  containers:\n  - command: [/bin/app]\n"
        b"    rootfs: rootfs\n    name: main\n  desiredState: Running\nmetadata: {generation: 2, uid: a1}\n"
    )
    digest = decode(yaml, base=BASE).digest
    assert digest == admitted(document()).digest
    assert len(digest) == 64
    assert int(digest, 16)


def test_the_directory_of_the_document_is_content_where_paths_are_relative():
    data = b"apiVersion: greenroom.dev/v1alpha1\nkind: WorkerAssignment\nmetadata: {uid: a, generation: 1}\nspec: "
    relative = data + b"{desiredState: Running, containers: [{name: a, bundle: b}]}"
    absolute = data + b"{desiredState: Running, containers: [{name: a, bundle: /b}]}"
    assert decode(relative, base=BASE).digest != decode(relative, base=BASE / "other").digest
    assert decode(absolute, base=BASE).digest == decode(absolute, base=BASE / "other").digest


def test_claims_are_content(monkeypatch):
    monkeypatch.setattr(not_built, "NOT_BUILT", {})
    digests = {admitted(with_limits({"nvidia.com/gpu": count})).digest for count in (0, 1, 2)}
    assert len(digests) == 3
