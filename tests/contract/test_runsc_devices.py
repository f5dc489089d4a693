"""Device nodes, who makes them and what a filter does about it: on the model, the fake program and the real binary."""

import pytest

from actors.bundle.seccomp import FLAG, without_device_nodes
from actors.runsc.nvproxy import ANNOTATION, parse_drivers
from sim.world.runsc.settings import DRIVERS_OF, Flavour
from tests.contract.faces import on
from tests.contract.images import restored

NAMESPACES = [{"type": kind} for kind in ("pid", "ipc", "uts", "mount", "network")]
ALLOWED = {"names": ["mknod", "mknodat"], "action": "SCMP_ACT_ALLOW"}
REFUSED = {"names": ["mknod", "mknodat"], "action": "SCMP_ACT_ERRNO"}
MAKES = "".join(
    f"mknod /tmp/{{n}}{kind} {kind} {numbers} 2>/dev/null; echo {kind} $?; "
    for kind, numbers in {"c": "195 0", "b": "8 0", "p": ""}.items()
)
STAYS = "exec sleep 1000"


def makes(name):
    return MAKES.format(n=name)


def linux(**more):
    return {"linux": {"namespaces": NAMESPACES, **more}}


def device(path, major, minor):
    return {"path": path, "type": "c", "major": major, "minor": minor, "fileMode": 0o666, "uid": 0, "gid": 0}


async def outcome(bench, name, lines=3):
    return [line.split() for line in (await bench.counted(name, lines))[-lines:]]


REFUSES_DEVICES = [["c", "1"], ["b", "1"], ["p", "0"]]
MAKES_ALL = [["c", "0"], ["b", "0"], ["p", "0"]]


# -------------------------------------------------------------------------------------------------------------- filters


@pytest.mark.parametrize("caps", [[], ["CAP_MKNOD"]])
def test_device_nodes_are_made_without_looking_at_any_capability(face, caps):
    @on(face)
    async def _(bench):
        sets = {"capabilities": dict.fromkeys(("bounding", "effective", "permitted"), caps)}
        await bench.up()
        await bench.start("c1", "sh", "-c", makes("n") + STAYS, process=sets)
        assert await outcome(bench, "c1") == MAKES_ALL


def test_a_filter_counts_only_with_the_flag(face):
    @on(face)
    async def _(bench):
        spec = linux(seccomp=without_device_nodes(None))
        await bench.up()
        await bench.start("c1", "sh", "-c", makes("n") + STAYS, **spec)
        assert await outcome(bench, "c1") == MAKES_ALL

        confined = bench.elsewhere("s2", flags=(*bench.flags, FLAG))
        await confined.up()
        await confined.start("c2", "sh", "-c", makes("n") + STAYS, **spec)
        await confined.start("c3", "sh", "-c", makes("n") + STAYS)
        assert await outcome(confined, "c2") == REFUSES_DEVICES
        assert await outcome(confined, "c3") == MAKES_ALL


@pytest.mark.parametrize(
    ("rules", "expected"),
    [([ALLOWED, REFUSED], MAKES_ALL), ([REFUSED, ALLOWED], [["c", "1"], ["b", "1"], ["p", "1"]])],
)
def test_of_several_rules_the_first_that_fits_counts(face, rules, expected):
    @on(face)
    async def _(bench):
        bench.flags = (*bench.flags, FLAG)
        profile = {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules}
        await bench.up()
        await bench.start("c1", "sh", "-c", makes("n") + STAYS, **linux(seccomp=profile))
        assert await outcome(bench, "c1") == expected


def test_what_is_said_of_other_machines_and_their_calls_is_passed_over(face):
    @on(face)
    async def _(bench):
        bench.flags = (*bench.flags, FLAG)
        unknown = {"names": ["no_such_call"], "action": "SCMP_ACT_ERRNO"}
        profile = {"defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_S390X"], "syscalls": [unknown]}
        await bench.up()
        await bench.start("c1", "sh", "-c", makes("n") + STAYS, **linux(seccomp=without_device_nodes(profile)))
        assert await outcome(bench, "c1") == REFUSES_DEVICES


@pytest.mark.parametrize(
    ("profile", "why"),
    [
        (
            {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mknod"], "action": "SCMP_ACT_KILL_PROCESS"}]},
            "invalid seccomp rules: invalid action: SCMP_ACT_KILL_PROCESS",
        ),
        ({}, "secomp default action: invalid action:"),
    ],
)
def test_a_filter_that_cannot_be_built_fails_the_start(face, profile, why):
    @on(face)
    async def _(bench):
        bench.flags = (*bench.flags, FLAG)
        await bench.up()
        await bench.create("c1", "sh", "-c", STAYS, **linux(seccomp=profile))
        error = await bench.fails("start", "c1")
        assert error == f"starting container: starting sub-container [sh -c {STAYS}]: building seccomp program: {why}"


def test_no_annotation_of_a_bundle_takes_the_filters_away(face):
    @on(face)
    async def _(bench):
        bench.flags = (*bench.flags, FLAG)
        await bench.up()
        for value in ("false", "0"):
            annotations = {
                "io.kubernetes.cri.container-type": "container",
                "io.kubernetes.cri.sandbox-id": "sb",
                "dev.gvisor.flag.oci-seccomp": value,
            }
            bundle = await bench.bundle("c1", "sleep", "1000", annotations=annotations)
            assert await bench.fails("create", f"--bundle={bundle}", "c1") == (
                f'reading spec: error setting flag oci-seccomp="{value}": '
                'disabling "oci-seccomp" requires flag "allow-flag-override" to be enabled'
            )


def test_what_is_executed_in_a_container_has_no_filter_and_its_node_stays_there(face):
    @on(face)
    async def _(bench):
        bench.flags = (*bench.flags, FLAG)
        spec = linux(seccomp=without_device_nodes(None))
        await bench.up()
        await bench.start("c1", "sh", "-c", makes("n") + STAYS, **spec)
        assert await outcome(bench, "c1") == REFUSES_DEVICES
        said = await bench.ok("exec", "c1", "sh", "-c", makes("x"))
        assert [line.split() for line in said.stdout.splitlines()] == MAKES_ALL
        assert (await bench.run("exec", "c1", "sh", "-c", "test -e /tmp/xc")).code == 0


SLOWLY = "i=0; while :; do mknod /tmp/n c 195 0 2>/dev/null; echo $i $?; i=$((i+1)); sleep 0.02; done"


@pytest.mark.parametrize("flags", [(FLAG,), ()], ids=["the flag", "no flag"])
def test_a_filter_is_part_of_the_image_whatever_the_restore_says(face, flags):
    @on(face)
    async def _(bench):
        without = bench.flags
        bench.flags = (*without, FLAG)
        await bench.up()
        await bench.start("c1", "sh", "-c", SLOWLY, **linux(seccomp=without_device_nodes(None)))
        await bench.counted("c1", 3)
        image = await bench.save(leave=False)
        bench.flags = (*without, *flags)
        fresh = await restored(bench, image)
        spec = linux(seccomp=without_device_nodes(None)) if flags else {}
        assert (await fresh.restore("c1", image, **spec)).code == 0
        lines = await fresh.counted("c1", 3)
        assert {line.split()[1] for line in lines} == {"1"}


# -------------------------------------------------------------------------------------------------------------- devices

LOOKS = "".join(f"test -e /dev/{name} && echo {name}; " for name in ("nvidia0", "nvidia3", "nvidia-uvm", "nvidiactl"))


def test_each_container_has_exactly_the_devices_of_its_own_spec_and_without_a_driver_none_can_be_opened(face):
    @on(face)
    async def _(bench):
        mine = [device("/dev/nvidia3", 195, 3), device("/dev/nvidiactl", 195, 255), device("/dev/nvidia-uvm", 510, 0)]
        opens = "cat /dev/nvidia3; cat /dev/nvidiactl; cat /dev/nvidia-uvm; cat /dev/nvidia0; echo end; "
        await bench.up()
        await bench.start("c1", "sh", "-c", LOOKS + opens + STAYS, **linux(devices=mine))
        await bench.start("c2", "sh", "-c", LOOKS + "echo end; " + STAYS)
        assert await bench.counted("c1", 8) == [
            "nvidia3",
            "nvidia-uvm",
            "nvidiactl",
            *(
                f"cat: can't open '/dev/{name}': No such device or address"
                for name in ("nvidia3", "nvidiactl", "nvidia-uvm")
            ),
            "cat: can't open '/dev/nvidia0': No such file or directory",
            "end",
        ]
        assert await bench.counted("c2", 1) == ["end"]


WATCHES = (
    "i=0; while :; do echo $i; test -e /dev/nvidia0 && echo zero; test -e /dev/nvidia3 && echo three; i=$((i+1)); "
    "sleep 0.02; done"
)


def test_after_a_restore_on_other_devices_a_container_has_the_nodes_of_the_image(face):
    @on(face)
    async def _(bench):
        await bench.up()
        await bench.start("c1", "sh", "-c", WATCHES, **linux(devices=[device("/dev/nvidia0", 195, 0)]))
        await bench.counted("c1", 4)
        image = await bench.save(leave=False)
        fresh = await restored(bench, image)
        assert (await fresh.restore("c1", image, **linux(devices=[device("/dev/nvidia3", 195, 3)]))).code == 0
        lines = await fresh.counted("c1", 6)
        assert ("zero" in lines[-4:], "three" in lines) == (True, False)


# -------------------------------------------------------------------------------------------------------------- nvproxy

EOF = "creating container: cannot create sandbox: cannot read client sync file: waiting for sandbox to start: EOF"


def test_the_drivers_that_it_knows_are_listed(face):
    @on(face)
    async def _(bench):
        said = await bench.ok("nvproxy", "list-supported-drivers")
        assert parse_drivers(said.stdout.encode()) == DRIVERS_OF[Flavour.R24]
        assert (await bench.run("nvproxy")).code == 128


def test_a_stand_in_that_cannot_tell_ends_with_an_error(stand_in):
    @on(stand_in)
    async def _(bench):
        bench.runsc = bench.another("release-20250101.0", known_drivers=None)
        assert (await bench.run("nvproxy", "list-supported-drivers")).code == 128


def test_the_annotation_of_the_root_does_what_the_flag_does(face):
    @on(face)
    async def _(bench):
        annotations = {"io.kubernetes.cri.container-type": "sandbox", ANNOTATION: "true"}
        bundle = await bench.bundle("sb", "sleep", "10000", annotations=annotations)
        assert "failed to get Nvidia driver version" in await bench.fails("create", f"--bundle={bundle}", "sb")
        plain = await bench.bundle("sb", "sleep", "10000")
        await bench.ok("create", f"--bundle={plain}", f"--pid-file={bench.pid_file('sb')}", "sb", output="sb")


def test_a_driver_that_it_does_not_know_is_told_in_the_log_of_create_before_the_end(face):
    @on(face)
    async def _(bench):
        bench.flags = (*bench.flags, "--nvproxy", "--nvproxy-driver-version=1.2.3")
        bundle = await bench.bundle("sb", "sleep", "10000")
        said = await bench.run("create", f"--bundle={bundle}", "sb")
        failing = "creating loader: registering filesystems: registering nvproxy driver"
        assert (said.code, said.log) == (128, (f"{failing}: unsupported Nvidia driver version: 01.02.03", EOF))
        assert said.stderr.strip() == EOF


def test_a_driver_that_stand_ins_find_here_and_do_not_know_is_told_the_same_way(stand_in):
    @on(stand_in)
    async def _(bench):
        bench.runsc = bench.another("0.0~20240729.0", has_nvidia_driver=True, nvidia_driver="580.65.06")
        bench.flags = (*bench.flags, "--nvproxy=true")
        bundle = await bench.bundle("sb", "sleep", "10000")
        assert (
            "unsupported Nvidia driver version: 580.65.06"
            in (await bench.run("create", f"--bundle={bundle}", "sb")).raw_log
        )
