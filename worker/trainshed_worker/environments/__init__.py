"""Python environments of jobs: which one an image name means, and the requirements that a job adds to it."""

from trainshed_worker.environments.base import BaseEnvironment, BaseError, describe
from trainshed_worker.environments.layers import LayerStore
from trainshed_worker.environments.provide import Installed, base_for, provide, runtime_source
from trainshed_worker.environments.python import INSIDE, PythonEnvironment
from trainshed_worker.environments.skeletons import Skeletons
from trainshed_worker.environments.table import EnvironmentTable

__all__ = [
    "INSIDE",
    "BaseEnvironment",
    "BaseError",
    "EnvironmentTable",
    "Installed",
    "LayerStore",
    "PythonEnvironment",
    "Skeletons",
    "base_for",
    "describe",
    "provide",
    "runtime_source",
]
