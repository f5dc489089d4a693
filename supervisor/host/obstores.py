"""obstore's own stores, made from a URI and the environment, and what their errors mean.

obstore is imported when the first store is made: nobody pays for it who has none. Credentials and endpoints are its own
business, which it finds in the environment (`AWS_…`, `GOOGLE_…`, `AZURE_…`); none of them is kept or told by us.

Source: obstore 0.12.1. Measured: an error's text has a first paragraph for people and then the source of the error;
options of the client that are given replace all that the environment says, so that `AWS_ALLOW_HTTP` is looked up here;
to make a store takes 9 ms, and it has connections and credentials of its own.
"""

from __future__ import annotations

import errno
import re
import threading
from collections import OrderedDict
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import attrs

from actors.ports import StoreError
from statemachine.secrecy import secrets_by_name, without_secrets, without_tokens

if TYPE_CHECKING:
    from collections.abc import Mapping

    from obstore.store import ClientConfig, ObjectStore, RetryConfig

    from actors.stores.uris import StoreUri

CONNECT_S: Final = 5.0
STALLED_S: Final = 20.0
"""A request in which nothing comes for so long has failed: so nobody who has left holds a thread for longer."""
REQUEST_S: Final = 600.0
RETRIES_MAX: Final = 3
RETRYING_S: Final = 10.0
"""After that nothing is tried again inside a call; whoever called decides."""

_ENDPOINTS: Final = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
_ALLOW_HTTP: Final = {"s3": "AWS_ALLOW_HTTP", "gs": "GOOGLE_ALLOW_HTTP", "az": "AZURE_ALLOW_HTTP"}
_CODE: Final = re.compile(r"<Code>([^<]*)</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<]*)</Message>")
_QUERY: Final = re.compile(r"\?[^\s\"')]*")
_EFFORT: Final = re.compile(
    r" in [\d.]+(?:ns|µs|ms|s)\b(?:, after \d+ retries)?(?:, max_retries: \d+)?(?:, retry_timeout: [\w.]+)?"
)
_TEXT_CHARACTERS_MAX: Final = 400
_KEPT_MAX: Final = 8


class ObjectStores:
    """obstore's stores: one for all that is in a bucket, each made when first asked for, a few of them kept.

    Args:
        env: the environment.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self._lock = threading.Lock()
        self._kept: OrderedDict[StoreUri, ObjectStore] = OrderedDict()
        self._memory: ObjectStore | None = None

    def find(self, uri: StoreUri) -> ObjectStore:
        """The one in which a URI lies: in a directory below it, else below its names.

        Raises:
            StoreError: the environment does not say enough to reach it.
        """
        if uri.scheme == "memory":
            return self._in_memory()
        bucket = uri if uri.scheme == "file" else attrs.evolve(uri, names=())
        with self._lock:
            found = self._kept.pop(bucket, None) or make_store(bucket, self._env)
            self._kept[bucket] = found
            while len(self._kept) > _KEPT_MAX:
                self._kept.popitem(last=False)
            return found

    def _in_memory(self) -> ObjectStore:
        """The one store in this process's memory, which is never let go: what lies in it would be lost."""
        from obstore.store import MemoryStore  # noqa: PLC0415 - as the module says

        with self._lock:
            self._memory = self._memory or MemoryStore()
            return self._memory

    def let_go(self) -> None:
        """Let go of those that are kept, and of their connections once nobody uses them."""
        with self._lock:
            self._kept.clear()


def make_store(uri: StoreUri, env: Mapping[str, str]) -> ObjectStore:
    """The store of a bucket or a directory.

    Raises:
        StoreError: the environment does not say enough to reach it.
    """
    from obstore.store import AzureStore, GCSStore, LocalStore, S3Store  # noqa: PLC0415 - as the module says

    options, retries = _client_options(uri.scheme, env), _retry_config()
    try:
        match uri.scheme:
            case "s3":
                return S3Store(uri.bucket, client_options=options, retry_config=retries)
            case "gs":
                return GCSStore(uri.bucket, client_options=options, retry_config=retries)
            case "az":
                return AzureStore(uri.bucket, client_options=options, retry_config=retries)
            case _:
                return LocalStore(f"/{'/'.join(uri.names)}")
    except Exception as error:  # noqa: BLE001 - obstore's own errors, and ValueError for what it finds in a variable
        raise StoreError(errno.EINVAL, said_by(error, env), str(uri)) from None


def said_by(error: BaseException, env: Mapping[str, str]) -> str:
    """What an error of obstore says, in one line and without secrets.

    Nor how long it took and how often it was tried: what fails in the same way says the same, and is told once.
    """
    text = str(error).partition("\n\nDebug source:")[0]
    code, message = _CODE.search(text), _MESSAGE.search(text)
    if code is not None:  # an answer of S3: the rest of it repeats what we sent, the key's id with it
        said = message[1].strip().partition("\n")[0] if message else ""  # Azure's goes on with the request's own id
        text = f"{text.partition('<')[0]}{code[1]}: {said}"
    text = _EFFORT.sub("", " ".join(_QUERY.sub("", text).split()))
    text = without_tokens(without_secrets(text, secrets_by_name(env)))
    return text[:_TEXT_CHARACTERS_MAX] or type(error).__name__


def _client_options(scheme: str, env: Mapping[str, str]) -> ClientConfig:
    return {
        "allow_http": _allows_http(scheme, env),
        "connect_timeout": timedelta(seconds=CONNECT_S),
        "read_timeout": timedelta(seconds=STALLED_S),
        "timeout": timedelta(seconds=REQUEST_S),
    }


def _allows_http(scheme: str, env: Mapping[str, str]) -> bool:
    """Who names an endpoint of http: wants it."""
    if env.get(_ALLOW_HTTP.get(scheme, ""), "").lower() in {"1", "true"}:
        return True
    return any(env.get(name, "").startswith("http://") for name in _ENDPOINTS.get(scheme, ()))


def _retry_config() -> RetryConfig:
    return {
        "max_retries": RETRIES_MAX,
        "retry_timeout": timedelta(seconds=RETRYING_S),
        "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=2), "base": 2},
    }
