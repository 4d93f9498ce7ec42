"""SDK v2: a HyperparameterTuner, which needs operations that Trainshed does not have. Prints the error that came."""

import json
import os

from botocore.exceptions import ClientError
from sagemaker.estimator import Estimator
from sagemaker.tuner import ContinuousParameter, HyperparameterTuner

tuner = HyperparameterTuner(
    Estimator(
        image_uri="763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.2.0-cpu-py310",
        role=os.environ["SAGEMAKER_ROLE"],
        instance_count=1,
        instance_type="ml.c5.xlarge",
    ),
    objective_metric_name="loss",
    hyperparameter_ranges={"lr": ContinuousParameter(0.01, 0.1)},
    metric_definitions=[{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
)
try:
    tuner.fit(wait=False)
except ClientError as error:
    seen = {"operation": error.operation_name, **error.response["Error"]}
print("\nRESULT " + json.dumps(seen), flush=True)
