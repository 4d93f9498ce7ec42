"""What a metric is to CloudWatch and what it is here.

One namespace, `/aws/sagemaker/TrainingJobs`. A job's own metrics (MetricDefinitions) have the dimension
TrainingJobName=<job>, utilisation samples the dimension Host=<job>/algo-N. Anything else is a metric without points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from trainshed_service.metrics import MetricKey

NAMESPACE = "/aws/sagemaker/TrainingJobs"
_PERCENT = "Utilization"
"""The end of the names of a host's samples that are percentages: CPUUtilization, MemoryUtilization …"""


def key_of(namespace: str, name: str, dimensions: Sequence[Mapping[str, str]]) -> MetricKey | None:
    """Null: no such metric can have points here."""
    if namespace != NAMESPACE or len(dimensions) != 1:
        return None
    (dimension,) = dimensions
    if dimension["Name"] == "TrainingJobName":
        return MetricKey(dimension["Value"], name, None)
    if dimension["Name"] == "Host":
        job_name, slash, host = dimension["Value"].partition("/")
        return MetricKey(job_name, name, host) if slash and host else None
    return None


def dimensions_of(key: MetricKey) -> list[dict[str, str]]:
    if key.host is None:
        return [{"Name": "TrainingJobName", "Value": key.job_name}]
    return [{"Name": "Host", "Value": f"{key.job_name}/{key.host}"}]


def unit_of(key: MetricKey) -> str:
    return "Percent" if key.host is not None and key.name.endswith(_PERCENT) else "None"


def milliseconds(time: float | str) -> int:
    """A request's time, epoch seconds or ISO 8601 (UTC where it has no zone), in epoch milliseconds."""
    if isinstance(time, str):
        moment = datetime.fromisoformat(time)
        return round(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1000)
    return round(time * 1000)
