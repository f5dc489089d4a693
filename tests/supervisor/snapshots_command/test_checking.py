"""`greenroom snapshots check`: the verdict, line by line, and its reason last."""

import json
import platform

import pytest

from tests.supervisor.snapshots_command.place import GPU, ONE, last


def test_check_says_that_a_snapshot_is_restorable_here(place, ran):
    place.snapshot(ONE)
    code, out, err = ran("check", ONE, "--assignment", place.document, "--runsc", place.runsc)
    assert (code, out, err) == (0, "restorable here\n", "")
    document = json.loads(ran("check", ONE, "--assignment", place.document, "--runsc", place.runsc, "--json")[1])
    assert (document["restorable"], document["differences"]) == (True, [])


def test_check_says_everything_that_differs_with_what_was_and_what_is_and_the_reason_last(place, ran):
    place.snapshot(ONE, arch="other", cpu_features=("teleports",), driver="580.1")
    place.assign("/bin/other")
    code, out, err = ran("check", ONE, "--assignment", place.document, "--runsc", place.runsc, "--platform", "ptrace")
    assert code == 1
    assert out.splitlines() == [
        f"arch: was other, is {platform.machine()} (cannot be forced)",
        "platform: was systrap, is ptrace",
        "main: argument 0: was '/bin/app', is '/bin/other'",
    ]
    assert last(err).startswith("error: SnapshotIncompatible: arch was other")
    assert err.count("was") == 1
    code, out, _ = ran("check", ONE, "--assignment", place.document, "--runsc", place.runsc, "--json")
    document = json.loads(out)
    assert (code, document["restorable"]) == (1, False)
    assert document["differences"][1] == {
        "subject": "main: argument 0", "was": "'/bin/app'", "is": "'/bin/other'", "reason": "BundleChanged",
        "force": "Possible",
    }  # fmt: skip


def test_check_of_a_changed_bundle_alone_ends_with_its_reason_and_how_to_force_it(place, ran):
    place.snapshot(ONE)
    place.assign("/bin/app", "--more")
    code, _, err = ran("check", ONE, "--assignment", place.document, "--runsc", place.runsc)
    assert code == 1
    assert last(err) == "error: BundleChanged: main: argument 1 was absent in the snapshot, here it is '--more'"
    assert "--force" in err


def test_check_of_a_snapshot_with_gpus_asks_for_those_of_this_pod(place, ran):
    directory = place.snapshot(ONE)
    manifest = json.loads((directory / "manifest.json").read_bytes())
    manifest["containers"][0]["gpus"] = [
        {"ordinal": 0, "uuid": GPU.uuid, "model": GPU.model, "minor": 0, "pciBusId": GPU.pci_bus_id}
    ]
    (directory / "manifest.json").write_text(json.dumps(manifest))
    code, out, err = ran("check", ONE, "--assignment", place.document, "--runsc", place.runsc)
    assert (code, out) == (1, "main: GPUs: was 1, is 0 (cannot be forced)\n")
    place.assign(resources={"limits": {"nvidia.com/gpu": "1"}})
    code, out, err = ran("check", ONE, "--assignment", place.document, "--runsc", place.runsc)
    assert (code, out) == (1, "")
    assert last(err).startswith("error: GpuNotDetected: ")


@pytest.mark.parametrize(
    ("change", "reason"),
    [("no runsc", "RuntimeUnavailable"), ("no rootfs", "RootfsNotFound"), ("no document", "UnreadableFile")],
)
def test_check_that_cannot_be_made_says_why(place, ran, change, reason):
    place.snapshot(ONE)
    match change:
        case "no runsc":
            place.runsc.write_text("#!/bin/sh\nexit 1\n")
        case "no rootfs":
            (place.root / "rootfs").rmdir()
        case _:
            place.document.unlink()
    code, out, err = ran("check", ONE, "--assignment", place.document, "--runsc", place.runsc, "--json")
    assert code == 1
    assert json.loads(out)["error"]["reason"] == reason
    assert last(err).startswith(f"error: {reason}: ")
