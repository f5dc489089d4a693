"""URIs of stores, and of the snapshots in them: read strictly, because their names become paths and keys."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote, urlsplit

import attrs

SCHEMES: Final = ("s3", "gs", "az", "file", "memory")
"""Amazon S3 and what speaks like it, Google Cloud Storage, Azure Blob Storage, a directory, this process's memory."""

_WITH_BUCKET: Final = frozenset({"s3", "gs", "az"})
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_NAME: Final = re.compile(r"[A-Za-z0-9._~+=@,-]{1,255}")
_URI_CHARACTERS_MAX: Final = 2048


@attrs.frozen(kw_only=True)
class StoreUri:
    """Where a store is.

    Attributes:
        scheme: one of SCHEMES.
        bucket: what the names are below; empty for a directory.
        names: the way there.
    """

    scheme: str
    bucket: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        names = [quote(name, safe="~+=@,", errors="surrogateescape") for name in self.names]
        top = f"{self.scheme}://{self.bucket}"
        return "/".join((top, *names)) if names or self.scheme != "file" else f"{top}/"

    def below(self, *names: str) -> StoreUri:
        """What lies below it under these names."""
        return attrs.evolve(self, names=(*self.names, *names))

    @property
    def above(self) -> StoreUri:
        """What it lies in."""
        return attrs.evolve(self, names=self.names[:-1])


def read_uri(uri: str) -> StoreUri:
    """Read the URI of a store, or of something in it.

    Raises:
        ValueError: it is none, or could be understood in more than one way. The message does not repeat a password.
    """
    if len(uri) > _URI_CHARACTERS_MAX:
        raise ValueError(f"a store's URI has at most {_URI_CHARACTERS_MAX} characters")
    if not uri.isprintable() or " " in uri:  # which urlsplit would pass over
        raise ValueError("a store's URI has no blanks and no control characters")
    parts = urlsplit(uri)
    if parts.scheme not in SCHEMES:
        raise ValueError(f"a store's URI begins with one of {', '.join(f'{scheme}:' for scheme in SCHEMES)}")
    if "@" in parts.netloc or ":" in parts.netloc:
        raise ValueError(
            "a store's URI has neither a user nor a port; credentials and endpoint come from the environment"
        )
    if "?" in uri or "#" in uri:
        raise ValueError("a store's URI has neither a query nor a fragment")
    bucket = "" if parts.scheme == "file" and parts.netloc == "localhost" else parts.netloc
    _check_bucket(parts.scheme, bucket)
    return StoreUri(scheme=parts.scheme, bucket=bucket, names=_names(parts.scheme, parts.path))


def _check_bucket(scheme: str, bucket: str) -> None:
    if scheme == "file" and bucket:
        raise ValueError("a file: URI names no other machine")
    if scheme in _WITH_BUCKET and not bucket:
        raise ValueError(f"a {scheme}: URI names a bucket: {scheme}://BUCKET/NAME")
    if bucket and not _BUCKET.fullmatch(bucket):
        raise ValueError(f"{bucket!r} is no name of a bucket")


def _names(scheme: str, path: str) -> tuple[str, ...]:
    if scheme == "file" and not path.startswith("/"):
        raise ValueError("a file: URI names an absolute path")
    way = path.removeprefix("/").removesuffix("/")
    names = tuple(unquote(name, errors="surrogateescape") for name in way.split("/")) if way else ()
    for name in names:
        if name in {"", ".", ".."} or set(name) & {"/", "\0"} or not (scheme == "file" or _NAME.fullmatch(name)):
            raise ValueError(f"{name!r} is no plain name; letters, digits and ._~+=@,- are")
    return names


def is_plain(name: str) -> bool:
    """Whether a name can be one of a key's."""
    return name not in {".", ".."} and _NAME.fullmatch(name) is not None


def names_of(key: str) -> tuple[str, ...]:
    """The names of a key.

    Raises:
        ValueError: it is none: a name of it is not plain.
    """
    names = tuple(key.split("/"))
    for name in names:
        if not is_plain(name):
            raise ValueError(f"{key!r} is no key: {name!r} is no plain name")
    return names
