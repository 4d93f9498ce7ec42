"""The plan for each distribution, from the hyperparameters exactly as SageMaker's SDKs send them."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.launching import make_assignment, make_environment
from trainshed_worker.contract import InstanceLayout
from trainshed_worker.launchers import LaunchPlan, LaunchRefused, plan
from trainshed_worker.protocol import FailureCause

RECORDED = json.loads((Path(__file__).parent / "recorded_requests.json").read_text())
USER_ARGUMENTS = ["--epochs", "3", "--flag", "True", "--list", "[1, 2]", "--lr", "0.1", "--name", "abc"]
PYTHON = "/opt/python/bin/python3"
SCRIPT = "/opt/ml/code/train.py"


@pytest.fixture
def layout(tmp_path: Path) -> InstanceLayout:
    found = InstanceLayout(tmp_path)
    found.create()
    (found.code / "train.py").write_text("print('hello')\n")
    return found


def plan_for(
    name: str, layout: InstanceLayout, rank: int = 0, path: Path | str = "/nowhere", **changes: Any
) -> LaunchPlan:
    return plan(make_assignment(RECORDED[name], rank=rank, **changes), layout, make_environment(path))


def test_no_distribution_runs_the_script_once_per_host_in_its_own_stream(layout: InstanceLayout) -> None:
    for rank in (0, 1):
        (command,) = plan_for("none", layout, rank).commands
        assert command.argv == [PYTHON, SCRIPT, *USER_ARGUMENTS]
        assert command.cwd == "/opt/ml/code"
        assert command.stream == f"algo-{rank + 1}"
        assert command.prefix == ""
        assert "RANK" not in command.env
        assert command.env["MASTER_ADDR"] == "algo-1"


@pytest.mark.parametrize("name", ["torch_distributed", "modelparallel_v2"])
def test_torch_distributed_is_torchrun_on_every_host(name: str, layout: InstanceLayout) -> None:
    for rank in (0, 1):
        found = plan_for(name, layout, rank)
        (command,) = found.commands
        assert command.argv[:9] == [
            PYTHON,
            "-m",
            "torch.distributed.run",
            "--nnodes=2",
            "--nproc_per_node=2",
            f"--node_rank={rank}",
            "--master_addr=algo-1",
            "--master_port=7777",
            SCRIPT,
        ]
        assert command.argv[-len(USER_ARGUMENTS) :] == (
            USER_ARGUMENTS if name == "torch_distributed" else command.argv[-len(USER_ARGUMENTS) :]
        )
        assert command.stream == f"algo-{rank + 1}"
        assert found.processes_per_host == 2


def test_model_parallel_parameters_reach_the_script_as_one_word(layout: InstanceLayout) -> None:
    argv = plan_for("modelparallel_v2", layout).commands[0].argv
    assert argv[argv.index("--mp_parameters") + 1] == "hybrid_shard_degree=8,sm_activation_offloading=True"


@pytest.mark.parametrize("name", ["pytorchddp", "smddp"])
def test_data_parallel_starts_tagged_ranks_whose_lines_go_to_the_first_host(name: str, layout: InstanceLayout) -> None:
    found = plan_for(name, layout, rank=1)
    assert found.launcher == "smdistributed.dataparallel"
    assert [command.rank for command in found.commands] == [2, 3]
    for local_rank, command in enumerate(found.commands):
        rank = str(2 + local_rank)
        assert command.argv == [PYTHON, SCRIPT, *USER_ARGUMENTS]
        assert command.stream == "algo-1"
        assert command.prefix == f"[1,{rank}]<stdout>:"
        assert command.local_rank == local_rank
        expected = {
            "RANK": rank,
            "WORLD_SIZE": "4",
            "LOCAL_RANK": str(local_rank),
            "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": "algo-1",
            "MASTER_PORT": "7777",
            "OMPI_COMM_WORLD_RANK": rank,
            "OMPI_COMM_WORLD_SIZE": "4",
            "OMPI_COMM_WORLD_LOCAL_RANK": str(local_rank),
            "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
        }
        assert {key: command.env[key] for key in expected} == expected


def test_data_parallel_honours_variables_of_the_custom_mpi_options(layout: InstanceLayout) -> None:
    assert plan_for("smddp", layout).commands[0].env["FOO"] == "1"


def test_mpi_without_open_mpi_starts_the_ranks_itself_and_says_so(layout: InstanceLayout) -> None:
    found = plan_for("mpi", layout, instance_type="ml.c5.xlarge", accelerators=0, stand_in=False)
    assert found.launcher == "mpi"
    assert len(found.commands) == 4
    assert found.commands[3].env["WORLD_SIZE"] == "8"
    assert found.commands[0].env["NCCL_DEBUG"] == "INFO"
    assert any("no Open MPI" in notice for notice in found.notices)


def test_model_parallel_v1_caps_processes_at_the_stand_ins_devices(layout: InstanceLayout) -> None:
    found = plan_for("modelparallel_v1", layout)
    assert found.launcher == "smdistributed.modelparallel"
    assert found.processes_per_host == 2
    assert any("8 processes per host were asked for" in notice for notice in found.notices)
    assert any("-verbose" in notice for notice in found.notices)
    assert found.commands[0].env["NCCL_DEBUG"] == "WARN"


def open_mpi(folder: Path) -> Path:
    for name in ("mpirun", "orted"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return folder


def test_mpi_with_open_mpi_is_mpirun_on_the_first_host_only(layout: InstanceLayout, tmp_path: Path) -> None:
    path = open_mpi(tmp_path)
    (lead,) = plan_for("modelparallel_v1", layout, path=path).commands
    assert lead.argv[0] == f"{path}/mpirun"
    assert lead.argv[lead.argv.index("--host") + 1] == "algo-1:2,algo-2:2"
    assert lead.argv[lead.argv.index("-np") + 1] == "4"
    assert "--tag-output" in lead.argv
    assert lead.argv[lead.argv.index("-x") + 1] == "NCCL_DEBUG"
    assert lead.env["NCCL_DEBUG"] == "WARN"
    assert lead.argv[lead.argv.index("btl_tcp_if_include") + 1] == "eth0"
    assert lead.argv[lead.argv.index(SCRIPT) - 1] == PYTHON
    assert lead.stream == "algo-1"
    (other,) = plan_for("modelparallel_v1", layout, rank=1, path=path).commands
    assert other.argv[3].endswith("rsh/server.py")
    assert other.stream == "algo-2"
    assert lead.env["TRAINSHED_RSH_PEERS"] == f"algo-2={other.argv[-1]}"
    for command in (lead, other):
        assert command.env["TRAINSHED_GANG_SECRET"] == "secret-of-the-attempt"
        assert "secret-of-the-attempt" not in " ".join(command.argv)


@pytest.mark.parametrize("change", [{"gang_secret": None}, {"environment": {"TRAINSHED_MPIRUN": "0"}}])
def test_mpirun_is_left_alone_without_a_secret_or_when_switched_off(
    layout: InstanceLayout, tmp_path: Path, change: dict[str, Any]
) -> None:
    request = {**RECORDED["mpi"], "Environment": change.pop("environment", {})}
    found = plan(make_assignment(request, **change), layout, make_environment(open_mpi(tmp_path)))
    assert [command.rank for command in found.commands] == [0, 1]
    assert any("without an MPI library" in notice for notice in found.notices)


def test_parameter_server_is_refused_in_words(layout: InstanceLayout) -> None:
    with pytest.raises(LaunchRefused, match="parameter_server") as refused:
        plan_for("parameter_server", layout)
    assert refused.value.cause is FailureCause.UNSUPPORTED


def test_heterogeneous_groups_run_the_distribution_in_the_named_group_only(layout: InstanceLayout) -> None:
    groups = ["g1", "g2", "g2"]
    outside = plan_for("heterogeneous", layout, hosts=3, groups=groups)
    assert outside.launcher == "script"
    inside = plan_for("heterogeneous", layout, rank=2, hosts=3, groups=groups)
    assert [command.rank for command in inside.commands] == [2, 3]
    assert inside.commands[0].env["WORLD_SIZE"] == "4"
    assert inside.commands[0].env["MASTER_ADDR"] == "algo-2"
    assert inside.commands[0].stream == "algo-2"


def test_an_unknown_instance_group_is_named(layout: InstanceLayout) -> None:
    with pytest.raises(LaunchRefused, match="'g2', but the job has only homogeneousCluster"):
        plan_for("heterogeneous", layout)


@pytest.mark.parametrize("name", ["v3_plain", "v3_torchrun"])
def test_sdk_v3_drivers_run_as_they_are(name: str, layout: InstanceLayout) -> None:
    (command,) = plan_for(name, layout).commands
    assert command.argv[:2] == ["/bin/bash", "-c"]
    assert command.argv[2].endswith("/opt/ml/input/data/sm_drivers/sm_train.sh")
    assert len(command.argv) == 3


def test_sdk_v3_mpi_driver_is_refused_in_words(layout: InstanceLayout) -> None:
    drivers = layout.input_data / "sm_drivers"
    drivers.mkdir()
    script = "$SM_PYTHON_CMD /opt/ml/input/data/sm_drivers/distributed_drivers/{}\n"
    (drivers / "sm_train.sh").write_text(script.format("torchrun_driver.py"))
    assert plan_for("v3_mpi", layout).commands
    (drivers / "sm_train.sh").write_text(script.format("mpi_driver.py"))
    with pytest.raises(LaunchRefused, match=r"SSH.*Torchrun") as refused:
        plan_for("v3_mpi", layout)
    assert refused.value.cause is FailureCause.UNSUPPORTED


def test_without_a_program_the_train_command_runs_or_is_missed_in_words(layout: InstanceLayout, tmp_path: Path) -> None:
    assignment = make_assignment({"HyperParameters": {"lr": "0.1"}})
    with pytest.raises(LaunchRefused, match="the environment has no such command"):
        plan(assignment, layout, make_environment(tmp_path))
    (tmp_path / "train").write_text("#!/bin/sh\n")
    (tmp_path / "train").chmod(0o755)
    (command,) = plan(assignment, layout, make_environment(tmp_path)).commands
    assert command.argv == ["train"]


def test_arguments_alone_are_a_command(layout: InstanceLayout) -> None:
    request = {"AlgorithmSpecification": {"ContainerArguments": ["/bin/echo", "two words"]}}
    assert plan(make_assignment(request), layout, make_environment()).commands[0].argv == ["/bin/echo", "two words"]


def test_stand_in_shim_is_on_the_path_of_stand_ins_only_and_can_be_switched_off(layout: InstanceLayout) -> None:
    on = plan_for("torch_distributed", layout)
    assert on.commands[0].env["PYTHONPATH"].split(":")[0].endswith("trainshed_runtime/standin_hook")
    assert any("stands in for ml.g5.12xlarge" in notice and "is on" in notice for notice in on.notices)
    real = plan_for("torch_distributed", layout, stand_in=False)
    assert "standin_hook" not in real.commands[0].env["PYTHONPATH"]
    assert real.notices == []
    request = {**RECORDED["torch_distributed"], "Environment": {"TRAINSHED_STANDIN": "0"}}
    off = plan(make_assignment(request), layout, make_environment())
    assert "standin_hook" not in off.commands[0].env["PYTHONPATH"]
    assert any("off (TRAINSHED_STANDIN)" in notice for notice in off.notices)


@pytest.mark.parametrize(("cpus", "threads"), [(1, "1"), (4, "1"), (8, "2")])
def test_threads_follow_the_cores_there_are(layout: InstanceLayout, cpus: int, threads: str) -> None:
    found = plan(make_assignment(RECORDED["pytorchddp"]), layout, make_environment(cpus=cpus, OMP_NUM_THREADS="9"))
    assert found.commands[0].env["OMP_NUM_THREADS"] == threads
    request = {**RECORDED["pytorchddp"], "Environment": {"OMP_NUM_THREADS": "9"}}
    found = plan(make_assignment(request), layout, make_environment(cpus=cpus, OMP_NUM_THREADS="9"))
    assert found.commands[0].env["OMP_NUM_THREADS"] == "9"


def test_the_jobs_own_master_address_stands(layout: InstanceLayout) -> None:
    request = {**RECORDED["torch_distributed"], "Environment": {"MASTER_ADDR": "elsewhere", "MASTER_PORT": "29500"}}
    environment = make_environment(MASTER_ADDR="elsewhere", MASTER_PORT="29500")
    argv = plan(make_assignment(request), layout, environment).commands[0].argv
    assert "--master_addr=elsewhere" in argv
    assert "--master_port=29500" in argv


@pytest.mark.parametrize("value", ["true", '"true"', "True", '"True"', "1"])
def test_enabled_is_understood_in_every_form(layout: InstanceLayout, value: str) -> None:
    request = {"HyperParameters": {"sagemaker_program": "train.py", "sagemaker_torch_distributed_enabled": value}}
    assert plan(make_assignment(request), layout, make_environment()).launcher == "torch_distributed"


@pytest.mark.parametrize("value", ["false", '"false"', "False", "0", '""'])
def test_disabled_is_understood_in_every_form(layout: InstanceLayout, value: str) -> None:
    request = {"HyperParameters": {"sagemaker_program": "train.py", "sagemaker_torch_distributed_enabled": value}}
    assert plan(make_assignment(request), layout, make_environment()).launcher == "script"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sagemaker_mpi_enabled", "maybe"),
        ("sagemaker_mpi_num_of_processes_per_host", "many"),
        ("sagemaker_mpi_num_of_processes_per_host", "0"),
        ("sagemaker_mpi_custom_mpi_options", "-x"),
        ("sagemaker_mpi_custom_mpi_options", "-x 'A=1"),
    ],
)
def test_a_wrong_value_is_refused_by_name(layout: InstanceLayout, name: str, value: str) -> None:
    request = {"HyperParameters": {"sagemaker_program": "train.py", "sagemaker_mpi_enabled": "true", name: value}}
    with pytest.raises(LaunchRefused, match=name.removeprefix("sagemaker_mpi_")) as refused:
        plan(make_assignment(request), layout, make_environment())
    assert refused.value.cause is FailureCause.USER_INPUT
