"""A driver on a cluster: `cluster_job.py MASTER FOLDER`; says when tasks are done, and saves the sketch."""

import sys
import threading
import time
from pathlib import Path

from pyspark.sql import functions as F
from tests.spark.sessions import start_session

from mcnet.spark import apply, sketch

master, folder = sys.argv[1], Path(sys.argv[2])
spark = start_session(
    folder / "spark",
    master,
    spark_executor_memory="500m",
    spark_speculation="true",
    spark_task_maxFailures="20",
    spark_executorEnv_PYTHONPATH=":".join(sys.path),
    # Blocks of a worker that is dead are not waited for: Spark would try for 15 seconds.
    spark_shuffle_io_maxRetries="1",
    spark_shuffle_io_retryWait="100ms",
)
TASKS = 12
killed = folder / "killed"
tracker = spark.sparkContext.statusTracker()


def tell_when_tasks_are_done():
    while True:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        if any(stage is not None and stage.numTasks == TASKS and stage.numCompletedTasks >= 3 for stage in stages):
            print("midway", flush=True)
            return
        time.sleep(0.02)


while len(tracker._jtracker.getExecutorInfos()) < 3:  # the driver is one of them
    time.sleep(0.1)
rows = spark.read.parquet(str(folder / "log")).repartition(TASKS)


@F.udf("boolean")
def goes_on(part):
    """Wait, in all tasks but the first ones, until a worker has died: it surely does so while there is work left."""
    while part >= 4 and not killed.exists():
        time.sleep(0.05)
    return True


slow = rows.where(goes_on(F.spark_partition_id()))
threading.Thread(target=tell_when_tasks_are_done, daemon=True).start()
sketch(slow, score="score", label="label", field="country").save(folder / "sketch.parquet")
print("executors", len(tracker._jtracker.getExecutorInfos()) - 1, flush=True)
apply(rows, folder / "model.json").write.parquet(str(folder / "applied"))
spark.stop()
