"""The objects of deploy/: valid to Kubernetes, and true to the program that they start."""

from __future__ import annotations

import tomllib
from pathlib import PurePosixPath

import kubernetes_validate
import pytest
import yaml

from actors.quantity import parse_quantity
from actors.stores.uris import read_uri
from supervisor.cli.run import run
from supervisor.http_pages import pages_of
from supervisor.self_check import NEEDED_CAPABILITIES, WANTED_CAPABILITIES
from supervisor.shutdown import LAST_S
from tests.deploy.objects import (
    BASE,
    CLASS,
    DEPLOY,
    GPU,
    container,
    mounts,
    objects,
    of_kind,
    pod,
    settings_text,
    the,
    told,
    variables,
    worker_with_component,
)
from tests.needs import ROOT

pytestmark = pytest.mark.long  # builds the real kustomize

OLDEST_KUBERNETES = "1.30"
"""The first that has a field for AppArmor; docs/operating.md names it."""
NEWEST_KUBERNETES = ".".join(kubernetes_validate.latest_version().split(".")[:2])
NOT_OURS = {"NVIDIA_DRIVER_CAPABILITIES"}
"""Variables that are for others, and that deploy/ says for whom."""
LABEL = "app.kubernetes.io/name"

both = pytest.mark.parametrize("name", [BASE, GPU])


@both
@pytest.mark.parametrize("version", [OLDEST_KUBERNETES, NEWEST_KUBERNETES])
def test_kubernetes_knows_every_field_of_every_object(name, version):
    validated = [kubernetes_validate.validate(each, version, strict=True) for each in objects(name)]
    assert validated == [version] * len(objects(name))


def test_a_field_that_kubernetes_does_not_have_is_found():
    worker = the(BASE, "Deployment")
    worker["spec"]["template"]["spec"]["terminationGracePeriod"] = 360
    with pytest.raises(kubernetes_validate.ValidationError, match="terminationGracePeriod"):
        kubernetes_validate.validate(worker, NEWEST_KUBERNETES, strict=True)


def test_every_file_of_the_base_is_one_of_its_parts():
    parts = yaml.safe_load((DEPLOY / BASE / "kustomization.yaml").read_text())
    named = {*parts["resources"], *(file for each in parts["configMapGenerator"] for file in each["files"])}
    assert {path.name for path in (DEPLOY / BASE).iterdir()} == {*named, "kustomization.yaml"}


@both
def test_the_worker_may_do_what_its_self_check_asks_for_and_nothing_else(name):
    security = container(name)["securityContext"]
    assert set(security["capabilities"]["add"]) == {*NEEDED_CAPABILITIES, *WANTED_CAPABILITIES}
    assert security["capabilities"]["drop"] == ["ALL"]
    assert not security["privileged"]
    # The API server refuses `false` beside CAP_SYS_ADMIN, which no schema says.
    assert security["allowPrivilegeEscalation"]
    assert security["readOnlyRootFilesystem"]


@both
def test_the_reason_of_a_capability_is_the_one_of_the_self_check(name):
    text = (DEPLOY / BASE / "deployment.yaml").read_text()
    for capability, why in {**NEEDED_CAPABILITIES, **WANTED_CAPABILITIES}.items():
        (line,) = [line for line in text.splitlines() if line.strip().startswith(f"- {capability} #")]
        assert why.split(",")[0].replace("a sandbox's own user namespace", "its own user namespace") in line


@both
def test_the_kubelet_waits_longer_than_a_drain_may_take(name, tmp_path):
    grace_s = pod(name)["terminationGracePeriodSeconds"]
    # What is killed at the end, what is left of it and what is told of it have LAST_S each.
    assert grace_s >= told(name, tmp_path)["drain_timeout"] + 6 * LAST_S
    # A rollout waits for the drain of the pod that goes first.
    assert the(name, "Deployment")["spec"]["progressDeadlineSeconds"] >= grace_s + 300


@both
def test_probes_and_scrapes_find_what_the_worker_serves(name, tmp_path):
    port = told(name, tmp_path)["http_listen"].port
    assert container(name)["ports"] == [{"name": "http", "containerPort": port}]
    pages = pages_of(None, None)  # type: ignore[arg-type] # only their paths are looked at
    probes = [container(name)[f"{each}Probe"]["httpGet"] for each in ("liveness", "readiness")]
    assert [each["path"] for each in probes] == ["/healthz", "/readyz"]
    assert {each["path"] for each in probes} <= set(pages)
    assert {each["port"] for each in probes} == {"http"}
    annotations = the(name, "Deployment")["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(port)
    assert annotations["prometheus.io/path"] in pages
    (ingress,) = [rule for each in of_kind(name, "NetworkPolicy") for rule in each["spec"].get("ingress", [])]
    assert ingress["ports"] == [{"protocol": "TCP", "port": "http"}]


@both
def test_every_variable_is_a_setting_or_known_to_be_somebody_elses(name):
    settings = {f"GREENROOM_{each.name.upper()}" for each in run.params if each.name}
    assert set(variables(name)) <= settings | NOT_OURS


def test_a_store_has_a_prefix_for_each_namespace_and_credentials_that_are_no_part_of_it(tmp_path):
    worker = worker_with_component(GPU, "store", tmp_path)
    kubernetes_validate.validate(worker, NEWEST_KUBERNETES, strict=True)
    (worker_container,) = worker["spec"]["template"]["spec"]["containers"]
    names = [each["name"] for each in worker_container["env"]]
    # A variable can use another one only if that stands before it.
    assert names.index("POD_NAMESPACE") < names.index("GREENROOM_SNAPSHOT_STORE")
    values = {each["name"]: each.get("value", "team-a") for each in worker_container["env"]}
    uri = values["GREENROOM_SNAPSHOT_STORE"].replace("$(POD_NAMESPACE)", values["POD_NAMESPACE"])
    read_uri(uri)
    assert uri.endswith("/team-a")
    assert worker_container["envFrom"] == [{"secretRef": {"name": "greenroom-store"}}]
    assert set(values) - {"POD_NAMESPACE"} == {*variables(GPU), "GREENROOM_SNAPSHOT_STORE"}


@both
def test_every_directory_of_the_worker_is_a_mount_and_writable_where_it_writes(name, tmp_path):
    values, mounted = told(name, tmp_path), mounts(name)
    for setting in ("state_dir", "run_dir"):
        assert not mounted[str(values[setting])].get("readOnly", False), setting
        assert "emptyDir" in mounted[str(values[setting])]["volume"]
    assert mounted["/tmp"]["volume"]["emptyDir"]
    read_only = {path for path, mount in mounted.items() if mount.get("readOnly", False)}
    assert str(values["assignments"]) in read_only
    assert mounted[str(values["assignments"])]["volume"]["configMap"]["optional"]
    assert {path for path, mount in mounted.items() if "hostPath" in mount["volume"]} <= read_only


@both
def test_every_volume_is_mounted_once(name):
    names = [each["name"] for each in pod(name)["volumes"]]
    assert sorted(names) == sorted({each["name"] for each in container(name)["volumeMounts"]})
    assert len(names) == len(container(name)["volumeMounts"])


@both
def test_the_node_is_asked_for_the_disk_that_the_volumes_may_take(name):
    volumes = [each["emptyDir"] for each in pod(name)["volumes"] if "emptyDir" in each]
    on_disk = sum(parse_quantity(each["sizeLimit"]).bytes_ceil for each in volumes if each.get("medium") != "Memory")
    resources = container(name)["resources"]
    assert resources["requests"]["ephemeral-storage"] == resources["limits"]["ephemeral-storage"]
    assert on_disk < parse_quantity(resources["limits"]["ephemeral-storage"]).bytes_ceil
    assert resources["requests"]["memory"] == resources["limits"]["memory"]


def test_gpus_are_asked_for_and_limited_alike_on_nodes_that_have_them():
    resources = container(GPU)["resources"]
    assert resources["requests"][CLASS] == resources["limits"][CLASS]
    assert pod(GPU)["nodeSelector"]
    assert {each["key"] for each in pod(GPU)["tolerations"]} == {CLASS}
    assert CLASS not in container(BASE)["resources"]["limits"]


def test_the_toolkit_is_mounted_where_the_worker_looks(tmp_path):
    values = told(GPU, tmp_path)
    mount = mounts(GPU)[str(values["toolkit_dir"])]
    assert mount["readOnly"]
    assert mount["volume"]["hostPath"]["path"].startswith("/")
    assert str(values["driver_root"]) == "/"


def test_the_overlay_changes_nothing_that_it_does_not_name():
    for kind in ("Namespace", "ServiceAccount", "PodDisruptionBudget", "NetworkPolicy", "ConfigMap"):
        assert of_kind(GPU, kind) == of_kind(BASE, kind)
    assert container(GPU)["securityContext"] == container(BASE)["securityContext"]
    assert variables(GPU).items() >= variables(BASE).items()
    for path, mount in mounts(BASE).items():
        if "emptyDir" not in mount["volume"]:
            assert mounts(GPU)[path] == mount


@both
def test_nothing_of_the_cluster_is_handed_into_the_pod(name):
    assert the(name, "ServiceAccount")["automountServiceAccountToken"] is False
    assert pod(name)["automountServiceAccountToken"] is False
    assert pod(name)["serviceAccountName"] == the(name, "ServiceAccount")["metadata"]["name"]
    # A Service named greenroom would make variables that begin as our settings do.
    assert pod(name)["enableServiceLinks"] is False
    assert not {"hostPID", "hostNetwork", "hostIPC", "shareProcessNamespace"} & set(pod(name))


@both
def test_selectors_find_the_pods_of_the_worker_and_only_they_carry_its_label(name):
    worker = the(name, "Deployment")
    labels = worker["spec"]["template"]["metadata"]["labels"]
    assert worker["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert the(name, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"].items() <= labels.items()
    policies = {each["metadata"]["name"]: each["spec"] for each in of_kind(name, "NetworkPolicy")}
    assert policies["greenroom"]["podSelector"]["matchLabels"].items() <= labels.items()
    peers = [peer for rule in policies["greenroom"]["egress"] for peer in rule["to"] if "podSelector" in peer]
    assert peers
    # A label that is put on every selector would be asked of the cluster's name server too, and nobody would find it.
    assert all(LABEL not in peer["podSelector"]["matchLabels"] for peer in peers)


@both
def test_what_no_policy_allows_is_denied(name):
    policies = {each["metadata"]["name"]: each["spec"] for each in of_kind(name, "NetworkPolicy")}
    assert policies["deny-all"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    peers = [peer for rule in policies["greenroom"]["egress"] for peer in rule["to"]]
    assert all("169.254.0.0/16" in each["ipBlock"]["except"] for each in peers if "ipBlock" in each)


@both
def test_the_image_is_of_this_version_and_starts_the_worker(name):
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert container(name)["image"] == f"greenroom:{version}"
    assert "command" not in container(name)


@both
def test_the_file_of_settings_is_where_the_arguments_say(name):
    flag, path = container(name)["args"]
    assert flag == "--config"
    assert mounts(name)[str(PurePosixPath(path).parent)]["volume"]["configMap"]["name"] == "greenroom-settings"
    assert PurePosixPath(path).name == "settings.toml"
    assert settings_text(name)
