"""The Python of a job: requirements in a shared layer, pip's own words on failure, the layer of the job itself."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

from tests.support.agent_gang import access_to, gang
from tests.support.agent_process import AgentProcess
from tests.support.agent_protocol import ScriptedService
from tests.support.seaweed import s3_client
from trainshed_service.embedded.store import EmbeddedStore
from trainshed_worker.protocol import FailureCause, Phase

IMPORTING = """
import shutil, subprocess, sys
import tinydemo
print("tinydemo", tinydemo.VALUE)
print("tool", subprocess.run(["tinydemo-tool"], capture_output=True, text=True).stdout.strip())
import torch
print("torch", torch.__version__ != "")
print("pip", subprocess.run(["pip", "--version"], capture_output=True, text=True).returncode)
print("which", shutil.which("python3"), shutil.which("pip"), shutil.which("torchrun"), shutil.which("bash"))
try:
    open(tinydemo.__file__, "a")
except OSError as error:
    print("write", type(error).__name__)
again = ["-m", "pip", "install", "--no-index", "tinydemo"]
done = subprocess.run([sys.executable, *again], capture_output=True, text=True)
print("again", done.returncode, "Requirement already satisfied: tinydemo" in done.stdout)
"""


def wheel() -> bytes:
    """A small wheel with a module and a console script, made here so that no index is needed."""
    files = {
        "tinydemo.py": "VALUE = 42\ndef main():\n    import sys\n    print('tool of', sys.executable)\n",
        "tinydemo-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tinydemo\nVersion: 1.0\n",
        "tinydemo-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "tinydemo-1.0.dist-info/entry_points.txt": "[console_scripts]\ntinydemo-tool = tinydemo:main\n",
    }
    record = ""
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(text.encode())}\n"
    record += "tinydemo-1.0.dist-info/RECORD,,\n"
    content = BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in {**files, "tinydemo-1.0.dist-info/RECORD": record}.items():
            archive.writestr(name, text)
    return content.getvalue()


def channel_of_wheels(store: EmbeddedStore, bucket: str) -> dict[str, object]:
    s3_client(store).put_object(Bucket=bucket, Key="wheels/tinydemo-1.0-py3-none-any.whl", Body=wheel())
    return {
        "ChannelName": "wheels",
        "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://{bucket}/wheels"}},
    }


def test_requirements_are_installed_once_and_shared(
    agent: AgentProcess,
    service: ScriptedService,
    seaweed_store: EmbeddedStore,
    bucket: str,
    upload_code: Callable[..., dict[str, str]],
) -> None:
    wheels = channel_of_wheels(seaweed_store, bucket)
    code = upload_code(IMPORTING, {"requirements.txt": "tinydemo==1.0\ntorch\n"})
    own_index = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/opt/ml/input/data/wheels"}
    for turn in range(2):
        (member,) = gang(
            access_to(seaweed_store), bucket, HyperParameters=code, InputDataConfig=[wheels], Environment=own_index
        )
        member = member.model_copy(update={"node_id": f"node-{turn}"})  # another slot, so another user
        service.put(member)
        report = service.wait_report(member.id, Phase.FINISHED, timeout=120)
        text = service.text(member.attempt_id, "algo-1")
        assert report.failure is None, (report.failure, text)
        assert "tinydemo 42" in text
        assert "tool tool of /opt/python/bin/python3" in text
        assert "torch True" in text
        assert "pip 0" in text
        assert "which /opt/python/bin/python3 /opt/python/bin/pip /opt/python/bin/torchrun /usr/bin/bash" in text or (
            "which /opt/python/bin/python3 /opt/python/bin/pip /opt/python/bin/torchrun /bin/bash" in text
        )
        assert "write PermissionError" in text
        assert "again 0 True" in text
        assert ("Requirements of requirements.txt are already installed on this node" in text) == (turn == 1)
        service.remove(member.id)
    layers = [path for path in Path(agent.home, "node", "envs").iterdir() if not path.name.startswith(".")]
    assert len(layers) == 1


def test_pip_s_own_words_are_the_reason(
    agent: AgentProcess,
    service: ScriptedService,
    seaweed_store: EmbeddedStore,
    bucket: str,
    upload_code: Callable[..., dict[str, str]],
) -> None:
    code = upload_code("print('never')\n", {"requirements.txt": "no-such-distribution-anywhere==9\n"})
    (member,) = gang(access_to(seaweed_store), bucket, HyperParameters=code, Environment={"PIP_NO_INDEX": "1"})
    service.put(member)
    report = service.wait_report(member.id, Phase.FINISHED, timeout=90)
    assert report.failure is not None
    assert report.failure.cause is FailureCause.USER_INPUT
    assert "No matching distribution found for no-such-distribution-anywhere==9" in report.failure.message
    assert "never" not in service.text(member.attempt_id, "algo-1")


def test_network_isolation_and_requirements_are_refused_in_words(
    agent: AgentProcess,
    service: ScriptedService,
    seaweed_store: EmbeddedStore,
    bucket: str,
    upload_code: Callable[..., dict[str, str]],
) -> None:
    code = upload_code("print('never')\n", {"requirements.txt": "tinydemo\n"})
    (member,) = gang(access_to(seaweed_store), bucket, HyperParameters=code, EnableNetworkIsolation=True)
    service.put(member)
    report = service.wait_report(member.id, Phase.FINISHED, timeout=60)
    assert report.failure is not None
    assert report.failure.cause is FailureCause.NETWORK_ISOLATION
    assert "requirements.txt" in report.failure.message
    assert "EnableNetworkIsolation" in report.failure.message
