"""Everything works through Spark Connect, where there is neither an RDD nor a SparkContext."""

import subprocess

import pytest
from tests.spark.sessions import job


@pytest.mark.timeout(900)
def test_a_client_of_spark_connect_does_all_that_a_session_does(tmp_path):
    pytest.importorskip("grpc_status", reason="Spark Connect needs grpcio-status: pip install 'pyspark[connect]'")
    command, root = job("connect_job")
    done = subprocess.run([*command, str(tmp_path)], cwd=root, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert done.stdout.split() == ["remote", "sketch", "journal", "apply", "evaluate", "estimator"]
