"""`greenroom snapshots check`: the verdict, line by line, and its reason last."""

import json
import platform

import anyio
import attrs
import pytest

from actors.assignment import SnapshotScope
from actors.gpu.detection import Detected
from actors.manifest import parse_manifest
from statemachine.problem import ProblemError
from supervisor.checking import verdict_here
from supervisor.cli.given import admitted
from supervisor.host.composition import open_host_ports
from supervisor.settings import Settings
from tests.gpu.making import inventory
from tests.supervisor.snapshots_command.place import GPU, ONE, VERSION, last


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
    [
        ("no runsc", "RuntimeUnavailable"),
        ("no rootfs", "RootfsNotFound"),
        ("no document", "UnreadableFile"),
        ("a bundle with a GPU of its own", "InvalidBundle"),
    ],
)
def test_check_that_cannot_be_made_says_why(place, ran, change, reason):
    place.snapshot(ONE)
    match change:
        case "no runsc":
            place.runsc.write_text("#!/bin/sh\nexit 1\n")
        case "no rootfs":
            (place.root / "rootfs").rmdir()
        case "a bundle with a GPU of its own":
            place.give_bundle(linux={"devices": [{"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0}]})
        case _:
            place.document.unlink()
    code, out, err = ran("check", ONE, "--assignment", place.document, "--runsc", place.runsc, "--json")
    assert code == 1
    assert json.loads(out)["error"]["reason"] == reason
    assert last(err).startswith(f"error: {reason}: ")


@pytest.mark.parametrize(("known", "is_known"), [("535.129.03 570.2", False), ("535.129.03 570.1", True)])
def test_a_driver_that_this_runsc_does_not_know_is_told_as_a_restore_would(place, known, is_known):
    place.runsc.write_text(
        f"#!/bin/sh\ncase $* in *list-supported-drivers*) printf '%s\\n' {known};; "
        f"*) echo runsc version {VERSION};; esac\n"
    )
    place.assign(resources={"limits": {"nvidia.com/gpu": "1"}})
    settings = Settings(state_dir=place.state.root, run_dir=place.state.root, assignments=None, runsc=place.runsc)
    path = place.snapshot(ONE) / "manifest.json"
    manifest = attrs.evolve(parse_manifest(path.read_bytes(), path=path), scope=SnapshotScope.DATA)

    async def check():
        async with open_host_ports(roots=()) as ports:
            assignment = await admitted(ports.files, place.document)
            detected = Detected(inventory=inventory(0), driver="570.1")
            return await verdict_here(ports, settings, manifest, assignment, detected)

    if is_known:
        assert anyio.run(check) == ()
        return
    with pytest.raises(ProblemError, match="DriverUnsupportedByRuntime"):
        anyio.run(check)
