"""The invariants of the fuzz target hold for odd bytes, as they do for its seeds, and break for a planted fault."""

import attrs
import pytest

from actors.cdi import CdiError, encode, inject
from tests.cdi import fuzz_invariants
from tests.cdi.fuzz import OWN
from tests.cdi.fuzz_invariants import BETWEEN, TARGETS, check
from tests.fuzzing.promises import BrokenPromiseError

SAMPLE = b"\0" + OWN


@pytest.mark.parametrize("number", range(len(TARGETS)))
def test_odd_bytes_keep_them(number):
    for rest in (b"", b"\0", b"\xff" * 9, b"a.com/b=c", b"{}" + BETWEEN + b"{}", bytes(range(256))):
        assert check(bytes([number]) + rest) == TARGETS[number].__name__


def test_a_text_that_is_lost_when_written_is_found(monkeypatch):
    def loses(spec, spec_format):
        return encode(attrs.evolve(spec, annotations={"lost": "x"}), spec_format)

    monkeypatch.setattr(fuzz_invariants, "encode", loses)
    with pytest.raises(BrokenPromiseError, match="read again"):
        check(SAMPLE)


def test_an_injection_that_adds_again_is_found(monkeypatch):
    def adds(document, edits, *, lstat):
        made = inject(document, edits, lstat=lstat)
        return made | {"count": made.get("count", 0) + 1}

    monkeypatch.setattr(fuzz_invariants, "inject", adds)
    with pytest.raises(BrokenPromiseError, match="second injection"):
        check(SAMPLE)


def test_an_injection_that_changes_what_it_was_given_is_found(monkeypatch):
    def changes(document, edits, *, lstat):
        document["changed"] = True
        return inject(document, edits, lstat=lstat)

    monkeypatch.setattr(fuzz_invariants, "inject", changes)
    with pytest.raises(BrokenPromiseError, match="given is not changed"):
        check(SAMPLE)


def test_the_small_parts_meet_in_injections_that_are_made(monkeypatch):
    made = []

    def remembered(document, edits, *, lstat):
        made.append(edits)
        try:
            return inject(document, edits, lstat=lstat)
        except CdiError:
            made.pop()
            raise

    monkeypatch.setattr(fuzz_invariants, "inject", remembered)
    for start in range(40):
        check(b"\3" + bytes((start * each) % 251 for each in range(1, 120)))
    assert any(edits.device_nodes for edits in made)
    assert any(edits.mounts for edits in made)
