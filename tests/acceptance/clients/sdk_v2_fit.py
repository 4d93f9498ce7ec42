"""An ordinary user of SageMaker SDK v2: nothing here knows of Trainshed. Prints what it saw as one JSON line."""

import argparse
import collections
import io
import json
import math
import os
import pickle
import struct
import sys
import tarfile
import uuid
import zipfile

import boto3
import sagemaker
from sagemaker.exceptions import UnexpectedStatusException
from sagemaker.pytorch import PyTorch


class State(pickle.Unpickler):
    """Reads a state_dict of float32 tensors as torch.save wrote it; this environment has no torch."""

    def __init__(self, archive, top):
        super().__init__(io.BytesIO(archive.read(f"{top}/data.pkl")))
        self.archive, self.top = archive, top

    def find_class(self, module, name):
        if name == "OrderedDict":
            return collections.OrderedDict
        if name == "_rebuild_tensor_v2":
            return lambda values, offset, size, *_: values[offset : offset + math.prod(size)]
        return name

    def persistent_load(self, saved):
        _, kind, key, _, count = saved
        assert kind == "FloatStorage", kind
        return struct.unpack(f"<{count}f", self.archive.read(f"{self.top}/data/{key}"))


def state_of(body):
    """Parameter → its numbers, of a model.pt; raises where it is damaged."""
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        assert archive.testzip() is None
        return State(archive, archive.namelist()[0].split("/")[0]).load()


parser = argparse.ArgumentParser()
parser.add_argument("--source-dir", required=True)
parser.add_argument("--entry-point", required=True)
parser.add_argument("--distribution", default="")
parser.add_argument("--instance-type", default="ml.g5.12xlarge")
parser.add_argument("--count", type=int, default=2)
parser.add_argument("--hyperparameters", default="{}")
parser.add_argument("--framework", default="2.2.0")
parser.add_argument("--python", default="py310")
parser.add_argument("--data", default="")
parser.add_argument("--expect-failure", action="store_true")
arguments = parser.parse_args()

session = sagemaker.Session()
inputs = None
if arguments.data:
    inputs = {"train": session.upload_data(arguments.data, key_prefix="data/train")}
estimator = PyTorch(
    entry_point=arguments.entry_point,
    source_dir=arguments.source_dir,
    role=os.environ["SAGEMAKER_ROLE"],
    framework_version=arguments.framework,
    py_version=arguments.python,
    instance_count=arguments.count,
    instance_type=arguments.instance_type,
    distribution=json.loads(arguments.distribution) if arguments.distribution else None,
    hyperparameters=json.loads(arguments.hyperparameters),
    metric_definitions=[{"Name": "loss", "Regex": r"loss=([0-9.]+);"}],
    base_job_name=f"sdk-v2-{uuid.uuid4().hex[:8]}",
    max_run=600,
)
seen = {}
try:
    estimator.fit(inputs, wait=True, logs="All")
except UnexpectedStatusException as error:
    if not arguments.expect_failure:
        raise
    seen["error"] = str(error)
else:
    body = boto3.client("s3")
    bucket, key = estimator.model_data.removeprefix("s3://").split("/", 1)
    archive = body.get_object(Bucket=bucket, Key=key)["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        seen["model_files"] = sorted(tar.getnames())
        if "model.pt" in seen["model_files"]:
            seen["state"] = state_of(tar.extractfile("model.pt").read())
    attached = PyTorch.attach(estimator.latest_training_job.name)
    seen["attached_model_data"] = attached.model_data
    seen["model_data"] = estimator.model_data
    frame = sagemaker.TrainingJobAnalytics(estimator.latest_training_job.name).dataframe()
    seen["metrics"] = sorted(set(frame["metric_name"])) if len(frame) else []
seen["job"] = estimator.latest_training_job.name
sys.stdout.flush()
print("\nRESULT " + json.dumps(seen), flush=True)
