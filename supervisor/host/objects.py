"""What is done with the objects of a store. Everything here blocks, and is called in a thread.

Source: obstore 0.12.1. Measured: what an iterator gives is sent in parts of 5 MiB, the smallest that S3 takes, and one
part is held in memory; of a file-like object three are. An error of the iterator comes out as it is, and the upload is
given up. What a panic of its own raises is no Exception.
"""

from __future__ import annotations

import errno
import os
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
from blake3 import blake3

from actors.ports import OBJECTS_MAX, StoredObject, StoreError, TooLargeError
from supervisor.host import reading
from supervisor.host.local_parts import (
    PIECE_BYTES,
    Caller,
    GivenUpError,
    LocalPart,
    make_directories,
    open_to_read,
    open_to_write,
    pieces_of,
    sync,
    write_all,
)
from supervisor.host.obstores import said_by

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from obstore import GetResult
    from obstore.store import ObjectStore

    from actors.stores.uris import StoreUri
    from supervisor.host.beneath import Beneath
    from supervisor.host.obstores import ObjectStores

_PART_BYTES: Final = 5 << 20
_GONE: Final = "there is no such object"


@attrs.frozen(kw_only=True)
class Objects:
    """The objects below a store's URI.

    Attributes:
        uri: the store's.
        env: the environment.
        stores: obstore's.
    """

    uri: StoreUri
    env: Mapping[str, str] = attrs.field(repr=False)
    stores: ObjectStores

    def put(self, _caller: Caller, key: str, data: bytes) -> None:
        """Put a small object."""
        import obstore  # noqa: PLC0415 - only who has a store pays for it

        with self._named(key), self._lasting(key):
            obstore.put(self._store(), self._path(key), data, use_multipart=False)

    def put_part_of(self, caller: Caller, key: str, part: LocalPart) -> str:
        """Put a part of a file, one piece after the other; returns the BLAKE3 of what was sent."""
        import obstore  # noqa: PLC0415 - as above

        hasher = blake3()
        with open_to_read(part.path) as fd, self._named(key), self._lasting(key):
            pieces = _hashed(pieces_of(caller, fd, part), hasher)
            if part.size_bytes <= _PART_BYTES:
                obstore.put(self._store(), self._path(key), b"".join(pieces), use_multipart=False)
            else:
                obstore.put(
                    self._store(),
                    self._path(key),
                    pieces,
                    use_multipart=True,
                    chunk_size=_PART_BYTES,
                    max_concurrency=1,
                )
        return hasher.hexdigest()

    def get(self, _caller: Caller, key: str, limit_bytes: int) -> bytes:
        """A small object. One of a directory is read as any file: whoever looks at a file: URI needs no obstore."""
        if self._directory is not None:
            return self._read(key, limit_bytes)
        with self._named(key):
            found = self._find(key)
            is_small = found.meta["size"] <= limit_bytes
            data = bytes(found.bytes()) if is_small else b""
            del found  # as in `_sized`
            if not is_small:
                raise TooLargeError(errno.EFBIG, f"larger than {limit_bytes} bytes", self._name(key))
            return data

    def get_into(self, caller: Caller, key: str, part: LocalPart, beneath: Beneath) -> str:
        """Write an object into a file; returns the BLAKE3 of what was written."""
        hasher = blake3()
        with self._named(key), closing(self._sized(key, part.size_bytes)) as pieces:
            next(pieces)
            with open_to_write(beneath, part.path) as fd:
                at_bytes = part.offset_bytes
                for piece in pieces:
                    caller.do(write_all, fd, piece, at_bytes)
                    hasher.update(piece)
                    at_bytes += len(piece)
        return hasher.hexdigest()

    def digest(self, caller: Caller, key: str, size_bytes: int) -> str:
        """The BLAKE3 of an object."""
        hasher = blake3()
        with self._named(key), closing(self._sized(key, size_bytes)) as pieces:
            for piece in pieces:
                caller.require()
                hasher.update(piece)
        return hasher.hexdigest()

    def list(self, caller: Caller, prefix: str) -> tuple[StoredObject, ...]:
        """Every object below these names, by key."""
        import obstore  # noqa: PLC0415 - as above

        found: list[StoredObject] = []
        with self._named(prefix):
            if self._is_absent():
                return ()
            for batch in obstore.list(self._store(), self._path(prefix) or None):
                caller.require()
                found += [StoredObject(key=self._key(each["path"]), size_bytes=each["size"]) for each in batch]
                if len(found) > OBJECTS_MAX:
                    raise StoreError(errno.EOVERFLOW, f"more than {OBJECTS_MAX} objects", self._name(prefix))
        return tuple(sorted(found, key=lambda each: each.key))

    def remove(self, _caller: Caller, key: str) -> None:
        """Remove an object; one that is absent is no error."""
        import obstore  # noqa: PLC0415 - as above

        with self._named(key):
            if not self._is_absent():
                with suppress(FileNotFoundError):
                    obstore.delete(self._store(), self._path(key))

    # ---- reading

    def _read(self, key: str, limit_bytes: int) -> bytes:
        try:
            return reading.read(Path(f"{self._directory}/{key}"), limit_bytes)
        except TooLargeError:
            raise
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFoundError(errno.ENOENT, _GONE, self._name(key)) from None
        except OSError as error:
            raise StoreError(error.errno, error.strerror, self._name(key)) from error

    def _find(self, key: str) -> GetResult:
        import obstore  # noqa: PLC0415 - as above

        try:
            if not self._is_absent():
                return obstore.get(self._store(), self._path(key))
        except FileNotFoundError:
            pass
        raise FileNotFoundError(errno.ENOENT, _GONE, self._name(key))

    def _sized(self, key: str, size_bytes: int) -> Generator[bytes, None, None]:
        """An object of just this size, in pieces; the first is empty, and comes when the size is known to be right.

        What obstore found is let go in any case: it holds a file or a connection, and an error would keep it.

        Raises:
            StoreError: it has another size, or ends before.
        """
        found = self._find(key)
        try:
            there_bytes, left_bytes = found.meta["size"], size_bytes
            if there_bytes == size_bytes:
                yield b""
                for piece in found.stream(min_chunk_size=PIECE_BYTES):
                    left_bytes -= len(piece)
                    if left_bytes < 0:
                        break
                    yield piece
        finally:
            del found
        if there_bytes != size_bytes:
            raise StoreError(errno.EIO, f"the object has {there_bytes} bytes, not {size_bytes}", self._name(key))
        if left_bytes:
            raise StoreError(errno.EIO, f"the object was not sent with its {size_bytes} bytes", self._name(key))

    # ---- names

    def _name(self, key: str) -> str:
        return f"{self.uri}/{key}"

    def _path(self, key: str) -> str:
        return "/".join(filter(None, (*self._place, key)))

    def _key(self, path: str) -> str:
        return path.removeprefix("".join(f"{name}/" for name in self._place))

    @property
    def _place(self) -> tuple[str, ...]:
        """Where in obstore's store this one is."""
        match self.uri.scheme:
            case "file":
                return ()
            case "memory":  # in which a bucket is a name like any other
                return tuple(filter(None, (self.uri.bucket, *self.uri.names)))
            case _:
                return self.uri.names

    # ---- the store

    def _store(self) -> ObjectStore:
        return self.stores.find(self.uri)

    @property
    def _directory(self) -> str | None:
        """The directory of a file: store."""
        return f"/{'/'.join(self.uri.names)}" if self.uri.scheme == "file" else None

    def _is_absent(self) -> bool:
        """Whether it is a directory that was not made yet: nothing is in it."""
        return self._directory is not None and not os.path.isdir(self._directory)

    @contextmanager
    def _lasting(self, key: str) -> Iterator[None]:
        """Put something that lasts. A service sees to that; a directory has to be told.

        obstore makes directories and files as the umask has it. What a sandbox had in its memory is for nobody else to
        read, so that the directories are made by us.
        """
        if self._directory is None:
            yield
            return
        path = f"{self._directory}/{key}"
        with self._of_the_store(key):
            make_directories(os.path.dirname(path))
        yield
        with self._of_the_store(key):
            sync(path)
            sync(os.path.dirname(path))

    @contextmanager
    def _of_the_store(self, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(error.errno, error.strerror, self._name(key)) from error

    @contextmanager
    def _named(self, key: str) -> Iterator[None]:
        """What obstore raises becomes an error of the port."""
        try:
            yield
        except (StoreError, TooLargeError, GivenUpError):
            raise
        except FileNotFoundError as error:
            if error.errno is not None:  # ours
                raise
            # Of a put: there is no bucket.
            raise StoreError(errno.ENOENT, said_by(error, self.env), self._name(key)) from None
        except OSError as error:
            if error.errno is not None:  # a local file's
                raise
            raise StoreError(errno.EIO, said_by(error, self.env), self._name(key)) from None
        except Exception as error:  # noqa: BLE001 - obstore's own; from None: the cause repeats what it says, and more
            raise StoreError(errno.EIO, said_by(error, self.env), self._name(key)) from None
        except BaseException as error:
            if type(error).__module__ != "pyo3_runtime":
                raise
            raise StoreError(errno.EIO, f"obstore broke down: {said_by(error, self.env)}", self._name(key)) from None


def _hashed(pieces: Iterator[bytes], hasher: blake3) -> Iterator[bytes]:
    for piece in pieces:
        hasher.update(piece)
        yield piece
