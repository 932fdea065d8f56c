"""Spark for the tests: one session per process, on the loopback interface alone."""

import gc
import shutil
import warnings

import pytest
from tests.spark.sessions import start_session

from mcnet._shared.extras import has_spark

collect_ignore_glob = ["*_job.py"]
"""Programs that the tests start, which need Spark to be imported at all."""

NEEDS_SPARK = "PySpark or Java is not installed: pip install 'mcnet[spark]', apt-get install openjdk-17-jre-headless"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Leave out what needs Spark where there is none."""
    if not (has_spark() and shutil.which("java")):
        pytest.skip(NEEDS_SPARK)


@pytest.fixture(autouse=True)
def quiet():
    """Let pass what PySpark itself warns of."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
        warnings.filterwarnings("ignore", category=ResourceWarning)
        yield
        gc.collect()  # PySpark's CrossValidator leaves a pool of threads open, which must not warn in another test


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """Return a session of two cores, started once per process of tests."""
    session = start_session(tmp_path_factory.mktemp("spark"), "local[2]")
    yield session
    session.stop()
