"""The engine: one bucket of one operator, batch by batch, exactly once, without Spark.

`bucket` holds the order of steps that makes a batch happen once, `logs` opens an operator's logs,
`watermark` agrees on one watermark for all buckets, `state` is what lives between two batches.
"""

from trailmark.engine.bucket import Bucket, Ingested
from trailmark.engine.logs import OperatorLogs
from trailmark.engine.report import BatchReport
from trailmark.engine.watermark import Watermark, Watermarks

__all__ = ["BatchReport", "Bucket", "Ingested", "OperatorLogs", "Watermark", "Watermarks"]
