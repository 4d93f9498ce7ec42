"""Types that an installation adds by a file of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.sagemaker.test_rules import refusal, with_
from trainshed_service.providers import known_type
from trainshed_service.sagemaker import load_instance_types, validate


def test_a_file_in_the_home_adds_types(tmp_path: Path) -> None:
    assert load_instance_types(tmp_path) == []
    job = with_(ResourceConfig__InstanceType="ml.added-by-test.large")
    assert "Member must satisfy enum value set" in refusal(job)
    added = {"ml.added-by-test.large": {"vcpus": 8, "memoryGiB": 1.5, "accelerators": 2}}
    (tmp_path / "instance_types.json").write_text(json.dumps(added))
    assert load_instance_types(tmp_path) == ["ml.added-by-test.large"]
    assert validate("CreateTrainingJob", job) == []
    found = known_type("ml.added-by-test.large")
    assert found is not None
    assert (found.vcpus, found.memory_bytes, found.accelerators) == (8, 3 * 1024**3 // 2, 2)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"large": {"vcpus": 1, "memoryGiB": 1}}',
        '{"ml.a.b": {"vcpus": 0, "memoryGiB": 1}}',
        '{"ml.a.b": {"memoryGiB": 1}}',
        '{"ml.a.b": {"vcpus": 1, "memoryGiB": 1, "gpus": 4}}',
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "instance_types.json").write_text(text)
    with pytest.raises(ValueError, match=r"instance_types\.json does not list instance types"):
        load_instance_types(tmp_path)


def test_a_type_of_the_model_that_is_not_in_the_table_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainshed_service.sagemaker.validation.known_type", lambda name: None)
    assert "Add it to instance_types.json in the home" in refusal(with_())
