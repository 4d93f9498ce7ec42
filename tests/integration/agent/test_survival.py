"""What a node keeps through kill -9 of its agent, outages of the service, stops and deadlines."""

from __future__ import annotations

import io
import tarfile
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.agent_gang import access_to, gang
from tests.support.agent_process import AgentProcess
from tests.support.agent_protocol import ScriptedService
from tests.support.seaweed import s3_client
from tests.support.wait import wait_until
from trainshed_service.embedded.store import EmbeddedStore
from trainshed_worker.protocol import Action, FailureCause, Phase, SlotState

COUNTING = """
import os, pathlib, time
starts = pathlib.Path(os.environ["SM_MODEL_DIR"], "starts")
with starts.open("a") as out:
    out.write("x")
for number in range(25):
    print("line", number, flush=True)
    time.sleep(0.1)
"""
PATIENT = """
import os, pathlib, signal, sys, time
def end(number, frame):
    print("got SIGTERM", flush=True)
    pathlib.Path(os.environ["SM_MODEL_DIR"], "saved").write_text("saved")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("waiting", flush=True)
while True:
    time.sleep(0.1)
"""


def model_of(store: EmbeddedStore, bucket: str, base_uri: str) -> dict[str, bytes]:
    key = base_uri.split("/", 3)[3] + "/model.tar.gz"
    content = s3_client(store).get_object(Bucket=bucket, Key=key)["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as tar:
        found = {}
        for member in tar.getmembers():
            file = tar.extractfile(member)
            if file is not None:
                found[member.name] = file.read()
        return found


@pytest.mark.parametrize("phase", [Phase.ACCEPTED, Phase.DOWNLOADING, Phase.READY, Phase.RUNNING, Phase.UPLOADING])
def test_kill_9_of_the_agent_loses_and_doubles_nothing(
    agent: AgentProcess,
    service: ScriptedService,
    seaweed_store: EmbeddedStore,
    bucket: str,
    upload_code: Callable[..., dict[str, str]],
    phase: Phase,
) -> None:
    (member,) = gang(access_to(seaweed_store), bucket, HyperParameters=upload_code(COUNTING))
    service.put(member)
    service.wait_report(member.id, phase)
    agent.kill()
    agent.start()
    report = service.wait_report(member.id, Phase.FINISHED, timeout=90)
    assert report.failure is None
    assert report.exit_code == 0
    lines = [line for line in service.text(member.attempt_id, "algo-1") if line.startswith("line ")]
    assert lines == [f"line {number}" for number in range(25)]
    assert model_of(seaweed_store, bucket, member.output.base_uri) == {"starts": b"x"}
    # The first agent may have told of the end before it was killed.
    wait_until(lambda: len({request.boot_id for request in service.enrollments}) == 2, what="both agents have enrolled")


def test_an_outage_of_the_service_ends_no_job_and_loses_no_line(
    agent: AgentProcess,
    service: ScriptedService,
    seaweed_store: EmbeddedStore,
    bucket: str,
    upload_code: Callable[..., dict[str, str]],
) -> None:
    (member,) = gang(access_to(seaweed_store), bucket, HyperParameters=upload_code(COUNTING))
    service.put(member)
    service.wait_report(member.id, Phase.RUNNING)
    service.reachable = False
    agent.kill()
    agent.start()  # restarts without a service
    spool = agent.home / "node" / "assignments" / member.id / "instance" / "exit.json"
    deadline = time.monotonic() + 60
    with service.changed:
        while not spool.exists() and time.monotonic() < deadline:
            service.changed.wait(0.1)
    assert spool.exists(), "the job went on to its end without a service"
    with service.changed:
        service.reachable = True
        service.key = "key-2"  # the service has forgotten the old key: 401
        service.changed.notify_all()
    report = service.wait_report(member.id, Phase.FINISHED)
    assert report.failure is None
    lines = [line for line in service.text(member.attempt_id, "algo-1") if line.startswith("line ")]
    assert lines == [f"line {number}" for number in range(25)]


def test_stop_gives_the_script_time_and_keeps_its_model(
    agent: AgentProcess,
    service: ScriptedService,
    seaweed_store: EmbeddedStore,
    bucket: str,
    upload_code: Callable[..., dict[str, str]],
) -> None:
    (member,) = gang(access_to(seaweed_store), bucket, HyperParameters=upload_code(PATIENT))
    service.put(member)
    service.wait_report(member.id, Phase.RUNNING)
    service.wait_for(lambda s: "waiting" in s.text(member.attempt_id, "algo-1"), what="the script's first line")
    service.order(member.id, Action.STOP)
    report = service.wait_report(member.id, Phase.FINISHED)
    assert report.failure is None
    assert "got SIGTERM" in service.text(member.attempt_id, "algo-1")
    assert model_of(seaweed_store, bucket, member.output.base_uri) == {"saved": b"saved"}


def test_the_deadline_holds_without_a_service(
    agent: AgentProcess,
    service: ScriptedService,
    seaweed_store: EmbeddedStore,
    bucket: str,
    upload_code: Callable[..., dict[str, str]],
) -> None:
    (member,) = gang(access_to(seaweed_store), bucket, HyperParameters=upload_code(PATIENT))
    service.put(member)
    service.wait_report(member.id, Phase.RUNNING)
    service.order(member.id, Action.RUN, deadline=time.time() + 3)
    service.wait_for(lambda s: "waiting" in s.text(member.attempt_id, "algo-1"), what="the script's first line")
    with service.changed:
        service.steer = False
    report = service.wait_report(member.id, Phase.PART_UPLOADED)
    assert report.end_reason == "max-runtime"
    assert report.failure is None
    assert "got SIGTERM" in service.text(member.attempt_id, "algo-1")


def test_stop_before_the_start_ends_quickly(
    agent: AgentProcess,
    service: ScriptedService,
    seaweed_store: EmbeddedStore,
    bucket: str,
    upload_code: Callable[..., dict[str, str]],
) -> None:
    service.steer = False
    (member,) = gang(access_to(seaweed_store), bucket, HyperParameters=upload_code(COUNTING))
    service.put(member)
    service.wait_report(member.id, Phase.READY)
    service.order(member.id, Action.STOP)
    report = service.wait_report(member.id, Phase.PART_UPLOADED, timeout=20)
    assert (report.exit_code, report.failure) == (None, None)
    service.order(member.id, Action.ASSEMBLE)
    service.wait_report(member.id, Phase.FINISHED, timeout=20)
    service.remove(member.id)
    service.wait_for(lambda s: s.slots["node-0"].state is SlotState.EMPTY, what="the slot is empty")


def test_clear_while_running_kills_at_once_and_a_newer_epoch_waits_for_it(
    agent: AgentProcess,
    service: ScriptedService,
    seaweed_store: EmbeddedStore,
    bucket: str,
    upload_code: Callable[..., dict[str, str]],
) -> None:
    code = upload_code("import time\ntime.sleep(600)\n")
    (old,) = gang(access_to(seaweed_store), bucket, HyperParameters=code)
    service.put(old)
    service.wait_report(old.id, Phase.RUNNING)
    (new,) = gang(access_to(seaweed_store), bucket, HyperParameters=upload_code("print('new')\n"))
    with service.changed:
        del service.assignments[old.id]
        service.assignments[new.id] = new.model_copy(update={"epoch": 2})
        service.version += 1
        service.changed.notify_all()
    service.wait_report(new.id, Phase.FINISHED, timeout=60)
    assert "new" in service.text(new.attempt_id, "algo-1")
    assert not (agent.home / "node" / "assignments" / old.id).exists()


def test_a_source_folder_is_named_within_seconds(
    agent: AgentProcess, service: ScriptedService, seaweed_store: EmbeddedStore, bucket: str
) -> None:
    parameters = {"sagemaker_program": "train.py", "sagemaker_submit_directory": f"s3://{bucket}/dir/"}
    (member,) = gang(access_to(seaweed_store), bucket, HyperParameters=parameters)
    service.put(member)
    report = service.wait_report(member.id, Phase.FINISHED, timeout=30)
    assert report.failure is not None
    assert report.failure.cause is FailureCause.USER_INPUT
    assert f"s3://{bucket}/dir/" in report.failure.message
    assert "tar.gz" in report.failure.message


def test_failing_host_stops_the_gang_and_names_its_signal(
    agent: AgentProcess,
    service: ScriptedService,
    seaweed_store: EmbeddedStore,
    bucket: str,
    upload_code: Callable[..., dict[str, str]],
) -> None:
    script = (
        "import os, signal, time\n"
        "if os.environ['SM_CURRENT_HOST'] == 'algo-2':\n"
        "    os.kill(os.getpid(), signal.SIGSEGV)\n"
        "time.sleep(600)\n"
    )
    members = gang(access_to(seaweed_store), bucket, 2, HyperParameters=upload_code(script))
    service.put(*members)
    report = service.wait_report(members[1].id, Phase.PART_UPLOADED)
    assert report.failure is not None
    assert (report.failure.signal, report.exit_code) == (11, 139)
    lead = service.wait_report(members[0].id, Phase.FINISHED, timeout=30)
    assert lead.failure is None


def checkpoint_request(bucket: str) -> dict[str, Any]:
    return {"CheckpointConfig": {"S3Uri": f"s3://{bucket}/ck"}}


def test_checkpoints_are_restored_synced_and_deleted(
    agent: AgentProcess,
    service: ScriptedService,
    seaweed_store: EmbeddedStore,
    bucket: str,
    upload_code: Callable[..., dict[str, str]],
) -> None:
    client = s3_client(seaweed_store)
    client.put_object(Bucket=bucket, Key="ck/step-1", Body=b"1")
    script = (
        "import pathlib, time\n"
        "folder = pathlib.Path('/opt/ml/checkpoints')\n"
        "print(sorted(path.name for path in folder.iterdir()), flush=True)\n"
        "(folder / 'step-2').write_text('2')\n"
        "(folder / 'step-1').unlink()\n"
        "while not pathlib.Path('/opt/ml/model').exists() or time.sleep(0.1) is None:\n"
        "    pass\n"
    )
    request = checkpoint_request(bucket)
    (member,) = gang(access_to(seaweed_store), bucket, HyperParameters=upload_code(script), **request)
    service.put(member)
    service.wait_for(lambda s: "['step-1']" in s.text(member.attempt_id, "algo-1"), what="the restored checkpoint")

    def keys() -> list[str]:
        return [item["Key"] for item in client.list_objects_v2(Bucket=bucket, Prefix="ck/").get("Contents", [])]

    service.wait_for(lambda s: keys() == ["ck/step-2"], timeout=30, what="synced while it runs")
    service.order(member.id, Action.STOP)
    service.wait_report(member.id, Phase.FINISHED)
    assert keys() == ["ck/step-2"]
