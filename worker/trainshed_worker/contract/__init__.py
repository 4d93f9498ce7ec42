"""The container contract of SageMaker: /opt/ml, its configuration files, the environment and the script's arguments.

Pure functions of an assignment and a layout; only `write_config_files` and `InstanceLayout.create` touch the disk.
"""

from trainshed_worker.contract.arguments import argument_words, script_arguments
from trainshed_worker.contract.channels import Channel, channels
from trainshed_worker.contract.config_files import config_files, write_config_files
from trainshed_worker.contract.environment import NetworkFacts, process_environment
from trainshed_worker.contract.hyperparameters import (
    decode,
    framework_hyperparameters,
    raw_hyperparameters,
    text,
    user_hyperparameters,
)
from trainshed_worker.contract.layout import DEFAULT_CHECKPOINTS, INPUT_DATA, ML, WARM_POOL_CACHE, InstanceLayout
from trainshed_worker.contract.mounts import OVERLAY, ml_binds

__all__ = [
    "DEFAULT_CHECKPOINTS",
    "INPUT_DATA",
    "ML",
    "OVERLAY",
    "WARM_POOL_CACHE",
    "Channel",
    "InstanceLayout",
    "NetworkFacts",
    "argument_words",
    "channels",
    "config_files",
    "decode",
    "framework_hyperparameters",
    "ml_binds",
    "process_environment",
    "raw_hyperparameters",
    "script_arguments",
    "text",
    "user_hyperparameters",
    "write_config_files",
]
