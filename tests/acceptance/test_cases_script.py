"""Reports of real users about hyperparameters, source code and the container. One test for each."""

import json

import pytest

from tests.support.jobs import job_request, log_lines, run_script, upload_source, wait_for_end
from tests.support.stack import Stack

ARGV = {"t.py": "import json, sys\nprint('ARGV ' + json.dumps(sys.argv[1:]))\n"}


def argv_of(stack: Stack, name: str) -> list[str]:
    (line,) = [line for line in log_lines(stack, name)["algo-1"] if line.startswith("ARGV ")]
    return json.loads(line.removeprefix("ARGV "))


def test_bare_strings_are_legal(stack: Stack, bucket: str, job_name: str):
    run_script(stack, bucket, job_name, ARGV, "t.py", hyperparameters={"epochs": "1", "job_name": "my_job"})
    assert wait_for_end(stack, job_name)["TrainingJobStatus"] == "Completed"
    assert argv_of(stack, job_name) == ["--epochs", "1", "--job_name", "my_job"]


def test_every_value_is_one_word(stack: Stack, bucket: str, job_name: str):
    parameters = {"flag": "true", "lr": "-0.5", "text": '"two words; $HOME"', "list": "[1, 2]"}
    run_script(stack, bucket, job_name, ARGV, "t.py", hyperparameters=parameters)
    assert wait_for_end(stack, job_name)["TrainingJobStatus"] == "Completed"
    assert argv_of(stack, job_name) == [
        *("--flag", "True"),
        *("--list", "[1, 2]"),
        *("--lr", "-0.5"),
        *("--text", "two words; $HOME"),
    ]


def test_a_folder_as_source_fails_in_words(stack: Stack, bucket: str, job_name: str):
    stack.client("s3").put_object(Bucket=bucket, Key=f"{job_name}/dir/t.py", Body=b"")
    uri = f"s3://{bucket}/{job_name}/dir/"
    request = job_request(stack, bucket, job_name, source=uri, program="t.py")
    stack.client("sagemaker").create_training_job(**request)
    described = wait_for_end(stack, job_name, timeout=30)
    assert described["TrainingJobStatus"] == "Failed"
    assert uri in described["FailureReason"] and "tar.gz" in described["FailureReason"]


def test_an_entry_point_in_a_folder_runs_and_a_missing_one_is_explained(stack: Stack, bucket: str, job_name: str):
    files = {"sub/train.py": "print('from sub')\n", "README.md": "", "other.py": ""}
    source = upload_source(stack, bucket, files)
    client = stack.client("sagemaker")
    client.create_training_job(**job_request(stack, bucket, job_name, source=source, program="sub/train.py"))
    missing = f"{job_name[-8:]}-missing"
    client.create_training_job(**job_request(stack, bucket, missing, source=source, program="train.py"))
    assert wait_for_end(stack, job_name)["TrainingJobStatus"] == "Completed"
    reason = wait_for_end(stack, missing)["FailureReason"]
    assert "train.py" in reason
    for name in ("README.md", "other.py", "sub"):
        assert name in reason


def test_the_configuration_files_are_always_there(stack: Stack, bucket: str, job_name: str):
    stack.client("s3").put_object(Bucket=bucket, Key=f"{job_name}/in/x", Body=b"x")
    channel = {
        "ChannelName": "train",
        "ContentType": "text/plain",
        "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://{bucket}/{job_name}/in"}},
    }
    request = job_request(
        stack, bucket, job_name, count=2, InputDataConfig=[channel], hyperparameters={"a": "1", "b": '"x"'}
    )
    script = (
        "cd /opt/ml/input/config; for f in hyperparameters resourceconfig inputdataconfig; do cat $f.json; echo; done"
    )
    request["AlgorithmSpecification"] |= {
        "ContainerEntrypoint": ["/bin/sh", "-c", script + '; echo "$TRAINING_JOB_NAME $TRAINING_JOB_ARN"'],
    }
    stack.client("sagemaker").create_training_job(**request)
    described = wait_for_end(stack, job_name)
    assert described["TrainingJobStatus"] == "Completed", described.get("FailureReason")
    for host, lines in log_lines(stack, job_name).items():
        documents = [json.loads(line) for line in lines if line.startswith("{")]
        assert documents[0] == {"a": "1", "b": '"x"'}
        assert documents[1]["current_host"] == host and documents[1]["hosts"] == ["algo-1", "algo-2"]
        assert documents[1]["network_interface_name"] and documents[1]["current_instance_type"] == "ml.c5.xlarge"
        assert documents[2]["train"] == {
            "ContentType": "text/plain",
            "RecordWrapperType": "None",
            "S3DistributionType": "FullyReplicated",
            "TrainingInputMode": "File",
        }
        assert f"{job_name} {described['TrainingJobArn']}" in lines


def test_requirements_under_network_isolation_fail_fast_in_words(stack: Stack, bucket: str, job_name: str):
    files = {"t.py": "print('never')\n", "requirements.txt": "six==1.16.0\n"}
    run_script(stack, bucket, job_name, files, "t.py", EnableNetworkIsolation=True)
    described = wait_for_end(stack, job_name, timeout=60)
    assert described["TrainingJobStatus"] == "Failed"
    assert "requirements.txt" in described["FailureReason"]
    assert "isolation" in described["FailureReason"].lower()


def test_a_requirement_that_does_not_exist_shows_pips_own_words(stack: Stack, bucket: str, job_name: str):
    files = {"t.py": "print('never')\n", "requirements.txt": "./no-such-folder\n"}
    run_script(stack, bucket, job_name, files, "t.py")
    described = wait_for_end(stack, job_name, timeout=120)
    assert described["TrainingJobStatus"] == "Failed"
    assert "requirements.txt" in described["FailureReason"] and "no-such-folder" in described["FailureReason"]


def test_a_jobs_own_package_index_is_asked(stack: Stack, bucket: str, job_name: str):
    files = {"t.py": "print('never')\n", "requirements.txt": "a-package-of-this-team==1.0\n"}
    environment = {"PIP_INDEX_URL": "http://index.invalid/simple", "PIP_RETRIES": "0"}
    run_script(stack, bucket, job_name, files, "t.py", Environment=environment)
    described = wait_for_end(stack, job_name, timeout=60)
    assert described["TrainingJobStatus"] == "Failed" and "requirements.txt" in described["FailureReason"]
    assert any("http://index.invalid/simple" in line for line in log_lines(stack, job_name)["algo-1"])


@pytest.mark.parametrize("missing", ["bucket", "prefix"])
def test_input_that_does_not_exist_is_refused_at_create(stack: Stack, bucket: str, job_name: str, missing: str):
    uri = f"s3://{bucket}/{job_name}/nothing-here" if missing == "prefix" else f"s3://{job_name}/x"
    channel = {
        "ChannelName": "train",
        "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": uri}},
    }
    client = stack.client("sagemaker")
    with pytest.raises(client.exceptions.ClientError) as refused:
        client.create_training_job(**job_request(stack, bucket, job_name, InputDataConfig=[channel]))
    error = refused.value.response["Error"]
    assert error["Code"] == "ValidationException"
    assert error["Message"].startswith(f'No S3 objects found under S3 URL "{uri}" given in input data source.')
