"""The SM_* variables of the public training toolkit, computed from the same sources as the configuration files.

Scalars are plain text, everything else compact JSON with sorted keys; a missing value is the empty string. The names
are those of the toolkit's documentation.
"""

from collections.abc import Mapping
from typing import Any

from trainshed_worker.contract.arguments import argument_words
from trainshed_worker.contract.channels import channels
from trainshed_worker.contract.config_files import compact, input_data_config, resource_config
from trainshed_worker.contract.hyperparameters import (
    DISTRIBUTION_INSTANCE_GROUPS,
    LOG_LEVEL,
    PROGRAM,
    SUBMIT_DIRECTORY,
    framework_hyperparameters,
    raw_hyperparameters,
    text,
    user_hyperparameters,
)
from trainshed_worker.contract.layout import ML
from trainshed_worker.protocol import Assignment

FRAMEWORK_MODULE = "sagemaker_pytorch_container.training:main"
DEFAULT_LOG_LEVEL = 20
_DISTRIBUTIONS = (
    "sagemaker_mpi_enabled",
    "sagemaker_parameter_server_enabled",
    "sagemaker_distributed_dataparallel_enabled",
    "sagemaker_pytorch_ddp_enabled",
    "sagemaker_pytorch_xla_multi_worker_enabled",
    "sagemaker_multi_worker_mirrored_strategy_enabled",
)
"""With one of these on, and no groups named, the toolkit takes the instance's own group as that of the distribution."""
_GENERAL = (PROGRAM, SUBMIT_DIRECTORY, LOG_LEVEL, "sagemaker_job_name", "sagemaker_region")
"""Reserved hyperparameters that are no parameters of the framework (SM_FRAMEWORK_PARAMS leaves them out)."""


def variable_value(value: Any) -> str:
    """Text of one SM_* value."""
    if value is None:
        return ""
    return value if isinstance(value, str) else compact(value)


def module_name(program: str | None) -> str:
    """`train` for `train.py`; other programs (shell scripts) keep their name."""
    if program is None:
        return ""
    return program[: -len(".py")] if program.endswith(".py") else program


def training_environment(assignment: Assignment, network_interface: str) -> dict[str, Any]:
    """The toolkit's view of the instance: the object that SM_TRAINING_ENV holds as JSON."""
    raw = raw_hyperparameters(assignment.request)
    reserved = framework_hyperparameters(raw)
    resources = resource_config(assignment, network_interface)
    groups = {group["instance_group_name"]: group for group in resources["instance_groups"]}
    level = reserved.get(LOG_LEVEL, DEFAULT_LOG_LEVEL)
    program = text(raw, PROGRAM)
    current = resources["current_group_name"]
    distributed = reserved.get(DISTRIBUTION_INSTANCE_GROUPS)
    if not isinstance(distributed, list):
        distributed = [current] if any(reserved.get(name) for name in _DISTRIBUTIONS) else []
    distribution_hosts = [host for name in groups if name in distributed for host in groups[name]["hosts"]]
    master = (distribution_hosts or resources["hosts"])[0]
    return {
        "additional_framework_parameters": {k: v for k, v in reserved.items() if k not in _GENERAL},
        "channel_input_dirs": {c.name: str(ML / "input" / "data" / c.name) for c in channels(assignment)},
        "current_host": resources["current_host"],
        "current_instance_group": resources["current_group_name"],
        "current_instance_group_hosts": groups[resources["current_group_name"]]["hosts"],
        "current_instance_type": resources["current_instance_type"],
        "distribution_hosts": distribution_hosts,
        "distribution_instance_groups": distributed,
        "framework_module": FRAMEWORK_MODULE,
        "hosts": resources["hosts"],
        "hyperparameters": user_hyperparameters(raw),
        "input_config_dir": str(ML / "input" / "config"),
        "input_data_config": input_data_config(assignment),
        "input_dir": str(ML / "input"),
        "instance_groups": list(groups),
        "instance_groups_dict": groups,
        "is_hetero": len(groups) > 1,
        "is_master": resources["current_host"] == master,
        "job_name": assignment.job_name,
        "log_level": level,
        "master_hostname": master,
        "model_dir": str(ML / "model"),
        "module_dir": text(raw, SUBMIT_DIRECTORY) or str(ML / "code"),
        "module_name": module_name(program),
        "network_interface_name": resources["network_interface_name"],
        "num_cpus": assignment.vcpus,
        "num_gpus": assignment.accelerators,
        "num_neurons": 0,
        "output_data_dir": str(ML / "output" / "data"),
        "output_dir": str(ML / "output"),
        "output_intermediate_dir": str(ML / "output" / "intermediate"),
        "resource_config": resources,
        "user_entry_point": program or "",
    }


def toolkit_variables(assignment: Assignment, network_interface: str) -> dict[str, str]:
    """All SM_* variables of one instance."""
    env = training_environment(assignment, network_interface)
    values: Mapping[str, Any] = {
        "HOSTS": env["hosts"],
        "CURRENT_HOST": env["current_host"],
        "CURRENT_INSTANCE_TYPE": env["current_instance_type"],
        "CURRENT_INSTANCE_GROUP": env["current_instance_group"],
        "CURRENT_INSTANCE_GROUP_HOSTS": env["current_instance_group_hosts"],
        "INSTANCE_GROUPS": env["instance_groups"],
        "INSTANCE_GROUPS_DICT": env["instance_groups_dict"],
        "DISTRIBUTION_INSTANCE_GROUPS": env["distribution_instance_groups"],
        "IS_HETERO": env["is_hetero"],
        "NETWORK_INTERFACE_NAME": env["network_interface_name"],
        "HPS": env["hyperparameters"],
        "USER_ENTRY_POINT": env["user_entry_point"],
        "USER_ARGS": argument_words(env["hyperparameters"]),
        "FRAMEWORK_PARAMS": env["additional_framework_parameters"],
        "FRAMEWORK_MODULE": env["framework_module"],
        "RESOURCE_CONFIG": env["resource_config"],
        "INPUT_DATA_CONFIG": env["input_data_config"],
        "OUTPUT_DATA_DIR": env["output_data_dir"],
        "OUTPUT_DIR": env["output_dir"],
        "OUTPUT_INTERMEDIATE_DIR": env["output_intermediate_dir"],
        "CHANNELS": sorted(env["channel_input_dirs"]),
        "MODULE_NAME": env["module_name"],
        "MODULE_DIR": env["module_dir"],
        "LOG_LEVEL": env["log_level"],
        "INPUT_DIR": env["input_dir"],
        "INPUT_CONFIG_DIR": env["input_config_dir"],
        "NUM_CPUS": env["num_cpus"],
        "NUM_GPUS": env["num_gpus"],
        "NUM_NEURONS": env["num_neurons"],
        "MODEL_DIR": env["model_dir"],
        "TRAINING_ENV": env,
    }
    variables = {f"SM_{name}": variable_value(value) for name, value in values.items()}
    for channel, directory in env["channel_input_dirs"].items():
        variables[f"SM_CHANNEL_{channel.upper()}"] = directory
    for key, value in env["hyperparameters"].items():
        name = f"SM_HP_{key.upper()}"
        if "=" not in name and "\0" not in name:
            variables[name] = variable_value(value)
    return variables
