"""Images that tests of the contract take and restore."""

from tests.contract.benches import COUNT

LIMBO = 'executing processes for container: executing command "true" in sandbox: container "c1" not started'


def goes_on(lines, first=0):
    return lines == [str(first + number) for number in range(len(lines))]


async def saved(bench, **more):
    """An image of two counters, whose sandbox is gone; returns it and where the first will go on."""
    await bench.up(c1=COUNT, c2=COUNT)
    await bench.counted("c1", 3)
    await bench.ok("pause", "sb")
    image = await bench.save(**more)
    count = len(await bench.lines("c1"))
    await bench.kill(await bench.pid())
    return image, count


async def restored(bench, image, *names, sandbox_id="s2"):
    """A fresh root with those restored that are named, all of which must succeed."""
    fresh = bench.elsewhere(sandbox_id)
    for name in (sandbox_id, *names):
        said = await fresh.restore(name, image, called="pause" if name == sandbox_id else name)
        assert said.code == 0, said
    return fresh
