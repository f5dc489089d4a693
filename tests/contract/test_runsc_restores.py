"""Restores, held against the model, the fake program and the real binary."""

from tests.contract.benches import COUNT, DEFAULT_OVERLAY
from tests.contract.faces import on
from tests.contract.images import LIMBO, goes_on, restored, saved

# ------------------------------------------------------------------------------------------------------------ restores

CRI = "io.kubernetes.cri"


def test_an_actor_goes_on_where_it_was_saved_under_other_ids(face):
    @on(face)
    async def _(bench):
        image, count = await saved(bench)
        fresh = bench.elsewhere("s2")
        for name, called in (("s2", "pause"), ("y", "c2"), ("x", "c1")):
            assert (await fresh.restore(name, image, called=called)).code == 0
        lines = await fresh.counted("x", 3)
        assert goes_on(lines, count)
        assert int(await bench.files.read(fresh.pid_file("y"), limit_bytes=32)) == await fresh.pid()


def test_an_image_that_was_taken_while_frozen_restores_running(face):
    @on(face)
    async def _(bench):
        image, _ = await saved(bench)
        fresh = await restored(bench, image, "c1", "c2")
        assert await fresh.statuses("s2", "c1", "c2") == ["running"] * 3
        assert (await fresh.run("exec", "c1", "true")).code == 0


def test_a_flate_image_restores_too(face):
    @on(face)
    async def _(bench):
        image, count = await saved(bench, compression="flate-best-speed")
        fresh = await restored(bench, image, "c1", "c2")
        assert goes_on(await fresh.counted("c1", 3), count)


def test_nothing_happens_before_the_last_container_and_until_then_all_say_that_they_run(face):
    @on(face)
    async def _(bench):
        image, _ = await saved(bench)
        fresh = await restored(bench, image, "c1")
        assert await fresh.statuses("s2", "c1") == ["running", "running"]
        assert await fresh.fails("exec", "c1", "true") == LIMBO
        assert "no such process with PID 0" in await fresh.fails("kill", "c1", "TERM")
        await fresh.blocks("wait", "c1")
        assert len((await fresh.ok("ps", "c1")).stdout.splitlines()) == 1
        assert await fresh.lines("c1") == []
        useless = await fresh.save("useless")
        assert await fresh.names(useless)
        assert (await fresh.restore("c2", image)).code == 0
        await fresh.counted("c1", 1)


def test_the_image_path_of_a_sub_container_does_not_matter(face):
    @on(face)
    async def _(bench):
        image, count = await saved(bench)
        fresh = await restored(bench, image)
        for name in ("c1", "c2"):
            assert (await fresh.restore(name, bench.directory / "nowhere")).code == 0
        assert goes_on(await fresh.counted("c1", 3), count)


def test_a_restore_of_what_was_created_before_keeps_it_when_it_fails(face):
    @on(face)
    async def _(bench):
        image, _ = await saved(bench)
        fresh = bench.elsewhere("s2")
        await fresh.create("s2", "sleep", "10000", called="pause")
        assert (await fresh.restore("s2", bench.directory / "nowhere")).code == 128
        assert await fresh.status("s2") == "created"
        assert (await fresh.restore("s2", image)).code == 0
        again = await fresh.restore("s2", image)
        assert again.error == 'starting container: cannot restore container "s2" in state running'


def test_a_restore_needs_its_root_first_an_image_and_known_flags(face):
    @on(face)
    async def _(bench):
        image, _ = await saved(bench)
        fresh = bench.elsewhere("s2")
        assert "cannot load sandbox" in (await fresh.restore("c1", image)).error
        bundle = await fresh.bundle("s2", "sleep", "1000")
        assert await fresh.fails("restore", f"--bundle={bundle}", "--detach", "s2") == (
            "image-path flag must be provided"
        )
        said = await fresh.run("restore", f"--bundle={bundle}", f"--image-path={image}", "--background", "s2")
        assert (said.code, said.log) == (128, ())
        state = f"{bench.directory}/nowhere/checkpoint.img"
        said = await fresh.restore("s2", bench.directory / "nowhere", called="pause")
        assert said.error == (
            f'starting container: opening state file "{state}" failed: open {state}: no such file or directory'
        )
        assert not [name for name in await fresh.names() if not name.endswith(".lock")]


def test_a_name_that_came_already_fails_and_is_taken_back(face):
    @on(face)
    async def _(bench):
        image, _ = await saved(bench)
        fresh = await restored(bench, image, "c1")
        error = (await fresh.restore("cx", image, called="c1")).error
        assert error.endswith('container "c1" already restored')
        assert await fresh.fails("state", "cx") == "loading container: file does not exist"
        assert await fresh.statuses("s2", "c1") == ["running", "running"]


def test_a_name_that_the_image_does_not_have_fails_the_last_restore_and_the_others_stay_in_limbo(face):
    @on(face)
    async def _(bench):
        image, _ = await saved(bench)
        fresh = await restored(bench, image, "c1")
        error = (await fresh.restore("cx", image, called="other")).error
        assert "no host FD available for c2:host:" in error
        assert await fresh.fails("state", "cx") == "loading container: file does not exist"
        assert await fresh.statuses("s2", "c1") == ["running", "running"]
        assert await fresh.fails("exec", "c1", "true") == LIMBO


def test_one_container_more_than_the_image_has_is_refused_and_the_rest_run(face):
    @on(face)
    async def _(bench):
        image, _ = await saved(bench)
        fresh = await restored(bench, image, "c1", "c2")
        error = (await fresh.restore("c3", image)).error
        assert error.endswith("sandbox is not being restored, cannot restore subcontainer")
        assert (await fresh.run("exec", "c1", "true")).code == 0


def test_other_arguments_environment_and_mounts_are_tolerated_and_the_old_ones_count(face):
    @on(face)
    async def _(bench):
        image, count = await saved(bench)
        fresh = await restored(bench, image)
        other = {"process": {"env": ["PATH=/bin", "X=1"]}, "hostname": "other"}
        assert (await fresh.restore("c1", image, "sleep", "1", **other)).code == 0
        assert (await fresh.restore("c2", image)).code == 0
        assert goes_on(await fresh.counted("c1", 3), count)


def test_an_image_with_memory_files_of_containers_does_not_restore_under_another_overlay(face):
    @on(face)
    async def _(bench):
        flags, bench.flags = bench.flags, DEFAULT_OVERLAY
        roots = {name: {"root": {"path": await bench.own_rootfs(name)}} for name in ("sb", "c1")}
        await bench.start("sb", "sleep", "10000", **roots["sb"])
        await bench.start("c1", "sh", "-c", COUNT, **roots["c1"])
        image = await bench.save()
        fresh = bench.elsewhere("s2", flags=flags)
        assert (await fresh.restore("s2", image, called="pause", **roots["sb"])).code == 0
        error = (await fresh.restore("c1", image, **roots["c1"])).error
        assert "emory file" in error


def test_between_overlays_without_such_files_it_does(face):
    @on(face)
    async def _(bench):
        image, count = await saved(bench)
        fresh = bench.elsewhere("s2", flags=(*bench.flags, "--overlay2=none"))
        for name in ("s2", "c1", "c2"):
            assert (await fresh.restore(name, image, called="pause" if name == "s2" else name)).code == 0
        assert goes_on(await fresh.counted("c1", 3), count)


def test_on_another_platform_every_restore_succeeds_and_then_the_applications_crash(face):
    @on(face)
    async def _(bench):
        image, _ = await saved(bench)
        bench.flags = (*bench.flags, "--platform=ptrace")
        fresh = await restored(bench, image, "c1", "c2")
        for name in ("c1", "c2"):
            assert (await fresh.ok("wait", name)).document()["exitStatus"] == 139
        assert await fresh.status("s2") == "running"


def test_without_names_containers_are_told_apart_by_their_order_and_swapped_by_another_one(face):
    @on(face)
    async def _(bench):
        def nameless(of):
            kind = "container-type"
            sub = {f"{CRI}.{kind}": "container", f"{CRI}.sandbox-id": of}
            return {f"{CRI}.{kind}": "sandbox"}, sub

        root, sub = nameless("sb")
        await bench.start("sb", "sleep", "10000", annotations=root)
        await bench.start("c1", "sh", "-c", COUNT, annotations=sub)
        await bench.start("c2", "sh", "-c", COUNT.replace("i=0", "i=1000"), annotations=sub)
        await bench.counted("c1", 1)
        await bench.counted("c2", 1)
        image = await bench.save(leave=False)
        fresh = bench.elsewhere("s2")
        root, sub = nameless("s2")
        assert (await fresh.restore("s2", image, annotations=root)).code == 0
        for name in ("c2", "c1"):
            assert (await fresh.restore(name, image, annotations=sub)).code == 0
        assert int((await fresh.counted("c1", 1))[0]) >= 1000
        assert int((await fresh.counted("c2", 1))[0]) < 1000


def test_the_source_of_a_bind_mount_must_be_there(face):
    @on(face)
    async def _(bench):
        source = bench.directory / "source"
        await bench.files.make_directory(source)
        proc = {"destination": "/proc", "type": "proc", "source": "proc"}
        data = {"destination": "/data", "type": "bind", "source": str(source), "options": ["rbind"]}
        await bench.up()
        await bench.start("c1", "sh", "-c", COUNT, mounts=[proc, data])
        image = await bench.save(leave=False)
        await bench.files.remove_tree(source)
        fresh = await restored(bench, image)
        error = (await fresh.restore("c1", image, mounts=[proc, data])).error
        assert error.startswith("starting container: reading mounts file: ")
        assert await fresh.fails("state", "c1") == "loading container: file does not exist"
