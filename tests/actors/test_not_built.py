"""What this version does not perform: each row of the table can be met, and only by a field that is otherwise right."""

import pytest

from actors import not_built
from actors.assignment import Egress, HttpGetAction, TcpSocketAction
from actors.not_built import NOT_BUILT, Feature
from tests.actors.assignments import admitted, document, problems

F = Feature
PORTS = {"ports": [{"containerPort": 8080, "workerPort": 80}]}
IN_CONTAINER = "spec__containers__0__"
AT = "spec.containers[0]"
ASKING = [
    ({"spec__network": PORTS}, [(F.NETWORK_PORTS, "spec.network.ports")]),
    ({"spec__network": {"egress": "Deny"}}, [(F.NETWORK_EGRESS, "spec.network.egress")]),
    ({f"{IN_CONTAINER}wakeupProbe": {"httpGet": {"port": 80}}}, [(F.HTTP_PROBES, f"{AT}.wakeupProbe.httpGet")]),
    ({f"{IN_CONTAINER}wakeupProbe": {"tcpSocket": {"port": 80}}}, [(F.TCP_PROBES, f"{AT}.wakeupProbe.tcpSocket")]),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "asked"), ASKING)
def test_what_is_not_built_is_refused_with_its_path(changes, asked):
    found = problems(document(**changes))
    assert [(str(problem.reason), problem.subject) for problem in found] == [
        ("NotSupported", path) for _, path in asked
    ]
    for problem, (feature, _) in zip(found, asked, strict=True):
        assert NOT_BUILT[feature].subject in problem.message


def test_every_row_of_the_table_can_be_asked_for():
    assert {feature for _, asked in ASKING for feature, _ in asked} == set(NOT_BUILT)


@pytest.fixture
def everything_is_built(monkeypatch):
    monkeypatch.setattr(not_built, "NOT_BUILT", {})


@pytest.mark.parametrize(("changes", "asked"), ASKING)
def test_a_field_is_admitted_as_soon_as_its_row_is_gone(everything_is_built, changes, asked):
    assert admitted(document(**changes))


def test_what_will_be_built_is_decoded_already(everything_is_built):
    assignment = admitted(
        document(
            spec__network={**PORTS, "egress": "Deny"},
            spec__containers__0__wakeupProbe={"httpGet": {"path": "ready?x=1", "port": 80}},
        )
    )
    (container,) = assignment.containers
    assert container.wakeup_probe is not None
    assert container.wakeup_probe.action == HttpGetAction(path="/ready?x=1", port=80)
    assert assignment.network.egress is Egress.DENY
    assert [(port.container_port, port.worker_port) for port in assignment.network.ports] == [(8080, 80)]


def test_a_socket_probe_is_decoded_already(everything_is_built):
    (container,) = admitted(document(spec__containers__0__wakeupProbe={"tcpSocket": {"port": 80}})).containers
    assert container.wakeup_probe is not None
    assert container.wakeup_probe.action == TcpSocketAction(80)


@pytest.mark.parametrize(
    "fields",
    [
        {"network": {"ports": [], "egress": "Allow"}},
        {"suspend": {"scope": "Full", "onLiveCuda": "Refuse"}},
        {"snapshot": {"uri": "file:///snapshots/a"}},
    ],
)
def test_saying_the_default_asks_for_nothing(fields):
    assert admitted(document(**{f"spec__{name}": value for name, value in fields.items()}))
