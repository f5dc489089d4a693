"""Devices injected by the CDI Go library and by ours: the same devices are known, and the same document comes out.

What differs stands in `tests.cdi.oracle.injections` and in docs/cdi.md, by the same names.
"""

import json
import re

import pytest
from hypothesis import HealthCheck, given, settings

from actors.cdi import CdiError, SpecFile, inject, read_spec, registry_of
from actors.cdi.host import lstat
from tests.cdi.oracle.corpus import good_samples
from tests.cdi.oracle.injections import (
    INJECTION_DIFFERENCES,
    Stage,
    are_even,
    as_release_reads,
    injections,
)
from tests.cdi.oracle.library import RELEASES, encoded, running
from tests.needs import ROOT

QUICK = settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
LONG = settings(max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(params=sorted(RELEASES), scope="module")
def library(request):
    with running(request.param) as answering:
        yield answering


def registry(stage):
    def file(directory, name, content):
        reading = read_spec(json.dumps(content).encode(), name)
        return SpecFile(path=f"{directory}/{name}", priority=directory, spec=reading.spec, problems=reading.problems)

    return registry_of(file(*each) for each in sorted(stage.files, key=lambda each: each[:2]))


def left_over(library, stage, differences):
    """What is left of the differences between both injections; empty when these explain all."""
    known = registry(stage)
    files = [
        {"directory": at, "name": name, "data": encoded(json.dumps(content).encode())}
        for at, name, content in stage.files
    ]
    answer = library.ask("inject", files=files, names=stage.names, document=stage.document)
    settled = {conflict.name for conflict in known.conflicts if conflict.shadowed_by}
    names = set(known.names())
    if any("conflict" in each.name for each in differences):
        names -= settled
    if names != set(answer.get("devices", ())):
        return f"devices: {sorted(names)} and {answer.get('devices')}"
    if set(answer.get("broken", ())) != set(known.errors):
        return f"broken files: {sorted(known.errors)} and {answer.get('broken')}"
    try:
        ours = inject(stage.document, known.resolve(stage.names), lstat=lstat)
    except CdiError as error:
        return f"only we refuse: {error}" if answer["ok"] else ""
    if not answer["ok"]:
        told = answer.get("error", "") + answer.get("crash", "")
        return "" if any(re.search(each.error, told) for each in differences) else f"only they refuse: {told}"
    ours = library.ask("normal", document=ours)["document"]
    theirs = answer["document"]
    return "" if are_even(ours, theirs, differences) else f"{json.dumps(ours)}\n{json.dumps(theirs)}"


def unexplained(library, stage):
    """What is left of the differences when the listed ones are taken away; empty when nothing is."""
    stage = as_release_reads(stage, library.release)
    differences = [each for each in INJECTION_DIFFERENCES if library.release in each.releases and each.concerns(stage)]
    return left_over(library, stage, differences)


@pytest.mark.parametrize("difference", INJECTION_DIFFERENCES, ids=lambda difference: difference.name)
def test_a_listed_difference_is_there_in_the_releases_named_and_is_documented(library, difference):
    others = [
        each
        for each in INJECTION_DIFFERENCES
        if each is not difference and library.release in each.releases and each.concerns(difference.example)
    ]
    assert difference.concerns(difference.example)
    if library.release in difference.releases:
        assert left_over(library, difference.example, [])
        assert left_over(library, difference.example, others)
        assert not left_over(library, difference.example, [difference])
    else:
        assert not left_over(library, difference.example, others)
    assert f"| {difference.name} |" in (ROOT / "docs" / "cdi.md").read_text()


def test_devices_are_injected_alike(library):
    @QUICK
    @given(injections())
    def check(stage):
        assert not unexplained(library, stage)

    check()


@pytest.mark.campaign
def test_many_devices_are_injected_alike(library):
    @LONG
    @given(injections())
    def check(stage):
        assert not unexplained(library, stage)

    check()


@pytest.mark.skipif(not good_samples(), reason="the samples are not beside this checkout")
def test_the_devices_of_every_sample_are_injected_alike_or_refused_alike_for_their_nodes(library):
    for path in good_samples():
        spec = read_spec(path.read_bytes(), path.name).spec
        assert spec is not None
        if spec.kind == "example.com/acc.el-1" and library.release == "1.1.0":
            continue  # it has a node without permissions
        content = json.loads(json.dumps(library.read(path.read_bytes())["model"]))
        for device in spec.devices:
            if device.name in {each["name"] for each in content["devices"]}:
                name = spec.qualified(device.name)
                stage = Stage(files=((0, "a.json", content),), names=(name,), document={"ociVersion": "1.2.0"})
                assert not unexplained(library, stage)
