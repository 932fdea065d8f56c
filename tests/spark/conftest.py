"""What the tests of Spark share; the session itself is in tests/conftest.py, since other tests use it, too."""

import gc
import warnings

import pytest
from tests.spark.sessions import require_spark

collect_ignore_glob = ["*_job.py"]
"""Programs that the tests start, which need Spark to be imported at all."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Leave out what needs Spark where there is none."""
    require_spark()


@pytest.fixture(autouse=True)
def quiet():
    """Let pass what PySpark itself warns of."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
        warnings.filterwarnings("ignore", category=ResourceWarning)
        yield
        gc.collect()  # PySpark's CrossValidator leaves a pool of threads open, which must not warn in another test
