"""How `smp.step` divides a batch and gathers what the function returns."""

from __future__ import annotations

from collections import namedtuple
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the runtime extra is not installed")

from smdistributed.modelparallel.torch import microbatches  # noqa: E402
from smdistributed.modelparallel.torch.microbatches import StepOutput, step  # noqa: E402

Pair = namedtuple("Pair", "left right")


@pytest.fixture(autouse=True)
def _two_microbatches(monkeypatch: pytest.MonkeyPatch) -> None:
    state = SimpleNamespace(settings={"microbatches": 2}, device=torch.device("cpu"))
    monkeypatch.setattr(microbatches, "current", lambda: state)


def test_tensors_are_split_wherever_they_are_and_others_are_passed_on() -> None:
    seen: list[Any] = []

    @step(non_split_inputs=["whole"], input_split_axes={"columns": 1})
    def run(batch: Any, columns: Any, *rest: Any, whole: Any, **named: Any) -> Any:
        seen.append((batch, columns.shape, rest, whole.shape, named))
        return None

    nested = {"a": torch.arange(4), "b": [torch.arange(2), "text"]}
    run(nested, torch.zeros(3, 4), torch.arange(2), 7, whole=torch.zeros(3), more=torch.arange(6))
    first, second = seen
    assert first[0]["a"].tolist() == [0, 1] and second[0]["a"].tolist() == [2, 3]
    assert second[0]["b"][0].tolist() == [1] and second[0]["b"][1] == "text"
    assert first[1] == (3, 2) and first[3] == (3,)
    assert second[2][0].tolist() == [1] and second[2][1] == 7
    assert second[4]["more"].tolist() == [3, 4, 5]


def test_outputs_are_gathered_by_their_structure() -> None:
    @step
    def run(x: Any) -> Any:
        return {"sum": x.sum(), "pair": Pair(x, [x * 2, "text"])}

    found = run(torch.arange(4.0))
    assert found["sum"].reduce_mean() == 3.0 and found["sum"].reduce_sum() == 6.0
    assert found["sum"].stack().tolist() == [1.0, 5.0] and found["sum"].concat().tolist() == [1.0, 5.0]
    assert found["pair"].left.concat().tolist() == [0.0, 1.0, 2.0, 3.0]
    assert found["pair"].right[0].stack().tolist() == [[0.0, 2.0], [4.0, 6.0]]
    assert found["pair"].right[1].outputs == ["text", "text"]
    with pytest.raises(TypeError, match="returned a str"):
        found["pair"].right[1].reduce_mean()


def test_reductions_are_fresh_and_outputs_detached_unless_asked() -> None:
    weight = torch.ones(1, requires_grad=True)

    def run(x: Any) -> Any:
        return (x * weight).sum()

    output = step(run)(torch.ones(2))
    mean = output.reduce_mean()
    mean += 1
    assert output.outputs[0] == 1.0 and not output.outputs[0].requires_grad
    assert step(detach_outputs=False)(run)(torch.ones(2)).outputs[0].requires_grad


def test_an_object_may_slice_itself() -> None:
    class Own:
        def smp_slice(self, count: int, number: int, axis: int) -> tuple[int, int, int]:
            return count, number, axis

    @step(input_split_axes={"own": 3})
    def run(own: Any) -> Any:
        return own

    assert [part.outputs for part in run(Own())] == [[2, 2], [0, 1], [3, 3]]


def test_a_batch_that_does_not_divide_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"'x' has shape \(3,\).*2 equal microbatches"):
        step(lambda x: x)(torch.zeros(3))
    with pytest.raises(ValueError, match="'other', which"):
        step(lambda x: x, non_split_inputs=["other"])(torch.zeros(2))


def test_a_single_output_prints_what_it_holds() -> None:
    assert repr(StepOutput([1, 2])) == "StepOutput([1, 2])"
