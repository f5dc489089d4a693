"""The manifest of a snapshot: written last, so that a directory without one is no snapshot.

    model   what it says, and which files its scope demands
    format  format 1, written and read

Source: DESIGN, "JSON shapes".
"""

from .format import FORMAT, MANIFEST_BYTES_MAX, as_json, parse_manifest, read_manifest, write_manifest
from .model import (
    CHECKPOINT_FILES,
    MANIFEST_NAME,
    VOLUMES_NAME,
    Manifest,
    RuntimeFacts,
    Shape,
    ShapeDevice,
    ShapeMember,
    ShapeMount,
    ShapeUser,
    SnapshotContainer,
    SnapshotFile,
    SnapshotGpu,
    demanded,
    is_plain_name,
    shape_of,
)

__all__ = [
    "CHECKPOINT_FILES",
    "FORMAT",
    "MANIFEST_BYTES_MAX",
    "MANIFEST_NAME",
    "VOLUMES_NAME",
    "Manifest",
    "RuntimeFacts",
    "Shape",
    "ShapeDevice",
    "ShapeMember",
    "ShapeMount",
    "ShapeUser",
    "SnapshotContainer",
    "SnapshotFile",
    "SnapshotGpu",
    "as_json",
    "demanded",
    "is_plain_name",
    "parse_manifest",
    "read_manifest",
    "shape_of",
    "write_manifest",
]
