"""The AWS CLI, unmodified."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.jobs import GROUP, job_request, upload_source
from tests.support.stack import Stack, run


@pytest.fixture(scope="session")
def aws(stack: Stack, client_python) -> Callable[..., str]:
    program = client_python("awscli").with_name("aws")

    def call(*words: str | Path, check: bool = True) -> str:
        completed = run(program, *words, env=stack.env, timeout=240, check=check)
        return completed.stdout + (completed.stderr if not check else "")

    return call


def test_sagemaker_and_its_waiter_logs_and_metrics(stack: Stack, aws, bucket: str, job_name: str, tmp_path: Path):
    source = upload_source(stack, bucket, {"t.py": "print('hello loss=0.5;')\n"})
    request = job_request(stack, bucket, job_name, source=source, program="t.py")
    request["AlgorithmSpecification"]["MetricDefinitions"] = [{"Name": "loss", "Regex": "loss=([0-9.]+);"}]
    file = tmp_path / "job.json"
    file.write_text(json.dumps(request))
    created = json.loads(aws("sagemaker", "create-training-job", "--cli-input-json", f"file://{file}"))
    arn = created["TrainingJobArn"]
    assert arn.endswith(f":training-job/{job_name}")
    again = aws("sagemaker", "create-training-job", "--cli-input-json", f"file://{file}", check=False)
    assert "ResourceInUse" in again
    aws("sagemaker", "add-tags", "--resource-arn", arn, "--tags", "Key=a,Value=b")
    assert json.loads(aws("sagemaker", "list-tags", "--resource-arn", arn))["Tags"] == [{"Key": "a", "Value": "b"}]
    listed = json.loads(aws("sagemaker", "list-training-jobs", "--name-contains", job_name, "--page-size", "1"))
    assert [job["TrainingJobName"] for job in listed["TrainingJobSummaries"]] == [job_name]
    wait_for_status_of_cli(aws, job_name)
    streams = json.loads(
        aws("logs", "describe-log-streams", "--log-group-name", GROUP, "--log-stream-name-prefix", f"{job_name}/")
    )["logStreams"]
    events = aws(
        *("logs", "get-log-events", "--log-group-name", GROUP, "--start-from-head"),
        *("--log-stream-name", streams[0]["logStreamName"]),
    )
    assert "hello loss=0.5;" in events
    filtered = aws(
        *("logs", "filter-log-events", "--log-group-name", GROUP, "--filter-pattern", "hello"),
        *("--log-stream-name-prefix", job_name),
    )
    assert len(json.loads(filtered)["events"]) == 1
    metrics = json.loads(
        aws(
            *("cloudwatch", "list-metrics", "--namespace", "/aws/sagemaker/TrainingJobs"),
            *("--dimensions", f"Name=TrainingJobName,Value={job_name}"),
        )
    )
    assert [metric["MetricName"] for metric in metrics["Metrics"]] == ["loss"]
    aws("sagemaker", "delete-training-job", "--training-job-name", job_name)
    assert "Requested resource not found" in aws(
        "sagemaker", "describe-training-job", "--training-job-name", job_name, check=False
    )


def wait_for_status_of_cli(aws, name: str) -> None:
    """The CLI's own waiter looks every 120 s, so the job is most likely over before the first look but one."""
    from tests.support.wait import wait_until

    def ended() -> bool:
        described = json.loads(aws("sagemaker", "describe-training-job", "--training-job-name", name))
        return described["TrainingJobStatus"] in {"Completed", "Failed"}

    wait_until(ended, timeout=90, every=1, what=f"{name} ends")
    aws("sagemaker", "wait", "training-job-completed-or-stopped", "--training-job-name", name)


def test_sts_and_iam(stack: Stack, aws):
    identity = json.loads(aws("sts", "get-caller-identity"))
    assert identity["Account"] == stack.role.split(":")[4]
    role = json.loads(aws("iam", "get-role", "--role-name", stack.role.rsplit("/", 1)[1]))["Role"]
    assert role["Arn"] == stack.role


def test_s3_copy_sync_list_presign_remove(stack: Stack, aws, bucket: str, job_name: str, tmp_path: Path):
    folder = tmp_path / "up"
    (folder / "sub").mkdir(parents=True)
    (folder / "a b+c.txt").write_text("a")
    (folder / "sub" / "big.bin").write_bytes(bytes(range(256)) * 4096 * 20)
    target = f"s3://{bucket}/{job_name}"
    aws("s3", "sync", folder, target)
    listed = aws("s3", "ls", "--recursive", f"{target}/")
    assert "a b+c.txt" in listed and "sub/big.bin" in listed
    aws("s3", "cp", "--sse", "aws:kms", folder / "sub" / "big.bin", f"{target}/kms.bin")
    back = tmp_path / "back"
    aws("s3", "cp", f"{target}/kms.bin", back)
    assert back.read_bytes() == (folder / "sub" / "big.bin").read_bytes()
    assert run("curl", "-fsS", aws("s3", "presign", f"{target}/a b+c.txt").strip(), env=stack.env).stdout == "a"
    aws("s3", "rm", "--recursive", f"{target}/")
    assert aws("s3", "ls", "--recursive", f"{target}/", check=False).strip() == ""
