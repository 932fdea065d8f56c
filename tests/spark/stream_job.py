"""A stream of files into a journal, whose driver dies after the second batch: `stream_job.py FOLDER`."""

import os
import sys
from pathlib import Path

from tests.spark.sessions import start_session

from mcnet.spark import journal_writer


def run_stream(spark, folder, after):
    """Add the files of an inbox to a journal, one per batch; call `after` with the number of each batch."""
    add = journal_writer(
        folder / "journal", stream="clicks", time="time", every="1d", score="score", label="label", field="country"
    )

    def add_and_tell(batch, number):
        add(batch, number)
        after(number)

    query = (
        spark.readStream.schema("time timestamp_ntz, score double, label long, country string")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / "inbox"))
        .writeStream.foreachBatch(add_and_tell)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    run_stream(start_session(folder / "spark", "local[2]"), folder, lambda number: os._exit(9) if number == 1 else None)
