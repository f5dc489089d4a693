"""The verdict, whatever the snapshot."""

import re

import attrs
from hypothesis import given
from hypothesis import strategies as st

from actors.compatibility import differences
from tests.actors.test_compatibility import HERE, MANIFEST, at_home
from tests.actors.test_manifest import manifests


def comparable(manifest):
    """With containers of different names, of which one lives, and a runsc as it can be."""
    found = [attrs.evolve(each, name=f"c{number}") for number, each in enumerate(manifest.containers)]
    runsc = attrs.evolve(MANIFEST.runsc, version=manifest.runsc.version)
    return attrs.evolve(manifest, containers=(*found, MANIFEST.containers[0]), runsc=runsc)


anything = manifests.map(comparable)


@given(anything)
def test_a_snapshot_is_always_compatible_with_the_place_where_it_was_taken(manifest):
    assert differences(manifest, at_home(manifest)) == ()


@given(anything, anything)
def test_whatever_is_compared_each_subject_is_told_once_and_is_one_line(one, other):
    found = differences(one, at_home(other))
    subjects = [each.subject for each in found]
    assert len(set(subjects)) == len(subjects)
    assert all(re.fullmatch(r"[^\n]+", str(each)) for each in found)


@given(st.permutations(HERE.containers))
def test_the_order_in_which_containers_are_declared_does_not_count_but_for_their_gpus(order):
    found = differences(MANIFEST, attrs.evolve(HERE, containers=order))
    assert {each.subject for each in found} <= {"device map"}
