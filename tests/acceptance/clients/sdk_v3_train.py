"""An ordinary user of SageMaker SDK v3: ModelTrainer, then the resource classes."""

import argparse
import json
import logging
import os
import uuid

from botocore.exceptions import ClientError
from sagemaker.core.resources import TrainingJob
from sagemaker.core.training.configs import Compute, SourceCode
from sagemaker.core.utils.exceptions import FailedStatusError
from sagemaker.train import ModelTrainer
from sagemaker.train.distributed import MPI, Torchrun

parser = argparse.ArgumentParser()
parser.add_argument("--source-dir", required=True)
parser.add_argument("--entry-point", required=True)
parser.add_argument("--torchrun", action="store_true")
parser.add_argument("--instance-type", default="ml.c5.xlarge")
parser.add_argument("--count", type=int, default=2)
parser.add_argument("--stop", action="store_true", help="start without waiting, stop, wait for the end")
parser.add_argument("--mpi", action="store_true", help="then train with the MPI driver")
arguments = parser.parse_args()
logging.basicConfig(level=logging.INFO, format="%(message)s")  # without it the SDK shows no log line


def trainer_of(distributed, count):
    return ModelTrainer(
        training_image="763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.2.0-cpu-py310",
        source_code=SourceCode(source_dir=arguments.source_dir, entry_script=arguments.entry_point),
        distributed=distributed,
        compute=Compute(instance_type=arguments.instance_type, instance_count=count, volume_size_in_gb=30),
        hyperparameters={"epochs": 2},
        base_job_name=f"sdk-v3-{uuid.uuid4().hex[:8]}",  # the SDK adds the second alone: two clients may share one
        role=os.environ["SAGEMAKER_ROLE"],
    )


trainer = trainer_of(Torchrun(process_count_per_node=2) if arguments.torchrun else None, arguments.count)
trainer.train(wait=not arguments.stop, logs=not arguments.stop)
name = trainer._latest_training_job.training_job_name
listed = [job.training_job_name for job in TrainingJob.get_all()]
job = TrainingJob.get(training_job_name=name)
if arguments.stop:
    job.stop()
    job.wait()
seen = {
    "job": name,
    "listed": name in listed,
    "status": job.training_job_status,
    "model": job.model_artifacts.s3_model_artifacts,
}
job.delete()
job.wait_for_delete(poll=1, timeout=120)
try:
    TrainingJob.get(training_job_name=name)
except ClientError as error:
    seen["deleted"] = error.response["Error"]["Message"]
if arguments.mpi:
    try:
        trainer_of(MPI(process_count_per_node=2), 2).train(wait=True, logs=True)
    except FailedStatusError as error:
        seen["refused"] = str(error)
print("\nRESULT " + json.dumps(seen), flush=True)
