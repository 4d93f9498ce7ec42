"""Times of signatures that a test may shift at any hour: never across the end of a UTC day, which is another fault."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

STAMP = "%Y%m%dT%H%M%SZ"


def other_time_of_that_day(stamp: str, seconds: int) -> str:
    """`stamp` that many seconds earlier, or later where earlier would be the day before: its credential scope holds."""
    time = datetime.strptime(stamp, STAMP).replace(tzinfo=UTC)
    earlier, later = time - timedelta(seconds=seconds), time + timedelta(seconds=seconds)
    return (earlier if earlier.date() == time.date() else later).strftime(STAMP)
