"""Quantities and claims in documents: each rule of DESIGN's table, with rows on both sides of it."""

import pytest

from actors.assignment import Resources
from tests.actors.assignments import admitted, document, problems, refusals, with_limits, with_spec

GPU = "nvidia.com/gpu"
LIMITS = "spec.containers[0].resources.limits"
REQUESTS = "spec.containers[0].resources.requests"
AT_GPU = f'{LIMITS}["{GPU}"]'


def limits_of(content):
    return admitted(content).containers[0].limits


@pytest.mark.parametrize(
    ("limits", "resources"),
    [
        ({}, Resources()),
        ({"cpu": "500m"}, Resources(cpu_milli=500)),
        ({"cpu": 2}, Resources(cpu_milli=2000)),
        ({"cpu": "1.5"}, Resources(cpu_milli=1500)),
        ({"cpu": "0.1m"}, Resources(cpu_milli=1)),
        ({"cpu": "0"}, Resources(cpu_milli=0)),
        ({"memory": "1Gi"}, Resources(memory_bytes=1 << 30)),
        ({"memory": "1e3"}, Resources(memory_bytes=1000)),
        ({"memory": 1}, Resources(memory_bytes=1)),
        ({"memory": "8Ei"}, Resources(memory_bytes=(1 << 63) - 1)),
        ({"ephemeral-storage": "1500m"}, Resources(ephemeral_storage_bytes=2)),
        ({GPU: "0"}, Resources()),
        ({GPU: 0}, Resources()),
        ({GPU: "0m"}, Resources()),
        ({"amd.com/gpu": "0"}, Resources()),
    ],
)
def test_amounts_become_exact_numbers(limits, resources):
    assert limits_of(with_limits(limits)) == resources


NAMES_NO_RESOURCE = [
    "gpu",
    "hugepages-2Mi",
    "CPU",
    "",
    "/gpu",
    "nvidia.com/",
    "a/b/c",
    "NVIDIA.com/gpu",
    "a b/c",
    "é/x",
]


@pytest.mark.parametrize("name", NAMES_NO_RESOURCE)
def test_a_name_is_a_device_class_or_one_of_three(name):
    (problem,) = problems(with_limits({name: 1}))
    assert (problem.reason, problem.subject.startswith(LIMITS)) == ("UnknownResource", True)


NO_QUANTITY = [
    "",
    "x",
    "1 ",
    " 1",
    "1_000",
    "0x1",
    "1..1",
    "m",
    "Ki",
    "1K",
    "true",
    "NaN",
    "9" * 300,
    True,
    False,
    1.5,
    1.0,
]


@pytest.mark.parametrize("name", [GPU, "cpu", "memory", "amd.com/gpu"])
@pytest.mark.parametrize("amount", [*NO_QUANTITY, None])
def test_an_amount_is_a_quantity_as_text_or_integer(name, amount):
    (problem,) = problems(with_limits({name: amount}))
    assert problem.reason == "InvalidQuantity"
    assert "container main" in problem.message


@pytest.mark.parametrize("name", [GPU, "cpu"])
@pytest.mark.parametrize("amount", [[1], {"a": 1}])
def test_an_amount_is_a_scalar(name, amount):
    assert [reason for reason, _ in refusals(with_limits({name: amount}))] == ["WrongType"]


YAML = """\
apiVersion: greenroom.dev/v1alpha1
kind: WorkerAssignment
metadata: {{uid: a1, generation: 1}}
spec:
  desiredState: Running
  containers:
  - {{name: main, bundle: b, resources: {{limits: {{cpu: {amount}}}}}}}
"""


@pytest.mark.parametrize(
    ("amount", "milli"), [("1", 1000), ("500m", 500), ("+1", 1000), ("1Ki", 1024000), ("'1.5'", 1500)]
)
def test_a_plain_amount_in_yaml_is_read_as_written(amount, milli):
    assert limits_of(YAML.format(amount=amount).encode()).cpu_milli == milli


@pytest.mark.parametrize(
    "amount", ["1.5", "1.0", ".5", "5.", "1e3", "1E3", "010", "-1.5", "0x10", "1_0", "1:30", "true", "~", ""]
)
def test_a_plain_amount_that_yaml_readers_take_for_a_float_octal_or_worse_is_refused(amount):
    assert refusals(YAML.format(amount=amount).encode()) == [("InvalidQuantity", f"{LIMITS}.cpu")]


@pytest.mark.parametrize("amount", ["-1", -1, "-1m", "-0.1n", "-8Ei"])
@pytest.mark.parametrize("name", [GPU, "cpu", "memory"])
def test_an_amount_is_not_below_zero(name, amount):
    assert [reason for reason, _ in refusals(with_limits({name: amount}))] == ["NegativeQuantity"]


@pytest.mark.parametrize("amount", ["500m", "1500m", "1.5", "1n", "0.5", "1e-1", ".1Ki"])
@pytest.mark.parametrize("name", [GPU, "amd.com/gpu"])
def test_devices_are_claimed_whole(name, amount):
    (problem,) = problems(with_limits({name: amount}))
    assert problem.reason == "FractionalDevice"
    assert amount in problem.message


@pytest.mark.parametrize("amount", ["1", 1, "1000m", "1e0", "10e-1", "1.0", "0.001k"])
def test_one_device_may_be_written_in_many_ways(amount):
    assert admitted(with_limits({GPU: amount})).containers[0].gpus == 1


@pytest.mark.parametrize(
    ("name", "amount"),
    [(GPU, "100000000000000000000"), (GPU, 65537), (GPU, "1e1000"), ("cpu", "1E"), ("memory", "9223372036854775808")],
)
def test_a_huge_amount_is_out_of_range(name, amount):
    (problem,) = problems(with_limits({name: amount}))
    assert problem.reason == "InvalidValue"
    assert "out of range" in problem.message


@pytest.mark.parametrize(
    "name", ["amd.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb", "gpu.intel.com/i915", "a/b"]
)
def test_only_one_device_class_can_be_injected(name):
    assert refusals(with_limits({name: "1"})) == [("UnsupportedDeviceClass", f'{LIMITS}["{name}"]')]


@pytest.mark.parametrize(
    ("limits", "requests", "found"),
    [
        ({}, {GPU: 1}, [("RequestWithoutLimit", f'{REQUESTS}["{GPU}"]')]),
        ({}, {GPU: 0}, [("RequestWithoutLimit", f'{REQUESTS}["{GPU}"]')]),
        ({"cpu": 1}, {"amd.com/gpu": 1}, [("RequestWithoutLimit", f'{REQUESTS}["amd.com/gpu"]')]),
        ({GPU: 0}, {GPU: 1}, [("RequestNotEqualLimit", f'{REQUESTS}["{GPU}"]')]),
        ({GPU: 2}, {GPU: "1"}, [("RequestNotEqualLimit", f'{REQUESTS}["{GPU}"]')]),
        ({GPU: "x"}, {GPU: 1}, [("InvalidQuantity", AT_GPU)]),
        ({GPU: 1}, {GPU: "500m"}, [("FractionalDevice", f'{REQUESTS}["{GPU}"]')]),
        ({"cpu": "100m"}, {"cpu": "101m"}, [("InvalidValue", f"{REQUESTS}.cpu")]),
        ({}, {"gpu": 1}, [("UnknownResource", f"{REQUESTS}.gpu")]),
        ({}, {"cpu": "-1"}, [("NegativeQuantity", f"{REQUESTS}.cpu")]),
    ],
)
def test_a_request_fits_its_limit(limits, requests, found):
    assert refusals(with_limits(limits, requests)) == found


def test_a_request_of_devices_may_be_written_otherwise_than_its_limit():
    assert admitted(with_limits({GPU: 1}, {GPU: "1000m"})).containers[0].gpus == 1


@pytest.mark.parametrize("requests", [{}, {"cpu": "100m"}, {"cpu": "0.1"}, {"memory": "1Gi"}, {GPU: "0"}])
def test_requests_that_fit_are_allowed(requests):
    assert admitted(with_limits({"cpu": "100m", GPU: 0}, requests))


def containers(**claims):
    return [
        {"name": name, "bundle": name, "resources": {"limits": {} if count is None else {GPU: count}}}
        for name, count in claims.items()
    ]


@pytest.mark.parametrize(
    ("claims", "reservation", "position"),
    [
        ({"main": "3"}, {GPU: 2}, 0),
        ({"a": "1", "b": "1"}, {GPU: 1}, 1),
        ({"a": "1", "b": None, "c": "2", "d": "1"}, {GPU: 2}, 2),
        ({"a": "1"}, {}, 0),
        ({"a": "1"}, {"amd.com/gpu": 8}, 0),
        ({"a": "1"}, {GPU: "0"}, 0),
    ],
)
def test_claims_beyond_the_reservation_are_refused_where_they_pass_it(claims, reservation, position):
    content = with_spec(containers=containers(**claims), reservation=reservation)
    (problem,) = problems(content)
    assert problem.reason == "ClaimsExceedReservation"
    assert problem.subject == f'spec.containers[{position}].resources.limits["{GPU}"]'
    for name, count in claims.items():
        assert count is None or f"container {name} {count}" in problem.message
    assert f"the reservation is {int(reservation.get(GPU, 0))}" in problem.message


@pytest.mark.parametrize(
    ("claims", "reservation"),
    [({"a": "1", "b": "1"}, {GPU: 2}), ({"a": None, "b": "2"}, {GPU: "2"}), ({"a": "1"}, None)],
)
def test_claims_within_the_reservation_are_right(claims, reservation):
    found = admitted(with_spec(containers=containers(**claims), reservation=reservation)).containers
    assert {each.name: each.gpus for each in found} == {name: int(count or 0) for name, count in claims.items()}


def test_a_wrong_reservation_is_reported_alone():
    content = with_spec(containers=containers(a="1"), reservation={GPU: "x"})
    assert [reason for reason, _ in refusals(content)] == ["InvalidQuantity"]


def test_a_claim_needs_gvisor():
    content = with_spec(containers=containers(a="1"), sandboxClass="kata")
    assert refusals(content) == [("SandboxClassUnsupported", "spec.sandboxClass")]


def test_a_claim_of_a_container_with_another_mistake_still_counts():
    content = document(spec__reservation={GPU: 1})
    content["spec"]["containers"] = containers(a="1", b="1")
    content["spec"]["containers"][0]["name"] = "pause"
    assert sorted(reason for reason, _ in refusals(content)) == ["ClaimsExceedReservation", "InvalidContainerName"]


def test_every_wrong_amount_of_a_container_is_reported():
    limits = {"gpu": 1, GPU: 1.5, "cpu": "-1", "memory": "x"}
    assert [reason for reason, _ in refusals(with_limits(limits))] == [
        "UnknownResource",
        "InvalidQuantity",
        "NegativeQuantity",
        "InvalidQuantity",
    ]


def test_65_resources_are_too_many():
    assert refusals(with_limits({f"a.com/{number}": 0 for number in range(65)})) == [("InvalidValue", LIMITS)]
