"""The public GPT-2 example of the model parallel library, unmodified, as an estimator-shaped job at a tiny width.

The example is not ours to keep: TRAINSHED_GPT2_EXAMPLE names a folder with its files (one commit): train_gpt_simple.py,
data_pipeline.py, learning_rates.py, memory_tracker.py, sharded_data_parallel_checkpoint.py).
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from tests.support.jobs import log_lines, run_script, wait_for_end
from tests.support.stack import Stack

_FOLDER = os.environ.get("TRAINSHED_GPT2_EXAMPLE", "")
_SETTINGS = {"ddp": True, "partitions": 1, "microbatches": 2, "sharded_data_parallel_degree": 2}
_SIZE = {
    **{"hidden_width": 16, "num_layers": 3, "num_heads": 2, "vocab_size": 64, "max_context_width": 16},
    **{"train_batch_size": 4, "val_batch_size": 4, "max_steps": 8, "validation_freq": 4, "validation_batches": 1},
    **{"checkpoint_freq": 4, "gradient_accumulation": 2, "lr": 0.01, "zipped_data": 0},
    **{"use_distributed_transformer": 0, "sharded_data_parallel_degree": 2, "save_final_full_model": 1},
}


@pytest.mark.example
@pytest.mark.skipif(not _FOLDER, reason="TRAINSHED_GPT2_EXAMPLE names no folder with the example")
@pytest.mark.parametrize("precision", [{}, {"fp16": 1}, {"bf16": 1, "offload_activations": 1, "delayed_param": 1}])
def test_the_public_example_trains(stack: Stack, bucket: str, job_name: str, precision: dict[str, int]) -> None:
    files = {path.name: path.read_text() for path in Path(_FOLDER).glob("*.py")}
    files["requirements.txt"] = "transformers>=4.40,<5\nh5py\n"
    lines = [[(start + place) % 50 for place in range(16)] for start in range(48)]
    text = "".join(json.dumps({"input_ids": ids, "attention_mask": [1] * 16}) + "\n" for ids in lines)
    channels = []
    for name in ("train", "test"):
        stack.client("s3").put_object(Bucket=bucket, Key=f"{job_name}/{name}/part.json", Body=text.encode())
        source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{bucket}/{job_name}/{name}"}
        channels.append({"ChannelName": name, "DataSource": {"S3DataSource": source}})
    hyperparameters = {
        **{name: json.dumps(value) for name, value in {**_SIZE, **precision}.items()},
        "mp_parameters": json.dumps(_SETTINGS),
        "sagemaker_mpi_enabled": "true",
        "sagemaker_mpi_num_of_processes_per_host": "2",
    }
    run_script(
        *(stack, bucket, job_name, files, "train_gpt_simple.py"),
        count=2,
        instance_type="ml.p4d.24xlarge",
        hyperparameters=hyperparameters,
        InputDataConfig=channels,
    )
    described = wait_for_end(stack, job_name, timeout=600)
    said = log_lines(stack, job_name)["algo-1"]
    assert described["TrainingJobStatus"] == "Completed", "\n".join(said[-60:])
    losses = [float(match[1]) for line in said for match in re.finditer(r"Batch \d+ Loss: ([0-9.]+)", line)]
    assert len(losses) == 8
    # Under fp16 the script's loss scale begins at 2**32, and all of these few steps overflow.
    assert losses[-1] < losses[0] or precision.get("fp16")
