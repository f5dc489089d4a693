"""Edits into an OCI document (behaviours F8, F9, G1 to G28), and what holds for every document and all edits."""

import copy

import pytest

from actors.cdi import ContainerEdits, DeviceNode, Hook, HostNode, IntelRdt, Mount, NetDevice, host_paths, inject
from tests.cdi.making import HOST, LOW, device, refusal, registry, spec


def injected(document, lstat=HOST.get, **edits):
    return inject(document, ContainerEdits(**edits), lstat=lstat)


def node(path="/dev/n0", **more):
    return DeviceNode(path=path, **more)


def devices(document, *nodes, lstat=HOST.get):
    return injected(document, lstat, device_nodes=nodes)["linux"]["devices"]


def test_g1_a_variable_is_replaced_where_it_stands():
    document = {"process": {"env": ["A=old", "C=3"]}}
    assert injected(document, env=("A=new", "B=1"))["process"]["env"] == ["A=new", "C=3", "B=1"]


def test_g1_of_several_the_last_is_the_one_that_counts():
    document = {"process": {"env": ["A=1", "B=2", "A=3"]}}
    assert injected(document, env=("A=4", "A=5"))["process"]["env"] == ["A=1", "B=2", "A=5"]


def test_g3_an_entry_without_a_value_is_that_variable():
    assert injected({"process": {"env": ["FOO"]}}, env=("FOO=x",))["process"]["env"] == ["FOO=x"]


def test_g4_a_node_is_replaced_and_its_rule_comes_last():
    denial = {"allow": False, "access": "rwm"}
    document = {
        "linux": {
            "devices": [{"path": "/dev/n0", "type": "c", "major": 1, "minor": 1}, {"path": "/dev/z"}],
            "resources": {"devices": [denial]},
        }
    }
    made = injected(
        document,
        device_nodes=(node(type="c", major=195, minor=7, file_mode=438, uid=5, gid=6, permissions="r"),),
    )
    assert made["linux"]["devices"] == [
        {"path": "/dev/z"},
        {"path": "/dev/n0", "type": "c", "major": 195, "minor": 7, "fileMode": 438, "uid": 5, "gid": 6},
    ]
    rule = {"allow": True, "type": "c", "major": 195, "minor": 7, "access": "r"}
    assert made["linux"]["resources"]["devices"] == [denial, rule]


def test_of_two_entries_for_one_path_the_first_is_replaced():
    first, second = ({"path": "/dev/null", "type": "c", "major": 9, "minor": minor} for minor in (1, 2))
    found = devices({"linux": {"devices": [first, second]}}, node("/dev/null"))
    assert [each["minor"] for each in found] == [2, 3]
    mounted = [{"destination": "/x", "source": source} for source in "ab"]
    assert [each["source"] for each in injected({"mounts": mounted}, mounts=(mount("/x"),))["mounts"]] == ["b", "/s"]


def test_a_mode_that_is_declared_is_kept():
    (found,) = devices({}, node("/dev/null", file_mode=0))
    assert found["fileMode"] == 0
    (found,) = devices({}, node("/dev/null", file_mode=0o600, type="c", major=5))
    assert found["fileMode"] == 0o600


def test_g5_a_node_belongs_to_the_user_of_the_process_unless_it_says_so():
    document = {"process": {"user": {"uid": 1000, "gid": 2000}}}
    first, second = devices(document, node("/dev/null"), node("/dev/zero", uid=0, gid=0))
    assert (first["uid"], first["gid"]) == (1000, 2000)
    assert (second["uid"], second["gid"]) == (0, 0)


def test_g6_root_is_not_written():
    (found,) = devices({"process": {"user": {"uid": 0, "gid": 5}}}, node("/dev/null"))
    assert "uid" not in found
    assert found["gid"] == 5


def test_g7_everything_may_come_from_the_host():
    made = injected({}, device_nodes=(node("/dev/null"),))
    assert made["linux"] == {
        "devices": [{"path": "/dev/null", "type": "c", "major": 1, "minor": 3, "fileMode": 438}],
        "resources": {"devices": [{"allow": True, "type": "c", "major": 1, "minor": 3, "access": "rwm"}]},
    }


def test_g8_the_host_path_is_looked_at_and_the_path_is_made():
    (found,) = devices({}, node("/dev/foo", host_path="/dev/zero"))
    assert (found["path"], found["major"], found["minor"]) == ("/dev/foo", 1, 5)


def test_g9_numbers_without_a_type_are_kept():
    (found,) = devices({}, node("/dev/zero", major=77, minor=3))
    assert (found["type"], found["major"], found["minor"]) == ("c", 77, 3)


def test_a_minor_without_a_major_is_the_hosts():
    (found,) = devices({}, node("/dev/zero", minor=9))
    assert (found["major"], found["minor"]) == (1, 5)


def test_a_complete_node_is_not_compared_with_the_host():
    (found,) = devices({}, node("/dev/zero", type="b", major=77, minor=3))
    assert (found["type"], found["major"], found["minor"], found["fileMode"]) == ("b", 77, 3, 0o666)


@pytest.mark.parametrize("word", ["b", "u"])
def test_g11_a_type_that_the_host_contradicts_is_refused(word):
    (problem,) = refusal(injected, {}, device_nodes=(node("/dev/zero", type=word),))
    assert (problem.reason, problem.value, problem.path) == ("NodeTypeMismatch", word, "/dev/zero")


def test_g12_a_node_that_is_missing_must_be_complete():
    assert refusal(injected, {}, device_nodes=(node(major=195),))[0].reason == "HostNodeMissing"
    assert refusal(injected, {}, device_nodes=(node(type="c", minor=9),))[0].reason == "HostNodeMissing"
    assert devices({}, node(type="c", major=195)) == [{"path": "/dev/n0", "type": "c", "major": 195, "minor": 0}]


@pytest.mark.parametrize("path", ["/dev/stdin", "/etc/passwd"])
def test_g13_a_symlink_or_file_is_no_device_node(path):
    (problem,) = refusal(injected, {}, device_nodes=(node(path),))
    assert (problem.reason, problem.value) == ("HostNodeIsNone", path)


def test_g14_an_unbuffered_node_has_no_rule():
    made = injected({}, device_nodes=(node(type="u", major=5),))
    assert made["linux"]["devices"][0]["type"] == "u"
    assert "resources" not in made["linux"]


@pytest.mark.parametrize("numbers", [{"major": -1}, {"major": 5, "minor": -1}, {"minor": -1}])
@pytest.mark.parametrize("word", ["c", ""])
def test_a_negative_number_which_would_allow_every_device_is_refused(numbers, word):
    (problem,) = refusal(injected, {}, device_nodes=(node("/dev/null", type=word, **numbers),))
    assert (problem.reason, problem.value) == ("OutOfRange", "-1")


def test_g15_a_fifo_has_no_numbers_and_no_rule():
    made = injected({}, device_nodes=(node("/dev/fifo"),))
    assert made == {"linux": {"devices": [{"path": "/dev/fifo", "type": "p", "fileMode": 0o600}]}}
    assert devices({}, node("/dev/none", type="p")) == [{"path": "/dev/none", "type": "p"}]
    (declared,) = devices({}, node("/dev/none", type="p", major=5))
    assert (declared["major"], declared["minor"]) == (5, 0)


def test_g16_no_permissions_are_a_rule_without_access():
    made = injected({}, device_nodes=(node("/dev/null", permissions="none"),))
    assert made["linux"]["resources"]["devices"] == [{"allow": True, "type": "c", "major": 1, "minor": 3}]


def mount(destination, source="/s", **more):
    return Mount(host_path=source, container_path=destination, **more)


def test_g18_of_two_mounts_on_one_place_the_last_is_made():
    made = injected({"mounts": [{"destination": "/x", "source": "old"}]}, mounts=(mount("/x", "a"), mount("/x", "b")))
    assert made["mounts"] == [{"destination": "/x", "source": "b"}]


def test_mounts_are_sorted_by_depth_and_otherwise_kept():
    given_ones = ["/a/b/c", "/proc", "/", "/dev/pts", "/dev", "", "rel", "//a//b/../c/"]
    document = {"mounts": [{"destination": destination} for destination in given_ones]}
    made = injected(document, mounts=(mount("/z"), mount("/dev/x")))
    assert [item["destination"] for item in made["mounts"]] == [
        *("", "rel"),
        *("/proc", "/", "/dev", "/z"),
        *("/dev/pts", "//a//b/../c/", "/dev/x"),
        "/a/b/c",
    ]


def test_g20_without_mounts_the_order_stays():
    document = {"mounts": [{"destination": "/a/b"}, {"destination": "/a"}]}
    assert injected(document, env=("A=b",))["mounts"] == document["mounts"]


def test_g21_what_a_mount_does_not_say_is_not_written():
    assert injected({}, mounts=(mount("/x"),))["mounts"] == [{"destination": "/x", "source": "/s"}]
    full = injected({}, mounts=(mount("/x", type="bind", options=("ro", "bind")),))["mounts"]
    assert full == [{"destination": "/x", "source": "/s", "type": "bind", "options": ["ro", "bind"]}]


@pytest.mark.parametrize(
    ("given_mount", "options"),
    [
        (mount("/x", options=("ro", "bind")), ["ro", "bind", "idmap"]),
        (mount("/x", options=("rbind",)), ["rbind", "ridmap"]),
        (mount("/x", type="bind"), ["idmap"]),
        (mount("/x", type="bind", options=("rbind",)), ["rbind", "ridmap"]),
        (mount("/x", options=("rbind", "bind")), ["rbind", "bind", "idmap"]),
        (mount("/x", options=("bind", "rbind")), ["bind", "rbind", "ridmap"]),
        (mount("/x", type="rbind", options=("ro",)), ["ro"]),
        (mount("/x", options=("bind", "ridmap")), ["bind", "ridmap"]),
        (mount("/x", type="tmpfs", options=("ro",)), ["ro"]),
    ],
)
def test_in_a_user_namespace_bind_mounts_map_their_owners(given_mount, options):
    document = {"linux": {"namespaces": [{"type": "pid"}, {"type": "user"}]}}
    (made,) = injected(document, mounts=(given_mount,))["mounts"]
    assert made["options"] == options


def test_g23_hooks_come_behind_those_that_are_there():
    stages = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
    hooks = tuple(Hook(hook_name=stage, path=f"/{stage}", args=("a",), env=("A=b",), timeout=5) for stage in stages)
    made = injected({"hooks": {"createContainer": [{"path": "/first"}]}}, hooks=hooks)["hooks"]
    assert made["createContainer"][0] == {"path": "/first"}
    for stage in stages:
        assert made[stage][-1] == {"path": f"/{stage}", "args": ["a"], "env": ["A=b"], "timeout": 5}


def test_g24_groups_are_added_once_and_root_never():
    document = {"process": {"user": {"gid": 7, "additionalGids": [7, 1]}}}
    made = injected(document, additional_gids=(5, 0, 5, 7))
    assert made["process"]["user"]["additionalGids"] == [7, 1, 5]


def test_g25_network_devices_are_a_map():
    pairs = (("e0", "n0"), ("e0", "n9"))
    edits = tuple(NetDevice(host_interface_name=host, name=name) for host, name in pairs)
    made = injected({"linux": {"netDevices": {"e1": {"name": "x"}}}}, net_devices=edits)
    assert made["linux"]["netDevices"] == {"e1": {"name": "x"}, "e0": {"name": "n9"}}


def test_g26_intel_rdt_is_replaced_whole():
    document = {"linux": {"intelRdt": {"closID": "z", "memBwSchema": "M"}}}
    assert injected(document, intel_rdt=IntelRdt(clos_id="b"))["linux"]["intelRdt"] == {"closID": "b"}
    full = IntelRdt(schemata=("s",), l3_cache_schema="l", mem_bw_schema="m", enable_monitoring=True)
    assert injected({}, intel_rdt=full)["linux"]["intelRdt"] == {
        "schemata": ["s"],
        "l3CacheSchema": "l",
        "memBwSchema": "m",
        "enableMonitoring": True,
    }


def test_g27_an_injection_that_fails_changes_nothing_and_tells_all_nodes():
    document = {"process": {"env": ["A=old"]}}
    before = copy.deepcopy(document)
    problems = refusal(
        injected, document, env=("A=new",), device_nodes=(node("/dev/x"), node("/dev/null"), node("/dev/y"))
    )
    assert [problem.path for problem in problems] == ["/dev/x", "/dev/y"]
    assert document == before


def test_g28_every_injection_looks_anew():
    found = registry({f"{LOW}/x.json": spec(device("0", deviceNodes=[{"path": "/dev/n0"}]))})
    edits = found.resolve(["vv.com/gpu=0"])
    for minor in (3, 4):
        host = {"/dev/n0": HostNode(type="c", major=9, minor=minor, mode=0o600)}
        assert inject({}, edits, lstat=host.get)["linux"]["devices"][0]["minor"] == minor


def test_f8_devices_that_share_a_node_share_its_rule():
    both = (node("/dev/null"), node("/dev/zero"), node("/dev/null"))
    made = injected({}, device_nodes=both)["linux"]
    assert [each["path"] for each in made["devices"]] == ["/dev/zero", "/dev/null"]
    assert [rule["minor"] for rule in made["resources"]["devices"]] == [3, 5]


def test_a_node_that_is_replaced_keeps_its_rule_and_must_be_there():
    both = (node("/dev/null", permissions="r"), node("/dev/null", permissions="w"))
    made = injected({}, device_nodes=both)["linux"]
    assert len(made["devices"]) == 1
    assert [rule["access"] for rule in made["resources"]["devices"]] == ["r", "w"]
    hidden = (node("/dev/null", host_path="/dev/none"), node("/dev/null"))
    assert refusal(injected, {}, device_nodes=hidden)[0].reason == "HostNodeMissing"


def test_f9_the_device_overrides_its_spec():
    assert injected({}, env=("D=spec", "D=1"))["process"]["env"] == ["D=1"]


def test_a_rule_that_is_denied_again_is_added_again():
    allowed = {"allow": True, "type": "c", "major": 1, "minor": 3, "access": "rwm"}
    denied = {"allow": False, "access": "rwm"}
    document = {"linux": {"resources": {"devices": [allowed, denied]}}}
    made = injected(document, device_nodes=(node("/dev/null"),))
    assert made["linux"]["resources"]["devices"] == [allowed, denied, allowed]


def test_the_hosts_dev_may_be_below_another_root():
    host = {"/driver/dev/null": HostNode(type="c", major=1, minor=9, mode=0o600)}
    edits = ContainerEdits(device_nodes=(node("/dev/null"), node("/dev/null")))
    made = inject({}, edits, lstat=host.get, dev_root="/driver")
    assert made["linux"]["devices"][0] == {"path": "/dev/null", "type": "c", "major": 1, "minor": 9, "fileMode": 0o600}
    assert host_paths(edits, dev_root="/driver/") == ("/driver/dev/null",)
    assert host_paths(edits) == ("/dev/null",)


def test_a_stage_that_nobody_validated_is_refused():
    (problem,) = refusal(injected, {}, hooks=(Hook(hook_name="prestop", path="/h"),))
    assert problem.reason == "UnknownHookStage"


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"process": []}, "process"),
        ({"process": {"env": {}}}, "process.env"),
        ({"linux": "x"}, "linux"),
        ({"linux": {"devices": {}}}, "linux.devices"),
        ({"linux": {"resources": {"devices": 5}}}, "linux.resources.devices"),
        ({"linux": {"netDevices": []}}, "linux.netDevices"),
        ({"mounts": {}}, "mounts"),
        ({"hooks": []}, "hooks"),
        ({"hooks": {"poststop": {}}}, "hooks.poststop"),
        ({"process": {"user": []}}, "process.user"),
    ],
)
def test_a_document_that_is_none_is_told(document, path):
    (problem,) = refusal(inject, document, EVERYTHING, lstat=HOST.get)
    assert (problem.reason, problem.path) == ("BadOciDocument", path)


def test_null_in_a_document_is_absence():
    document = {"process": None, "linux": None, "mounts": None, "hooks": None}
    assert inject(document, EVERYTHING, lstat=HOST.get) == inject({}, EVERYTHING, lstat=HOST.get)


def test_what_a_document_has_besides_is_kept():
    document = {"ociVersion": "1.2.0", "x": {"y": [1]}, "process": {"args": ["a"]}}
    made = inject(document, EVERYTHING, lstat=HOST.get)
    assert (made["x"], made["process"]["args"], made["ociVersion"]) == ({"y": [1]}, ["a"], "1.2.0")
    made["x"]["y"].append(2)
    assert document["x"] == {"y": [1]}


EVERYTHING = ContainerEdits(
    env=("A=b",),
    device_nodes=(node("/dev/null"),),
    net_devices=(NetDevice(host_interface_name="e0", name="n0"),),
    hooks=(Hook(hook_name="poststop", path="/h"),),
    mounts=(mount("/x"),),
    intel_rdt=IntelRdt(clos_id="a"),
    additional_gids=(5,),
)
