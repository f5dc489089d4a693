"""obstore's own stores, made from a URI and the environment, and what their errors mean.

obstore is imported when the first store is made: nobody pays for it who has none. Credentials and endpoints are its own
business, which it finds in the environment (`AWS_…`, `GOOGLE_…`, `AZURE_…`); none of them is kept or told by us.

Source: obstore 0.12.1. Measured: an error's text has a first paragraph for people and then the source of the error;
options of the client that are given replace all that the environment says, so that `AWS_ALLOW_HTTP` is looked up here.
"""

from __future__ import annotations

import errno
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from actors.ports import StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from obstore.store import ClientConfig, MemoryStore, ObjectStore, RetryConfig

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
_SECRET: Final = re.compile(r"SECRET|TOKEN|KEY|PASSWORD|CREDENTIAL|SAS")
_SECRET_CHARACTERS_MIN: Final = 4
_CODE: Final = re.compile(r"<Code>([^<]*)</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<]*)</Message>")
_QUERY: Final = re.compile(r"\?[^\s\"')]*")
_TEXT_CHARACTERS_MAX: Final = 400


def make_store(uri: StoreUri, env: Mapping[str, str]) -> ObjectStore:
    """The store of a URI, but for memory: ones.

    Raises:
        StoreError: the environment does not say enough to reach it.
    """
    from obstore.store import AzureStore, GCSStore, LocalStore, S3Store  # noqa: PLC0415 - as the module says

    prefix = "/".join(uri.names) or None
    options, retries = _client_options(uri.scheme, env), _retry_config()
    try:
        match uri.scheme:
            case "s3":
                return S3Store(uri.bucket, prefix=prefix, client_options=options, retry_config=retries)
            case "gs":
                return GCSStore(uri.bucket, prefix=prefix, client_options=options, retry_config=retries)
            case "az":
                return AzureStore(uri.bucket, prefix=prefix, client_options=options, retry_config=retries)
            case _:
                return LocalStore(f"/{prefix or ''}")
    except Exception as error:  # noqa: BLE001 - obstore's own errors, and ValueError for what it finds in a variable
        raise StoreError(errno.EINVAL, said_by(error, env), str(uri)) from None


def make_memory_store() -> MemoryStore:
    """A store in this process's memory."""
    from obstore.store import MemoryStore  # noqa: PLC0415 - as the module says

    return MemoryStore()


def said_by(error: BaseException, env: Mapping[str, str]) -> str:
    """What an error of obstore says, in one line and without secrets."""
    text = str(error).partition("\n\nDebug source:")[0]
    code, message = _CODE.search(text), _MESSAGE.search(text)
    if code is not None:  # an answer of S3: the rest of it repeats what we sent, the key's id with it
        text = f"{text.partition('<')[0]}{code[1]}: {message[1] if message else ''}"
    text = " ".join(_QUERY.sub("", text).split())
    for secret in _secrets(env):
        text = text.replace(secret, "***")
    return text[:_TEXT_CHARACTERS_MAX] or type(error).__name__


def _secrets(env: Mapping[str, str]) -> list[str]:
    found = [value for name, value in env.items() if _SECRET.search(name.upper())]
    return sorted((value for value in found if len(value) >= _SECRET_CHARACTERS_MIN), key=len, reverse=True)


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
