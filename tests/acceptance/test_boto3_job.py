"""The life of a job through boto3: two instances, logs, artifacts, failure, stop, limits."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from botocore.exceptions import ClientError, WaiterError

from tests.acceptance.conftest import SCRIPTS
from tests.support.jobs import (
    GROUP,
    job_request,
    log_lines,
    model_files,
    run_script,
    upload_source,
    wait_for_end,
    wait_for_line,
    wait_for_status,
)
from tests.support.stack import Stack
from tests.support.wait import wait_until

Described = dict[str, Any]
PLAIN = {"plain.py": (SCRIPTS / "plain.py").read_text()}
WAIT = {"wait.py": "import signal\nprint('waiting', flush=True)\nsignal.pause()\n"}


def seconds_of_training(described: Described) -> int:
    """Of one instance, as AWS counts them."""
    return round((described["TrainingEndTime"] - described["TrainingStartTime"]).total_seconds())


def phase_ends(stack: Stack, name: str, phase: str) -> dict[str, float]:
    """When each host left this phase, from the job's ledger."""
    headers = {"Authorization": f"Bearer {stack.env['TRAINSHED_TOKEN']}"}
    url = f"{stack.env['AWS_ENDPOINT_URL']}/v1/training-jobs/{name}"
    rows = httpx.get(url, headers=headers, trust_env=False, timeout=30).json()["Phases"]
    return {row["Host"]: row["EndTime"] for row in rows if row["Phase"] == phase}


def test_two_instances_data_logs_and_artifacts(stack: Stack, bucket: str, job_name: str):
    s3 = stack.client("s3")
    s3.put_object(Bucket=bucket, Key=f"{job_name}/train/a b.txt", Body=b"a")
    s3.put_object(Bucket=bucket, Key=f"{job_name}/train/sub/b.txt", Body=b"b")
    channel = {
        "ChannelName": "train",
        "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://{bucket}/{job_name}/train"}},
    }
    run_script(
        stack, bucket, job_name, PLAIN, "plain.py", count=2, InputDataConfig=[channel], hyperparameters={"epochs": "2"}
    )
    described = wait_for_end(stack, job_name)
    assert described["TrainingJobStatus"] == "Completed", described
    lines = log_lines(stack, job_name)
    assert set(lines) == {"algo-1", "algo-2"}
    for host, read in lines.items():
        assert read.count(f'channel train on {host}: ["a b.txt", "sub/b.txt"]') == 1, read
        assert read.count("epoch=1 loss=0.5000;") == 1
    assert set(model_files(stack, described)) == {"model-algo-1.json", "model-algo-2.json"}
    secondary = [step["Status"] for step in described["SecondaryStatusTransitions"]]
    assert secondary == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    assert all(step["StatusMessage"] for step in described["SecondaryStatusTransitions"])
    assert described["BillableTimeInSeconds"] == described["TrainingTimeInSeconds"] == seconds_of_training(described)
    output = s3.list_objects_v2(Bucket=bucket, Prefix=f"out/{job_name}/")
    assert {entry["Key"].rsplit("/", 1)[1] for entry in output["Contents"]} == {"model.tar.gz", "output.tar.gz"}


def test_streams_of_all_hosts_exist_when_the_job_starts(stack: Stack, bucket: str, job_name: str):
    logs, sagemaker = stack.client("logs"), stack.client("sagemaker")
    run_script(stack, bucket, job_name, WAIT, "wait.py", count=2)
    wait_until(
        lambda: sagemaker.describe_training_job(TrainingJobName=job_name)["SecondaryStatus"] == "Training",
        timeout=60,
        what="the job trains",
    )
    found = logs.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix=f"{job_name}/")["logStreams"]
    names = [stream["logStreamName"].split("/")[1].rsplit("-", 1)[0] for stream in found]
    assert names == ["algo-1", "algo-2"], "at the first look"
    sagemaker.stop_training_job(TrainingJobName=job_name)
    assert wait_for_end(stack, job_name)["TrainingJobStatus"] == "Stopped"


def test_the_first_failure_ends_the_gang_and_is_the_reason(stack: Stack, bucket: str, job_name: str):
    script = """import os, signal, sys
print("up", flush=True)
if os.environ["SM_CURRENT_HOST"] == "algo-2":
    raise RuntimeError("CUDA is a state of mind")
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as one that hangs in a collective
while True:
    signal.pause()
"""
    run_script(stack, bucket, job_name, {"t.py": script}, "t.py", count=2)
    described = wait_for_end(stack, job_name, timeout=60)
    assert described["TrainingJobStatus"] == "Failed"
    reason = described["FailureReason"]
    assert "algo-2" in reason and "RuntimeError: CUDA is a state of mind" in reason and "AlgorithmError" in reason
    ended = phase_ends(stack, job_name, "running")
    assert 0 <= ended["algo-1"] - ended["algo-2"] < 10, "from the failure to the end of the other host's processes"


def test_a_signal_is_decoded(stack: Stack, bucket: str, job_name: str):
    script = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n"
    run_script(stack, bucket, job_name, {"t.py": script}, "t.py")
    reason = wait_for_end(stack, job_name)["FailureReason"]
    assert "139" in reason and "SIGSEGV" in reason and "algo-1" in reason


def test_the_failure_file_is_the_reason(stack: Stack, bucket: str, job_name: str):
    script = "import sys\nopen('/opt/ml/output/failure', 'w').write('no such column: label')\nsys.exit(7)\n"
    run_script(stack, bucket, job_name, {"t.py": script}, "t.py")
    reason = wait_for_end(stack, job_name)["FailureReason"]
    assert "no such column: label" in reason and "7" in reason


def test_stop_keeps_what_the_script_saved_on_sigterm(stack: Stack, bucket: str, job_name: str):
    script = """import os, pathlib, signal, sys
def save(*_):
    pathlib.Path(os.environ["SM_MODEL_DIR"], "half.txt").write_text("half")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
while True:
    signal.pause()
"""
    run_script(stack, bucket, job_name, {"t.py": script}, "t.py")
    wait_for_line(stack, job_name, "ready")
    stack.client("sagemaker").stop_training_job(TrainingJobName=job_name)
    described = wait_for_end(stack, job_name)
    assert described["TrainingJobStatus"] == "Stopped" and described["SecondaryStatus"] == "Stopped"
    assert model_files(stack, described) == {"half.txt": b"half"}


def test_max_runtime_stops_the_job_and_keeps_the_artifact(stack: Stack, bucket: str, job_name: str):
    script = """import os, pathlib, signal
pathlib.Path(os.environ["SM_MODEL_DIR"], "m.txt").write_text("m")
signal.pause()
"""
    run_script(stack, bucket, job_name, {"t.py": script}, "t.py", max_runtime=5)
    client = stack.client("sagemaker")
    client.get_waiter("training_job_completed_or_stopped").wait(
        TrainingJobName=job_name, WaiterConfig={"Delay": 1, "MaxAttempts": 90}
    )
    described = client.describe_training_job(TrainingJobName=job_name)
    assert (described["TrainingJobStatus"], described["SecondaryStatus"]) == ("Stopped", "MaxRuntimeExceeded")
    assert described["BillableTimeInSeconds"] == described["TrainingTimeInSeconds"] == seconds_of_training(described)
    assert described["BillableTimeInSeconds"] >= 5
    assert model_files(stack, described) == {"m.txt": b"m"}


def test_a_job_that_waits_in_the_queue_can_be_stopped(stack: Stack, bucket: str, job_name: str):
    source = upload_source(stack, bucket, PLAIN)
    request = job_request(stack, bucket, job_name, source=source, program="plain.py", count=9)
    client = stack.client("sagemaker")
    client.create_training_job(**request)
    described = client.describe_training_job(TrainingJobName=job_name)
    assert described["TrainingJobStatus"] == "InProgress"
    client.stop_training_job(TrainingJobName=job_name)
    assert wait_for_status(stack, job_name, {"Stopped"}, timeout=10)


def test_container_entrypoint_and_arguments(stack: Stack, bucket: str, job_name: str):
    request = job_request(stack, bucket, job_name)
    request["AlgorithmSpecification"] |= {
        "ContainerEntrypoint": ["/bin/sh", "-c"],
        "ContainerArguments": ['echo "args $0 $1"; echo e >&2; ls /opt/ml/input/config', "one", "two words"],
    }
    stack.client("sagemaker").create_training_job(**request)
    assert wait_for_end(stack, job_name)["TrainingJobStatus"] == "Completed"
    lines = log_lines(stack, job_name)["algo-1"]
    assert "args one two words" in lines and "e" in lines
    assert {"hyperparameters.json", "inputdataconfig.json", "resourceconfig.json"} <= set(lines)


def test_uncompressed_output_is_a_tree(stack: Stack, bucket: str, job_name: str):
    script = """import os, pathlib
model = pathlib.Path(os.environ["SM_MODEL_DIR"], "sub"); model.mkdir()
(model / "weights.bin").write_bytes(bytes(range(256)) * 1000)
"""
    output = {"S3OutputPath": f"s3://{bucket}/out", "CompressionType": "NONE"}
    run_script(stack, bucket, job_name, {"t.py": script}, "t.py", OutputDataConfig=output)
    described = wait_for_end(stack, job_name)
    uri = described["ModelArtifacts"]["S3ModelArtifacts"]
    assert uri.endswith("/output/model/")
    key = uri.removeprefix(f"s3://{bucket}/") + "sub/weights.bin"
    assert stack.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read() == bytes(range(256)) * 1000


def test_checkpoints_are_restored_synced_and_deleted_with_the_job_on(stack: Stack, bucket: str, job_name: str):
    s3 = stack.client("s3")
    s3.put_object(Bucket=bucket, Key=f"{job_name}/ckpt/old.txt", Body=b"from before")
    script = """import os, pathlib, signal
folder = pathlib.Path("/opt/ml/checkpoints")
print("old:", (folder / "old.txt").read_text(), flush=True)
(folder / "step-1.txt").write_text("1")
print("written", flush=True)
signal.signal(signal.SIGTERM, lambda *_: (folder / "last.txt").write_text("last"))
signal.pause()
"""
    run_script(
        stack,
        bucket,
        job_name,
        {"t.py": script},
        "t.py",
        CheckpointConfig={"S3Uri": f"s3://{bucket}/{job_name}/ckpt"},
    )
    wait_for_line(stack, job_name, "written")

    def keys() -> set[str]:
        found = s3.list_objects_v2(Bucket=bucket, Prefix=f"{job_name}/ckpt/").get("Contents", [])
        return {entry["Key"].rsplit("/", 1)[1] for entry in found}

    wait_until(lambda: "step-1.txt" in keys(), timeout=30, every=0.5, what="the checkpoint is in the store")
    stack.client("sagemaker").stop_training_job(TrainingJobName=job_name)
    wait_for_end(stack, job_name)
    assert keys() == {"old.txt", "step-1.txt", "last.txt"}
    assert "old: from before" in log_lines(stack, job_name)["algo-1"]


def test_ten_thousand_lines_at_once_lose_nothing(stack: Stack, bucket: str, job_name: str):
    script = "import sys\nsys.stdout.write(''.join(f'line {n}\\n' for n in range(100_000)))\n"
    run_script(stack, bucket, job_name, {"t.py": script}, "t.py")
    assert wait_for_end(stack, job_name)["TrainingJobStatus"] == "Completed"
    lines = [line for line in log_lines(stack, job_name)["algo-1"] if line.startswith("line ")]
    assert lines == [f"line {number}" for number in range(100_000)]


def test_metrics_come_from_the_log(stack: Stack, bucket: str, job_name: str):
    script = "for text in ('1e-3', 'nan', 'dog', '0.25'):\n    print(f'loss={text};')\n"
    request = job_request(
        stack, bucket, job_name, source=upload_source(stack, bucket, {"t.py": script}), program="t.py"
    )
    request["AlgorithmSpecification"]["MetricDefinitions"] = [{"Name": "loss", "Regex": "loss=(.*?);"}]
    stack.client("sagemaker").create_training_job(**request)
    described = wait_for_end(stack, job_name)
    final = {metric["MetricName"]: metric["Value"] for metric in described["FinalMetricDataList"]}
    assert final == {"loss": pytest.approx(0.25)}
    statistics = stack.client("cloudwatch").get_metric_statistics(
        Namespace="/aws/sagemaker/TrainingJobs",
        MetricName="loss",
        Dimensions=[{"Name": "TrainingJobName", "Value": job_name}],
        StartTime=described["TrainingStartTime"].timestamp() - 60,
        EndTime=described["TrainingEndTime"].timestamp() + 60,
        Period=3600,
        Statistics=["Minimum", "Maximum", "SampleCount"],
    )["Datapoints"]
    assert sum(point["SampleCount"] for point in statistics) == 2
    assert min(point["Minimum"] for point in statistics) == pytest.approx(0.001)


def test_requirements_are_installed_for_the_job_only(stack: Stack, bucket: str, job_name: str, tmp_path: Path):
    files = {
        "t.py": "import trainshed_probe_package as p\nprint('found', p.VALUE)\n",
        "requirements.txt": "./package\n",
        "package/pyproject.toml": '[project]\nname = "trainshed-probe-package"\nversion = "1.0"\n'
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n',
        "package/trainshed_probe_package/__init__.py": "VALUE = 41 + 1\n",
    }
    run_script(stack, bucket, job_name, files, "t.py")
    described = wait_for_end(stack, job_name, timeout=240)
    assert described["TrainingJobStatus"] == "Completed", described.get("FailureReason")
    assert "found 42" in log_lines(stack, job_name)["algo-1"]
    with pytest.raises(ModuleNotFoundError):
        __import__("trainshed_probe_package")


def test_delete_frees_the_name_and_the_log(stack: Stack, bucket: str, job_name: str):
    client = stack.client("sagemaker")
    run_script(stack, bucket, job_name, PLAIN, "plain.py")
    with pytest.raises(ClientError) as refused:
        client.delete_training_job(TrainingJobName=job_name)
    assert refused.value.response["Error"]["Code"] == "ValidationException"
    wait_for_end(stack, job_name)
    client.delete_training_job(TrainingJobName=job_name)

    def gone() -> bool:
        try:
            assert client.describe_training_job(TrainingJobName=job_name)["TrainingJobStatus"] == "Deleting"
        except ClientError as error:
            assert error.response["Error"]["Message"] == "Requested resource not found."
            return True
        return False

    wait_until(gone, timeout=30, what="the job is gone when its slots are empty")
    assert log_lines(stack, job_name) == {}
    run_script(stack, bucket, job_name, PLAIN, "plain.py")
    assert wait_for_end(stack, job_name)["TrainingJobStatus"] == "Completed"


def test_the_waiter_ends_for_a_missing_job(stack: Stack):
    waiter = stack.client("sagemaker").get_waiter("training_job_completed_or_stopped")
    with pytest.raises(WaiterError):
        waiter.wait(TrainingJobName="never-was", WaiterConfig={"Delay": 1, "MaxAttempts": 3})


def test_search_and_tags(stack: Stack, bucket: str, job_name: str):
    client = stack.client("sagemaker")
    request = job_request(
        stack,
        bucket,
        job_name,
        source=upload_source(stack, bucket, PLAIN),
        program="plain.py",
        Tags=[{"Key": "team", "Value": job_name}],
    )
    arn = client.create_training_job(**request)["TrainingJobArn"]
    client.add_tags(ResourceArn=arn, Tags=[{"Key": "stage", "Value": "one"}])
    tags = {tag["Key"]: tag["Value"] for tag in client.list_tags(ResourceArn=arn)["Tags"]}
    assert tags == {"team": job_name, "stage": "one"}
    client.delete_tags(ResourceArn=arn, TagKeys=["stage"])
    assert [tag["Key"] for tag in client.list_tags(ResourceArn=arn)["Tags"]] == ["team"]
    filters = [{"Name": "TrainingJobName", "Operator": "Equals", "Value": value} for value in (job_name, "no-such")]
    results = client.search(
        Resource="TrainingJob", SearchExpression={"Filters": filters, "Operator": "Or"}, MaxResults=20
    )["Results"]
    assert [result["TrainingJob"]["TrainingJobName"] for result in results] == [job_name]
    assert json.loads(json.dumps(results[0]["TrainingJob"]["HyperParameters"]))["sagemaker_program"] == "plain.py"
    by_tag = client.search(
        Resource="TrainingJob",
        SearchExpression={"Filters": [{"Name": "Tags.team", "Operator": "Equals", "Value": job_name}]},
    )["Results"]
    assert len(by_tag) == 1
    wait_for_end(stack, job_name)
