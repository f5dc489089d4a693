"""WorkerPool and ActorTemplate documents: the mistakes that would only show when a pod or an actor fails.

They are other people's resources, so fields that no rule needs are ignored, and what this version does not perform is
no problem here. Source: REQUIREMENTS R40 to R43; the rules are those of a WorkerAssignment where both have them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import attrs

from statemachine.reasons import Reason

from .assignment import GPU_RESOURCE, SandboxClass
from .document import RefusedError, UnsetError
from .document.decoding import Field, Record
from .document.fields import any_text, given_text, list_of, map_of, some_of
from .document.limits import SHOWN_CHARACTERS_MAX
from .document.wording import escaped, shown
from .names import container_name, report_duplicate_containers
from .resources import ResourceFields, overdrafts, resource_fields

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .document import Node, Spot
    from .resources import Claim

TOOLKIT_VARIABLE: Final = "ATE_NVIDIA_TOOLKIT_HOST_PATH"
_GPU_TAINT: Final = GPU_RESOURCE
"""The taint that GPU nodes carry by convention has the name of the resource."""
_EXISTS, _EQUAL = "Exists", "Equal"
"""Operators of tolerations; one that Exists without a key fits every taint."""
_NO_SCHEDULE: Final = "NoSchedule"
"""The effect that GPU nodes' taint has; a toleration without an effect fits all."""
_ENTRIES_MAX: Final = 1024
_CONTAINERS_MAX: Final = 64


@attrs.frozen
class Advice:
    """Something that is allowed and will probably not work: the field, and what it will look like at run time."""

    subject: str
    message: str


@attrs.frozen(kw_only=True)
class Pool:
    """What templates are checked against: the pool's name, and the devices that one worker of it has."""

    name: str
    devices: Mapping[str, int]


@attrs.frozen(kw_only=True)
class PoolReading:
    """A WorkerPool after its rules: the pool, None where its devices are not known for sure, and advice."""

    pool: Pool | None
    advice: tuple[Advice, ...] = ()


@attrs.frozen(kw_only=True)
class _PoolTemplate:
    resources: ResourceFields = attrs.field(factory=ResourceFields)
    variables: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class _PoolSpec:
    sandbox: Field[str]
    template: Field[_PoolTemplate]
    node_selector: Field[dict[str, str]]
    tolerated: Field[tuple[bool, ...]]


@attrs.frozen(kw_only=True)
class _TemplateContainer:
    name: Field[str]
    resources: Field[ResourceFields]


def read_pool(node: Node, spot: Spot, file_name: str) -> PoolReading:
    """Check a WorkerPool; problems go to the spot's findings. A pool without a name is called by its file."""
    try:
        record = Record.open(node, spot)
        name = _name_in(record, file_name)
        spec = record.required("spec", lambda part, at: _pool_spec(part, at, f"pool {name}")).value
        resources = spec.template.value.resources
    except (RefusedError, UnsetError):
        return PoolReading(pool=None)
    _check_sandbox(spec.sandbox, resources.claims)
    advice = _advice(spec) if resources.claims else ()
    devices = {claim.device_class: claim.count for claim in resources.claims}
    is_sure = all(field.is_usable for field in resources.limits.values())
    return PoolReading(pool=Pool(name=name, devices=devices) if is_sure else None, advice=advice)


def check_template(node: Node, spot: Spot, pools: Iterable[Pool]) -> None:
    """Check an ActorTemplate, alone and against each pool; problems go to the spot's findings."""
    try:
        spec = Record.open(node, spot).required("spec", Record.open).value
        sandbox = spec.optional("sandboxClass", given_text, SandboxClass.GVISOR.value)
        containers = spec.required("containers", some_of(_template_container, most=_CONTAINERS_MAX)).value
    except (RefusedError, UnsetError):
        return
    report_duplicate_containers(container.name for container in containers)
    usable = (container.resources.value for container in containers if container.resources.is_usable)
    claims = [claim for resources in usable for claim in resources.claims]
    _check_sandbox(sandbox, claims)
    for pool in pools:
        _check_fit(claims, pool)


def _name_in(record: Record, file_name: str) -> str:
    """The name as messages may show it."""
    metadata = record.optional("metadata", Record.open, None)
    given = file_name
    if metadata.is_usable and metadata.value is not None:
        name = metadata.value.optional("name", given_text, file_name)
        given = name.value if name.is_usable else file_name
    return escaped(given[:SHOWN_CHARACTERS_MAX])


def _pool_spec(node: Node, spot: Spot, owner: str) -> _PoolSpec:
    record = Record.open(node, spot)
    return _PoolSpec(
        sandbox=record.optional("sandboxClass", given_text, SandboxClass.GVISOR.value),
        template=record.optional("template", lambda part, at: _pool_template(part, at, owner), _PoolTemplate()),
        node_selector=record.optional("nodeSelector", map_of(given_text, most=_ENTRIES_MAX), {}),
        tolerated=record.optional("tolerations", list_of(_toleration, most=_ENTRIES_MAX), ()),
    )


def _pool_template(node: Node, spot: Spot, owner: str) -> _PoolTemplate:
    record = Record.open(node, spot)
    resources = record.optional("resources", lambda part, at: _resources(part, at, owner), ResourceFields())
    variables = record.optional("env", list_of(_variable_name, most=_ENTRIES_MAX), ())
    return _PoolTemplate(resources=resources.value, variables=variables.value)


def _resources(node: Node, spot: Spot, owner: str) -> ResourceFields:
    return resource_fields(Record.open(node, spot), owner)


def _variable_name(node: Node, spot: Spot) -> str:
    record = Record.open(node, spot)
    name = record.required("name", given_text)
    value = record.optional("value", any_text, None)
    # One whose value comes from elsewhere (valueFrom) counts as set; one that is set to nothing does not.
    return name.value if value.is_usable and value.value != "" else ""


def _toleration(node: Node, spot: Spot) -> bool:
    """Whether it lets a pod onto a node with the taint of GPUs."""
    record = Record.open(node, spot)
    key = record.optional("key", given_text, "")
    operator = record.optional("operator", given_text, _EQUAL)
    effect = record.optional("effect", given_text, "")
    fits = key.value == _GPU_TAINT or (not key.value and operator.value == _EXISTS)
    return fits and effect.value in {"", _NO_SCHEDULE}


def _template_container(node: Node, spot: Spot) -> _TemplateContainer:
    record = Record.open(node, spot)
    name = record.required("name", container_name)
    owner = f"container {name.value}" if name.is_usable else spot.path
    resources = record.optional("resources", lambda part, at: _resources(part, at, owner), ResourceFields())
    return _TemplateContainer(name=name, resources=resources)


def _check_sandbox(sandbox: Field[str], claims: Iterable[Claim]) -> None:
    claim = next(iter(claims), None)
    if claim is None or not sandbox.is_usable or sandbox.value == SandboxClass.GVISOR:
        return
    message = f"{claim.owner} has devices, which need sandboxClass {SandboxClass.GVISOR}, not {shown(sandbox.value)}"
    sandbox.spot.report(Reason.SANDBOX_CLASS_UNSUPPORTED, message)


def _check_fit(claims: list[Claim], pool: Pool) -> None:
    for draft in overdrafts(claims, pool.devices):
        message = (
            f"the containers claim {draft.total} {draft.last.device_class} together ({draft.holders}); "
            f"the limit of pool {pool.name} is {draft.available}"
        )
        draft.last.spot.report(Reason.CLAIMS_EXCEED_RESERVATION, message)


def _advice(spec: _PoolSpec) -> tuple[Advice, ...]:
    """Advice on a pool with devices, in the order of its fields as the samples write them."""
    found = []
    if spec.node_selector.is_usable and not spec.node_selector.value:
        message = "no node selector: the pods go to any node with such a device, whatever its model"
        found.append(Advice("spec.nodeSelector", message))
    if spec.tolerated.is_usable and not any(spec.tolerated.value):
        message = f"no toleration of {_GPU_TAINT}: where GPU nodes carry that taint, the pods stay Pending"
        found.append(Advice("spec.tolerations", message))
    if TOOLKIT_VARIABLE not in spec.template.value.variables:
        message = (
            f"{TOOLKIT_VARIABLE} is not set: unless the toolkit is at its default place, "
            "actors with devices fail with ToolkitNotFound"
        )
        found.append(Advice("spec.template.env", message))
    return tuple(found)
