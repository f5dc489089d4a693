"""Specs, files and hosts for tests, small enough to be read beside what is expected of them."""

import json

import attrs

from actors.cdi import CdiError, HostNode, load, read_spec, scan

MINIMAL = {"name": "d", "containerEdits": {"env": ["A=b"]}}


def spec(*devices, version="1.1.0", kind="vv.com/gpu", **more):
    """A spec as a dict; one minimal device when none is given."""
    return {"cdiVersion": version, "kind": kind, "devices": list(devices or [MINIMAL]), **more}


def device(name="d", **edits):
    return {"name": name, "containerEdits": edits}


def data(content):
    return content if isinstance(content, bytes) else json.dumps(content).encode()


def loaded(content):
    return load(text(content), "x.json")


def text(content):
    return content.encode() if isinstance(content, str) else data(content)


def reasons(content):
    """The words of everything that is wrong with a spec; empty when it loads."""
    reading = read_spec(text(content), "x.json")
    assert bool(reading.problems) == (reading.spec is None)
    return [str(problem.reason) for problem in reading.problems]


def problems(content):
    return read_spec(text(content), "x.json").problems


def refusal(function, *args, **kwargs):
    """The problems that a call raises."""
    try:
        function(*args, **kwargs)
    except CdiError as error:
        return error.problems
    raise AssertionError("it was not refused")


@attrs.frozen
class MemoryFiles:
    """Spec files in a dict from path to content; None as content is a directory, an OSError is raised."""

    content: dict[str, object] = attrs.field(factory=dict)
    reads: list[str] = attrs.field(factory=list)

    def list_directory(self, path):
        found = self.content.get(path)
        if isinstance(found, OSError):
            raise found
        names = tuple(name.removeprefix(f"{path}/") for name in self.content if name.startswith(f"{path}/"))
        if not names and path not in self.content:
            raise FileNotFoundError(2, "No such file or directory", path)
        return tuple(name for name in names if "/" not in name)

    def read(self, path, *, limit_bytes):
        self.reads.append(path)
        found = self.content[path]
        if isinstance(found, OSError):
            raise found
        if found is not None and len(text(found)) > limit_bytes:
            raise OSError(27, "File too large", path)
        return None if found is None else text(found)

    def replace(self, path, data):
        self.content[path] = data

    def create(self, path, data):
        if path in self.content:
            raise FileExistsError(17, "File exists", path)
        self.content[path] = data

    def remove(self, path):
        if path not in self.content:
            raise FileNotFoundError(2, "No such file or directory", path)
        del self.content[path]


LOW, HIGH = "/etc/cdi", "/var/run/cdi"


def registry(files, directories=(LOW, HIGH)):
    return scan(MemoryFiles(dict(files)), directories)


HOST = {
    "/dev/null": HostNode(type="c", major=1, minor=3, mode=0o666),
    "/dev/zero": HostNode(type="c", major=1, minor=5, mode=0o666),
    "/dev/loop0": HostNode(type="b", major=7, minor=0, mode=0o660),
    "/dev/fifo": HostNode(type="p", mode=0o600),
    "/dev/stdin": HostNode(type=""),
    "/etc/passwd": HostNode(type=""),
}
"""A host's nodes; what is not here is not there."""
