"""Every operation of the Files port that reads a path or writes there, by a name that tests show."""

from __future__ import annotations

from typing import Any, Final

from actors.ports import NewDirectory, NewFile

READERS: Final[dict[str, Any]] = {
    "read": lambda files, path: files.read(path, limit_bytes=100),
    "read_from": lambda files, path: files.read_from(path, offset_bytes=0, limit_bytes=100),
    "digest": lambda files, path: files.digest(path),
    "digest_parts": lambda files, path: files.digest_parts(path, part_bytes=64),
    "sha256": lambda files, path: files.sha256(path),
}
TREE: Final = NewDirectory(
    {
        "new": NewFile(b"new"),
        "open": NewDirectory({"run": NewFile(b"run", mode=0o755)}, mode=0o755),
        "bare": NewDirectory(),
    }
)
WRITERS: Final[dict[str, Any]] = {
    "replace": lambda files, path: files.replace(path, b"new"),
    "replace_for_boot": lambda files, path: files.replace_for_boot(path, b"new"),
    "make_links": lambda files, path: files.make_links(path, {"libx.so": "/lib/libx.so.1"}),
    "make_tree": lambda files, path: files.make_tree(path, TREE),
    "append": lambda files, path: files.append(path, b"new"),
    "append_durably": lambda files, path: files.append_durably(path, b"new"),
    "truncate": lambda files, path: files.truncate(path, size_bytes=0),
    "make_directory": lambda files, path: files.make_directory(path),
    "make_volume": lambda files, path: files.make_volume(path),
    "rename from": lambda files, path: files.rename(path, path.with_name("renamed")),
    "rename to": lambda files, path: files.rename(path.with_name("other"), path),
    "remove_file": lambda files, path: files.remove_file(path),
    "remove_tree": lambda files, path: files.remove_tree(path),
    "sync_tree": lambda files, path: files.sync_tree(path),
    "lock": lambda files, path: files.lock(path),
}
