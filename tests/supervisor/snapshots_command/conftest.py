"""The place, and `greenroom snapshots` on it."""

import anyio
import pytest

import greenroom
from actors.stores import snapshot_uri, upload
from supervisor.host.composition import open_host_ports
from tests.supervisor.snapshots_command.place import ONE, Place


@pytest.fixture
def place(tmp_path, monkeypatch):
    for name in ("DEV_ROOT", "PROC_ROOT", "DRIVER_ROOT"):
        monkeypatch.setenv(f"GREENROOM_{name}", str(tmp_path / "nowhere"))
    return Place(tmp_path)


@pytest.fixture
def ran(place, capsys):
    def run(*arguments):
        code = greenroom.run(["snapshots", *map(str, arguments), "--state-dir", str(place.state.root)])
        return code, *capsys.readouterr()

    return run


@pytest.fixture(scope="module")
def obstores_threads():
    """They are there before any test begins, and outlive it: no test leaves them."""
    import obstore  # noqa: PLC0415 - only these tests pay for it

    obstore.put(obstore.store.MemoryStore(), "warm", b"")


@pytest.fixture
def stored(obstores_threads, place, tmp_path):
    """The URI of a snapshot that is in a store and not on the worker any more, and the store's."""
    directory = place.snapshot(ONE)
    store = f"file://{tmp_path}/store"
    uri = snapshot_uri(store, "a1", ONE)
    (tmp_path / "store").mkdir()

    async def put() -> None:
        async with open_host_ports(roots=(tmp_path,)) as ports:
            await upload(ports.files, ports.stores, directory, uri)
            await ports.files.remove_tree(directory)

    anyio.run(put)
    return uri, store
