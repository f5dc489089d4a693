"""Admission as a whole: what a full document becomes, and the rules of each field outside containers."""

from pathlib import Path

import attrs
import pytest

from actors.admission import decode, decode_assignment
from actors.assignment import (
    Bundle,
    ColdStart,
    Container,
    DesiredState,
    ExecAction,
    OnLiveCuda,
    Resources,
    RestartPolicy,
    Rootfs,
    SignalAction,
    SnapshotAt,
    SnapshotScope,
    User,
    WakeupProbe,
    WorkerAssignment,
)
from actors.document import read_document
from statemachine.problem import ProblemError, Step
from tests.actors.assignments import ABSENT, BASE, admitted, document, problems, refusals, with_spec

FULL = b"""\
apiVersion: greenroom.dev/v1alpha1
kind: WorkerAssignment
metadata: {uid: a1, name: trainer-7, namespace: team-a, generation: 3}
spec:
  desiredState: Running
  sandboxClass: gvisor
  reservation: {nvidia.com/gpu: "2"}
  snapshot: {from: None}
  suspend: {scope: Full, onLiveCuda: Refuse}
  restartPolicy: OnFailure
  terminationGracePeriodSeconds: 5
  durableVolumes: []
  lifecycle: {}
  network: {ports: [], egress: Allow}
  containers:
  - name: trainer
    bundle: bundles/trainer
    imageDigest: sha256:0000000000000000000000000000000000000000000000000000000000000000
    resources: {limits: {nvidia.com/gpu: "0", cpu: "500m", memory: 1Gi}, requests: {cpu: 100m}}
  - name: logger
    rootfs: ../images/logger
    command: [/bin/log, on, 1:30]
    args: [~, true, 0x10]
    env: [{name: A, value: yes}, {name: B}, {name: A, value: "1.0"}]
    workingDir: /var/log
    user: "1000:100"
    capabilities: [CAP_CHOWN, CAP_KILL, CAP_CHOWN]
    volumeMounts: []
    wakeupProbe: {exec: [test, -e, /ready], timeoutSeconds: 2.5}
"""


def test_a_full_document_becomes_an_assignment():
    assignment = decode(FULL, base=BASE)
    assert assignment == WorkerAssignment(
        uid="a1",
        name="trainer-7",
        namespace="team-a",
        generation=3,
        desired_state=DesiredState.RUNNING,
        reservation=(("nvidia.com/gpu", 2),),
        snapshot=ColdStart.WANTED,
        restart_policy=RestartPolicy.ON_FAILURE,
        termination_grace_s=5,
        digest=assignment.digest,
        containers=(
            Container(
                name="trainer",
                source=Bundle(Path("/assignments/bundles/trainer")),
                image_digest="sha256:" + "0" * 64,
                limits=Resources(cpu_milli=500, memory_bytes=1 << 30),
                requests=Resources(cpu_milli=100),
            ),
            Container(
                name="logger",
                source=Rootfs(
                    path=Path("/images/logger"),
                    argv=("/bin/log", "on", "1:30", "~", "true", "0x10"),
                    env=(("A", "1.0"), ("B", "")),
                    working_dir="/var/log",
                    user=User(uid=1000, gid=100),
                    capabilities=("CAP_CHOWN", "CAP_KILL"),
                ),
                wakeup_probe=WakeupProbe(action=ExecAction(("test", "-e", "/ready")), timeout_s=2.5),
            ),
        ),
    )


def test_a_minimal_document_has_every_default():
    assignment = admitted(document())
    assert assignment == WorkerAssignment(
        uid="a1",
        generation=1,
        desired_state=DesiredState.RUNNING,
        digest=assignment.digest,
        containers=(Container(name="main", source=Rootfs(path=BASE / "rootfs", argv=("/bin/app",))),),
    )


def test_an_explicit_null_is_the_default():
    fields = attrs.fields(WorkerAssignment)
    assert len(fields) == 16, "a new field belongs below"
    optional = "sandboxClass reservation snapshot suspend restartPolicy durableVolumes lifecycle network"
    nulls = dict.fromkeys([*optional.split(), "terminationGracePeriodSeconds"])
    content = document(metadata__name=None, metadata__namespace=None)
    content["spec"] |= nulls
    assert admitted(content) == admitted(document())


@pytest.mark.parametrize("null", ["null", "~", ""])
def test_the_words_for_null_name_nothing(null):
    text = FULL.decode()
    for given in ("trainer-7", "team-a", "gvisor", "OnFailure", "/var/log\n", "sha256:" + "0" * 64, '"1000:100"'):
        text = text.replace(f": {given}", f": {null}\n" if given.endswith("\n") else f": {null}")
    assignment = decode(text.encode(), base=BASE)
    assert (assignment.name, assignment.namespace, assignment.restart_policy) == ("", "", RestartPolicy.NEVER)
    assert assignment.containers[0].image_digest is None
    source = assignment.containers[1].source
    assert isinstance(source, Rootfs)
    assert (source.working_dir, source.user) == ("/", User())
    assert refusals(FULL.replace(b"uid: a1", b"uid: " + null.encode())) == [("MissingField", "metadata.uid")]


def test_every_problem_is_reported_in_document_order():
    text = FULL.decode()
    text = (
        text.replace("uid: a1", "uid: ../x").replace("OnFailure", "Always").replace("- name: logger", "- name: pause")
    )
    text = text.replace("  suspend:", "  susbend:").replace("500m", "-1").replace("/var/log\n", "log\n")
    assert refusals(text.encode()) == [
        ("InvalidUid", "metadata.uid"),
        ("UnknownField", "spec.susbend"),
        ("InvalidValue", "spec.restartPolicy"),
        ("NegativeQuantity", "spec.containers[0].resources.limits.cpu"),
        ("InvalidContainerName", "spec.containers[1].name"),
        ("InvalidValue", "spec.containers[1].workingDir"),
    ]


def test_problems_say_where_they_were_found():
    (problem,) = problems(document(metadata__uid="../x"))
    assert problem.step is Step.ADMISSION
    assert problem.hint
    assert problem.message.startswith('uid "../x" must be 1 to 63 letters')
    assert problem.message.endswith("(line 1)")


@pytest.mark.parametrize("uid", ["a", "A1", "0", "a-", "x" * 63, "0b3c7f7e-8c7e-4f0e-9b57-0a6d6a2e9a11"])
def test_a_uid_may_be(uid):
    assert admitted(document(metadata__uid=uid)).uid == uid


@pytest.mark.parametrize(
    "uid", ["", "../x", "a/b", "-a", ".", "a.b", "a_b", "x" * 64, "a b", "a\n", "é", "\x1b", "\u0661"]
)
def test_a_uid_may_not_be(uid):
    assert refusals(document(metadata__uid=uid)) == [("InvalidUid", "metadata.uid")]


METADATA, SPEC = "metadata", "spec"
CHANGES = {
    "no apiVersion": ({"apiVersion": ABSENT}, "MissingField", "apiVersion"),
    "no kind": ({"kind": ABSENT}, "MissingField", "kind"),
    "another version": ({"apiVersion": "greenroom.dev/v1"}, "UnsupportedKind", "apiVersion"),
    "another group": ({"apiVersion": "x.dev/v1alpha1"}, "UnsupportedKind", "apiVersion"),
    "another kind": ({"kind": "Pod"}, "UnsupportedKind", "kind"),
    "a kind for validate": ({"kind": "WorkerPool"}, "UnsupportedKind", "kind"),
    "a kind in lower case": ({"kind": "workerassignment"}, "UnsupportedKind", "kind"),
    "a number as kind": ({"kind": 1}, "WrongType", "kind"),
    "no metadata": ({"metadata": ABSENT}, "MissingField", "metadata"),
    "null metadata": ({"metadata": None}, "MissingField", "metadata"),
    "metadata as a list": ({"metadata": []}, "WrongType", "metadata"),
    "no spec": ({"spec": ABSENT}, "MissingField", "spec"),
    "a status": ({"status": {}}, "UnknownField", "status"),
    "labels": ({"metadata__labels": {}}, "UnknownField", "metadata.labels"),
    "no uid": ({"metadata__uid": ABSENT}, "MissingField", "metadata.uid"),
    "null uid": ({"metadata__uid": None}, "MissingField", "metadata.uid"),
    "a number as uid": ({"metadata__uid": 1}, "WrongType", "metadata.uid"),
    "no generation": ({"metadata__generation": ABSENT}, "MissingField", "metadata.generation"),
    "generation 0": ({"metadata__generation": 0}, "InvalidValue", "metadata.generation"),
    "generation -1": ({"metadata__generation": -1}, "InvalidValue", "metadata.generation"),
    "a huge generation": ({"metadata__generation": 1 << 63}, "InvalidValue", "metadata.generation"),
    "a quoted generation": ({"metadata__generation": "1"}, "WrongType", "metadata.generation"),
    "a fraction as generation": ({"metadata__generation": 1.0}, "WrongType", "metadata.generation"),
    "true as generation": ({"metadata__generation": True}, "WrongType", "metadata.generation"),
    "a name in capitals": ({"metadata__name": "Trainer"}, "InvalidValue", "metadata.name"),
    "a long name": ({"metadata__name": "x" * 254}, "InvalidValue", "metadata.name"),
    "a namespace with dots": ({"metadata__namespace": "a.b"}, "InvalidValue", "metadata.namespace"),
    "no desiredState": ({"spec__desiredState": ABSENT}, "MissingField", "spec.desiredState"),
    "an unknown desiredState": ({"spec__desiredState": "running"}, "InvalidValue", "spec.desiredState"),
    "a list as desiredState": ({"spec__desiredState": ["Running"]}, "WrongType", "spec.desiredState"),
    "no containers": ({"spec__containers": ABSENT}, "MissingField", "spec.containers"),
    "empty containers": ({"spec__containers": []}, "InvalidValue", "spec.containers"),
    "containers as a mapping": ({"spec__containers": {"name": "a"}}, "WrongType", "spec.containers"),
    "65 containers": ({"spec__containers": [{}] * 65}, "InvalidValue", "spec.containers"),
    "a text as container": ({"spec__containers": ["a"]}, "WrongType", "spec.containers[0]"),
    "null as container": ({"spec__containers": [None]}, "WrongType", "spec.containers[0]"),
    "another sandboxClass": ({"spec__sandboxClass": "runc"}, "SandboxClassUnsupported", "spec.sandboxClass"),
    "an empty sandboxClass": ({"spec__sandboxClass": ""}, "SandboxClassUnsupported", "spec.sandboxClass"),
    "an unknown restartPolicy": ({"spec__restartPolicy": "Always"}, "InvalidValue", "spec.restartPolicy"),
    "a negative grace": (
        {"spec__terminationGracePeriodSeconds": -1}, "InvalidValue", "spec.terminationGracePeriodSeconds",
    ),
    "over a day of grace": (
        {"spec__terminationGracePeriodSeconds": 86401}, "InvalidValue", "spec.terminationGracePeriodSeconds",
    ),
    "a reservation of cpu": ({"spec__reservation": {"cpu": 1}}, "UnknownResource", "spec.reservation.cpu"),
    "half a reservation": (
        {"spec__reservation": {"nvidia.com/gpu": "500m"}}, "FractionalDevice", 'spec.reservation["nvidia.com/gpu"]',
    ),
    "a negative reservation": (
        {"spec__reservation": {"nvidia.com/gpu": "-1"}}, "NegativeQuantity", 'spec.reservation["nvidia.com/gpu"]',
    ),
    "an odd reservation": (
        {"spec__reservation": {"nvidia.com/gpu": "x"}}, "InvalidQuantity", 'spec.reservation["nvidia.com/gpu"]',
    ),
    "a reservation as a number": ({"spec__reservation": 2}, "WrongType", "spec.reservation"),
    "an empty snapshot": ({"spec__snapshot": {}}, "MissingField", "spec.snapshot"),
    "a snapshot of both": (
        {"spec__snapshot": {"uri": "file:///a", "from": "None"}}, "InvalidValue", "spec.snapshot.from",
    ),
    "a snapshot from something": ({"spec__snapshot": {"from": "Latest"}}, "InvalidValue", "spec.snapshot.from"),
    "a relative snapshot": ({"spec__snapshot": {"uri": "file://a"}}, "InvalidValue", "spec.snapshot.uri"),
    "a path as snapshot": ({"spec__snapshot": {"uri": "/a"}}, "InvalidValue", "spec.snapshot.uri"),
    "an unknown suspend scope": ({"spec__suspend": {"scope": "Half"}}, "InvalidValue", "spec.suspend.scope"),
    "an unknown onLiveCuda": ({"spec__suspend": {"onLiveCuda": "X"}}, "InvalidValue", "spec.suspend.onLiveCuda"),
    "an odd suspend uri": ({"spec__suspend": {"uri": "x"}}, "InvalidValue", "spec.suspend.uri"),
    "a store of no kind": ({"spec__suspend": {"uri": "ftp://host/a"}}, "InvalidValue", "spec.suspend.uri"),
    "a store and who asks": ({"spec__suspend": {"uri": "s3://me:pw@host/a"}}, "InvalidValue", "spec.suspend.uri"),
    "a snapshot nowhere": ({"spec__snapshot": {"uri": "https://host/a/b"}}, "InvalidValue", "spec.snapshot.uri"),
    "data of no volumes": ({"spec__suspend": {"scope": "Data"}}, "NoDurableVolume", "spec.suspend.scope"),
    "a volume twice": (
        {"spec__durableVolumes": [{"name": "a"}, {"name": "a"}]}, "InvalidValue", "spec.durableVolumes",
    ),
    "a volume with a path": (
        {"spec__durableVolumes": [{"name": "a/b"}]}, "InvalidValue", "spec.durableVolumes[0].name",
    ),
    "an unnamed volume": ({"spec__durableVolumes": [{}]}, "MissingField", "spec.durableVolumes[0].name"),
    "an empty hook": ({"spec__lifecycle": {"preSuspend": {}}}, "MissingField", "spec.lifecycle.preSuspend"),
    "a hook of both": (
        {"spec__lifecycle": {"preSuspend": {"signal": "USR1", "exec": ["a"]}}},
        "InvalidValue",
        "spec.lifecycle.preSuspend.exec",
    ),
    "an empty command in a hook": (
        {"spec__lifecycle": {"postResume": {"exec": []}}}, "InvalidValue", "spec.lifecycle.postResume.exec",
    ),
    "a signal that cannot be handled": (
        {"spec__lifecycle": {"postResume": {"signal": "KILL"}}}, "InvalidValue", "spec.lifecycle.postResume.signal",
    ),
    "a signal by number": (
        {"spec__lifecycle": {"postResume": {"signal": 10}}}, "WrongType", "spec.lifecycle.postResume.signal",
    ),
    "port 0": (
        {"spec__network": {"ports": [{"containerPort": 0, "workerPort": 1}]}},
        "InvalidValue",
        "spec.network.ports[0].containerPort",
    ),
    "port 65536": (
        {"spec__network": {"ports": [{"containerPort": 1, "workerPort": 65536}]}},
        "InvalidValue",
        "spec.network.ports[0].workerPort",
    ),
    "no workerPort": (
        {"spec__network": {"ports": [{"containerPort": 1}]}}, "MissingField", "spec.network.ports[0].workerPort",
    ),
    "a workerPort twice": (
        {"spec__network": {"ports": [{"containerPort": 1, "workerPort": 9}, {"containerPort": 2, "workerPort": 9}]}},
        "InvalidValue",
        "spec.network.ports",
    ),
    "an unknown egress": ({"spec__network": {"egress": "Maybe"}}, "InvalidValue", "spec.network.egress"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "reason", "subject"), CHANGES.values(), ids=CHANGES)
def test_a_wrong_field_has_one_reason_and_its_path(changes, reason, subject):
    assert refusals(document(**changes)) == [(reason, subject)]


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        ({"desiredState": "Suspended"}, "desired_state", DesiredState.SUSPENDED),
        ({"desiredState": "Terminated"}, "desired_state", DesiredState.TERMINATED),
        ({"snapshot": {"uri": "file:///snapshots/a"}}, "snapshot", SnapshotAt("file:///snapshots/a")),
        ({"snapshot": {"from": "None"}}, "snapshot", ColdStart.WANTED),
        ({"terminationGracePeriodSeconds": 0}, "termination_grace_s", 0),
        ({"terminationGracePeriodSeconds": 86400}, "termination_grace_s", 86400),
        ({"reservation": {}}, "reservation", ()),
        (
            {"reservation": {"nvidia.com/gpu": 2, "amd.com/gpu": "1000m"}},
            "reservation",
            (("amd.com/gpu", 1), ("nvidia.com/gpu", 2)),
        ),
    ],
)
def test_a_field_of_the_spec_may_say(fields, name, value):
    assert getattr(admitted(with_spec(**fields)), name) == value


@pytest.mark.parametrize("text", ["[]", "[a]", "a", "'a'", '"a"', "1"])
def test_a_document_that_is_no_mapping_is_of_the_wrong_type(text):
    assert refusals(text.encode()) == [("WrongType", "document")]


def test_what_the_reader_refuses_is_refused():
    assert refusals(b"") == [("EmptyDocument", "document")]
    assert refusals(FULL.replace(b"spec:", b"spec: &a")) == [("AliasesRefused", "spec")]


def test_decoding_gives_the_paths_to_look_for_even_when_there_are_problems():
    node = read_document(FULL.replace(b"uid: a1", b"uid: /"))
    decoded = decode_assignment(node, BASE)
    assert decoded.assignment is None
    assert [(str(given.path), given.subject) for given in decoded.given_paths] == [
        ("/assignments/bundles/trainer", "spec.containers[0].bundle"),
        ("/images/logger", "spec.containers[1].rootfs"),
    ]


def test_the_base_of_relative_paths_is_absolute():
    with pytest.raises(ValueError, match="absolute"):
        decode(FULL, base=Path("relative"))


def test_a_problem_error_prints_every_problem():
    with pytest.raises(ProblemError) as caught:
        admitted(document(metadata__uid="/", metadata__generation=0))
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == ["InvalidUid", "InvalidValue"]


def test_hooks_are_a_command_or_a_signal():
    lifecycle = {"preSuspend": {"exec": ["/bin/let-go", "all"]}, "postResume": {"signal": "SIGUSR1"}}
    assignment = admitted(document(spec__lifecycle=lifecycle))
    assert assignment.lifecycle.pre_suspend == ExecAction(("/bin/let-go", "all"))
    assert assignment.lifecycle.post_resume == SignalAction("USR1")


def test_data_alone_can_be_saved_of_an_actor_with_a_volume():
    assignment = admitted(document(spec__durableVolumes=[{"name": "work"}], spec__suspend={"scope": "Data"}))
    assert assignment.suspend.scope is SnapshotScope.DATA


@pytest.mark.parametrize("wanted", OnLiveCuda)
def test_each_way_to_meet_a_live_cuda_context_is_admitted(wanted):
    assert admitted(with_spec(suspend={"onLiveCuda": str(wanted)})).suspend.on_live_cuda is wanted
