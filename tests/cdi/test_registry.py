"""Directories, precedence, conflicts and names to edits (behaviours E1 to E11, F1 to F9)."""

import pytest

from actors.cdi import DEFAULT_DIRECTORIES, SPEC_BYTES_MAX, LiveRegistry, Registry, scan, scan_async
from actors.ports import Files
from supervisor.host.files import HostFiles
from tests.cdi.making import HIGH, LOW, MemoryFiles, device, refusal, registry, spec, text


def with_env(name, value, **more):
    return device(name, env=[f"W={value}"], **more)


def test_e1_no_directory_at_all_is_fine():
    found = registry({})
    assert (found.names(), found.errors, found.vendors()) == ((), {}, ())
    assert DEFAULT_DIRECTORIES == (LOW, HIGH)


def test_e2_files_are_told_by_their_exact_suffix_in_the_directory_itself():
    files = {
        f"{LOW}/{name}": spec(device(name="d", env=["A=b"]), kind=f"v.com/{kind}")
        for name, kind in {
            "a.yaml": "a",
            "b.json": "b",
            "c.yml": "c",
            "d.YAML": "d",
            ".h.json": "h",
            "sub/e.yaml": "e",
            "f.json.tmp": "f",
        }.items()
    }
    found = registry({**files, f"{LOW}/x.json": None})
    assert found.names() == ("v.com/a=d", "v.com/b=d", "v.com/h=d")
    assert [file.path for file in found.files] == [f"{LOW}/.h.json", f"{LOW}/a.yaml", f"{LOW}/b.json"]


def test_e3_a_broken_file_is_set_aside():
    found = registry({f"{LOW}/a.yaml": b"{", f"{LOW}/b.yaml": spec()})
    assert found.names() == ("vv.com/gpu=d",)
    assert found.resolve(["vv.com/gpu=d"]).env == ("A=b",)
    assert [str(problem.reason) for problem in found.errors[f"{LOW}/a.yaml"]] == ["MalformedDocument"]
    assert f"{LOW}/b.yaml" not in found.errors


def test_a_file_or_directory_that_cannot_be_read_is_set_aside():
    files = {
        LOW: PermissionError(13, "Permission denied", LOW),
        f"{HIGH}/a.yaml": PermissionError(13, "Permission denied"),
        f"{HIGH}/b.yaml": FileNotFoundError(2, "it went away"),
        f"{HIGH}/c.yaml": b" " * (SPEC_BYTES_MAX + 1),
        f"{HIGH}/d.yaml": spec(),
    }
    found = registry(files)
    assert found.names() == ("vv.com/gpu=d",)
    assert {path: [str(each.reason) for each in problems] for path, problems in found.errors.items()} == {
        LOW: ["NotReadable"],
        f"{HIGH}/a.yaml": ["NotReadable"],
        f"{HIGH}/c.yaml": ["DocumentTooLarge"],
    }


SHADOWED = {
    f"{LOW}/x.json": spec(
        with_env("0", "low"),
        device("a", mounts=[{"hostPath": "/m", "containerPath": "/m"}]),
        containerEdits={"env": ["S=low"]},
    ),
    f"{HIGH}/y.json": spec(with_env("0", "high"), containerEdits={"env": ["S=high"]}),
}


def test_e4_a_later_directory_wins():
    found = registry(SHADOWED)
    assert found.resolve(["vv.com/gpu=0"]).env == ("S=high", "W=high")
    assert not found.errors
    assert not found.conflicts


def test_e5_a_shadowed_file_still_serves_its_other_devices_with_its_own_edits():
    found = registry(SHADOWED)
    assert found.resolve(["vv.com/gpu=a"]).env == ("S=low",)
    low = found.find("vv.com/gpu=a")
    assert low is not None
    assert low.path == f"{LOW}/x.json"


TWICE = {
    f"{LOW}/x.json": spec(with_env("0", "x"), with_env("a", "x")),
    f"{LOW}/y.json": spec(with_env("0", "y"), with_env("b", "y")),
}


def test_e6_e7_two_files_of_one_directory_take_the_device_away_from_each_other():
    found = registry(TWICE)
    assert found.names() == ("vv.com/gpu=a", "vv.com/gpu=b")
    for path in TWICE:
        (problem,) = found.errors[path]
        assert (problem.reason, problem.value) == ("Conflict", "vv.com/gpu=0")
        assert set(problem.related) == set(TWICE)
    (problem,) = refusal(found.resolve, ["vv.com/gpu=0"])
    assert problem.reason == "Unresolvable"
    assert all(path in problem.message for path in TWICE)
    assert problem.related == tuple(TWICE)


def test_a_third_file_does_not_settle_a_conflict():
    found = registry({**TWICE, f"{LOW}/z.json": spec(with_env("0", "z"))})
    assert "vv.com/gpu=0" not in found.names()
    assert found.conflicts[0].paths == (*TWICE, f"{LOW}/z.json")


def test_a_conflict_below_a_file_that_settles_it_harms_nobody():
    # The Go library drops the device all the same.
    found = registry({**TWICE, f"{HIGH}/z.json": spec(with_env("0", "z"))})
    assert found.resolve(["vv.com/gpu=0"]).env == ("W=z",)
    assert found.conflicts[0].shadowed_by == f"{HIGH}/z.json"
    assert f"{HIGH}/z.json settles it" in found.errors[f"{LOW}/x.json"][0].message


def test_a_conflict_above_is_not_settled_by_what_lies_below():
    above = {path.replace(LOW, HIGH): content for path, content in TWICE.items()}
    found = registry({**above, f"{LOW}/z.json": spec(with_env("0", "z"))})
    assert "vv.com/gpu=0" not in found.names()


def test_e10_a_registry_follows_its_files_when_it_is_told_so():
    files = MemoryFiles({f"{LOW}/x.json": text(spec(with_env("0", "old")))})
    live = LiveRegistry(files, [LOW, HIGH])

    def value():
        return live.current().resolve(["vv.com/gpu=0"]).env[0]

    assert value() == "W=old"
    files.content[f"{LOW}/x.json"] = text(spec(with_env("0", "new")))
    assert value() == "W=old"
    live.mark_stale()
    assert value() == "W=new"
    files.content[f"{HIGH}/y.json"] = text(spec(with_env("0", "shadow")))
    live.refresh()
    assert value() == "W=shadow"
    del files.content[f"{HIGH}/y.json"]
    live.mark_stale()
    assert value() == "W=new"


def test_queries_between_changes_read_nothing_and_a_rescan_parses_only_what_changed():
    files = MemoryFiles({f"{LOW}/{name}.json": text(spec(kind=f"v.com/{name}")) for name in "ab"})
    live = LiveRegistry(files, [LOW])
    first = live.current()
    assert live.current() is first
    assert len(files.reads) == 2
    files.content[f"{LOW}/b.json"] = text(spec(kind="v.com/c"))
    second = live.refresh()
    kept = first.find("v.com/a=d")
    again = second.find("v.com/a=d")
    assert kept is not None
    assert again is not None
    assert again.spec is kept.spec
    assert second.names() == ("v.com/a=d", "v.com/c=d")


def test_e11_vendors_and_classes_are_sorted_and_unique():
    kinds = ["b.com/x", "a.com/y", "a.com/x"]
    found = registry({f"{LOW}/{n}.json": spec(kind=kind) for n, kind in enumerate(kinds)})
    assert found.vendors() == ("a.com", "b.com")
    assert found.classes() == ("x", "y")


def test_directories_are_compared_clean_and_default_when_there_are_none():
    found = scan(MemoryFiles({f"{LOW}/x.json": spec()}), ["/etc//cdi/", "/etc/x/../none"])
    assert found.files[0].path == f"{LOW}/x.json"
    assert LiveRegistry(MemoryFiles(), []).directories == DEFAULT_DIRECTORIES
    assert scan(MemoryFiles({f"{HIGH}/x.json": spec()}), []).names() == ("vv.com/gpu=d",)


@pytest.mark.anyio
async def test_those_who_must_not_wait_scan_as_well():
    class Files:
        def __init__(self, files):
            self.files = files

        async def list_directory(self, path):
            return self.files.list_directory(str(path))

        async def read(self, path, *, limit_bytes):
            data = self.files.read(str(path), limit_bytes=limit_bytes)
            if data is None:
                raise IsADirectoryError(21, "Is a directory", str(path))
            return data

    content = {**SHADOWED, f"{LOW}/dir.json": None, f"{LOW}/bad.yaml": b"{"}
    assert await scan_async(Files(MemoryFiles(content))) == registry(content)


def test_f1_unknown_names_are_all_told_in_order():
    found = registry({f"{LOW}/x.json": spec(device("0", env=["A=b"]))})
    problems = refusal(found.resolve, ["vv.com/gpu=0", "vv.com/gpu=9", "xx.com/gpu=1", "vv.com/gpu=9"])
    assert [(str(each.reason), each.value) for each in problems] == [
        ("Unresolvable", "vv.com/gpu=9"),
        ("Unresolvable", "xx.com/gpu=1"),
    ]


def test_f1_what_was_perhaps_meant_is_named_with_its_file():
    found = registry({f"{LOW}/x.json": spec(device("gpu0", env=["A=b"]))})
    (problem,) = refusal(found.resolve, ["vv.com/gpu=gpuO"])
    assert f"did you mean vv.com/gpu=gpu0, from {LOW}/x.json?" in problem.message
    (problem,) = refusal(registry({f"{LOW}/x.json": b"{"}).resolve, ["vv.com/gpu=0"])
    assert f"a file that is broken: {LOW}/x.json" in problem.message
    (problem,) = refusal(registry({}).resolve, ["vv.com/gpu=0"])
    assert problem.message == 'no device is called "vv.com/gpu=0"; known are none'


def test_f2_an_unqualified_name_is_unresolvable():
    found = registry({f"{LOW}/x.json": spec(device("0", env=["A=b"]))})
    (problem,) = refusal(found.resolve, ["0"])
    assert problem.reason == "Unresolvable"
    assert "did you mean vv.com/gpu=0" in problem.message


def test_f3_no_names_edit_nothing():
    assert registry(SHADOWED).resolve([]).is_empty


BOTH = spec(
    device("0", env=["X=0", "D=0"], deviceNodes=[{"path": "/dev/n0"}]),
    device("1", env=["X=1", "D=1"], intelRdt={"closID": "one"}),
    containerEdits={
        "env": ["D=spec"],
        "deviceNodes": [{"path": "/dev/ctl"}],
        "hooks": [{"hookName": "poststop", "path": "/h"}],
        "intelRdt": {"closID": "spec"},
        "additionalGids": [5],
    },
)


def test_f4_what_belongs_to_the_spec_comes_once_and_first():
    edits = registry({f"{LOW}/x.json": BOTH}).resolve(["vv.com/gpu=0", "vv.com/gpu=1"])
    assert edits.env == ("D=spec", "X=0", "D=0", "X=1", "D=1")
    assert [node.path for node in edits.device_nodes] == ["/dev/ctl", "/dev/n0"]
    assert len(edits.hooks) == len(edits.additional_gids) == 1
    assert edits.intel_rdt.clos_id == "one"


def test_f5_the_order_of_the_names_is_the_order_of_the_edits():
    edits = registry({f"{LOW}/x.json": BOTH}).resolve(["vv.com/gpu=1", "vv.com/gpu=0"])
    assert edits.env == ("D=spec", "X=1", "D=1", "X=0", "D=0")


def test_f6_every_file_of_a_kind_has_its_own_edits_for_all():
    files = {
        f"{LOW}/{name}.json": spec(device(name, env=[f"D={name}"]), containerEdits={"env": ["S=same"]}) for name in "ab"
    }
    edits = registry(files).resolve(["vv.com/gpu=b", "vv.com/gpu=a"])
    assert edits.env == ("S=same", "D=b", "S=same", "D=a")


def test_a_name_that_is_given_twice_counts_once():
    found = registry({f"{LOW}/x.json": BOTH})
    assert found.resolve(["vv.com/gpu=0", "vv.com/gpu=0"]) == found.resolve(["vv.com/gpu=0"])


async def scanned_by_the_worker(files: Files) -> Registry:
    """Never run: that this type-checks is the proof that Greenroom's port is what the library asks for."""
    return await scan_async(files)


@pytest.mark.anyio
async def test_the_real_port_for_files_finds_what_the_library_wrote(tmp_path):
    for name, value in (("low", "old"), ("high", "new")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.json").write_bytes(text(spec(with_env("0", value))))
    (tmp_path / "low" / "dir.json").mkdir()
    (tmp_path / "low" / "big.yaml").write_bytes(b" " * (SPEC_BYTES_MAX + 1))
    directories = [str(tmp_path / name) for name in ("low", "none", "high")]
    found = await scan_async(HostFiles(roots=[]), directories)
    assert found.resolve(["vv.com/gpu=0"]).env == ("W=new",)
    assert [str(each.reason) for problems in found.errors.values() for each in problems] == ["DocumentTooLarge"]
