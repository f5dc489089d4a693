"""What the library may cost. Seconds are CPU seconds of this process, in `make bench`; memory is measured always."""

import json
import time
import tracemalloc

import pytest
import yaml

from actors.cdi import ContainerEdits, DeviceNode, Hook, Mount, inject, read_spec
from tests.cdi.making import HOST, device, spec

JSON_S_MAX = 0.060
YAML_S_MAX = 0.300
INJECTION_S_MAX = 0.003
MEMORY_RATIO_MAX = 10
TRIES = 9


def large(spec_bytes=300_000):
    """A spec of many devices, without a blank that could be spared."""
    nodes = [{"path": "/dev/nvidia0", "major": 195, "minor": 1, "fileMode": 438, "permissions": "rwm"}]
    hooks = [{"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook", "args": ["nvidia-cdi-hook", "chmod"]}]
    one = len(json.dumps(device("GPU-00000000", deviceNodes=nodes, hooks=hooks), separators=(",", ":")))
    devices = [device(f"GPU-{n:08}", deviceNodes=nodes, hooks=hooks) for n in range(spec_bytes // one + 1)]
    return spec(*devices, version="0.5.0")


CONTENT = large()
AS_JSON = json.dumps(CONTENT, separators=(",", ":")).encode()
# Read back, so that nothing is shared and YAML's writer makes no aliases.
AS_YAML = yaml.dump(json.loads(AS_JSON), Dumper=yaml.CSafeDumper).encode()


def best_s(function):
    times = []
    for _ in range(TRIES):
        began = time.process_time()
        function()
        times.append(time.process_time() - began)
    return min(times)


@pytest.mark.bench
@pytest.mark.parametrize(("data", "most_s"), [(AS_JSON, JSON_S_MAX), (AS_YAML, YAML_S_MAX)], ids=["json", "yaml"])
def test_a_large_spec_is_soon_loaded_and_validated(data, most_s, record_property):
    assert len(data) >= 300_000
    took_s = best_s(lambda: read_spec(data, "x"))
    record_property("of_what_it_may_take", took_s / most_s)
    assert took_s <= most_s


@pytest.mark.bench
def test_a_hundred_edits_are_soon_injected(record_property):
    edits = ContainerEdits(
        env=tuple(f"V{n}=x" for n in range(25)),
        device_nodes=tuple(DeviceNode(path=f"/dev/n{n}", type="c", major=195, minor=n) for n in range(25)),
        mounts=tuple(Mount(host_path=f"/h{n}", container_path=f"/c/{n}", options=("ro", "bind")) for n in range(25)),
        hooks=tuple(Hook(hook_name="createContainer", path=f"/hook{n}", args=("a", "b")) for n in range(25)),
    )
    document = {
        "process": {"args": ["sh"], "env": [f"E{n}=x" for n in range(30)], "user": {"uid": 0, "gid": 0}},
        "mounts": [{"destination": f"/m{n}", "type": "tmpfs", "source": "tmpfs", "options": ["ro"]} for n in range(20)],
        "linux": {"namespaces": [{"type": "pid"}], "resources": {"devices": [{"allow": False, "access": "rwm"}]}},
    }
    took_s = best_s(lambda: inject(document, edits, lstat=HOST.get))
    record_property("of_what_it_may_take", took_s / INJECTION_S_MAX)
    assert took_s <= INJECTION_S_MAX


@pytest.mark.parametrize("data", [AS_JSON, AS_YAML], ids=["json", "yaml"])
def test_a_large_spec_takes_at_most_ten_times_its_size(data):
    tracemalloc.start()
    try:
        reading = read_spec(data, "x")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert reading.spec is not None
    assert peak_bytes <= MEMORY_RATIO_MAX * len(data), peak_bytes / len(data)


def spellings(word, count):
    letters = [(letter.lower(), letter.upper()) for letter in word]
    return ["".join(pair[number >> n & 1] for n, pair in enumerate(letters)) for number in range(count)]


HOSTILE = {
    "unknown fields": json.dumps({**spec(), **{f"fileMod{n}": 1 for n in range(60_000)}}),
    "spellings of one field": json.dumps(spec(dict.fromkeys(spellings("containeredits", 16_000), "d"))),
    "bad variables": json.dumps(spec(device(env=["A"] * 120_000))),
    "bad devices": json.dumps(spec(*[None] * 100_000)),
    "devices of one name": json.dumps(spec(*[device(env=["A=b"])] * 25_000)),
    "bad annotations": json.dumps(spec(annotations={f"{n} ": "" for n in range(60_000)})),
    "removed fields": json.dumps(spec(*[device(f"d{n}", intelRdt={"enableCMT": True}) for n in range(12_000)])),
    "plain words": "devices:\n" + "- name: 0x1\n" * 30_000,
}


@pytest.mark.long
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_what_is_made_to_be_slow_is_told_soon(text):
    # Each is read with places as well, which takes some seconds on a busy machine; what is bounded is that nothing
    # grows with the square of the text, and that no words are looked for that nobody reads.
    began = time.process_time()
    reading = read_spec(text.encode(), "x")
    assert time.process_time() - began < 10
    assert 1 <= len(reading.problems) + len(reading.warnings) <= 400


@pytest.mark.parametrize("data", [b"[" * (3 << 20), b"a: &a [" + b"*a," * 100_000, b"{" * (3 << 20)], ids=range(3))
def test_what_is_refused_takes_no_memory_without_end(data):
    tracemalloc.start()
    try:
        assert read_spec(data, "x").problems
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes <= MEMORY_RATIO_MAX * len(data)
