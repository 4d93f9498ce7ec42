"""SDK v2: start without waiting, stop, wait for the end."""

import json
import os
import sys

import sagemaker
from sagemaker.pytorch import PyTorch

estimator = PyTorch(
    entry_point=sys.argv[2],
    source_dir=sys.argv[1],
    role=os.environ["SAGEMAKER_ROLE"],
    framework_version="2.2.0",
    py_version="py310",
    instance_count=1,
    instance_type="ml.c5.xlarge",
    base_job_name="sdk-v2-stop",
)
estimator.fit(wait=False)
name = estimator.latest_training_job.name
estimator.latest_training_job.stop()
session = sagemaker.Session()
try:
    session.wait_for_job(name)
finally:
    described = session.describe_training_job(name)
print("RESULT " + json.dumps({"job": name, "status": described["TrainingJobStatus"]}), flush=True)
