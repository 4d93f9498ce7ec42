"""An ordinary user of Syne Tune's SageMaker backend: nothing here knows of Trainshed. Prints what it saw as JSON."""

import json
import os
import sys

from sagemaker.pytorch import PyTorch
from syne_tune import StoppingCriterion, Tuner
from syne_tune.backend import SageMakerBackend
from syne_tune.config_space import loguniform, randint
from syne_tune.optimizer.baselines import ASHA

source, instance_type = sys.argv[1:3]
workers, trials, epochs = map(int, sys.argv[3:6])

estimator = PyTorch(
    entry_point="train.py",
    source_dir=source,
    role=os.environ["SAGEMAKER_ROLE"],
    framework_version="2.2.0",
    py_version="py310",
    instance_count=1,
    instance_type=instance_type,
    keep_alive_period_in_seconds=600,
    max_run=600,
)
tuner = Tuner(
    trial_backend=SageMakerBackend(sm_estimator=estimator, metrics_names=["loss"]),
    scheduler=ASHA(
        {"learning_rate": loguniform(1e-3, 1.0), "width": randint(1, 64), "epochs": epochs},
        metric="loss",
        mode="min",
        resource_attr="epoch",
        max_resource_attr="epochs",
        grace_period=1,
        reduction_factor=3,
        random_seed=7,
    ),
    stop_criterion=StoppingCriterion(max_num_trials_started=trials),
    n_workers=workers,
    sleep_time=0.5,
    start_jobs_without_delay=False,
    wait_trial_completion_when_stopping=True,
    tuner_name="search",
)
tuner.run()
status = tuner.tuning_status
seen = {
    "jobs": tuner.trial_backend.job_id_mapping,
    "statuses": status.last_trial_status_seen,
    "epochs": {trial: row.get("epoch") for trial, row in status.trial_rows.items()},
    "best": list(tuner.best_config()),
}
print("RESULT " + json.dumps(seen, default=str), flush=True)
