"""What the tests of this folder say again and again."""

from __future__ import annotations

from typing import Any

from tests.support.api_process import ApiProcess
from tests.support.scripted_agent import ScriptedAgent
from tests.support.wait import wait_until

ROLE = "arn:aws:iam::123456789012:role/service-role/TrainshedExecutionRole"
TERMINAL = {"Completed", "Failed", "Stopped"}


def request(name: str, count: int = 1, instance_type: str = "ml.c5.xlarge", **members: Any) -> dict[str, Any]:
    return {
        "TrainingJobName": name,
        "RoleArn": ROLE,
        "AlgorithmSpecification": {"TrainingImage": "image", "TrainingInputMode": "File"},
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
        "ResourceConfig": {"InstanceType": instance_type, "InstanceCount": count, "VolumeSizeInGB": 10},
        "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
        **members,
    }


def create(api: ApiProcess, name: str, count: int = 1, **members: Any) -> str:
    return str(api.client().create_training_job(**request(name, count, **members))["TrainingJobArn"])


def describe(api: ApiProcess, name: str) -> dict[str, Any]:
    answer: dict[str, Any] = api.client().describe_training_job(TrainingJobName=name)
    return answer


def secondary(api: ApiProcess, name: str) -> list[str]:
    return [row["Status"] for row in describe(api, name)["SecondaryStatusTransitions"]]


def step_until(agents: list[ScriptedAgent], condition: Any, timeout: float = 30, what: str = "") -> Any:
    """Let the agents go on until the condition holds."""

    def look() -> Any:
        for agent in agents:
            agent.step()
        return condition()

    return wait_until(look, timeout=timeout, every=0.02, what=what)


def run_until(api: ApiProcess, agents: list[ScriptedAgent], name: str, status: str, timeout: float = 30) -> Any:
    def look() -> Any:
        found = describe(api, name)
        if found["TrainingJobStatus"] in TERMINAL and found["TrainingJobStatus"] != status:
            raise AssertionError(f"{name} is {found['TrainingJobStatus']}: {found.get('FailureReason')}")
        return found if found["TrainingJobStatus"] == status else None

    return step_until(agents, look, timeout, f"{name} is {status}")


def until_phase(agents: list[ScriptedAgent], phase: Any, hosts: int) -> None:
    """All hosts of the one job that runs stand at `phase`."""
    step_until(
        agents,
        lambda: [value for agent in agents for value in agent.phases().values()] == [phase] * hosts,
        what=f"{hosts} hosts at {phase}",
    )
