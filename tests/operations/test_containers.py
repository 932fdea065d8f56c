"""The files in deploy/: nothing is built here, but what they name exists, is pinned, and is safe to run."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from typer.main import get_command

from mcnet.cli.app import app
from mcnet.errors import InputError
from mcnet.operations.service.settings import _token

ROOT = Path(__file__).parents[2]
INSTRUCTIONS = re.compile(r"^([A-Z]+)\s+((?:.*\\\n)*.*)$", re.MULTILINE)


@pytest.fixture(scope="module")
def dockerfile():
    text = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    return [(name, " ".join(rest.replace("\\\n", " ").split())) for name, rest in INSTRUCTIONS.findall(lines)]


def of_kind(dockerfile, kind):
    return [rest for name, rest in dockerfile if name == kind]


def check_command(words):
    """Refuse words that the command line would not understand."""
    command = get_command(app).commands[words[0]]
    command.make_context(words[0], list(words[1:]), resilient_parsing=False).close()


def test_every_file_that_is_copied_exists_and_is_not_ignored(dockerfile):
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for rest in of_kind(dockerfile, "COPY"):
        *sources, _ = shlex.split(rest)
        if sources[0].startswith("--from="):
            continue
        for source in sources:
            assert (ROOT / source).exists(), source
            assert source in kept, f"{source} is ignored by .dockerignore"
    described = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'readme = "README.md"' in described, "the build reads it"


def test_the_base_image_is_pinned_and_root_is_left(dockerfile):
    assert re.fullmatch(r"PYTHON=python:3\.\d+-slim-\w+@sha256:[0-9a-f]{64}", of_kind(dockerfile, "ARG")[0])
    for rest in of_kind(dockerfile, "FROM"):
        assert re.fullmatch(r"\$\{PYTHON\}( AS \w+)?", rest), rest
    names = [name for name, _ in dockerfile]
    assert of_kind(dockerfile, "USER") == ["10001"]
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert "HEALTHCHECK" in names


def test_the_commands_of_the_image_are_commands_of_mcnet(dockerfile):
    import json

    assert json.loads(of_kind(dockerfile, "ENTRYPOINT")[0]) == ["mcnet"]
    check_command(json.loads(of_kind(dockerfile, "CMD")[0]))
    check = of_kind(dockerfile, "HEALTHCHECK")[0]
    compile(json.loads(check[check.index("CMD") + 4 :])[2], "health check", "exec")
    assert "/v2/health/ready" in check


@pytest.fixture
def yaml():
    return pytest.importorskip("yaml", reason="PyYAML is not installed: pip install pyyaml")


POSTGRES = re.compile(r"postgres:\d+\.\d+-\w+@sha256:[0-9a-f]{64}")


def test_compose_starts_a_store_a_service_and_a_prometheus_that_scrapes_it(yaml):
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))
    services = compose["services"]
    service, job, prometheus = services["service"], services["update"], services["prometheus"]
    store = f"postgresql://{services['postgres']['environment']['POSTGRES_USER']}@postgres/ads"
    check_command(service["command"])
    check_command([*job["entrypoint"][1:], "logs/*.parquet"])
    assert service["command"][1] == job["entrypoint"][2] == store
    for one in (service, job):
        assert (ROOT / "deploy" / one["build"]["context"] / one["build"]["dockerfile"]).is_file()
        assert one["read_only"] is True
        assert one["depends_on"]["postgres"]["condition"] == "service_healthy"
        assert "PGPASSWORD" in one["environment"]
    assert "ports" not in services["postgres"], "the store is for the other services alone"
    assert POSTGRES.fullmatch(services["postgres"]["image"])
    assert re.fullmatch(r"prom/prometheus:v\d+\.\d+\.\d+@sha256:[0-9a-f]{64}", prometheus["image"])
    for entry in (*services["postgres"]["volumes"], *prometheus["volumes"]):
        source = entry.split(":")[0]
        assert source in compose["volumes"] or (ROOT / "deploy" / source).is_file(), source
    for one in (service, prometheus):
        assert all(port.startswith("127.0.0.1:") for port in one["ports"]), "published to this machine alone"
    (scraped,) = yaml.safe_load((ROOT / "deploy" / "prometheus.yml").read_text(encoding="utf-8"))["scrape_configs"]
    port = service["command"][service["command"].index("--port") + 1]
    assert scraped["static_configs"] == [{"targets": [f"service:{port}"]}]
    assert scraped["metrics_path"] == "/metrics"


@pytest.fixture
def manifests(yaml):
    files = sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))
    found = [one for file in files for one in yaml.safe_load_all(file.read_text(encoding="utf-8"))]
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


def pods(manifests):
    for kind, name in (("Deployment", "mcnet"), ("StatefulSet", "postgres"), ("CronJob", "mcnet-update")):
        spec = manifests[kind, name]["spec"]
        yield (spec["jobTemplate"]["spec"] if kind == "CronJob" else spec)["template"]


def test_what_the_manifests_run_are_commands_of_mcnet_on_the_same_store(manifests, tmp_path):
    import tomllib

    from mcnet.cli.config import read_config

    serve, postgres, update = (pod["spec"]["containers"][0] for pod in pods(manifests))
    check_command(serve["args"])
    check_command(update["args"])
    user = next(one["value"] for one in postgres["env"] if one["name"] == "POSTGRES_USER")
    service = manifests["Service", "postgres"]["metadata"]["name"]
    assert serve["args"][1] == update["args"][1] == f"postgresql://{user}@{service}/ads"
    (file,) = manifests["ConfigMap", "mcnet"]["data"]
    settings = tmp_path / file
    settings.write_text(manifests["ConfigMap", "mcnet"]["data"][file])
    command = get_command(app)
    with command.make_context("mcnet", ["methods"]) as context:
        given = read_config(context, str(settings), False)["update"]
    assert given == {"score": "pctr", "label": "click", "field": ["country"], "time": "ts", "every": "1h"}
    assert tomllib.loads(settings.read_text())["update"]["every"] == "1h"
    assert file == "mcnet.toml"
    mounted = {one["name"]: one["mountPath"] for one in update["volumeMounts"]}
    assert update["workingDir"] == mounted["config"], "mcnet.toml is read in the working directory"


def test_probes_and_ports_are_those_of_the_service(manifests):
    from mcnet.operations.service.app import OPERATIONS

    serve = manifests["Deployment", "mcnet"]["spec"]["template"]["spec"]["containers"][0]
    routes = {one.path for one in OPERATIONS}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = serve[probe]["httpGet"]
        assert asked["path"] in routes
        assert asked["port"] == serve["ports"][0]["name"]
    assert str(serve["ports"][0]["containerPort"]) == serve["args"][serve["args"].index("--port") + 1]
    assert manifests["Service", "mcnet"]["spec"]["ports"][0]["targetPort"] == serve["ports"][0]["name"]
    template = manifests["Deployment", "mcnet"]["spec"]["template"]
    notes = template["metadata"]["annotations"]
    assert (notes["prometheus.io/port"], notes["prometheus.io/path"] in routes) == ("8080", True)
    for kind in ("Service", "PodDisruptionBudget"):
        selector = manifests[kind, "mcnet"]["spec"]["selector"]
        assert selector.get("matchLabels", selector) == template["metadata"]["labels"]


def test_pods_have_no_more_rights_than_they_need_and_secrets_are_not_in_commands(manifests):
    secret = manifests["Secret", "mcnet"]["stringData"]
    for pod in pods(manifests):
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        (container,) = pod["spec"]["containers"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert "memory" in container["resources"]["limits"]
        image = container["image"]
        assert image.startswith("registry.example.com/mcnet") or POSTGRES.fullmatch(image)
        for one in container.get("env", []):
            taken = one.get("valueFrom", {}).get("secretKeyRef")
            assert taken is None or (taken["name"], taken["key"] in secret) == ("mcnet", True)
    with pytest.raises(InputError, match="at least 16"):
        _token(secret["MCNET_TOKEN"], "the manifest")


def test_the_rules_of_alerts_are_valid_and_fire_when_they_should(program):
    promtool = program("promtool")
    for words in (
        ("check", "rules", "deploy/alerts.yml"),
        ("check", "config", "--syntax-only", "deploy/prometheus.yml"),
        ("test", "rules", "tests/operations/alert_rules.yml"),
    ):
        done = subprocess.run([promtool, *words], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_are_about_metrics_that_the_service_has():
    from prometheus_client import REGISTRY

    from mcnet.operations.service import metrics

    told = {family.name for family in REGISTRY.collect()} | {f"mcnet_{name}" for name in metrics.PRESENT}
    rules = (ROOT / "deploy" / "alerts.yml").read_text(encoding="utf-8")
    tested = (ROOT / "tests" / "operations" / "alert_rules.yml").read_text(encoding="utf-8")
    for name in set(re.findall(r"\bmcnet_\w+", rules)):
        assert name.removesuffix("_total").removesuffix("_bucket") in told, name
    for alert in re.findall(r"alert: (\w+)", rules):
        assert len(re.findall(rf"\b{alert}\b", tested)) >= 1, f"{alert} is not tested"
