"""Python environments of jobs: which one an image name means, and the requirements that a job adds to it."""

from trainshed_worker.environments.python import INSIDE, PythonEnvironment

__all__ = ["INSIDE", "PythonEnvironment"]
