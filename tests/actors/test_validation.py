"""`greenroom validate` without its command line: pools and templates by their rules, several documents together."""

from pathlib import Path

import pytest

from actors.validation import DocumentFile, validate_documents, with_missing_paths
from tests.actors.assignments import BASE, memory

SAMPLES = Path(__file__).resolve().parents[3] / "shared" / "data" / "k8s"
POOL = """\
apiVersion: substrate.dev/v1alpha1
kind: WorkerPool
metadata: {name: gpu-pool, labels: {a: b}}
status: {ready: 3}
spec:
  replicas: 3
  sandboxClass: gvisor
  nodeSelector: {cloud.google.com/gke-accelerator: nvidia-tesla-t4}
  tolerations:
  - {key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}
  template:
    resources:
      limits: {nvidia.com/gpu: "2"}
      requests: {nvidia.com/gpu: "2"}
    env:
    - {name: ATE_NVIDIA_TOOLKIT_HOST_PATH, value: /usr/local/nvidia}
    - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
"""
TEMPLATE = """\
apiVersion: substrate.dev/v1alpha1
kind: ActorTemplate
metadata: {name: trainer}
spec:
  containers:
  - name: trainer
    image: registry.example/pytorch
    command: [python, train.py]
    resources:
      limits: {nvidia.com/gpu: "2"}
  - name: logger
    image: registry.example/fluentbit
"""
ASSIGNMENT = """\
apiVersion: greenroom.dev/v1alpha1
kind: WorkerAssignment
metadata: {uid: a1, generation: 1}
spec: {desiredState: Running, containers: [{name: main, bundle: b}]}
"""


def reports(*texts):
    files = [
        DocumentFile(name=f"{number}.yaml", data=text if isinstance(text, bytes) else text.encode(), base=BASE)
        for number, text in enumerate(texts)
    ]
    found = validate_documents(files)
    assert [report.name for report in found] == [file.name for file in files]
    return found


def found_in(text):
    (report,) = reports(text)
    return [(str(problem.reason), problem.subject) for problem in report.problems]


def advice_on(text):
    (report,) = reports(text)
    assert report.problems == ()
    return [advice.subject for advice in report.advice]


def test_a_good_pool_template_and_assignment_have_nothing_to_report():
    for report in reports(POOL, TEMPLATE, ASSIGNMENT):
        assert (report.problems, report.advice) == ((), ())


@pytest.mark.parametrize("version", ["substrate.dev/v1alpha1", "x/v1alpha1", "greenroom.dev/v1alpha1"])
def test_any_group_of_v1alpha1_is_read(version):
    assert found_in(POOL.replace("substrate.dev/v1alpha1", version)) == []


@pytest.mark.parametrize("version", ["v1alpha1", "substrate.dev/v1", "substrate.dev/v1alpha1/x", "''"])
def test_no_other_version_is_read(version):
    assert found_in(POOL.replace("substrate.dev/v1alpha1", version)) == [("UnsupportedKind", "apiVersion")]


CLAIMED = 'spec.template.resources.limits["nvidia.com/gpu"]'
REQUESTED = 'spec.template.resources.requests["nvidia.com/gpu"]'
BAD_POOLS = [
    ('      limits: {nvidia.com/gpu: "2"}\n', "", [("RequestWithoutLimit", REQUESTED)]),
    ('requests: {nvidia.com/gpu: "2"}', "requests: {nvidia.com/gpu: 1}", [("RequestNotEqualLimit", REQUESTED)]),
    ('limits: {nvidia.com/gpu: "2"}', "limits: {nvidia.com/gpu: 500m}", [("FractionalDevice", CLAIMED)]),
    ('limits: {nvidia.com/gpu: "2"}', "limits: {nvidia.com/gpu: 1.5}", [("InvalidQuantity", CLAIMED)]),
    ('limits: {nvidia.com/gpu: "2"}', "limits: {nvidia.com/gpu: -2}", [("NegativeQuantity", CLAIMED)]),
    ('limits: {nvidia.com/gpu: "2"}', "limits: {nvidia.com/gpu: 2, gpu: 1}",
     [("UnknownResource", "spec.template.resources.limits.gpu")]),
    ("sandboxClass: gvisor", "sandboxClass: kata", [("SandboxClassUnsupported", "spec.sandboxClass")]),
    ("sandboxClass: gvisor", "sandboxClass: [gvisor]", [("WrongType", "spec.sandboxClass")]),
    ("template:", "template: []\n  other:", [("WrongType", "spec.template")]),
    ("spec:", "spec: 1\nother:", [("WrongType", "spec")]),
    ("spec:", "other:", [("MissingField", "spec")]),
    ("tolerations:", "tolerations: 1\n  other:", [("WrongType", "spec.tolerations")]),
    ("metadata: {name: gpu-pool", "metadata: {name: [x]", [("WrongType", "metadata.name")]),
]  # fmt: skip


@pytest.mark.parametrize(("part", "instead", "found"), BAD_POOLS)
def test_a_wrong_pool_is_reported(part, instead, found):
    assert part in POOL
    assert found_in(POOL.replace(part, instead)) == found


def test_a_pool_of_another_class_is_refused():
    assert found_in(POOL.replace("nvidia.com/gpu:", "amd.com/gpu:")) == [
        ("UnsupportedDeviceClass", 'spec.template.resources.limits["amd.com/gpu"]')
    ]


def test_a_pool_without_devices_may_have_any_sandbox_class_and_needs_no_advice():
    text = "apiVersion: x/v1alpha1\nkind: WorkerPool\nspec: "
    assert advice_on(text + "{sandboxClass: kata, template: {resources: {limits: {cpu: 1}}}}") == []
    assert advice_on(text + "{}") == []


ADVICE = [
    ("ATE_NVIDIA_TOOLKIT_HOST_PATH", "OTHER", ["spec.template.env"]),
    ("- {key: nvidia.com/gpu,", "- {key: other,", ["spec.tolerations"]),
    ("- {key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}", "- {operator: Exists}", []),
    ("- {key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}", "- {key: nvidia.com/gpu, value: present}", []),
    ("effect: NoSchedule", "effect: NoExecute", ["spec.tolerations"]),
    ("- {key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}", "- {value: x}", ["spec.tolerations"]),
    ("value: /usr/local/nvidia}", "value: ''}", ["spec.template.env"]),
    ("value: /usr/local/nvidia}", "valueFrom: {configMapKeyRef: {name: a, key: b}}}", []),
    ("nodeSelector: {cloud.google.com/gke-accelerator: nvidia-tesla-t4}", "nodeSelector: {}", ["spec.nodeSelector"]),
]


@pytest.mark.parametrize(("part", "instead", "subjects"), ADVICE)
def test_a_pool_that_will_probably_not_work_gets_advice(part, instead, subjects):
    assert part in POOL
    assert advice_on(POOL.replace(part, instead)) == subjects


def test_a_bare_gpu_pool_gets_all_advice_and_each_says_what_happens():
    text = "apiVersion: x/v1alpha1\nkind: WorkerPool\nspec: {template: {resources: {limits: {nvidia.com/gpu: 1}}}}"
    (report,) = reports(text)
    assert [advice.subject for advice in report.advice] == [
        "spec.nodeSelector",
        "spec.tolerations",
        "spec.template.env",
    ]
    for advice, words in zip(report.advice, ["any node", "stay Pending", "ToolkitNotFound"], strict=True):
        assert words in advice.message


BAD_TEMPLATES = [
    ("- name: logger", "- name: trainer", [("DuplicateContainer", "spec.containers[1].name")]),
    ("- name: logger", "- name: pause", [("InvalidContainerName", "spec.containers[1].name")]),
    ("- name: logger", "- title: x", [("MissingField", "spec.containers[1].name")]),
    ('limits: {nvidia.com/gpu: "2"}', "requests: {nvidia.com/gpu: 2}",
     [("RequestWithoutLimit", 'spec.containers[0].resources.requests["nvidia.com/gpu"]')]),
    ("  containers:", "  sandboxClass: kata\n  containers:", [("SandboxClassUnsupported", "spec.sandboxClass")]),
    ("  containers:", "  containers: []\n  other:", [("InvalidValue", "spec.containers")]),
    ("  containers:", "  other:", [("MissingField", "spec.containers")]),
    ("spec:", "other:", [("MissingField", "spec")]),
    ("spec:", "spec: []\nother:", [("WrongType", "spec")]),
]  # fmt: skip


@pytest.mark.parametrize(("part", "instead", "found"), BAD_TEMPLATES)
def test_a_wrong_template_is_reported(part, instead, found):
    assert part in TEMPLATE
    assert found_in(TEMPLATE.replace(part, instead)) == found


def test_a_template_alone_is_not_compared_with_anything():
    assert found_in(TEMPLATE.replace('"2"', '"64"')) == []


@pytest.mark.parametrize("order", [0, 1])
def test_a_template_is_compared_with_every_pool_of_the_call(order):
    small = POOL.replace('"2"', '"1"').replace("gpu-pool", "small")
    none = "apiVersion: x/v1alpha1\nkind: WorkerPool\nmetadata: {name: cpu}\nspec: {}"
    texts = [TEMPLATE, POOL, small, none] if order == 0 else [POOL, small, none, TEMPLATE]
    found = [report for report in reports(*texts) if report.problems]
    (report,) = found
    assert [(str(problem.reason), problem.subject) for problem in report.problems] == [
        ("ClaimsExceedReservation", 'spec.containers[0].resources.limits["nvidia.com/gpu"]')
    ] * 2
    assert (
        "claim 2 nvidia.com/gpu together (container trainer 2); the limit of pool small is 1"
        in report.problems[0].message
    )
    assert "the limit of pool cpu is 0" in report.problems[1].message


def test_a_template_is_not_compared_with_a_pool_that_is_wrong_itself():
    broken = POOL.replace('limits: {nvidia.com/gpu: "2"}', "limits: {nvidia.com/gpu: x}")
    pool, template = reports(broken, TEMPLATE)
    assert pool.problems
    assert not template.problems


def test_a_pool_without_a_name_is_called_by_its_file():
    _, template = reports(POOL.replace("name: gpu-pool, ", "").replace('"2"', '"1"'), TEMPLATE)
    assert "the limit of pool 0.yaml is 1" in template.problems[0].message


def test_a_gpu_in_a_template_is_no_question_of_what_is_built():
    assert found_in(TEMPLATE) == []


def test_documents_that_cannot_be_read_do_not_stop_the_others():
    bad = reports(b"\xff", "a: 1\na: 2\n---\nb: 1", "kind: Pod\napiVersion: v1", "[]", POOL, ASSIGNMENT)
    assert [[str(problem.reason) for problem in report.problems] for report in bad] == [
        ["NotUtf8"],
        ["DuplicateKey", "MultipleDocuments"],
        ["UnsupportedKind"],
        ["WrongType"],
        [],
        [],
    ]


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the samples are not beside this checkout")
def test_the_samples_beside_this_checkout_have_nothing_to_report():
    texts = [path.read_bytes() for path in sorted(SAMPLES.glob("*.yaml"))]
    assert len(texts) == 2
    assert [(report.problems, report.advice) for report in reports(*texts)] == [((), ())] * 2


def test_no_documents_give_no_reports():
    assert validate_documents([]) == []


@pytest.mark.anyio
async def test_the_paths_of_an_assignment_are_looked_for_afterwards():
    (report,) = reports(ASSIGNMENT.replace("uid: a1", "uid: /"))
    found = await with_missing_paths(report, memory())
    assert [str(problem.reason) for problem in found.problems] == ["InvalidUid", "BundleNotFound"]
    (pool,) = reports(POOL)
    assert await with_missing_paths(pool, memory()) == pool


def test_a_long_or_odd_name_of_a_pool_is_shown_cut_and_on_one_line():
    pool = POOL.replace("name: gpu-pool", f'name: "\\e[2J{"x" * 9999}"').replace('"2"', '"1"')
    _, template = reports(pool, TEMPLATE)
    (problem,) = template.problems
    assert problem.message.isprintable()
    assert len(problem.message) < 300
