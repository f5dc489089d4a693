import json

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.gpu.identity_file import (
    IDENTITY_BYTES_MAX,
    GpuAtOrdinal,
    GpuIdentity,
    IdentityError,
    decode,
    encode,
    identity_file,
)
from tests.gpu.making import gpu

THEN = (GpuIdentity.of(gpu(0)), GpuIdentity.of(gpu(1)))
NOW = (GpuIdentity.of(gpu(2)), GpuIdentity.of(gpu(3)))
RESTORED = identity_file("trainer", NOW, at_snapshot=THEN)


def test_a_restored_container_is_told_what_each_ordinal_is_and_was():
    assert json.loads(encode(RESTORED)) == {
        "v": 1,
        "container": "trainer",
        "gpus": [
            {
                "ordinal": 0,
                "now": {"uuid": "GPU-2", "pciBusId": "0000:ee:00.0", "minor": 2, "model": "NVIDIA H100"},
                "atSnapshot": {"uuid": "GPU-0", "pciBusId": "0000:f0:00.0", "minor": 0, "model": "NVIDIA H100"},
            },
            {
                "ordinal": 1,
                "now": {"uuid": "GPU-3", "pciBusId": "0000:ed:00.0", "minor": 3, "model": "NVIDIA H100"},
                "atSnapshot": {"uuid": "GPU-1", "pciBusId": "0000:ef:00.0", "minor": 1, "model": "NVIDIA H100"},
            },
        ],
    }


def test_a_cold_start_has_no_snapshot_to_tell_of():
    content = identity_file("trainer", NOW)
    assert [entry["atSnapshot"] for entry in json.loads(encode(content))["gpus"]] == [None, None]
    assert [entry.changed for entry in content.gpus] == [(), ()]


def test_what_changed_is_named_as_the_file_names_it():
    same, moved = GpuAtOrdinal(now=NOW[0], at_snapshot=NOW[0]), attrs.evolve(NOW[0], minor=9)
    assert same.changed == ()
    assert GpuAtOrdinal(now=moved, at_snapshot=NOW[0]).changed == ("minor",)
    assert RESTORED.gpus[0].changed == ("uuid", "pciBusId", "minor")


@pytest.mark.parametrize("then", [(), THEN[:1], (*THEN, *NOW)])
def test_a_snapshot_with_another_number_of_gpus_is_refused(then):
    with pytest.raises(ValueError, match="2 GPUs and had"):
        identity_file("trainer", NOW, at_snapshot=then)


def test_the_same_content_has_the_same_bytes():
    assert encode(decode(encode(RESTORED))) == encode(RESTORED)
    assert encode(RESTORED).endswith(b"}\n")


NAMES = st.text(max_size=20)
IDENTITY = st.builds(GpuIdentity, uuid=NAMES, pci_bus_id=NAMES, minor=st.integers(0, 300), model=NAMES)


@given(NAMES, st.lists(st.tuples(IDENTITY, IDENTITY), max_size=4), st.booleans())
def test_what_was_written_is_read_again(container, pairs, restored):
    now = [a for a, _ in pairs]
    content = identity_file(container, now, at_snapshot=[b for _, b in pairs] if restored else None)
    assert decode(encode(content)) == content


def test_a_later_field_of_this_format_is_passed_over():
    document = json.loads(encode(RESTORED))
    document["gpus"][0]["now"]["memoryBytes"] = 1
    assert decode(json.dumps({**document, "actor": "a1"}).encode()) == RESTORED


def changed(path, value):
    document = json.loads(encode(RESTORED))
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    if value is None and path[-1] in {"v", "gpus", "container", "ordinal", "now", "uuid", "minor"}:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return json.dumps(document).encode()


ODD = {
    "nothing": (b"", r"\$"),
    "half a file": (encode(RESTORED)[:-20], r"\$"),
    "a list": (b"[]", r"\$: must be an object"),
    "a key twice": (b'{"v": 1, "v": 1}', r"\$\.v"),
    "another format": (changed(["v"], 2), r"\$\.v: format 2"),
    "a flag as format": (changed(["v"], True), r"\$\.v"),
    "no format": (changed(["v"], None), r"\$\.v: absent"),
    "no container": (changed(["container"], None), r"\$\.container: absent"),
    "GPUs that are none": (changed(["gpus"], {}), r"\$\.gpus: must be"),
    "an entry that is none": (changed(["gpus", 1], 7), r"\$\.gpus\[1\]: must be"),
    "an ordinal at another place": (changed(["gpus", 1, "ordinal"], 0), r"\$\.gpus\[1\]\.ordinal"),
    "no ordinal": (changed(["gpus", 0, "ordinal"], None), r"\$\.gpus\[0\]\.ordinal: absent"),
    "nothing now": (changed(["gpus", 0, "now"], None), r"\$\.gpus\[0\]\.now: absent"),
    "no UUID": (changed(["gpus", 0, "now", "uuid"], None), r"\$\.gpus\[0\]\.now\.uuid: absent"),
    "a minor of text": (changed(["gpus", 0, "now", "minor"], "2"), r"now\.minor: must be of type int"),
    "a minor below zero": (changed(["gpus", 0, "now", "minor"], -1), r"now\.minor: is -1"),
    "a snapshot of text": (changed(["gpus", 0, "atSnapshot"], "x"), r"\.atSnapshot: must be"),
    "half a snapshot": (changed(["gpus", 0, "atSnapshot", "uuid"], None), r"\.atSnapshot\.uuid: absent"),
    "too much": (b" " * (IDENTITY_BYTES_MAX + 1), "over the limit"),
}


@pytest.mark.parametrize(("data", "why"), ODD.values(), ids=ODD)
def test_a_damaged_file_is_refused_and_the_place_named(data, why):
    with pytest.raises(IdentityError, match=why):
        decode(data)


def test_a_file_that_does_not_say_whether_there_was_a_snapshot_is_refused():
    document = json.loads(encode(RESTORED))
    del document["gpus"][0]["atSnapshot"]
    with pytest.raises(IdentityError, match="atSnapshot: absent"):
        decode(json.dumps(document).encode())


@given(st.binary(max_size=100) | st.text().map(str.encode))
def test_any_bytes_are_read_or_refused(data):
    try:
        content = decode(data)
    except IdentityError:
        return
    assert decode(encode(content)) == content
