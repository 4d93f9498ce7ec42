"""Metric points of jobs and hosts: stored once, summed up by period, listed, and the last of each for Describe."""

from trainshed_service.metrics.statistics import Bucket, UnknownStatistic, percentile_rank
from trainshed_service.metrics.store import FinalMetric, MetricKey, MetricStore

__all__ = ["Bucket", "FinalMetric", "MetricKey", "MetricStore", "UnknownStatistic", "percentile_rank"]
