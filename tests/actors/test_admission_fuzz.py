"""Admission against everything: each document becomes an assignment or problems of the catalogue, whatever it says."""

import json
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actors.admission import decode, decode_assignment
from actors.assignment import WorkerAssignment
from actors.document import read_document
from actors.validation import DocumentFile, validate_documents
from statemachine.catalogue import CATALOGUE
from statemachine.problem import ProblemError
from tests.actors.assignments import BASE
from tests.actors.test_admission import FULL

# A busy machine makes single examples slow, which is no fault of theirs.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
WORDS = [
    "", "a", "main", "pause", "Running", "None", "null", "~", "on", "1", "-1", "500m", "1.5", "1e400", "9" * 400,
    "x" * 300, "/", "../x", "file:///a", "s3://a", "a\0b", "\x1b[2J", "\u202e", "é😀", "nvidia.com/gpu", "amd.com/gpu",
    "cpu", "USR1", "Data",
]  # fmt: skip
FIELDS = [
    "apiVersion", "kind", "metadata", "uid", "name", "namespace", "generation", "spec", "desiredState", "sandboxClass",
    "reservation", "snapshot", "uri", "from", "suspend", "scope", "onLiveCuda", "restartPolicy", "durableVolumes",
    "terminationGracePeriodSeconds", "lifecycle", "preSuspend", "postResume", "exec", "signal", "network", "ports",
    "containerPort", "workerPort", "egress", "containers", "bundle", "rootfs", "command", "args", "env", "value",
    "workingDir", "user", "gid", "additionalGids", "capabilities", "imageDigest", "resources", "limits",
    "requests", "cpu", "memory", "nvidia.com/gpu", "volumeMounts", "mountPath", "wakeupProbe", "httpGet", "tcpSocket",
    "path", "port", "timeoutSeconds", "template", "tolerations", "key", "nodeSelector",
]  # fmt: skip
SCALARS = (
    st.sampled_from(WORDS)
    | st.none()
    | st.booleans()
    | st.integers(-2, 70000)
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=5)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)
VALID = {
    "apiVersion": "greenroom.dev/v1alpha1",
    "kind": "WorkerAssignment",
    "metadata": {"uid": "a1", "name": "n", "namespace": "s", "generation": 1},
    "spec": {
        "desiredState": "Running",
        "sandboxClass": "gvisor",
        "reservation": {"nvidia.com/gpu": "2"},
        "snapshot": {"uri": "file:///a"},
        "suspend": {"scope": "Full", "onLiveCuda": "Refuse"},
        "durableVolumes": [{"name": "work"}],
        "lifecycle": {"preSuspend": {"exec": ["a"]}, "postResume": {"signal": "USR1"}},
        "network": {"ports": [{"containerPort": 1, "workerPort": 2}], "egress": "Allow"},
        "containers": [
            {
                "name": "a",
                "rootfs": "r",
                "command": ["a"],
                "env": [{"name": "A", "value": "b"}],
                "user": {"uid": 1, "gid": 2, "additionalGids": [3]},
                "capabilities": ["CAP_KILL"],
                "resources": {"limits": {"nvidia.com/gpu": 1, "cpu": "500m"}, "requests": {"nvidia.com/gpu": 1}},
                "volumeMounts": [{"name": "work", "mountPath": "/w"}],
                "wakeupProbe": {"httpGet": {"path": "x", "port": 1}, "timeoutSeconds": 1},
            },
            {"name": "b", "bundle": "b", "resources": {"limits": {"nvidia.com/gpu": 1}}},
        ],
    },
}


def places(value, path=()):
    """Every place in a JSON value."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in inner:
        yield from places(child, (*path, key))


def replaced(value, path, change):
    """The value with what stands at a path put through a function; None there means: removed."""
    if not path:
        return change(value)
    first, *rest = path
    items = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    changed = [(key, replaced(child, rest, change) if key == first else child) for key, child in items]
    return dict(changed) if isinstance(value, dict) else [child for _, child in changed]


@st.composite
def mutations(draw):
    """The valid document after some replacements, removals and additions."""
    content = VALID
    for _ in range(draw(st.integers(1, 4))):
        path = draw(st.sampled_from(list(places(content))))
        if path and draw(st.booleans()):
            content = replaced(content, path, lambda _, value=draw(VALUES): value)
        else:
            key, value = draw(st.sampled_from(FIELDS)), draw(VALUES)
            content = replaced(content, path, lambda old, key=key, value=value: with_more(old, key, value))
    return content


def with_more(value, key, more):
    match value:
        case dict():
            return {**value, key: more}
        case list():
            return [*value, more]
        case _:
            return more


def problems_of(data):
    """What is wrong with a document; none when it became an assignment."""
    try:
        assignment = decode(data, base=BASE)
    except ProblemError as error:
        return error.problems
    assert isinstance(assignment, WorkerAssignment)
    assert len(assignment.digest) == 64
    return ()


def is_presentable(problem):
    return (
        problem.reason in CATALOGUE
        and problem.message.isprintable()
        and problem.subject.isprintable()
        and len(problem.message) < 2000
        and len(problem.subject) < 1000
    )


@UNHURRIED
@given(mutations())
def test_every_change_of_a_valid_document_is_admitted_or_refused(content):
    data = json.dumps(content).encode()
    assert all(map(is_presentable, problems_of(data)))
    findings = decode_assignment(read_document(data), BASE).findings if content not in (None, "") else ()
    assert [finding.place for finding in findings] == sorted(finding.place for finding in findings)


@UNHURRIED
@given(st.binary(max_size=100))
def test_any_bytes_are_refused(data):
    problems = problems_of(data)
    assert problems
    assert all(map(is_presentable, problems))


@UNHURRIED
@given(st.text(max_size=100))
def test_any_text_is_refused(text):
    problems = problems_of(text.encode(errors="surrogatepass"))
    assert problems
    assert all(map(is_presentable, problems))


@UNHURRIED
@given(st.integers(0, len(FULL)), st.integers(0, 30), st.binary(max_size=8))
def test_any_cut_or_overwritten_document_is_admitted_or_refused(start, length, instead):
    assert all(map(is_presentable, problems_of(FULL[:start] + instead + FULL[start + length :])))


@UNHURRIED
@given(
    st.lists(
        st.tuples(st.sampled_from(["WorkerPool", "ActorTemplate", "WorkerAssignment"]), VALUES, VALUES), max_size=3
    )
)
def test_validation_reports_on_whatever_it_is_given(documents):
    files = [
        DocumentFile(
            name=f"{number}",
            data=json.dumps({"apiVersion": "a/v1alpha1", "kind": kind, "metadata": meta, "spec": spec}).encode(),
            base=Path("/"),
        )
        for number, (kind, meta, spec) in enumerate(documents)
    ]
    for report in validate_documents(files):
        assert all(map(is_presentable, report.problems))
        for advice in report.advice:
            assert advice.message.isprintable()
