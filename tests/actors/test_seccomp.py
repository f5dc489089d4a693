"""The filter that lets no container of an actor with a claim make a device node."""

import copy
import stat
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.bundle.capabilities import Claims
from actors.bundle.seccomp import DEVICE_KINDS, FLAG, S_IFMT, confined, faults_of, flags_for, without_device_nodes

CALLS = {"mknod": 1, "mknodat": 2}
STRENGTH = ["SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO", "SCMP_ACT_TRAP", "SCMP_ACT_KILL", "SCMP_ACT_KILL_PROCESS"]
KINDS = {"fifo": stat.S_IFIFO, "file": stat.S_IFREG, "socket": stat.S_IFSOCK, "nothing": 0}


def said(profile, call, mode):
    """What a profile says of a call, by the rules of the specification; the first that fits."""
    for rule in profile.get("syscalls") or []:
        if call in rule["names"] and all(
            each["op"] == "SCMP_CMP_MASKED_EQ"
            and each["index"] == CALLS[call]
            # The mode is 32 bits of a register, and whatever the caller left in it besides.
            and mode & each["value"] == each["valueTwo"]
            for each in rule.get("args") or []
        ):
            return rule["action"]
    return profile["defaultAction"]


ACTION = st.sampled_from(STRENGTH)
RULE = st.fixed_dictionaries(
    {
        "names": st.lists(st.sampled_from(["mknod", "mknodat", "open", "mount"])),
        "action": ACTION,
        "args": st.just([])
        | st.builds(
            lambda index, kind: [{"index": index, "value": S_IFMT, "valueTwo": kind, "op": "SCMP_CMP_MASKED_EQ"}],
            st.sampled_from([1, 2]),
            st.sampled_from([*DEVICE_KINDS, *KINDS.values()]),
        ),
    }
)
PROFILE = st.fixed_dictionaries({"defaultAction": ACTION, "syscalls": st.lists(RULE)})


def test_the_constants_are_those_of_the_kernel():
    assert stat.S_IFMT(0o177777) == S_IFMT
    assert DEVICE_KINDS == (stat.S_IFCHR, stat.S_IFBLK)


def test_only_an_actor_with_a_claim_is_confined():
    linux: dict[str, Any] = {"namespaces": []}
    assert confined(linux, Claims.NONE) is linux
    assert flags_for(Claims.NONE) == ()
    assert confined(linux, Claims.DEVICES) == {**linux, "seccomp": without_device_nodes(None)}
    assert flags_for(Claims.DEVICES) == (FLAG,)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("bits", [0, 0o777, 0o7777, 0xFFFF_0000])
def test_device_nodes_are_refused_and_everything_else_is_made_as_ever(call, bits):
    profile = without_device_nodes(None)
    assert {said(profile, call, kind | bits) for kind in DEVICE_KINDS} == {"SCMP_ACT_ERRNO"}
    assert {said(profile, call, kind | bits) for kind in KINDS.values()} == {"SCMP_ACT_ALLOW"}


@given(PROFILE)
def test_a_given_profile_is_nowhere_weaker_and_for_device_nodes_never_allows(profile):
    before = copy.deepcopy(profile)
    ours = without_device_nodes(profile)
    assert profile == before
    for call in CALLS:
        for kind in DEVICE_KINDS:
            assert STRENGTH.index(said(ours, call, kind)) >= max(1, STRENGTH.index(said(profile, call, kind)))
        for kind in KINDS.values():
            assert said(ours, call, kind) == said(profile, call, kind)
    assert said(ours, "open", 0) == said(profile, "open", 0) if "open" in CALLS else True
    assert ours["syscalls"][4:] == profile["syscalls"]


def test_what_else_a_profile_says_stays():
    given_ = {"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 38, "architectures": ["SCMP_ARCH_X86_64"]}
    ours = without_device_nodes(given_)
    assert {key: value for key, value in ours.items() if key != "syscalls"} == given_


@pytest.mark.parametrize(
    "profile", [None, {}, {"defaultAction": None, "syscalls": None}, {"syscalls": [{"names": None, "action": None}]}]
)
def test_what_is_absent_is_no_fault(profile):
    assert list(faults_of(profile, "$.x")) == []
    if profile is not None:
        without_device_nodes(profile)


@pytest.mark.parametrize(
    ("profile", "path"),
    [
        ([], "$.x"),
        ("no", "$.x"),
        ({"defaultAction": 1}, "$.x.defaultAction"),
        ({"syscalls": {}}, "$.x.syscalls"),
        ({"syscalls": ["mknod"]}, "$.x.syscalls[0]"),
        ({"syscalls": [{}, {"names": "mknod"}]}, "$.x.syscalls[1].names"),
        ({"syscalls": [{"names": ["mknod", 1]}]}, "$.x.syscalls[0].names"),
        ({"syscalls": [{"action": []}]}, "$.x.syscalls[0].action"),
    ],
)
def test_what_is_read_and_has_another_type_is_named(profile, path):
    assert [found for found, _ in faults_of(profile, "$.x")] == [path]
