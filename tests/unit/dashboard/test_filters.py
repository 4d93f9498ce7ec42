"""The address of the list of jobs as filters, and back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import QueryParams

from trainshed_service.dashboard.filters import SORTS, JobFilter
from trainshed_service.dashboard.reading import parse_cursor
from trainshed_service.dashboard.same import ps_of, search_of
from trainshed_service.sagemaker.search import compile_search

WORDS = st.text(min_size=1, max_size=20).map(str.strip).filter(bool)


@given(
    st.lists(st.sampled_from(["waiting", "failed", "stopped"]), unique=True),
    st.lists(WORDS, unique=True, max_size=3),
    st.lists(WORDS, unique=True, max_size=3),
    st.sampled_from(sorted(SORTS)),
    st.booleans(),
)
def test_an_address_says_the_filters_whole(
    statuses: list[str], tags: list[str], roles: list[str], sort: str, ascending: bool
) -> None:
    wanted = JobFilter(
        statuses=tuple(statuses),
        tags=tuple(tags),
        roles=tuple(roles),
        sort=sort,
        ascending=ascending,
        since="2026-01-31",
        text="a&b=%",
    )
    assert JobFilter.of(QueryParams(wanted.address().partition("?")[2])) == wanted


def test_what_is_no_filter_is_left_out() -> None:
    query = "status=nonsense&since=2026-13-01&until=tomorrow&sort=secret&order=sideways&user=&user=%20&q=%20"
    wanted = JobFilter.of(QueryParams(query))
    assert wanted == JobFilter() and wanted.is_empty and wanted.address() == "/jobs"


def test_a_second_click_on_a_heading_turns_the_order() -> None:
    by_name = JobFilter(before="x_1").sorted_by("name")
    assert (by_name.sort, by_name.ascending, by_name.before) == ("name", True, None)
    assert not by_name.sorted_by("name").ascending
    assert not by_name.sorted_by("changed").ascending


def test_both_days_are_within() -> None:
    wanted = JobFilter(since="2026-03-01", until="2026-03-01")
    assert wanted.since_epoch is not None and wanted.until_epoch == wanted.since_epoch + 86_400


@pytest.mark.parametrize("text", [None, "", "x", "_5", "nan", "1.5_", "1.5_x", "1_" + "9" * 30, "abc_5"])
def test_a_strange_cursor_starts_anew(text: str | None) -> None:
    assert parse_cursor(text) is None


def test_cursors_of_times_and_of_names() -> None:
    assert parse_cursor("17.25_9") == (17.25, 9)
    assert parse_cursor("a_name_9", is_text=True) == ("a_name", 9)


def test_the_search_that_is_shown_finds_what_the_page_shows() -> None:
    wanted = JobFilter(
        statuses=("failed", "stopped"), tags=("team=vision", "urgent"), types=("ml.c5.xlarge",), text="a"
    )
    body = json.loads(search_of(wanted, ["arn:aws:iam::1:role/x"]))
    search = compile_search(body["SearchExpression"])
    job = {
        "TrainingJobName": "cat",
        "TrainingJobStatus": "Failed",
        "RoleArn": "arn:aws:iam::1:role/x",
        "ResourceConfig": {"InstanceType": "ml.c5.xlarge"},
        "Tags": [{"Key": "team", "Value": "vision"}],
    }
    assert search.matches(job)
    assert search.matches({**job, "Tags": [{"Key": "urgent", "Value": "no"}], "TrainingJobStatus": "Stopped"})
    for change in ({"TrainingJobStatus": "Completed"}, {"Tags": []}, {"TrainingJobName": "dog"}, {"RoleArn": "other"}):
        assert not search.matches({**job, **change})


def test_the_command_knows_one_status() -> None:
    assert ps_of(JobFilter(statuses=("failed",))) == "trainshed ps --status Failed"
    assert ps_of(JobFilter(statuses=("waiting",))) == "trainshed ps --status InProgress"
    assert ps_of(JobFilter(statuses=("failed", "stopped"))) == ps_of(JobFilter()) == "trainshed ps"
