"""A hostile script finds nothing that is not its own."""

import json

import pytest

from tests.support.jobs import job_request, log_lines, run_script, upload_source, wait_for_end, wait_for_line
from tests.support.stack import Stack

HOSTILE = r"""
import json, os, pathlib, socket, subprocess, sys, urllib.request
import boto3
from botocore.exceptions import ClientError

home, victim, bucket, secret, ports = sys.argv[1:6]
found = {}

def attempt(name, fn):
    try:
        found[name] = repr(fn())[:200]
    except Exception as error:
        found[name] = "refused"

attempt("home", lambda: os.listdir(home))
attempt("database", lambda: open(f"{home}/trainshed.sqlite3", "rb").read(16))
attempt("key", lambda: open(f"{home}/secret.key", "rb").read(16))
attempt("root_home", lambda: [p for p in os.listdir("/root") if p not in (".pyenv",)] or 1 / 0)
attempt("shadow", lambda: open("/etc/shadow").read(10))
attempt("write_usr", lambda: open("/usr/trainshed-was-here", "w").write("x"))
attempt("write_python", lambda: open(os.path.join(os.path.dirname(os.__file__), "owned.py"), "w").write("x"))
attempt("mount", lambda: subprocess.run(["mount", "-t", "tmpfs", "none", "/mnt"], check=True, capture_output=True))
attempt("other_processes", lambda: [p for p in os.listdir("/proc") if p.isdigit()
        and b"trainshed_service" in open(f"/proc/{p}/cmdline", "rb").read()] or 1 / 0)
attempt("victim_environ", lambda: [p for p in os.listdir("/proc") if p.isdigit()
        and victim.encode() in open(f"/proc/{p}/environ", "rb").read()] or 1 / 0)
for port in ports.split(","):
    for host in ("127.0.0.1", "169.254.170.2", os.environ["AWS_ENDPOINT_URL_S3"].split("//")[1].split(":")[0]):
        attempt(f"port_{host}_{port}", lambda: socket.create_connection((host, int(port)), 2) and "connected")
s3 = boto3.client("s3")
attempt("victim_object", lambda: s3.get_object(Bucket=bucket, Key=secret)["Body"].read())
attempt("victim_list", lambda: s3.list_objects_v2(Bucket=bucket)["Contents"])
attempt("overwrite", lambda: s3.put_object(Bucket=bucket, Key=secret, Body=b"owned"))
attempt("list_buckets", lambda: s3.list_buckets()["Buckets"] or 1 / 0)
attempt("create_job", lambda: boto3.client("sagemaker").list_training_jobs())
attempt("create_bucket", lambda: s3.create_bucket(Bucket="hostile-bucket-of-mine"))
own = "ok"
endpoint = os.environ["AWS_ENDPOINT_URL_S3"].split("//")[1].split(":")
attempt("gateway", lambda: socket.create_connection((endpoint[0], int(endpoint[1])), 2) and "connected")
try:
    bucket_own, key = os.environ["OWN_OUTPUT"].split("/", 1)
    s3.put_object(Bucket=bucket_own, Key=key + "/hello", Body=b"mine")
except ClientError as error:
    own = str(error)
print("FOUND " + json.dumps({"own": own, **found}), flush=True)
"""

VICTIM = "import signal\nopen('/opt/ml/model/secret', 'w').write('s')\nprint('up', flush=True)\nsignal.pause()\n"


def test_a_hostile_script_reads_nothing_of_others(stack: Stack, bucket: str, job_name: str):
    secret = f"{job_name}/secret.txt"
    stack.client("s3").put_object(Bucket=bucket, Key=secret, Body=b"the secret")
    victim = f"v-{job_name[-8:]}"
    run_script(stack, bucket, victim, {"t.py": VICTIM}, "t.py", Environment={"VICTIM": victim})
    wait_for_line(stack, victim, "up")
    configuration = json.loads((stack.home / "config.json").read_text())
    inner = sorted({str(v) for k, v in configuration.get("ports", {}).items() if "store" in k or k == "ingest"})
    assert inner, configuration.keys()
    request = job_request(stack, bucket, job_name, source=upload_source(stack, bucket, {"h.py": HOSTILE}))
    request["HyperParameters"]["sagemaker_program"] = "run.sh"
    words = " ".join(f"'{word}'" for word in (str(stack.home), victim, bucket, secret, ",".join(inner)))
    request["HyperParameters"]["sagemaker_submit_directory"] = upload_source(
        stack, bucket, {"h.py": HOSTILE, "run.sh": f"python h.py {words}\n"}
    )
    request["Environment"] = {"OWN_OUTPUT": f"{bucket}/out/{job_name}/output"}
    stack.client("sagemaker").create_training_job(**request)
    described = wait_for_end(stack, job_name)
    stack.client("sagemaker").stop_training_job(TrainingJobName=victim)
    assert described["TrainingJobStatus"] == "Completed", described.get("FailureReason")
    (line,) = [line for line in log_lines(stack, job_name)["algo-1"] if line.startswith("FOUND ")]
    found = json.loads(line.removeprefix("FOUND "))
    assert found.pop("own") == "ok" and found.pop("gateway") == "'connected'", "what is allowed works"
    assert {name: value for name, value in found.items() if value != "refused"} == {}
    assert stack.client("s3").get_object(Bucket=bucket, Key=secret)["Body"].read() == b"the secret"
    wait_for_end(stack, victim)


def test_two_jobs_use_port_7777_at_once(stack: Stack, bucket: str, job_name: str):
    script = """import os, socket, sys
hosts = ["algo-1", "algo-2"]
if os.environ["SM_CURRENT_HOST"] == "algo-1":
    server = socket.create_server(("", 7777))
    print("listening", flush=True)
    peer, _ = server.accept()
    print("GOT " + peer.recv(100).decode(), flush=True)
else:
    import time
    while True:
        try:
            peer = socket.create_connection(("algo-1", 7777), 5)
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    peer.sendall(os.environ["TRAINING_JOB_NAME"].encode())
"""
    names = [f"{job_name[-8:]}-{letter}" for letter in "abc"]
    for name in names:
        run_script(stack, bucket, name, {"t.py": script}, "t.py", count=2)
    for name in names:
        described = wait_for_end(stack, name)
        assert described["TrainingJobStatus"] == "Completed", described.get("FailureReason")
        assert f"GOT {name}" in log_lines(stack, name)["algo-1"]


@pytest.mark.parametrize("isolated", [False, True])
def test_the_network_reaches_the_store_unless_isolated(stack: Stack, bucket: str, job_name: str, isolated: bool):
    script = """import boto3, os
from botocore.config import Config
s3 = boto3.client("s3", config=Config(connect_timeout=2, retries={"total_max_attempts": 1}))
bucket, prefix = os.environ["OWN"].split("/", 1)
try:
    s3.put_object(Bucket=bucket, Key=prefix + "/x", Body=b"x")
    print("REACHED")
except Exception as error:
    print("NOT", type(error).__name__)
"""
    run_script(
        stack,
        bucket,
        job_name,
        {"t.py": script},
        "t.py",
        EnableNetworkIsolation=isolated,
        Environment={"OWN": f"{bucket}/out/{job_name}/output"},
    )
    assert wait_for_end(stack, job_name)["TrainingJobStatus"] == "Completed"
    assert ("REACHED" in log_lines(stack, job_name)["algo-1"]) is not isolated
