"""What holds for every OCI document and all edits: twice is once, and nobody's document is changed."""

import copy

from hypothesis import example, given
from hypothesis import strategies as st

from actors.cdi import ContainerEdits, DeviceNode, Hook, IntelRdt, Mount, NetDevice, inject
from tests.cdi.making import HOST

NAMES = st.sampled_from("AB")
PATHS = st.sampled_from(["/dev/null", "/dev/zero", "/dev/loop0", "/dev/fifo"])
PLACES = st.sampled_from(["/", "/x", "/x/y", "/x/", "/z", "rel", ""])
NODES = st.builds(
    DeviceNode,
    path=PATHS,
    host_path=st.just("") | PATHS,
    permissions=st.sampled_from(["", "r", "none"]),
    uid=st.none() | st.integers(0, 1),
)
EDITS = st.builds(
    ContainerEdits,
    env=st.lists(st.builds("{}={}".format, NAMES, st.integers(0, 1)), max_size=4).map(tuple),
    device_nodes=st.lists(NODES, max_size=4).map(tuple),
    net_devices=st.lists(
        st.builds(NetDevice, host_interface_name=st.sampled_from("ef"), name=st.sampled_from("gh")), max_size=3
    ).map(tuple),
    hooks=st.lists(
        st.builds(Hook, hook_name=st.sampled_from(["prestart", "poststop"]), path=st.sampled_from("hi")), max_size=4
    ).map(tuple),
    mounts=st.lists(
        st.builds(
            Mount,
            host_path=st.sampled_from("st"),
            container_path=PLACES,
            options=st.lists(st.sampled_from(["bind", "ro", "idmap"]), max_size=2).map(tuple),
        ),
        max_size=4,
    ).map(tuple),
    intel_rdt=st.none() | st.builds(IntelRdt, clos_id=st.sampled_from("ab")),
    additional_gids=st.lists(st.integers(0, 3), max_size=4).map(tuple),
)
TO_NOWHERE = ContainerEdits(mounts=(Mount(host_path="s", container_path=""),))
RULES = st.fixed_dictionaries(
    {"allow": st.booleans(), "type": st.just("c"), "major": st.just(1), "minor": st.sampled_from([3, 5])},
    optional={"access": st.sampled_from(["r", "rwm"])},
)
DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "process": st.fixed_dictionaries(
            {},
            optional={
                "env": st.lists(st.sampled_from(["A", "A=0", "B=1", "C"]), max_size=4),
                "user": st.fixed_dictionaries(
                    {}, optional={"uid": st.integers(0, 2), "additionalGids": st.lists(st.integers(0, 3), max_size=3)}
                ),
            },
        ),
        "linux": st.fixed_dictionaries(
            {},
            optional={
                "devices": st.lists(
                    st.fixed_dictionaries({"path": PATHS, "type": st.just("c"), "major": st.integers(0, 1)}), max_size=4
                ),
                "resources": st.fixed_dictionaries({}, optional={"devices": st.lists(RULES, max_size=4)}),
                "namespaces": st.just([{"type": "user"}]),
            },
        ),
        "mounts": st.lists(st.fixed_dictionaries({"destination": PLACES, "source": st.sampled_from("st")}), max_size=5),
        "hooks": st.fixed_dictionaries({}, optional={"poststop": st.just([{"path": "h"}])}),
    },
)


@given(DOCUMENTS, EDITS)
@example({"mounts": [{"destination": place, "source": "s"} for place in ("", "", "rel")]}, TO_NOWHERE)
def test_an_injection_twice_is_one_and_the_document_is_never_changed(document, edits):
    before = copy.deepcopy(document)
    once = inject(document, edits, lstat=HOST.get)
    assert document == before
    assert inject(once, edits, lstat=HOST.get) == once


@given(DOCUMENTS, EDITS)
def test_nothing_that_is_edited_stands_twice(document, edits):
    made = inject(document, edits, lstat=HOST.get)
    for wanted in edits.device_nodes:
        found = [each for each in made["linux"]["devices"] if each["path"] == wanted.path]
        there = sum(each["path"] == wanted.path for each in document.get("linux", {}).get("devices", []))
        assert len(found) == max(1, there)


@given(DOCUMENTS)
def test_f3_no_edits_change_nothing(document):
    assert inject(document, ContainerEdits(), lstat=HOST.get) == document
