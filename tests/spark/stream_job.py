"""A stream of files into a journal, in a driver of its own: `stream_job.py FOLDER killed|whole`."""

import os
import sys
from pathlib import Path

from tests.spark.sessions import start_session

from mcnet.spark import journal_writer

folder, end = Path(sys.argv[1]), sys.argv[2]
spark = start_session(folder / "spark", "local[2]")
rows = spark.readStream.schema("time timestamp_ntz, score double, label long, country string")
add = journal_writer(
    folder / "journal", stream="clicks", time="time", every="1d", score="score", label="label", field="country"
)


def add_and_say(batch, number):
    add(batch, number)
    print("batch", number, flush=True)
    if end == "killed" and number == 1:
        os._exit(9)


query = (
    rows.option("maxFilesPerTrigger", 1)
    .parquet(str(folder / "inbox"))
    .writeStream.foreachBatch(add_and_say)
    .option("checkpointLocation", str(folder / "checkpoint"))
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
spark.stop()
