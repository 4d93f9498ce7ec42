"""/opt/ml/input/config byte by byte, and the SM_* variables that follow from the same facts."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Any

from tests.support.agent_gang import gang, nowhere
from trainshed_worker.contract import (
    InstanceLayout,
    NetworkFacts,
    config_files,
    process_environment,
    write_config_files,
)

REQUEST: dict[str, Any] = {
    "HyperParameters": {
        "lr": "0.1",
        "b": '"two words"',
        "bare": "my_job",
        "flag": "true",
        "list": "[1, 2]",
        "sagemaker_program": '"train.py"',
        "sagemaker_submit_directory": '"s3://b/code/sourcedir.tar.gz"',
        "sagemaker_container_log_level": "20",
        "sagemaker_job_name": '"demo"',
        "sagemaker_region": '"us-west-2"',
        "sagemaker_torch_distributed_enabled": "true",
    },
    "AlgorithmSpecification": {"TrainingInputMode": "File"},
    "InputDataConfig": [
        {
            "ChannelName": "train",
            "ContentType": "text/csv",
            "DataSource": {"S3DataSource": {"S3Uri": "s3://b/t", "S3DataDistributionType": "ShardedByS3Key"}},
        },
        {"ChannelName": "val", "InputMode": "FastFile", "DataSource": {"S3DataSource": {"S3Uri": "s3://b/v"}}},
    ],
    "Environment": {"FOO": "bar", "OMP_NUM_THREADS": "3", "SM_CURRENT_HOST": "liar", "TRAINING_JOB_NAME": "liar"},
}


def test_hyperparameters_are_the_request_s_own_map_and_order() -> None:
    (member,) = gang(nowhere(), "b", name="demo", **REQUEST)
    content = config_files(member, "eth0")["hyperparameters.json"]
    assert content.startswith(b'{"lr":"0.1","b":"\\"two words\\"","bare":"my_job","flag":"true","list":"[1, 2]",')
    assert json.loads(content) == REQUEST["HyperParameters"]


def test_inputdataconfig_bytes() -> None:
    (member,) = gang(nowhere(), "b", name="demo", **REQUEST)
    assert config_files(member, "eth0")["inputdataconfig.json"] == (
        b'{"train":{"ContentType":"text/csv","RecordWrapperType":"None","S3DistributionType":"ShardedByS3Key",'
        b'"TrainingInputMode":"File"},"val":{"RecordWrapperType":"None","S3DistributionType":"FullyReplicated",'
        b'"TrainingInputMode":"FastFile"}}'
    )


def test_resourceconfig_bytes_of_one_host() -> None:
    (member,) = gang(nowhere(), "b", name="demo")
    assert config_files(member, "eth0")["resourceconfig.json"] == (
        b'{"current_group_name":"homogeneousCluster","current_host":"algo-1","current_instance_type":"ml.c5.xlarge",'
        b'"hosts":["algo-1"],"instance_groups":[{"hosts":["algo-1"],"instance_group_name":"homogeneousCluster",'
        b'"instance_type":"ml.c5.xlarge"}],"network_interface_name":"eth0"}'
    )


def test_hosts_are_in_lexicographic_order() -> None:
    members = gang(nowhere(), "b", 11)
    config = json.loads(config_files(members[10], "eth0")["resourceconfig.json"])
    assert config["hosts"][:3] == ["algo-1", "algo-10", "algo-11"]
    assert config["current_host"] == "algo-11"


def test_heterogeneous_groups_and_their_channels() -> None:
    groups = [("data", "ml.c5.xlarge"), ("train", "ml.g5.xlarge"), ("train", "ml.g5.xlarge")]
    only_train = {"S3Uri": "s3://b/t", "InstanceGroupNames": ["train"]}
    request = {"InputDataConfig": [{"ChannelName": "train", "DataSource": {"S3DataSource": only_train}}]}
    members = gang(nowhere(), "b", groups=groups, **request)
    assert config_files(members[0], "eth0")["inputdataconfig.json"] == b"{}"
    assert json.loads(config_files(members[1], "eth0")["inputdataconfig.json"]).keys() == {"train"}
    config = json.loads(config_files(members[2], "eth0")["resourceconfig.json"])
    assert config["instance_groups"] == [
        {"instance_group_name": "data", "instance_type": "ml.c5.xlarge", "hosts": ["algo-1"]},
        {"instance_group_name": "train", "instance_type": "ml.g5.xlarge", "hosts": ["algo-2", "algo-3"]},
    ]
    env = process_environment(members[2], NetworkFacts("eth0"), search_path="/bin")
    assert env["SM_IS_HETERO"] == "true"
    assert env["SM_CURRENT_INSTANCE_GROUP"] == "train"
    assert env["SM_CURRENT_INSTANCE_GROUP_HOSTS"] == '["algo-2","algo-3"]'


def test_without_optional_members_the_files_still_exist(tmp_path: Path) -> None:
    (member,) = gang(nowhere(), "b")
    layout = InstanceLayout(tmp_path)
    write_config_files(member, layout, "eth0")
    write_config_files(member, layout, "eth0")
    assert sorted(path.name for path in layout.config.iterdir()) == [
        "hyperparameters.json",
        "inputdataconfig.json",
        "resourceconfig.json",
    ]
    assert (layout.config / "hyperparameters.json").read_bytes() == b"{}"
    assert (layout.config / "hyperparameters.json").stat().st_mode & 0o777 == 0o644


def test_toolkit_variables() -> None:
    member = gang(nowhere(), "b", 2, name="demo", **REQUEST)[1]
    env = process_environment(member, NetworkFacts("eth0"), search_path="/opt/python/bin:/bin")
    assert env["SM_HOSTS"] == '["algo-1","algo-2"]'
    assert env["SM_CURRENT_HOST"] == "algo-2"
    assert env["SM_HPS"] == '{"b":"two words","bare":"my_job","flag":true,"list":[1,2],"lr":0.1}'
    assert env["SM_HP_LR"] == "0.1"
    assert env["SM_HP_FLAG"] == "true"
    assert env["SM_HP_LIST"] == "[1,2]"
    assert env["SM_USER_ARGS"] == (
        '["-b","two words","--bare","my_job","--flag","True","--list","[1, 2]","--lr","0.1"]'
    )
    assert env["SM_USER_ENTRY_POINT"] == "train.py"
    assert env["SM_MODULE_NAME"] == "train"
    assert env["SM_MODULE_DIR"] == "s3://b/code/sourcedir.tar.gz"
    assert env["SM_FRAMEWORK_PARAMS"] == '{"sagemaker_torch_distributed_enabled":true}'
    assert env["SM_CHANNELS"] == '["train","val"]'
    assert env["SM_CHANNEL_TRAIN"] == "/opt/ml/input/data/train"
    assert env["SM_NUM_CPUS"] == "4"
    assert env["SM_NUM_GPUS"] == "0"
    assert env["SM_MODEL_DIR"] == "/opt/ml/model"
    assert env["SM_OUTPUT_DATA_DIR"] == "/opt/ml/output/data"
    assert env["SM_LOG_LEVEL"] == "20"
    whole = json.loads(env["SM_TRAINING_ENV"])
    assert whole["hyperparameters"]["list"] == [1, 2]
    assert whole["resource_config"] == json.loads(env["SM_RESOURCE_CONFIG"])
    assert whole["input_data_config"] == json.loads(env["SM_INPUT_DATA_CONFIG"])


def test_the_request_s_environment_wins_except_over_facts() -> None:
    (member,) = gang(nowhere(), "b", name="demo", **{**REQUEST, "Environment": {**REQUEST["Environment"], "A_B": "x"}})
    credentials = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://c", "AWS_CONTAINER_AUTHORIZATION_TOKEN": "t"}
    network = NetworkFacts("eth0", "http://10.210.0.1:80", "http://10.210.0.1:81", credentials)
    env = process_environment(member, network, search_path="/bin")
    assert env["FOO"] == "bar"
    assert env["OMP_NUM_THREADS"] == "3"
    assert env["SM_CURRENT_HOST"] == "algo-1"
    assert env["TRAINING_JOB_NAME"] == "demo"
    assert env["TRAINING_JOB_ARN"].endswith("training-job/demo")
    assert env["AWS_ENDPOINT_URL"] == "http://10.210.0.1:80"
    assert env["AWS_ENDPOINT_URL_S3"] == env["S3_ENDPOINT_URL"] == "http://10.210.0.1:81"
    assert env["AWS_CONTAINER_CREDENTIALS_FULL_URI"] == "http://c"
    assert env["AWS_REGION"] == "us-west-2"
    assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == ("algo-1", "7777")


def test_a_job_cannot_name_credentials_of_its_own_endpoint_when_isolated() -> None:
    environment = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://other", "AWS_CONTAINER_AUTHORIZATION_TOKEN": "x"}
    (member,) = gang(nowhere(), "b", Environment=environment)
    env = process_environment(member, NetworkFacts("eth0"), search_path="/bin")
    assert not any(name.startswith("AWS_CONTAINER") for name in env)


def test_checkpoints_outside_of_opt_ml_have_a_directory_of_their_own(tmp_path: Path) -> None:
    inside = InstanceLayout(tmp_path, PurePosixPath("/opt/ml/ckpt/x"))
    assert inside.checkpoints == tmp_path / "ml" / "ckpt" / "x"
    assert not inside.checkpoints_outside_ml
    outside = InstanceLayout(tmp_path, PurePosixPath("/data/ckpt"))
    assert outside.checkpoints == tmp_path / "checkpoints"
    assert outside.checkpoints_outside_ml
