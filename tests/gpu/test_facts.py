import itertools
import json

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.gpu.facts import (
    LINE_BYTES_MAX,
    NVML_ERRORS,
    ErrorFact,
    Fact,
    FactError,
    InventoryFact,
    MemoryFact,
    ProcessesFact,
    XidFact,
    decode,
    decode_lines,
    encode,
    error_name,
)
from actors.gpu.inventory import Inventory
from tests.gpu.making import gpu

INVENTORY = InventoryFact(
    driver="570.133.20",
    inventory=Inventory([gpu(5), gpu(2, lost="XID 79"), gpu(3, mig_devices=("MIG-a",)), gpu(4, mig_devices=())]),
)
FACTS: list[Fact] = [
    INVENTORY,
    InventoryFact(driver="570", inventory=Inventory()),
    InventoryFact(driver="570", inventory=Inventory(), unread=("NVML_ERROR_GPU_IS_LOST", "NVML_ERROR_UNKNOWN")),
    ProcessesFact(gpu="GPU-5", pids=(42, 7)),
    ProcessesFact(gpu="GPU-5", pids=()),
    MemoryFact(gpu="GPU-5", used_bytes=0),
    MemoryFact(gpu="GPU-5", used_bytes=80 << 30),
    XidFact(gpu="GPU-5", xid=79),
    XidFact(gpu=None, xid=13),
    ErrorFact(call="nvmlInit", error="NVML_ERROR_DRIVER_NOT_LOADED", message="Driver Not Loaded"),
    ErrorFact(call="nvmlDeviceGetUUID", error="NVML_ERROR_GPU_IS_LOST", gpu="GPU-5"),
]


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: type(fact).__name__)
def test_a_fact_comes_out_as_it_went_in(fact):
    line = encode(fact)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode(line) == fact
    assert decode(line.rstrip()) == fact


def changed(fact, **changes):
    return json.dumps({**json.loads(encode(fact)), **changes}).encode()


def without(fact, name):
    return json.dumps({key: value for key, value in json.loads(encode(fact)).items() if key != name}).encode()


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: type(fact).__name__)
def test_a_field_too_few_and_a_field_too_many_are_refused(fact):
    with pytest.raises(FactError, match="unknown: extra"):
        decode(changed(fact, extra=1))
    for name in json.loads(encode(fact)):
        with pytest.raises(FactError):
            decode(without(fact, name))


PROCESSES, XID, ERROR = FACTS[3], FACTS[5], FACTS[7]
GPU = json.loads(encode(INVENTORY))["gpus"][0]
ODD = {
    "nothing": b"",
    "no JSON": b"NVML: Driver Not Loaded",
    "no object": b"[]",
    "a key twice": b'{"v":1,"v":1}',
    "a newer version": changed(XID, v=2),
    "a flag as version": changed(XID, v=True),
    "a fraction as version": changed(XID, v=1.0),
    "an unknown type": changed(XID, type="gpu"),
    "no text as type": changed(XID, type=["xid"]),
    "an XID of text": changed(XID, xid="79"),
    "a flag as XID": changed(XID, xid=True),
    "an XID below zero": changed(XID, xid=-1),
    "an error without a name of NVML": changed(ERROR, error="Driver Not Loaded"),
    "pids that are no list": changed(PROCESSES, pids=7),
    "processes on no GPU": changed(PROCESSES, gpu="0"),
    "an XID of a MIG device": changed(XID, gpu="MIG-a"),
    "an error of no GPU": changed(ERROR, gpu="all"),
    "unread GPUs without NVML's name of why": changed(INVENTORY, unread=["lost"]),
    "a number of unread GPUs": changed(INVENTORY, unread=2),
    "a pid of zero": changed(PROCESSES, pids=[0]),
    "too many pids": changed(PROCESSES, pids=[1] * (1 << 15)),
    "no GPUs": changed(INVENTORY, gpus=None),
    "a GPU that is none": changed(INVENTORY, gpus=[None]),
    "a GPU twice": changed(INVENTORY, gpus=[GPU, GPU]),
    "more GPUs than minors": changed(INVENTORY, gpus=[GPU] * 255),
    "a minor of text": changed(INVENTORY, gpus=[{**GPU, "minor": "2"}]),
    "a control node as GPU": changed(INVENTORY, gpus=[{**GPU, "minor": 255}]),
    "no place on the bus": changed(INVENTORY, gpus=[{**GPU, "pciBusId": "x"}]),
    "a GPU without a model": changed(INVENTORY, gpus=[{**GPU, "model": None}]),
    "a GPU with a field too many": changed(INVENTORY, gpus=[{**GPU, "index": 0}]),
    "MIG as a flag": changed(INVENTORY, gpus=[{**GPU, "migDevices": False}]),
    "a long line": encode(XID).rstrip() + b" " * LINE_BYTES_MAX,
    "deep": b"[" * 100_000,
    "no text": b"\xff\xfe",
}


@pytest.mark.parametrize("line", ODD.values(), ids=ODD)
def test_a_line_that_the_monitor_cannot_have_written_is_refused(line):
    with pytest.raises(FactError) as refused:
        decode(line)
    assert 0 < len(str(refused.value)) < 1200
    assert "\n" not in str(refused.value)


@given(st.binary(max_size=200) | st.text().map(str.encode))
def test_any_bytes_are_a_fact_or_refused(line):
    try:
        fact = decode(line)
    except FactError:
        return
    assert decode(encode(fact)) == fact


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 1 << 40) | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(sorted(GPU)), inner, max_size=6),
    max_leaves=9,
)


@given(st.sampled_from(FACTS), st.data())
def test_a_line_with_any_value_in_any_field_is_a_fact_or_refused(fact, data):
    document = json.loads(encode(fact))
    name = data.draw(st.sampled_from(sorted(document)))
    try:
        found = decode(json.dumps({**document, name: data.draw(JSON)}).encode())
    except FactError:
        return
    assert decode(encode(found)) == found


@given(st.lists(st.sampled_from(FACTS), max_size=5), st.lists(st.integers(0, 2000), max_size=6))
def test_facts_come_out_in_order_wherever_the_stream_is_cut(facts, cuts):
    stream = b"".join(map(encode, facts))
    found: list[Fact] = []
    rest = b""
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    for begin, end in itertools.pairwise(places):
        some, rest = decode_lines(rest + stream[begin:end])
        found += some
    assert (found, rest) == (facts, b"")


@pytest.mark.parametrize("name", ["a\nb", "\x1b[2J", "\u202e", "x" * 5000])
def test_why_a_line_is_refused_is_one_line_whatever_a_field_is_called(name):
    with pytest.raises(FactError) as caught:
        decode(json.dumps({"v": 1, "type": "xid", "gpu": None, "xid": 1, name: 1}).encode())
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) <= 1024


def test_a_line_without_an_end_is_refused_before_it_takes_all_memory():
    assert decode_lines(b"x" * LINE_BYTES_MAX) == ((), b"x" * LINE_BYTES_MAX)
    with pytest.raises(FactError, match="no end"):
        decode_lines(b"x" * (LINE_BYTES_MAX + 1))


def test_the_names_of_errors_are_those_of_the_library():
    for code, name in NVML_ERRORS.items():
        assert getattr(pynvml, name) == code


def test_a_code_without_a_name_still_makes_a_fact():
    fact = ErrorFact(call="nvmlInit", error=error_name(4711))
    assert decode(encode(fact)) == fact
    assert fact.error == "NVML_ERROR_4711"
    assert error_name(9) == "NVML_ERROR_DRIVER_NOT_LOADED"


def test_what_a_library_says_is_bounded_and_on_one_line():
    fact = ErrorFact(call="nvmlInit", error="NVML_ERROR_UNKNOWN", message="a\nb\x1b[31m\ud800" + "x" * 9000)
    assert len(fact.message) <= 1024
    assert fact.message.isprintable()
    assert decode(encode(fact)) == fact
