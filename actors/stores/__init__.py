"""Snapshots outside the worker: how they lie in a store, how they get there and back, which of them stay.

uris         URIs of stores, read strictly
places       where a snapshot and its chunks lie
format       the manifest of a stored snapshot
asking       a call to a store, and what becomes of its failure
looking      one snapshot, whether it is whole, which there are
uploading    worker to store
downloading  store to worker
retention    which stay
"""

from .downloading import download
from .format import CHUNK_BYTES, ChunkedFile, StoredSnapshot
from .looking import (
    Unreadable,
    find_stored,
    list_stored,
    read_stored,
    verify_chunks,
    verify_stored,
    verify_stored_deeply,
)
from .places import is_stored_uri, snapshot_uri, store_of
from .retention import KEPT_IN_STORE, Pruned, prune_stored
from .uploading import Cut, upload

__all__ = [
    "CHUNK_BYTES",
    "KEPT_IN_STORE",
    "ChunkedFile",
    "Cut",
    "Pruned",
    "StoredSnapshot",
    "Unreadable",
    "download",
    "find_stored",
    "is_stored_uri",
    "list_stored",
    "prune_stored",
    "read_stored",
    "snapshot_uri",
    "store_of",
    "upload",
    "verify_chunks",
    "verify_stored",
    "verify_stored_deeply",
]
