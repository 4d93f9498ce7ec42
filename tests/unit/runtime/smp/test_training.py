"""Training through smp equals plain torch, and the numbers and messages of smp are right."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.ranks import run_ranks

pytest.importorskip("torch", reason="the runtime extra is not installed")

_SCRIPTS = "tests.unit.runtime.smp.scripts"
_WHOLE = {"sdp_param_persistence_threshold": 0, "sdp_max_live_parameters": 0, "sdp_gradient_clipping": 0}


def _train(world: int, config: dict[str, Any], env: dict[str, str] | None = None, **more: Any) -> list[dict[str, Any]]:
    given = (config, more.get("steps", 4), more.get("passes", 1), more.get("options"))
    return run_ranks(world, f"{_SCRIPTS}:train", *given, ranks_per_node=2, env=env, group=False)


def _same(found: list[dict[str, Any]], wanted: dict[str, Any], close: float) -> None:
    for one in found:
        assert one["losses"] == pytest.approx(wanted["losses"], rel=close)
        assert one["state"].keys() == wanted["state"].keys()
        for name, value in wanted["state"].items():
            assert _flat(one["state"][name]) == pytest.approx(_flat(value), abs=close), name


def _flat(value: Any) -> list[float]:
    return [item for part in value for item in _flat(part)] if isinstance(value, list) else [value]


def _alone(*args: Any) -> dict[str, Any]:
    return run_ranks(1, f"{_SCRIPTS}:train_alone", *args, group=False)[0]


def test_two_replicas_of_two_with_microbatches_and_accumulation_train_as_one_process() -> None:
    config = {"sharded_data_parallel_degree": 2, "microbatches": 2, "ddp": True, **_WHOLE, "sdp_gradient_clipping": 0.5}
    config["delayed_parameter_initialization"] = True
    _same(_train(4, config, steps=3, passes=2), _alone(4, 3, 2, 2, 0.5), 2e-5)


def test_the_launchers_settings_stand_above_the_scripts() -> None:
    launched = json.dumps({"partitions": 1, "microbatches": 2, "sharded_data_parallel_degree": 2, **_WHOLE})
    found = _train(2, {"microbatches": 4, "bf16": True}, {"SM_HP_MP_PARAMETERS": launched}, steps=2)
    alone = _alone(2, 2, 1, 2)
    assert found[0]["losses"] == pytest.approx(alone["losses"], rel=2e-2)
    assert found[0]["losses"] != pytest.approx(alone["losses"], rel=1e-6)  # it was bf16


@pytest.mark.parametrize("strategy", ["each", "contiguous", "group_2"])
def test_checkpointed_and_offloaded_activations_change_no_number(strategy: str) -> None:
    config = {
        "sharded_data_parallel_degree": 2,
        **_WHOLE,
        "offload_activations": strategy != "contiguous",
        "activation_loading_horizon": 2,
    }
    found = _train(2, config, steps=2, options={"checkpointing": strategy})
    _same(found, _alone(2, 2), 2e-5)
    layers = {"each": 2, "contiguous": 0, "group_2": 2}[strategy]  # at most the horizon at once
    assert [one["offload"] for one in found] == [layers] * 2


def test_fp16_leaves_out_steps_that_overflow_on_any_rank() -> None:
    options = {"poison": 1, "loss_scale": {"init_scale": 2.0**12, "scale_window": 2}}
    config = {"sharded_data_parallel_degree": 2, "fp16": True, **_WHOLE}
    found = _train(4, config, options=options)
    assert [one["overflows"] for one in found] == [[False, True, False, False]] * 4
    assert [one["scales"] for one in found] == [[2.0**12, 2.0**11, 2.0**11, 2.0**12]] * 4
    assert all(one["state"] == found[0]["state"] for one in found)


def test_fp16_stays_close_to_float32_and_clips_once_more_by_hand() -> None:
    config = {"sharded_data_parallel_degree": 2, "fp16": True, "sdp_gradient_clipping": 1.0}
    found = _train(2, config, options={"clip_master": 0.5})
    assert found[0]["losses"] == pytest.approx(_alone(2, 4, 1, 1, 0.5)["losses"], rel=5e-3)


def test_a_scripts_own_grad_scaler_agrees_on_overflows() -> None:
    found = run_ranks(4, f"{_SCRIPTS}:autocast", 1, ranks_per_node=2, group=False)
    assert [one["scales"] for one in found] == [[8.0, 4.0, 4.0]] * 4
    first, second, third = found[0]["weights"]
    assert first == second != third
    assert all(one["weights"] == found[0]["weights"] for one in found)


def test_ranks_sizes_and_groups() -> None:
    found = run_ranks(4, f"{_SCRIPTS}:numbers", ranks_per_node=2, group=False)
    for rank, one in enumerate(found):
        assert [one[name] for name in ("rank", "size", "local_rank", "local_size")] == [rank, 4, rank % 2, 2]
        assert one["dp"] == one["rdp"] == [rank, 4]
        assert one["tp"] == one["pp"] == one["mp"] == [0, 1]
        assert one["dp_group"] == one["rdp_group"] == [0, 1, 2, 3]
        assert one["tp_group"] == one["pp_group"] == one["mp_group"] == [rank]


def test_objects_reach_the_ranks_they_are_sent_to_in_order() -> None:
    first, second, third = run_ranks(3, f"{_SCRIPTS}:messages", group=False)
    assert first == [1, [0, 10, 20]]
    assert second == [{"all": 1}, [1, 2], "second", [0, 10, 20]]
    assert third == [{"all": 1}, [0, 10, 20]]


def test_a_degree_that_does_not_divide_the_ranks_is_refused_with_proposals() -> None:
    for said in run_ranks(4, f"{_SCRIPTS}:refused_degree", 3, group=False):
        assert "does not divide" in said and "2 or 4" in said
