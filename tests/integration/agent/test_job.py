"""A whole job on a real node: data and code in, processes in sandboxes, artifacts, logs and metrics out."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable

from tests.support.agent_gang import access_to, gang
from tests.support.agent_process import AgentProcess
from tests.support.agent_protocol import ScriptedService
from tests.support.seaweed import s3_client
from tests.support.wait import wait_until
from trainshed_service.embedded.store import EmbeddedStore
from trainshed_worker.protocol import FailureCause, Phase, SlotState

TWO_HOSTS = """
import json, os, socket, sys, time
host = os.environ["SM_CURRENT_HOST"]
for peer in json.loads(os.environ["SM_HOSTS"]):
    socket.getaddrinfo(peer, 7777)
print("args", sys.argv[1:])
print("data", sorted(os.listdir(os.environ["SM_CHANNEL_TRAIN"])))
print("content", open(os.environ["SM_CHANNEL_TRAIN"] + "/a.txt").read())
for step in range(3):
    print(f"loss={1 / (step + 1):.3f};")
print("loss=nan;", file=sys.stderr)
with open(os.path.join(os.environ["SM_MODEL_DIR"], f"{host}.bin"), "w") as out:
    out.write(host)
with open(os.path.join(os.environ["SM_OUTPUT_DATA_DIR"], "report.json"), "w") as out:
    json.dump({"host": host}, out)
"""


def channel(name: str, uri: str, **source: str) -> dict[str, object]:
    return {
        "ChannelName": name,
        "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": uri, **source}},
    }


def test_two_hosts_to_the_end(
    agent: AgentProcess,
    service: ScriptedService,
    seaweed_store: EmbeddedStore,
    bucket: str,
    upload_code: Callable[..., dict[str, str]],
) -> None:
    client = s3_client(seaweed_store)
    client.put_object(Bucket=bucket, Key="train/a.txt", Body=b"hello")
    client.put_object(Bucket=bucket, Key="train/sub/b.txt", Body=b"world")
    members = gang(
        access_to(seaweed_store),
        bucket,
        2,
        HyperParameters=upload_code(TWO_HOSTS, epochs=3, flag=True, text="two words"),
        InputDataConfig=[channel("train", f"s3://{bucket}/train")],
        AlgorithmSpecification={
            "TrainingInputMode": "File",
            "MetricDefinitions": [{"Name": "loss", "Regex": "loss=(\\S+);"}],
        },
    )
    service.put(*members)
    lead, other = (member.id for member in members)
    report = service.wait_report(lead, Phase.FINISHED)
    assert report.failure is None
    assert report.exit_code == 0
    assert report.address
    assert service.reports[other].phase is Phase.PART_UPLOADED
    for member in members:
        text = service.text(member.attempt_id, member.host.name)
        assert "args ['--epochs', '3', '--flag', 'True', '--text', 'two words']" in text
        assert "data ['a.txt', 'sub']" in text
        assert "content hello" in text
        assert service.reports[member.id].log_lines == len(text)
        assert "metric 'loss': regex matched 4, parsed 3" in service.reports[member.id].notices
    archive = client.get_object(Bucket=bucket, Key=f"{members[0].output.base_uri.split('/', 3)[3]}/model.tar.gz")
    with tarfile.open(fileobj=io.BytesIO(archive["Body"].read()), mode="r:gz") as tar:
        assert sorted(tar.getnames()) == ["algo-1.bin", "algo-2.bin"]
    archive = client.get_object(Bucket=bucket, Key=f"{members[0].output.base_uri.split('/', 3)[3]}/output.tar.gz")
    with tarfile.open(fileobj=io.BytesIO(archive["Body"].read()), mode="r:gz") as tar:
        content = tar.extractfile("report.json")
        assert content is not None
        assert json.load(content) == {"host": "algo-1"}
    left = client.list_objects_v2(Bucket=bucket, Prefix=members[0].output.parts_uri.split("/", 3)[3])
    assert left["KeyCount"] == 0
    losses = sorted(point.value for (_, name, *_), point in service.points.items() if name == "loss")
    assert losses == [0.333, 0.333, 0.5, 0.5, 1.0, 1.0]

    for member in members:
        service.remove(member.id)
    service.wait_for(
        lambda s: all(s.slots[f"node-{n}"].state is SlotState.EMPTY for n in range(2)), what="both slots empty"
    )
    assert list((agent.home / "node" / "assignments").iterdir()) == []
    wait_until(lambda: not list((agent.home / "node" / "clusters").iterdir()), what="the cluster's network is removed")


def test_failure_names_host_exit_code_and_exception(
    agent: AgentProcess,
    service: ScriptedService,
    seaweed_store: EmbeddedStore,
    bucket: str,
    upload_code: Callable[..., dict[str, str]],
) -> None:
    script = "import sys\nprint('before')\nraise ValueError('bad weights')\n"
    (member,) = gang(access_to(seaweed_store), bucket, HyperParameters=upload_code(script))
    service.put(member)
    report = service.wait_report(member.id, Phase.FINISHED)
    assert report.failure is not None
    assert report.failure.cause is FailureCause.ALGORITHM
    assert report.failure.exit_code == 1
    assert report.failure.message == "ValueError: bad weights"
    assert "before" in service.text(member.attempt_id, "algo-1")
