"""The files in deploy/: nothing is built here, but what they name exists, is pinned, and is safe to run."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from typer.main import get_command

from mcnet.cli.app import app

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


def test_compose_starts_the_service_and_a_prometheus_that_scrapes_it():
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: pip install pyyaml")
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))
    service, prometheus = compose["services"]["service"], compose["services"]["prometheus"]
    assert (ROOT / "deploy" / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    check_command(service["command"])
    assert service["read_only"] is True
    assert re.fullmatch(r"prom/prometheus:v\d+\.\d+\.\d+@sha256:[0-9a-f]{64}", prometheus["image"])
    for entry in (*service["volumes"], *prometheus["volumes"]):
        source = entry.split(":")[0]
        assert source in compose["volumes"] or (ROOT / "deploy" / source).is_file(), source
    for one in (service, prometheus):
        assert all(port.startswith("127.0.0.1:") for port in one["ports"]), "published to this machine alone"
    (scraped,) = yaml.safe_load((ROOT / "deploy" / "prometheus.yml").read_text(encoding="utf-8"))["scrape_configs"]
    port = service["command"][service["command"].index("--port") + 1]
    assert scraped["static_configs"] == [{"targets": [f"service:{port}"]}]
    assert scraped["metrics_path"] == "/metrics"


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
    told = (ROOT / "src/mcnet/operations/service/board.py").read_text(encoding="utf-8")
    rules = (ROOT / "deploy" / "alerts.yml").read_text(encoding="utf-8")
    tested = (ROOT / "tests" / "operations" / "alert_rules.yml").read_text(encoding="utf-8")
    for name in set(re.findall(r"\bmcnet_\w+", rules)):
        assert f'"{name}"' in told, name
    for alert in re.findall(r"alert: (\w+)", rules):
        assert len(re.findall(rf"\b{alert}\b", tested)) >= 1, f"{alert} is not tested"
