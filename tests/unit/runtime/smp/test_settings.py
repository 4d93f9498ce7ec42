"""Each setting of smp acts, is idle for a reason, or is refused with one; the launcher's stand above the script's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from smdistributed.modelparallel.torch.settings import KEYS, SettingsError, read_settings

pytest.importorskip("torch", reason="the runtime extra is not installed")

_LAUNCHED = {"SM_HP_MP_PARAMETERS": json.dumps({"microbatches": 8, "partitions": 1, "bf16": True})}


def test_the_launchers_values_override_those_of_init() -> None:
    settings = read_settings({"microbatches": 2, "sharded_data_parallel_degree": 4}, _LAUNCHED)
    assert (settings["microbatches"], settings["sharded_data_parallel_degree"], settings.half) == (8, 4, "bf16")


def test_defaults_are_those_of_the_documentation() -> None:
    settings = read_settings(None, {})
    assert settings.values == {name: key.default for name, key in KEYS.items()}
    assert not settings.sharded and settings.half is None and settings.notices == ()
    assert settings["sdp_gradient_clipping"] == 1.0 and settings["activation_loading_horizon"] == 4


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tensor_parallel_degree": 2}, "no tensor parallelism"),
        ({"pipeline_parallel_degree": 2}, "no pipeline parallelism"),
        ({"partitions": 2}, "no pipeline parallelism"),
        ({"horovod": True}, "ddp"),
        ({"fp16": True, "bf16": True}, "choose one"),
        ({"shard_optimizer_state": True}, "sharded_data_parallel_degree"),
        ({"shard_optimizer_state": True, "sharded_data_parallel_degree": 2}, "already shards it"),
        ({"microbatches": 0}, "at least 1"),
        ({"microbatches": 1.5}, "whole number"),
        ({"microbatches": True}, "whole number"),
        ({"sharded_data_parallel_degree": "many"}, "whole number"),
        ({"sdp_gradient_clipping": -1}, "from 0"),
        ({"memory_weight": 2}, "from 0 to 1"),
        ({"pipeline": "wide"}, "interleaved"),
        ({"placement_strategy": "DPP"}, "letters D, P and T"),
        ({"ddp": "perhaps"}, "True or False"),
        ({"default_partition": 1}, "one partition"),
        ({"auto_partition": False, "default_partition": None}, "must be given"),
        ({"activation_loading_horizon": 0}, "at least 1"),
        ({"microbatch": 2}, "did you mean 'microbatches'"),
    ],
)
def test_what_cannot_be_acted_on_is_refused_with_the_reason(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        read_settings(given, {})


@pytest.mark.parametrize("text", ["{", "[1]"])
def test_launched_settings_that_are_no_object_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="SM_HP_MP_PARAMETERS"):
        read_settings({}, {"SM_HP_MP_PARAMETERS": text})


def test_what_changes_nothing_is_said() -> None:
    given = {"placement_strategy": "spread", "pipeline": "simple", "microbatches": 2, "skip_tracing": True}
    notices = " ".join(read_settings(given, {}).notices)
    assert all(name in notices for name in ("placement_strategy", "pipeline", "skip_tracing"))
    assert "microbatches" not in notices


def test_the_public_examples_configuration_is_taken() -> None:
    given = {
        **{"ddp": True, "tensor_parallel_degree": 1, "pipeline_parallel_degree": 1, "microbatches": 1},
        **{"shard_optimizer_state": False, "prescaled_batch": True, "fp16": False, "bf16": True, "optimize": "speed"},
        **{"offload_activations": True, "delayed_parameter_initialization": True, "placement_strategy": "cluster"},
        **{"activation_loading_horizon": 4, "skip_tracing": True, "auto_partition": True, "default_partition": 0},
        **{"static_mode": True, "fast_mode": True, "sharded_data_parallel_degree": 4, "active_microbatches": 1},
    }
    assert read_settings(given, {}).sharded
