"""The operations of CloudWatch Logs that training clients call."""

from trainshed_service.cloudwatch_logs.operations import (
    describe_log_groups,
    describe_log_streams,
    filter_log_events,
    get_log_events,
)

OPERATIONS = {
    "DescribeLogGroups": describe_log_groups,
    "DescribeLogStreams": describe_log_streams,
    "GetLogEvents": get_log_events,
    "FilterLogEvents": filter_log_events,
}

__all__ = ["OPERATIONS"]
