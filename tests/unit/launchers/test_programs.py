"""The entry point: kinds of files, sub-folders, and what is said when it is not there."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.launching import make_assignment, make_environment
from trainshed_worker.contract import InstanceLayout
from trainshed_worker.launchers import LaunchRefused, plan
from trainshed_worker.launchers.mpi_options import parse

PYTHON = "/opt/python/bin/python3"


@pytest.fixture
def layout(tmp_path: Path) -> InstanceLayout:
    found = InstanceLayout(tmp_path)
    found.create()
    return found


def argv(layout: InstanceLayout, program: str, **hyperparameters: str) -> list[str]:
    request = {"HyperParameters": {"sagemaker_program": program, **hyperparameters}}
    return plan(make_assignment(request), layout, make_environment()).commands[0].argv


def test_a_script_in_a_sub_folder_runs_from_the_code_folder(layout: InstanceLayout) -> None:
    (layout.code / "sub").mkdir()
    (layout.code / "sub" / "train.py").write_text("")
    assert argv(layout, "sub/train.py") == [PYTHON, "/opt/ml/code/sub/train.py"]


def test_a_missing_script_is_named_with_the_top_level_of_the_archive(layout: InstanceLayout) -> None:
    (layout.code / "src").mkdir()
    for number in range(24):
        (layout.code / f"f{number:02}.py").write_text("")
    with pytest.raises(LaunchRefused) as refused:
        argv(layout, '"train.py"')
    assert "'train.py'" in refused.value.message
    assert "f00.py, f01.py" in refused.value.message
    assert "f20.py" not in refused.value.message
    assert refused.value.message.endswith("and 5 more.")


def test_an_empty_archive_is_called_empty(layout: InstanceLayout) -> None:
    with pytest.raises(LaunchRefused, match="archive is empty"):
        argv(layout, "train.py")


@pytest.mark.parametrize("name", ["/etc/passwd", "../train.py", "a/../../train.py"])
def test_an_entry_point_outside_of_the_archive_is_refused(layout: InstanceLayout, name: str) -> None:
    with pytest.raises(LaunchRefused, match="inside the source archive"):
        argv(layout, name)


def test_a_link_that_leads_out_of_the_archive_is_refused(layout: InstanceLayout, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("#!/bin/secret-interpreter\n")
    (layout.code / "train.sh").symlink_to(secret)
    with pytest.raises(LaunchRefused, match="inside the source archive"):
        argv(layout, "train.sh")


def test_shell_scripts_run_by_their_first_line_or_by_sh(layout: InstanceLayout) -> None:
    (layout.code / "plain.sh").write_text("echo hello\n")
    (layout.code / "bash.sh").write_text("#!/usr/bin/env -S bash -e\necho hello\n")
    assert argv(layout, "plain.sh", lr="0.1") == ["/bin/sh", "/opt/ml/code/plain.sh", "--lr", "0.1"]
    assert argv(layout, "bash.sh") == ["/usr/bin/env", "-S bash -e", "/opt/ml/code/bash.sh"]


def test_a_package_runs_as_a_module(layout: InstanceLayout) -> None:
    (layout.code / "pkg").mkdir()
    (layout.code / "pkg" / "train.py").write_text("")
    (layout.code / "setup.py").write_text("")
    assert argv(layout, "pkg/train.py") == [PYTHON, "-m", "pkg.train"]


def test_torchrun_gets_a_shell_script_as_no_python(layout: InstanceLayout) -> None:
    (layout.code / "train.sh").write_text("")
    words = argv(layout, "train.sh", sagemaker_torch_distributed_enabled="true")
    assert words[-3:] == ["--no-python", "/bin/sh", "/opt/ml/code/train.sh"]


def test_a_file_that_nothing_can_run_is_refused(layout: InstanceLayout) -> None:
    (layout.code / "train.txt").write_text("hello\n")
    with pytest.raises(LaunchRefused, match=r"not a \.py or \.sh file"):
        argv(layout, "train.txt")


def test_arguments_are_sorted_and_each_value_is_one_word(layout: InstanceLayout) -> None:
    (layout.code / "train.py").write_text("")
    words = argv(layout, "train.py", z="-1", name="two words", flag="true", a='"x"')
    assert words[2:] == ["-a", "x", "--flag", "True", "--name", "two words", "-z", "-1"]


@given(
    st.dictionaries(
        st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True),
        st.text(st.characters(codec="ascii", exclude_categories=["C"]), max_size=12),
        max_size=4,
    )
)
def test_every_variable_of_the_mpi_options_arrives_whatever_its_value(variables: dict[str, str]) -> None:
    import shlex

    words = [word for name, value in variables.items() for word in ("-x", f"{name}={value}")]
    assert parse(shlex.join(words), {}).variables == variables


def test_mpi_options_name_what_is_ignored() -> None:
    options = parse("-x A -x MISSING --mca btl ^openib --NCCL_DEBUG INFO", {"A": "here"})
    assert options.variables == {"A": "here", "NCCL_DEBUG": "INFO"}
    assert options.ignored == ["-x", "MISSING", "--mca", "btl", "^openib"]
    assert "--mca btl" in options.notices()[0]
