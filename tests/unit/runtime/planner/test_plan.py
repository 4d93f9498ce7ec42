"""Plans: the published rules of thumb, what memory is made of, and the recommended degree."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.depth import examples
from trainshed_runtime.degrees import valid_degrees
from trainshed_runtime.planner import InstanceFacts, Plan, PlanError, answer, parse_request
from trainshed_runtime.planner.document import plan_document
from trainshed_runtime.planner.hardware import MACHINES
from trainshed_runtime.planner.memory import Settings, model_states, rank_memory
from trainshed_runtime.planner.shape import shape_of

P4D = "ml.p4d.24xlarge"


def plan(**members: Any) -> Plan:
    return answer(parse_request({"params": "30B", "instance": P4D, "count": 32, **members}))


def test_ten_billion_parameters_have_200_gb_of_state() -> None:
    assert plan(params="10B").states == 200_000_000_000
    assert model_states(10**10, Settings(precision="fp32")) == 160_000_000_000


@pytest.mark.parametrize(("params", "degree"), [("30B", 128), ("10B", 32), ("20B", 64), ("3B", 8), ("100B", 256)])
def test_the_rule_of_thumb(params: str, degree: int) -> None:
    found = plan(params=params)
    assert found.rule == degree
    if params != "100B":
        assert found.recommended == degree
    assert "rule of thumb" in found.reason


def test_a_batch_decides_by_memory_and_time() -> None:
    found = plan(batch=4, accumulation=8)
    fitting = [choice for choice in found.choices if choice.fits]
    assert found.recommended == fitting[0].degree < 128, "fewer ranks in a group send fewer bytes, so it is faster"
    assert found.shown is not None and found.shown.step is not None
    assert all(choice.step is not None and choice.step.most >= found.shown.step.most for choice in fitting)
    assert found.shown.step.least <= found.shown.step.most
    low, high = found.samples_per_second(found.shown.step)
    assert low < high == pytest.approx(256 * 4 * 8 / found.shown.step.least)


def test_a_small_model_needs_no_sharding() -> None:
    assert plan(params="350M", count=4).recommended == 1


def test_nothing_fits() -> None:
    found = plan(params="500B", count=1)
    assert found.recommended is None
    assert found.shown is None
    assert "more instances" in found.reason


@settings(max_examples=examples(40), deadline=None)
@given(
    st.integers(10**7, 10**11),
    st.sampled_from([1, 2, 8]),
    st.sampled_from(["bf16", "fp32"]),
    st.sampled_from(["none", "each", "group_4"]),
    st.booleans(),
)
def test_memory_falls_with_the_degree_and_states_divide(
    parameters: int, batch: int, precision: str, checkpointing: str, offload: bool
) -> None:
    found = plan(params=parameters, batch=batch, precision=precision, checkpointing=checkpointing, offload=offload)
    assert [choice.degree for choice in found.choices] == valid_degrees(256)
    for smaller, larger in zip(found.choices[1:], found.choices[2:], strict=False):
        assert larger.memory.total <= smaller.memory.total
        assert larger.largest_batch >= smaller.largest_batch
        assert abs(smaller.memory.states - 2 * larger.memory.states) <= 32
    assert all(choice.fits == (choice.memory.total <= found.usable) for choice in found.choices)
    assert all(choice.largest_batch >= batch for choice in found.choices if choice.fits)


def test_activations_follow_the_published_count() -> None:
    shape = shape_of(30 * 10**9, 2048, hidden=7168, layers=48, heads=64)
    rows = 2048 * 4
    per_layer = rows * 7168 * 34 + 5 * 64 * 2048 * rows
    kept = rows * 7168 * 2
    logits = rows * shape.vocabulary * 8
    unreduced = 6 * shape.layer_parameters
    base = Settings(micro_batch=4)
    assert rank_memory(shape, 128, replace(base, checkpointing=0)).activations == round(
        48 * per_layer + max(logits, unreduced)
    )
    assert rank_memory(shape, 128, base).activations == round(48 * kept + per_layer + unreduced)
    offloaded = rank_memory(shape, 128, replace(base, offload=True, horizon=4))
    assert offloaded.activations == round(4 * kept + per_layer + unreduced)
    assert offloaded.host == 44 * kept
    grouped = rank_memory(shape, 128, replace(base, checkpointing=4))
    assert grouped.activations == round(12 * kept + 4 * per_layer + unreduced)


def test_live_parameters_are_counted_up_to_their_cap() -> None:
    shape = shape_of(30 * 10**9, 2048, hidden=7168, layers=48, heads=64)
    none = rank_memory(shape, 128, Settings(max_live=0)).gathered
    few = rank_memory(shape, 128, Settings(max_live=5 * 10**9)).gathered
    everything = rank_memory(shape, 128, Settings(max_live=10**11)).gathered
    assert none == rank_memory(shape, 128, Settings(max_live=10**9)).gathered, "less than what is at work anyhow"
    assert 2 * (5 * 10**9 - shape.layer_parameters) < few - 2 * shape.root_parameters <= 2 * 5 * 10**9
    assert everything == round(2 * shape.parameters + 2 * shape.root_parameters)


def test_fp32_without_sharding_has_no_second_copy() -> None:
    shape = shape_of(10**8, 128, hidden=768, layers=12)
    memory = rank_memory(shape, 1, Settings(precision="fp32", optimizer="sgd"))
    assert (memory.states, memory.gathered) == (8 * 10**8, 0)


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"params": "many"}, "params: 'many' is not a number such as 30B"),
        ({"params": 0}, "params is at least 1"),
        ({"count": 0}, "count is a whole number from 1"),
        ({"count": True}, "count is a whole number from 1"),
        ({"nodes": 3}, "'nodes' is not known; known are params, instance"),
        ({"precision": "fp8"}, "precision is one of bf16, fp16, fp32"),
        ({"checkpointing": "group_0"}, "checkpointing is none, each, contiguous or group_N"),
        ({"instance": "ml.x9.huge"}, "instance 'ml.x9.huge' is not known; give memory"),
        ({"processes": 16}, "processes is at most 8 on ml.p4d.24xlarge"),
        ({"degree": 100}, "sharded_data_parallel_degree 100 does not divide .*; use 32, 64 or 128"),
        ({"utilisation": 0}, "utilisation is a share"),
        ({"nodeLink": "fast"}, "nodeLink: 'fast' is not a link speed"),
        ({"count": 16384}, "at most 16384 ranks"),
        ({"params": "1M", "vocabulary": 50000, "hidden": 768}, "fewer than the embeddings"),
    ],
)
def test_what_is_wrong_is_named(members: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        plan(**members)
    with pytest.raises(PlanError, match="params is needed"):
        parse_request({"instance": P4D})


def test_a_type_that_only_the_installation_knows() -> None:
    request = parse_request(
        {"params": "100M", "instance": "ml.c5.4xlarge", "count": 4, "precision": "fp32", "batch": 1}
    )
    found = answer(request, InstanceFacts(memory_bytes=32 * 2**30, accelerators=0))
    assert found.cluster.machine.device.memory_bytes == 32 * 2**30
    assert all(choice.step is None for choice in found.choices)
    assert any("no time is predicted" in note for note in found.notes)
    timed = parse_request({**vars(request), "flops": "1T", "nodeLink": "10Gbit/s", "deviceLink": "10GB/s"})
    step = answer(timed, InstanceFacts(32 * 2**30, 0)).choices[0].step
    assert step is not None
    assert step.compute > 0


def test_links_that_are_given_replace_the_published_ones() -> None:
    slow, fast = plan(nodeLink="40Gbit/s", batch=1), plan(batch=1)
    for one, other in zip(slow.choices, fast.choices, strict=True):
        assert one.step is not None and other.step is not None
        assert one.step.node_wire == pytest.approx(10 * other.step.node_wire)


def test_uneven_groups_are_told_of() -> None:
    found = plan(count=3, degree=12, params="1B")
    assert found.shown is not None and found.shown.degree == 12
    assert any("straddle nodes unevenly" in note for note in found.notes)


def test_the_document_is_json_and_whole() -> None:
    document = json.loads(json.dumps(plan_document(plan(batch=2))))
    assert document["recommendedDegree"] in [each["degree"] for each in document["degrees"]]
    first = document["degrees"][0]
    sizes = first["memoryBytes"]
    states = sizes["parameters"] + sizes["gradients"] + sizes["optimizer"]
    assert sizes["total"] == states + max(sizes["gathered"] + sizes["activations"], sizes["update"])


def test_machines_have_the_accelerators_that_the_service_lists() -> None:
    from trainshed_service.providers import known_type

    for name, machine in MACHINES.items():
        known = known_type(name)
        assert known is not None and known.accelerators == machine.devices, name


def test_the_planner_loads_no_torch() -> None:
    code = (
        "import sys, trainshed_runtime.planner.simulate, trainshed_runtime.planner.document\n"
        "assert not {'torch', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
