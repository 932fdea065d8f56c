"""A standalone cluster of Spark on loopback: a master and workers, each a process group of its own."""

import os
import re
import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

from tests.spark.sessions import LOOPBACK, QUICK_START

MASTER, WORKER = (f"org.apache.spark.deploy.{name}" for name in ("master.Master", "worker.Worker"))
SECONDS = 120


class Daemon:
    """A process of the cluster, with everything that it has started."""

    def __init__(self, folder, name, *arguments):
        """Start it; what it says goes to a file."""
        import pyspark

        home = Path(pyspark.__file__).parent
        self.log = folder / f"{name}.log"
        environment = {
            **os.environ,
            **LOOPBACK,
            "SPARK_HOME": str(home),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK_START,
            "SPARK_WORKER_DIR": str(folder / name),
            "SPARK_LOCAL_DIRS": str(folder / f"{name}-local"),
        }
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [str(home / "bin" / "spark-class"), *arguments, "--host", "127.0.0.1", "--webui-port", "0"],
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    def says(self, pattern):
        """Wait until it has said something, and return what."""
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            found = re.search(pattern, self.log.read_text(errors="replace"))
            if found:
                return found[1]
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise AssertionError(f"{self.log.name} never said {pattern}: {self.log.read_text(errors='replace')[-2000:]}")

    def kill(self):
        """Kill it and its executors, without a warning."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def cluster(folder, workers=2):
    """Run a master and workers of one core each; give the master's address and the workers."""
    daemons = [Daemon(folder, "master", MASTER, "--port", "0")]
    try:
        address = daemons[0].says(r"Starting Spark master at (spark://\S+)")
        for number in range(workers):
            daemons.append(Daemon(folder, f"worker{number}", WORKER, address, "--cores", "1", "--memory", "700m"))
        for worker in daemons[1:]:
            worker.says(r"(Successfully registered with master)")
        yield address, daemons[1:]
    finally:
        for daemon in reversed(daemons):
            daemon.kill()
