"""The operations of CloudWatch that training clients call."""

from trainshed_service.cloudwatch.data import get_metric_data, list_metrics, put_metric_data
from trainshed_service.cloudwatch.statistics import get_metric_statistics

OPERATIONS = {
    "GetMetricStatistics": get_metric_statistics,
    "GetMetricData": get_metric_data,
    "ListMetrics": list_metrics,
    "PutMetricData": put_metric_data,
}

__all__ = ["OPERATIONS"]
