"""The Container Device Interface: specs read, checked, found, resolved, injected and written. A library of its own.

    from actors.cdi import inject, scan
    from actors.cdi.host import HostFiles, lstat

    edits = scan(HostFiles()).resolve(["nvidia.com/gpu=0"])
    config = inject(config, edits, lstat=lstat)

It needs attrs, PyYAML and Greenroom's document reader, and nothing else of Greenroom. Everything is pure but the two
ports (`SpecFiles`, `Lstat`), whose real ones are in `actors.cdi.host`. What is refused raises `CdiError`, which carries
every problem with a reason, the file, the line, the field and the value. docs/cdi.md tells where the written spec, its
schema and the Go library differ, and whom this library follows.

Source: Container Device Interface, SPEC.md 1.1.0.
"""

from .aliases import AliasGroup, join_aliases, nodes_of
from .injecting import inject
from .model import ContainerEdits, Device, DeviceNode, Hook, IntelRdt, Mount, NetDevice, Spec
from .names import QualifiedName, is_qualified, parse_kind, parse_name, split_kind, split_name
from .nodes import host_paths
from .ports import AsyncSpecFiles, HostNode, Lstat, SpecFiles, WritableSpecFiles
from .problems import CdiError, CdiProblem, CdiReason
from .reading import SPEC_BYTES_MAX, Reading, load, read_spec
from .registry import Conflict, Found, Registry, SpecFile, registry_of
from .requests import REQUEST_PREFIX, request_key, request_value, requested_names, with_request
from .resolving import edits_of, merged
from .scanning import DEFAULT_DIRECTORIES, LiveRegistry, scan, scan_async
from .subsetting import Shares, permitted, require_permitted, shares, subset
from .validation import HOOK_STAGES, validate, validate_for_writing
from .versions import KNOWN_VERSIONS, Need, minimum_version, needed
from .watching import SpecWatch, StampedRegistry, StampedSpecFiles, follow
from .writing import (
    Existing,
    SpecFormat,
    encode,
    remove_spec,
    spec_name,
    spec_path,
    to_dict,
    transient_name,
    write_spec,
)

__all__ = [
    "DEFAULT_DIRECTORIES",
    "HOOK_STAGES",
    "KNOWN_VERSIONS",
    "REQUEST_PREFIX",
    "SPEC_BYTES_MAX",
    "AliasGroup",
    "AsyncSpecFiles",
    "CdiError",
    "CdiProblem",
    "CdiReason",
    "Conflict",
    "ContainerEdits",
    "Device",
    "DeviceNode",
    "Existing",
    "Found",
    "Hook",
    "HostNode",
    "IntelRdt",
    "LiveRegistry",
    "Lstat",
    "Mount",
    "Need",
    "NetDevice",
    "QualifiedName",
    "Reading",
    "Registry",
    "Shares",
    "Spec",
    "SpecFile",
    "SpecFiles",
    "SpecFormat",
    "SpecWatch",
    "StampedRegistry",
    "StampedSpecFiles",
    "WritableSpecFiles",
    "edits_of",
    "encode",
    "follow",
    "host_paths",
    "inject",
    "is_qualified",
    "join_aliases",
    "load",
    "merged",
    "minimum_version",
    "needed",
    "nodes_of",
    "parse_kind",
    "parse_name",
    "permitted",
    "read_spec",
    "registry_of",
    "remove_spec",
    "request_key",
    "request_value",
    "requested_names",
    "require_permitted",
    "scan",
    "scan_async",
    "shares",
    "spec_name",
    "spec_path",
    "split_kind",
    "split_name",
    "subset",
    "to_dict",
    "transient_name",
    "validate",
    "validate_for_writing",
    "with_request",
    "write_spec",
]
