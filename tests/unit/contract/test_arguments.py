"""Hyperparameters as the script's argument words."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainshed_worker.contract import decode, script_arguments, text


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"flag": "true"}, ["--flag", "True"]),
        ({"flag": "false"}, ["--flag", "False"]),
        ({"x": "-1"}, ["-x", "-1"]),
        ({"offset": "-0.5"}, ["--offset", "-0.5"]),
        ({"name": '"two words"'}, ["--name", "two words"]),
        ({"name": "two words"}, ["--name", "two words"]),
        ({"epochs": "1", "job_name": "my_job"}, ["--epochs", "1", "--job_name", "my_job"]),
        ({"b": "1", "a": "2"}, ["-a", "2", "-b", "1"]),
        ({"list": "[1, 2]"}, ["--list", "[1, 2]"]),
        ({"mp_parameters": '{"b": 2, "a": true}'}, ["--mp_parameters", "a=True,b=2"]),
        ({"empty": ""}, ["--empty", ""]),
        ({"nothing": "null"}, ["--nothing", "None"]),
        ({"value": "NaN"}, ["--value", "NaN"]),
        ({"sagemaker_program": '"t.py"', "lr": "0.1"}, ["--lr", "0.1"]),
        ({}, []),
    ],
)
def test_words(raw: dict[str, str], words: list[str]) -> None:
    assert script_arguments(raw) == words


@given(st.dictionaries(st.text(min_size=2), st.text()))
def test_each_value_is_one_word(raw: dict[str, str]) -> None:
    own = {key: value for key, value in raw.items() if not key.startswith("sagemaker_")}
    words = script_arguments(raw)
    assert words[0::2] == [f"--{key}" for key in sorted(own)]
    assert len(words) == 2 * len(own)


@given(st.text())
def test_json_strings_and_bare_strings_mean_the_same(value: str) -> None:
    assert text({"key": json.dumps(value)}, "key") == value


@given(st.text())
def test_decode_never_fails(value: str) -> None:
    decode(value)


def test_deeply_nested_value_stays_a_string() -> None:
    deep = "[" * 100_000
    assert decode(deep) == deep
