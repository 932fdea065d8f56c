"""How the tests start Spark: on loopback, with few partitions and no web pages."""

import os
import shutil
import sys
import warnings
from pathlib import Path

import pytest

from mcnet._shared.messages import has_extra

NEEDS_SPARK = "PySpark or Java is not installed: pip install '.[spark]', apt-get install openjdk-17-jre-headless"

LOOPBACK = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
"""What every process of Spark is told."""

QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""How a JVM is told not to optimise code that runs for some seconds only."""

ROOT = Path(__file__).resolve().parents[2]


def require_spark():
    """Leave a test out where there is no Spark."""
    if not (has_extra("spark") and shutil.which("java")):
        pytest.skip(NEEDS_SPARK)


def job(name):
    """Return the command that runs a program of these tests as a process of its own, and where it is run."""
    return [sys.executable, "-m", f"tests.spark.{name}"], ROOT


def settings(folder):
    """Return the settings of a session whose files lie in a folder."""
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": QUICK_START,
        "spark.executor.extraJavaOptions": QUICK_START,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(Path(folder) / "warehouse"),
        "spark.local.dir": str(Path(folder) / "local"),
        "spark.sql.session.timeZone": "America/New_York",
    }


def start_session(folder, master, **more):
    """Start a session, the JVM being a process of its own; `more` are settings with _ for the dots."""
    os.environ |= LOOPBACK
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master(master).appName("mcnet")
        for name, value in (settings(folder) | {name.replace("_", "."): value for name, value in more.items()}).items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
