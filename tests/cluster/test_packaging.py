"""packaging/cluster says only what the appliance knows: variables, commands and paths. Neither Docker nor a cluster is needed."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from appliance.cli import make_parser
from appliance.core.config import load_config
from tests.cluster.proxies import FOLDER

KUBERNETES = FOLDER / "kubernetes"
VERSION = "1.33"
OVERLAYS = ("small", "production")
SINGLE = yaml.safe_load((FOLDER.parent / "compose.yaml").read_text())["services"]["gos"]
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
OURS = {name: service for name, service in COMPOSE["services"].items() if service["image"] == "gos-appliance"}
NEEDED = re.compile(r"\$\{(\w+)(?::\?[^}]*)?\}")


def manifests(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every object in the files of a folder, except its kustomization."""
    for path in sorted(folder.glob("*.yaml")):
        if path.name != "kustomization.yaml":
            yield from ((path, each) for each in yaml.safe_load_all(path.read_text()))


BASE = {(each["kind"], each["metadata"]["name"]): each for _, each in manifests(KUBERNETES / "base")}
PODS = {name: each["spec"]["template"]["spec"] for (_, name), each in BASE.items() if "template" in each.get("spec", {})}


def check_settings(variables: dict[str, str]) -> None:
    """The appliance accepts these variables, and knows each of them."""
    config = load_config(environment=variables)
    assert config.warnings == ()
    assert config.tls_mode == "off"
    assert config.server.public_port == 443
    assert config.server.trusted_proxies
    assert config.server.drain_seconds >= 10


def _stand_in(variable: re.Match[str]) -> str:
    return f"{variable[1].lower().replace('_', '-')}.example"


def check_commands(words: list[str]) -> list[str]:
    """Every `gos` in a container's command is one that the appliance has; answers the last."""
    script = words[2] if words[:2] == ["sh", "-c"] else shlex.join(words)
    commands = [part.split() for part in re.split(r"&&|;", script) if "gos " in f"{part} "]
    own = [part[part.index("gos") + 1 :] for part in commands if "gos" in part]
    assert own
    for each in own:
        make_parser(each).parse_args(each)
    assert "appliance.sandbox.runtimes.prepare" in script or own[-1] == ["migrate"]
    return own[-1]


def test_compose_sets_only_settings_that_exist() -> None:
    for service in OURS.values():
        check_settings({name: NEEDED.sub(_stand_in, value) for name, value in service["environment"].items()})


def test_compose_runs_only_commands_that_exist() -> None:
    commands = {name: check_commands(service["command"]) for name, service in OURS.items()}
    assert commands == {
        "gos-1": ["serve", "--no-workers"], "gos-2": ["serve", "--no-workers"], "worker": ["worker"], "migrate": ["migrate"],
    }  # fmt: skip


def test_compose_is_as_strict_as_for_one_machine() -> None:
    for service in OURS.values():
        for rule in ("read_only", "tmpfs", "cap_drop", "security_opt", "init", "pids_limit"):
            assert service[rule] == SINGLE[rule]
        grace = int(service["stop_grace_period"].removesuffix("s"))
        assert grace >= int(service["environment"]["GOS_SERVER_DRAIN_SECONDS"]) + 40


def test_compose_names_only_what_it_has() -> None:
    services = COMPOSE["services"]
    for service in services.values():
        assert set(service.get("depends_on", ())) <= set(services)
        assert set(service["networks"]) <= set(COMPOSE["networks"])
        assert service["image"] == "gos-appliance" or re.fullmatch(r"[\w/.-]+:\d+\.\d[\w.-]*", service["image"])
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert source in COMPOSE["volumes"] or source == "./secrets/key" or (FOLDER / source).is_file(), volume
        assert {each["source"] for each in service.get("configs", ())} <= set(COMPOSE["configs"])
    own = services["gos-1"]["environment"]
    assert f"{services['proxy']['networks']['inside']['ipv4_address']}/32" == own["GOS_SERVER_TRUSTED_PROXIES"]
    assert own["GOS_STORAGE_DATABASE"].endswith("@postgres/gos")
    assert own["GOS_BLOBS_ENDPOINT"] == "http://s3:8333"
    assert "-s3.port=8333" in services["s3"]["command"]


@pytest.mark.parametrize("file", ["caddy/Caddyfile", "nginx/gos.conf"])
def test_proxies_reach_the_servers_of_compose(file: str) -> None:
    servers = {name for name, service in OURS.items() if "gos serve" in service["command"][-1]}
    assert set(re.findall(r"(gos-\d+):8080", (FOLDER / file).read_text())) == servers


def test_caddy_accepts_its_configuration() -> None:
    command = ["caddy", "validate", "--adapter", "caddyfile", "--config", str(FOLDER / "caddy/Caddyfile")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("path", "manifest"),
    [
        pytest.param(path, each, id=f"{path.parent.name}/{path.name}:{each['metadata']['name']}")
        for folder in ("base", *(f"overlays/{name}" for name in OVERLAYS))
        for path, each in manifests(KUBERNETES / folder)
        if not (folder != "base" and (each["kind"], each["metadata"]["name"]) in BASE)
    ],
)
def test_manifests_match_the_schemas_of_kubernetes(path: Path, manifest: dict[str, Any]) -> None:
    import kubernetes_validate  # type: ignore[import-untyped]

    kubernetes_validate.validate(manifest, VERSION, strict=True)


@pytest.mark.parametrize("folder", ["base", *(f"overlays/{name}" for name in OVERLAYS)])
def test_kustomizations_name_what_exists(folder: str) -> None:
    here = KUBERNETES / folder
    own = yaml.safe_load((here / "kustomization.yaml").read_text())
    paths = [*own["resources"], *(patch["path"] for patch in own.get("patches", ()))]
    for name in paths:
        assert (here / name).exists(), name
    assert {path.name for path, _ in manifests(here)} == {name for name in paths if name.endswith(".yaml")}
    for patch in own.get("patches", ()):
        for each in yaml.safe_load_all((here / patch["path"]).read_text()):
            target = BASE[(each["kind"], each["metadata"]["name"])]
            assert each["apiVersion"] == target["apiVersion"]
    assert {image["name"] for image in own.get("images", ())} <= {pod["containers"][0]["image"] for pod in PODS.values()}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_settings_of_the_cluster_exist(overlay: str) -> None:
    settings = dict(BASE[("ConfigMap", "gos")]["data"])
    for _, each in manifests(KUBERNETES / "overlays" / overlay):
        if each["kind"] == "ConfigMap":
            settings |= each["data"]
    secrets = {"GOS_STORAGE_DATABASE": "postgresql://gos@db/gos", "GOS_BLOBS_SECRET_KEY": "secret"}
    for pod in PODS.values():
        assert {each["name"] for each in pod["containers"][0]["env"]} == set(secrets)
    check_settings(settings | secrets)


def test_pods_are_as_strict_as_compose() -> None:
    commands = {}
    for name, pod in PODS.items():
        (container,) = pod["containers"]
        assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["runAsUser"]) == (True, 10001)
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        }  # fmt: skip
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
        assert "/data/key" in {mount["mountPath"] for mount in container["volumeMounts"]}
        commands[name] = check_commands(container["command"])
    assert commands == {"gos-server": ["serve", "--no-workers"], "gos-worker": ["worker"], "gos-migrate": ["migrate"]}


def test_probes_ask_what_a_server_answers() -> None:
    (container,) = PODS["gos-server"]["containers"]
    probes = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "readiness", "liveness")}
    assert {name: probe["path"] for name, probe in probes.items()} == {
        "startup": "/readyz", "readiness": "/readyz", "liveness": "/healthz",
    }  # fmt: skip
    assert container["ports"] == [{"name": "http", "containerPort": 8080}]
    noticed = container["readinessProbe"]["periodSeconds"] * container["readinessProbe"]["failureThreshold"]
    assert noticed < int(BASE[("ConfigMap", "gos")]["data"]["GOS_SERVER_DRAIN_SECONDS"])
    service, budget = BASE[("Service", "gos")], BASE[("PodDisruptionBudget", "gos-server")]
    labels = BASE[("Deployment", "gos-server")]["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == labels == budget["spec"]["selector"]["matchLabels"]


CREDENTIAL = re.compile(
    r"(?:password|secret_?key|secret|token)[\"']?[ \t]*[:=][ \t]*[\"']?(?P<value>[^\s\"',}]+)|://\w+:(?P<inline>[^@/\s]+)@",
    re.IGNORECASE,
)
VARIABLE = re.compile(r"\$\{?\w+|\{secretName|\{secretKeyRef|gos-|shop-|false|true|…")  # a variable, or the name of what holds it


def find_credentials(text: str) -> list[str]:
    without_variables = re.sub(r"\$\{[^}]*\}", "${X}", text)
    values = [match["value"] or match["inline"] for match in CREDENTIAL.finditer(without_variables)]
    return [value for value in values if not VARIABLE.match(value)]


def test_no_packaged_file_holds_a_password() -> None:
    paths = [path for path in FOLDER.parent.rglob("*") if path.suffix in (".yaml", ".yml", ".conf", ".service", ".env", ".json")]
    assert len(paths) >= 10
    assert {path.name: values for path in paths if (values := find_credentials(path.read_text("utf-8")))} == {}
    for name in ("GOS_POSTGRES_PASSWORD", "GOS_S3_SECRET"):
        assert f"${{{name}:?" in (FOLDER / "compose.yaml").read_text("utf-8"), "compose refuses to start without it"


@pytest.mark.parametrize("text", ['POSTGRES_PASSWORD: "gos"', "url: postgresql://gos:gos@postgres/gos", "secretKey: abc"])
def test_a_password_in_a_file_is_found(text: str) -> None:
    assert find_credentials(text)
