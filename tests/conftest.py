"""What the whole suite shares: tests that are left out are named at the end, and none changes the processor's mode."""

import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from mcnet._shared.messages import has_extra

if (Path(__file__).parent / "databases.py").is_file():  # else this file was copied, to be tried alone
    from tests.databases import postgresql, postgresql_store, store_address  # noqa: F401 (fixtures for all tests)

if "PYTEST_XDIST_WORKER" in os.environ:
    # As many processes as cores: threads of each on top of them spend their time waiting for each other (a training
    # by torch took seven times its time). This is read when the libraries are loaded.
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

NEEDS_NETWORKS = "torch or safetensors is not installed: pip install '.[networks]'"
PACKAGES = {"c++": "g++", "promtool": "prometheus"}
"""The Debian packages of programs that have another name."""
NOTHING_MAY_BE_SKIPPED = os.environ.get("MCNET_SKIP_NOTHING") == "1"
RECORD_PASSED = os.environ.get("MCNET_RECORD_PASSED")
"""A file to which the names of the tests that passed are added."""
PASSED_BEFORE = os.environ.get("MCNET_PASSED_BEFORE")
"""Such a file of an earlier run of the same code: only tests that depend on what is installed are run again."""
DEPENDS_ON_INSTALLED = re.compile(r"sys\.modules|find_spec|importorskip|shutil\.which|iter_modules")
"""A test file with one of these may behave differently where more is installed."""

# How long an example takes depends on the machine and its load, and is no failure. Examples are drawn from the test's
# own text, so that a change is judged by what it changes; `make soak` draws new ones.
NEW_EXAMPLES = os.environ.get("MCNET_NEW_EXAMPLES") == "1"
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=not NEW_EXAMPLES
)
settings.load_profile("any machine")


@pytest.fixture
def program() -> Callable[[str], str]:
    """Return a function that leaves a test out where a program is not installed."""

    def require(name: str) -> str:
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed: apt-get install {PACKAGES.get(name, name)}")
        return name

    return require


def pytest_configure(config: pytest.Config) -> None:
    """Name the markers of the suite."""
    config.addinivalue_line("markers", "networks: needs torch and safetensors, the extra `networks` of mcnet")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out what needs torch where there is none."""
    if item.get_closest_marker("networks") is not None and not has_extra("networks"):
        pytest.skip(NEEDS_NETWORKS)


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return why a test was left out, without the place in the source."""
    why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return why.removeprefix("Skipped: ")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say as the last thing what was not run, and how to run it."""
    skipped = terminalreporter.stats.get("skipped", [])
    if not skipped:
        return
    terminalreporter.section("left out")
    for reason, number in Counter(_reason(report) for report in skipped).most_common():
        terminalreporter.write_line(f"{number} test{'s' if number > 1 else ''}: {reason}")
    if NOTHING_MAY_BE_SKIPPED:
        terminalreporter.write_line("Nothing may be left out here (MCNET_SKIP_NOTHING=1): this counts as a failure.")
    else:
        terminalreporter.write_line("They did not run; `make test-all` installs what they need and runs every test.")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail the run if tests were left out where all of them must run; record those that passed."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return  # a process of pytest-xdist: the one that started it has all results
    if NOTHING_MAY_BE_SKIPPED and exitstatus == 0 and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    if RECORD_PASSED:
        names = {
            kind: {report.nodeid for report in reporter.stats.get(kind, [])} for kind in ("passed", "failed", "error")
        }
        with open(RECORD_PASSED, "a", encoding="utf-8") as file:
            file.writelines(f"{name!r}\n" for name in sorted(names["passed"] - names["failed"] - names["error"]))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the tests of Spark first: one process then has them all, and starts Spark once, while others go on."""
    items.sort(key=lambda item: "/spark/" not in item.nodeid and "[spark" not in item.nodeid)
    if PASSED_BEFORE:
        _leave_out_passed(config, items, set(Path(PASSED_BEFORE).read_text(encoding="utf-8").splitlines()))


def _leave_out_passed(config: pytest.Config, items: list[pytest.Item], passed: set[str]) -> None:
    """Remove the tests that passed before, but for those whose result may depend on what is installed."""
    sources = {path: path.read_text(encoding="utf-8") for path in {item.path for item in items}}
    again = {path for path, source in sources.items() if DEPENDS_ON_INSTALLED.search(source)}
    known = [item for item in items if repr(item.nodeid) in passed and item.path not in again]
    if known:
        config.hook.pytest_deselected(items=known)
        items[:] = [item for item in items if item not in set(known)]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return a session of Spark with two cores, started once per process of tests."""
    from tests.spark.sessions import require_spark, start_session

    require_spark()
    session = start_session(tmp_path_factory.mktemp("spark"), "local[2]")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def s3() -> Iterator[Any]:
    """Give a bucket called logs on a server of this machine: the settings of it, and a client that puts files there."""
    server = pytest.importorskip("moto.server", reason="moto is not installed: pip install 'moto[server]'")
    boto3 = pytest.importorskip("boto3", reason="boto3 is not installed: pip install boto3")
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    try:
        host, port = running.get_host_and_port()
        keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
        client = boto3.client("s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1", **keys)
        client.create_bucket(Bucket="logs")
        settings = {**keys, "aws_endpoint_url": f"http://{host}:{port}", "aws_region": "us-east-1"}
        yield {**settings, "aws_allow_http": "true"}, client
    finally:
        running.stop()


@pytest.fixture(autouse=True)
def subnormal_numbers_stay() -> Iterator[None]:
    """Fail a test that leaves the processor flushing subnormal numbers to zero: it would disturb those that follow.

    A shared library linked with -Ofast does so when it is loaded.
    """
    yield
    assert sys.float_info.min / 2 > 0.0, "this test left the processor flushing subnormal numbers to zero"
