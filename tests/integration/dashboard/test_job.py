"""One job's page: why it failed, why it waits, its files, with a real gateway and object store."""

from __future__ import annotations

import re
import time

import httpx
from sqlalchemy import update

from tests.integration.dashboard.test_one_port import s3
from tests.support.api_process import ApiProcess
from tests.support.shown_service import ShownService, log_in
from trainshed_service.store.tables import changed, jobs


def test_a_failure_shows_the_lines_that_tell_it_and_a_report(
    person: httpx.Client, shown: ShownService, job_name: str
) -> None:
    shown.place(job_name)
    trace = ["Traceback (most recent call last):", '  File "train.py", line 7, in main', "ValueError: <b>bad</b> batch"]
    shown.ship(job_name, "algo-1", ["epoch 1", "loss=1", *trace, "bye"])
    shown.ship(job_name, "algo-2", ["epoch 1", "all is well"])
    failed = update(jobs).where(jobs.c.name == job_name)
    values = {"state": "failed", "status": "Failed", "failure_reason": "AlgorithmError: algo-1: exit code 1"}
    ended = {"training_ended_at": time.time(), "modified_at": time.time(), "version": 7}
    shown.control.write_sync(lambda session: changed(session, failed.values(**values, **ended)))
    page = person.get(f"/jobs/{job_name}").text
    shown_lines = re.findall(r'log#(line=algo-1-\d+:\d+)">algo-1:(\d+)</a> <code>([^<]*)</code>', page)
    assert [number for _, number, _ in shown_lines] == ["3", "4", "5"]
    assert shown_lines[-1][2] == "ValueError: &lt;b&gt;bad&lt;/b&gt; batch" and "all is well" not in page
    report = re.search(r'<pre id="report">(.*?)</pre>', page, re.DOTALL)
    assert report and "Reason: AlgorithmError: algo-1: exit code 1" in report[1] and "algo-1:5" in report[1]
    assert f'href="/new-job?from={job_name}"' in page and "Stop the job" not in page


def test_a_waiting_job_shows_what_would_match(person: httpx.Client, shown: ShownService, job_name: str) -> None:
    shown.client("sagemaker").create_training_job(**shown.request(job_name))
    page = person.get(f"/jobs/{job_name}").text
    assert "What it waits for, and what would match" in page and 'href="/queue"' in page


def test_files_are_listed_and_downloaded_in_the_visitors_own_name(api: ApiProcess, job_name: str) -> None:
    client = s3(api)
    client.create_bucket(Bucket=job_name)
    model = f"out/{job_name}/output/model.tar.gz"
    client.put_object(Bucket=job_name, Key=model, Body=b"the model")
    client.put_object(Bucket=job_name, Key="data/a b&c.txt", Body=b"some data")
    client.put_object(Bucket=job_name, Key="secret.txt", Body=b"not of the job")
    channel = {"ChannelName": "train", "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix"}}}
    channel["DataSource"]["S3DataSource"]["S3Uri"] = f"s3://{job_name}/data/"  # type: ignore[index]
    api.client("sagemaker").create_training_job(
        TrainingJobName=job_name,
        RoleArn=api.bootstrap.role_arn,
        AlgorithmSpecification={"TrainingImage": "image", "TrainingInputMode": "File"},
        InputDataConfig=[channel],
        OutputDataConfig={"S3OutputPath": f"s3://{job_name}/out"},
        ResourceConfig={"InstanceType": "ml.c5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 1},
        StoppingCondition={"MaxRuntimeInSeconds": 3600},
    )
    admin = api.bootstrap.admin
    with httpx.Client(base_url=api.url, trust_env=False, timeout=30) as person:
        assert log_in(person, key=admin.access_key_id, secret=admin.secret_access_key).status_code == 303
        listed = person.get(f"/jobs/{job_name}/files?of=input:train").text
        link = re.search(rf'href="(/jobs/{job_name}/download[^"]+)">a b&amp;c.txt</a></td><td>9 B', listed)
        assert link, listed
        to = person.get(link[1].replace("&amp;", "&"))
        assert to.status_code == 303 and admin.secret_access_key not in to.headers["location"]
        got = httpx.get(to.headers["location"], trust_env=False)
        assert got.content == b"some data" and "attachment" in got.headers["content-disposition"]
        to = person.get(f"/jobs/{job_name}/download?of=model")
        assert httpx.get(to.headers["location"], trust_env=False).content == b"the model"
        beside = person.get(f"/jobs/{job_name}/download", params={"of": "input:train", "key": "secret.txt"})
        assert beside.status_code == 400
        assert person.get(f"/jobs/{job_name}/files?of=nowhere").status_code == 404
