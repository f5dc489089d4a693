"""The rules of containers: names, sources, what runs in a rootfs, volumes, probes."""

from pathlib import Path

import pytest

from actors.assignment import ExecAction, Rootfs, User, WakeupProbe
from tests.actors.assignments import ABSENT, admitted, document, refusals, with_container, with_spec

AT = "spec.containers[0]"


def only_container(content):
    return admitted(content).containers[0]


def rootfs(**fields):
    source = only_container(with_container(**fields)).source
    assert isinstance(source, Rootfs)
    return source


@pytest.mark.parametrize("name", ["a", "main", "0", "a-b", "x" * 63, "pause-2"])
def test_a_name_may_be(name):
    assert only_container(with_container(name=name)).name == name


@pytest.mark.parametrize("name", ["", "pause", "Main", "a_b", "a.b", "-a", "a-", "x" * 64, "a/b", "..", "a\n", "é"])
def test_a_name_may_not_be(name):
    assert refusals(with_container(name=name)) == [("InvalidContainerName", f"{AT}.name")]


def test_names_are_unique():
    container = {"name": "a", "bundle": "b"}
    content = with_spec(containers=[container, container, {**container, "name": "b"}, container])
    assert refusals(content) == [
        ("DuplicateContainer", "spec.containers[1].name"),
        ("DuplicateContainer", "spec.containers[3].name"),
    ]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a", "/assignments/a"),
        ("./a/../b//c/", "/assignments/b/c"),
        ("../a", "/a"),
        ("../../../../a", "/a"),
        (".", "/assignments"),
        ("/a/../b", "/b"),
        ("//a", "/a"),
        ("~/a", "/assignments/~/a"),
        ("a b", "/assignments/a b"),
        ("é", "/assignments/é"),
    ],
)
def test_paths_are_below_the_directory_of_the_document(text, path):
    assert rootfs(rootfs=text).path == Path(path)
    bundle = only_container(with_container(rootfs=ABSENT, command=ABSENT, bundle=text)).source
    assert bundle.path == Path(path)


BAD = {
    "a path with a line break": ({"rootfs": "a\nb"}, "InvalidValue", "rootfs"),
    "an empty path": ({"rootfs": ""}, "InvalidValue", "rootfs"),
    "a path with NUL": ({"rootfs": "a\0"}, "InvalidValue", "rootfs"),
    "a long path": ({"rootfs": "a/" * 2048}, "InvalidValue", "rootfs"),
    "a number as path": ({"rootfs": 1}, "WrongType", "rootfs"),
    "neither source": ({"rootfs": ABSENT}, "MissingField", ""),
    "both sources": ({"bundle": "b"}, "InvalidValue", "bundle"),
    "args beside a bundle": ({"rootfs": ABSENT, "bundle": "b"}, "InvalidValue", "command"),
    "nothing to run": ({"command": ABSENT}, "MissingField", "command"),
    "empty lists to run": ({"command": [], "args": []}, "MissingField", "command"),
    "an empty name to run": ({"command": [""]}, "InvalidValue", "command"),
    "an empty name in args": ({"command": ABSENT, "args": ["", "a"]}, "InvalidValue", "args"),
    "a command as text": ({"command": "a b"}, "WrongType", "command"),
    "a number as argument": ({"args": ["a", 1]}, "WrongType", "args[1]"),
    "a boolean as argument": ({"args": [True]}, "WrongType", "args[0]"),
    "null as argument": ({"args": [None]}, "WrongType", "args[0]"),
    "a NUL in an argument": ({"args": ["a\0b"]}, "InvalidValue", "args[0]"),
    "a long argument": ({"args": ["a" * 32769]}, "InvalidValue", "args[0]"),
    "1025 arguments": ({"args": ["a"] * 1025}, "InvalidValue", "args"),
    "env as a mapping": ({"env": {"A": "b"}}, "WrongType", "env"),
    "an unnamed variable": ({"env": [{"value": "b"}]}, "MissingField", "env[0].name"),
    "an empty variable": ({"env": [{"name": ""}]}, "InvalidValue", "env[0].name"),
    "a variable with =": ({"env": [{"name": "A=B"}]}, "InvalidValue", "env[0].name"),
    "a variable with a line break": ({"env": [{"name": "A\n"}]}, "InvalidValue", "env[0].name"),
    "a value that is a number": ({"env": [{"name": "A", "value": 1}]}, "WrongType", "env[0].value"),
    "a value from elsewhere": ({"env": [{"name": "A", "valueFrom": {}}]}, "UnknownField", "env[0].valueFrom"),
    "1025 variables": ({"env": [{"name": "A"}] * 1025}, "InvalidValue", "env"),
    "a relative workingDir": ({"workingDir": "a"}, "InvalidValue", "workingDir"),
    "an empty workingDir": ({"workingDir": ""}, "InvalidValue", "workingDir"),
    "a user by name": ({"user": "root"}, "InvalidValue", "user"),
    "an empty user": ({"user": ""}, "InvalidValue", "user"),
    "a user without a number": ({"user": ":1"}, "InvalidValue", "user"),
    "a negative user": ({"user": -1}, "InvalidValue", "user"),
    "the user that means none": ({"user": (1 << 32) - 1}, "InvalidValue", "user"),
    "a huge user": ({"user": "9" * 5000}, "InvalidValue", "user"),
    "a fraction as user": ({"user": 1.5}, "InvalidValue", "user"),
    "true as user": ({"user": True}, "WrongType", "user"),
    "a list as user": ({"user": [1]}, "WrongType", "user"),
    "a user mapping without uid": ({"user": {"gid": 1}}, "MissingField", "user.uid"),
    "a group that means none": ({"user": {"uid": 1, "gid": (1 << 32) - 1}}, "InvalidValue", "user.gid"),
    "a group by name": ({"user": {"uid": 1, "additionalGids": ["video"]}}, "WrongType", "user.additionalGids[0]"),
    "an unknown capability": ({"capabilities": ["CAP_SUN"]}, "InvalidValue", "capabilities[0]"),
    "a short capability": ({"capabilities": ["KILL"]}, "InvalidValue", "capabilities[0]"),
    "all capabilities": ({"capabilities": ["ALL"]}, "InvalidValue", "capabilities[0]"),
    "a bare digest": ({"imageDigest": "0" * 64}, "InvalidValue", "imageDigest"),
    "a digest in capitals": ({"imageDigest": "sha256:" + "A" * 64}, "InvalidValue", "imageDigest"),
    "a short digest": ({"imageDigest": "sha256:00"}, "InvalidValue", "imageDigest"),
    "an image": ({"image": "busybox"}, "UnknownField", "image"),
    "resources as a list": ({"resources": []}, "WrongType", "resources"),
    "an unknown part of resources": ({"resources": {"limit": {}}}, "UnknownField", "resources.limit"),
    "limits as a list": ({"resources": {"limits": []}}, "WrongType", "resources.limits"),
    "an unknown volume": (
        {"volumeMounts": [{"name": "a", "mountPath": "/a"}]}, "InvalidValue", "volumeMounts[0].name",
    ),
    "a relative mount": (
        {"volumeMounts": [{"name": "a", "mountPath": "a"}]}, "InvalidValue", "volumeMounts[0].mountPath",
    ),
    "a mount over the root": (
        {"volumeMounts": [{"name": "a", "mountPath": "//"}]}, "InvalidValue", "volumeMounts[0].mountPath",
    ),
    "a mount that leads up": (
        {"volumeMounts": [{"name": "a", "mountPath": "/a/../b"}]}, "InvalidValue", "volumeMounts[0].mountPath",
    ),
    "a mount with two slashes": (
        {"volumeMounts": [{"name": "a", "mountPath": "/a//b"}]}, "InvalidValue", "volumeMounts[0].mountPath",
    ),
    "a mount among the devices": (
        {"volumeMounts": [{"name": "a", "mountPath": "/dev/shm"}]}, "InvalidValue", "volumeMounts[0].mountPath",
    ),
    "a mount over what is ours": (
        {"volumeMounts": [{"name": "a", "mountPath": "/run"}]}, "InvalidValue", "volumeMounts[0].mountPath",
    ),
    "a mount without a name": ({"volumeMounts": [{"mountPath": "/a"}]}, "MissingField", "volumeMounts[0].name"),
    "an empty probe": ({"wakeupProbe": {}}, "MissingField", "wakeupProbe"),
    "a probe with a timeout alone": ({"wakeupProbe": {"timeoutSeconds": 1}}, "MissingField", "wakeupProbe"),
    "a probe of two kinds": (
        {"wakeupProbe": {"exec": ["a"], "tcpSocket": {"port": 1}}}, "InvalidValue", "wakeupProbe.tcpSocket",
    ),
    "an empty command in a probe": ({"wakeupProbe": {"exec": []}}, "InvalidValue", "wakeupProbe.exec"),
    "an empty name in a probe": ({"wakeupProbe": {"exec": [""]}}, "InvalidValue", "wakeupProbe.exec"),
    "a probe in the shape of Kubernetes": (
        {"wakeupProbe": {"exec": {"command": ["a"]}}}, "WrongType", "wakeupProbe.exec",
    ),
    "no time for a probe": ({"wakeupProbe": {"exec": ["a"], "timeoutSeconds": 0}}, "InvalidValue",
                            "wakeupProbe.timeoutSeconds"),
    "a quoted time for a probe": ({"wakeupProbe": {"exec": ["a"], "timeoutSeconds": "1"}}, "WrongType",
                                  "wakeupProbe.timeoutSeconds"),
    "port 0 in a probe": ({"wakeupProbe": {"tcpSocket": {"port": 0}}}, "InvalidValue", "wakeupProbe.tcpSocket.port"),
    "no port in a probe": ({"wakeupProbe": {"httpGet": {}}}, "MissingField", "wakeupProbe.httpGet.port"),
    "a port by name": ({"wakeupProbe": {"httpGet": {"port": "http"}}}, "WrongType", "wakeupProbe.httpGet.port"),
    "an empty path in a probe": (
        {"wakeupProbe": {"httpGet": {"path": "", "port": 1}}}, "InvalidValue", "wakeupProbe.httpGet.path",
    ),
    "a path with a line break in a probe": (
        {"wakeupProbe": {"httpGet": {"path": "/\r\nX: y", "port": 1}}}, "InvalidValue", "wakeupProbe.httpGet.path",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "reason", "field"), BAD.values(), ids=BAD)
def test_a_wrong_field_has_one_reason_and_its_path(fields, reason, field):
    assert refusals(with_container(**fields)) == [(reason, f"{AT}.{field}" if field else AT)]


def test_every_field_that_does_not_go_with_a_bundle_is_named():
    fields = {"args": ["a"], "env": [], "workingDir": "/", "user": 1, "capabilities": []}
    content = with_container(rootfs=ABSENT, bundle="b", **fields)
    assert refusals(content) == [("InvalidValue", f"{AT}.{name}") for name in ("command", *fields)]


@pytest.mark.parametrize(
    ("command", "args", "argv"),
    [
        (["a"], ["b", "c"], ("a", "b", "c")),
        (["a"], ABSENT, ("a",)),
        (ABSENT, ["b"], ("b",)),
        ([], ["b"], ("b",)),
        (["a", ""], ["", "\n\t"], ("a", "", "", "\n\t")),
        (["a"] * 1024, ["b"] * 1024, ("a",) * 1024 + ("b",) * 1024),
    ],
)
def test_command_and_args_are_one_argv(command, args, argv):
    given = {"command": command} if args is ABSENT else {"command": command, "args": args}
    assert rootfs(**given).argv == argv


def test_the_last_value_of_a_variable_wins():
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "x=y\n"}, {"name": "A", "value": "2"}, {"name": "C"}]
    assert rootfs(env=env).env == (("A", "2"), ("B", "x=y\n"), ("C", ""))


@pytest.mark.parametrize(
    ("given", "user"),
    [
        ("0", User()),
        ("1000", User(uid=1000)),
        (1000, User(uid=1000)),
        ("1000:100", User(uid=1000, gid=100)),
        (f"{(1 << 32) - 2}:0", User(uid=(1 << 32) - 2)),
        ({"uid": 1}, User(uid=1)),
        ({"uid": 1, "gid": 2, "additionalGids": [3, 4]}, User(uid=1, gid=2, additional_gids=(3, 4))),
    ],
)
def test_a_user_may_be_written(given, user):
    assert rootfs(user=given).user == user


def test_a_user_may_be_written_plain():
    text = b"""\
apiVersion: greenroom.dev/v1alpha1
kind: WorkerAssignment
metadata: {uid: 1, generation: 1}
spec: {desiredState: Running, containers: [{name: 0, rootfs: 1, command: [2], user: 1000:100}]}
"""
    assignment = admitted(text)
    source = assignment.containers[0].source
    assert isinstance(source, Rootfs)
    assert (assignment.uid, assignment.containers[0].name, source.argv) == ("1", "0", ("2",))
    assert source.user == User(uid=1000, gid=100)


@pytest.mark.parametrize(
    ("given", "capabilities"), [(None, None), ([], ()), (["CAP_BPF", "CAP_KILL", "CAP_BPF"], ("CAP_BPF", "CAP_KILL"))]
)
def test_capabilities_are_the_default_set_or_exactly_those(given, capabilities):
    assert rootfs(capabilities=given).capabilities == capabilities


@pytest.mark.parametrize("size", ["sha256:" + "0a" * 32, "sha384:" + "0a" * 48, "sha512:" + "0a" * 64])
def test_an_image_digest_may_be(size):
    assert only_container(with_container(imageDigest=size)).image_digest == size


@pytest.mark.parametrize(("timeout", "seconds"), [(ABSENT, 30.0), (1, 1.0), (0.25, 0.25), (3600, 3600.0)])
def test_a_probe_has_a_time(timeout, seconds):
    probe = {"exec": ["a", "b"]} if timeout is ABSENT else {"exec": ["a", "b"], "timeoutSeconds": timeout}
    found = only_container(with_container(wakeupProbe=probe)).wakeup_probe
    assert found == WakeupProbe(action=ExecAction(("a", "b")), timeout_s=seconds)


AB = [{"name": "a"}, {"name": "b"}]


@pytest.mark.parametrize("second", ["/x", "/x/", "/x/y", "/"])
def test_mounts_over_or_within_each_other_are_refused(second):
    mounts = [{"name": "a", "mountPath": "/x"}, {"name": "b", "mountPath": second}]
    content = document(spec__durableVolumes=AB, spec__containers__0__volumeMounts=mounts)
    assert refusals(content) == [("InvalidValue", f"{AT}.volumeMounts[1].mountPath")]


def test_a_volume_is_mounted_where_the_container_says():
    mounts = [{"name": "a", "mountPath": "/data/"}, {"name": "b", "mountPath": "/database"}]
    assignment = admitted(document(spec__durableVolumes=AB, spec__containers__0__volumeMounts=mounts))
    assert assignment.durable_volumes == ("a", "b")
    (container,) = assignment.containers
    assert [(each.name, each.mount_path) for each in container.volume_mounts] == [("a", "/data"), ("b", "/database")]


def test_containers_share_a_volume_at_places_of_their_own():
    one = {"name": "one", "rootfs": "rootfs", "command": ["a"], "volumeMounts": [{"name": "a", "mountPath": "/a"}]}
    two = {**one, "name": "two", "volumeMounts": [{"name": "a", "mountPath": "/shared/a"}]}
    assert admitted(document(spec__durableVolumes=AB, spec__containers=[one, two]))
