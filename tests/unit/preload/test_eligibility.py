"""Who may go on in a fork, and who gets a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from trainshed_worker.preload.eligibility import Checker, fresh_reason, layers_of
from trainshed_worker.preload.facts import SURROUNDINGS, ParentFacts
from trainshed_worker.sandbox import Command

PYTHON = "/opt/python/bin/python3"
PLAIN = [PYTHON, "/opt/ml/code/train.py", "--lr", "0.1"]
ENV = {"PATH": "/usr/bin", "OMP_NUM_THREADS": "2", **SURROUNDINGS}
LIBRARY = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"


def test_a_plain_script_may() -> None:
    assert fresh_reason(PLAIN, ENV, {}) == ""
    assert fresh_reason(PLAIN, ENV, {"EPOCHS": "3", "TRAINSHED_FRESH_PROCESS": "0", "WANDB_MODE": "offline"}) == ""


@pytest.mark.parametrize(
    "argv",
    [
        ["/bin/sh", "run.sh"],
        [PYTHON, "-m", "torch.distributed.run", "train.py"],
        [PYTHON, "-m", "train"],
        [PYTHON, "-O", "train.py"],
        [PYTHON],
        [PYTHON, "/opt/ml/code/train"],
        ["train"],
        ["/usr/bin/mpirun", PYTHON, "train.py"],
    ],
)
def test_other_command_lines_may_not(argv: list[str]) -> None:
    assert fresh_reason(argv, ENV, {}) != ""


@pytest.mark.parametrize(
    "name",
    [
        "PYTHONHASHSEED",
        "PYTHONPATH",
        "LD_PRELOAD",
        "OMP_NUM_THREADS",
        "MKL_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MALLOC_ARENA_MAX",
        "TORCH_LOGS",
        "TORCHDYNAMO_DISABLE",
        "CUDA_VISIBLE_DEVICES",
        "KMP_AFFINITY",
        "LC_ALL",
        "LANG",
        "PYTORCH_CUDA_ALLOC_CONF",
        "GLIBC_TUNABLES",
        "NPY_DISABLE_CPU_FEATURES",
        "ATEN_CPU_CAPABILITY",
    ],
)
def test_variables_that_act_at_a_start_are_named(name: str) -> None:
    assert fresh_reason(PLAIN, {**ENV, name: "1"}, {name: "1"}) == f"the job's Environment sets {name}"


@pytest.mark.parametrize("value", ["1", "true", "YES"])
def test_a_job_may_ask_for_its_own_process(value: str) -> None:
    own = {"TRAINSHED_FRESH_PROCESS": value}
    assert fresh_reason(PLAIN, {**ENV, **own}, own) == "TRAINSHED_FRESH_PROCESS is set"


@pytest.mark.parametrize("name", SURROUNDINGS)
def test_other_surroundings_than_the_parents_are_named(name: str) -> None:
    assert name in fresh_reason(PLAIN, {**ENV, name: "other"}, {})
    assert name in fresh_reason(PLAIN, {key: value for key, value in ENV.items() if key != name}, {})


class Sandbox:
    """An environment and code as they lie in a sandbox, in a temporary folder."""

    def __init__(self, folder: Path) -> None:
        self.code = folder / "code"
        self.code.mkdir()
        (self.code / "train.py").write_text("print('x')")
        self.site = folder / "python" / LIBRARY
        self.site.mkdir(parents=True)
        self.base = folder / "base"
        self.base.mkdir()
        self.layer = folder / "layer"
        self.layer.mkdir()
        self.show(self.base)
        self.facts = ParentFacts(3, 4, "/parent", [str(self.base)], ["torch"], 0)
        python = str(folder / "python" / "bin" / "python3")
        self.command = Command([python, str(self.code / "train.py")], {"PYTHONPATH": str(self.code)})

    def show(self, *folders: Path) -> None:
        lines = [f"import site; site.addsitedir({str(path)!r})\n" for path in folders]
        (self.site / "_below.pth").write_text("".join(lines))

    def why_fresh(self) -> str:
        return Checker(self.facts, frozenset({"torch", "numpy", "json"})).why_fresh(self.command)


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    return Sandbox(tmp_path)


def test_code_and_requirements_of_their_own_may(sandbox: Sandbox) -> None:
    for name in ("helper.py", "json.txt", "torchvision.py"):
        (sandbox.code / name).touch()
    (sandbox.code / "numpy").mkdir()  # no package: the real one is found first
    (sandbox.layer / "einops").mkdir()
    (sandbox.layer / "einops" / "__init__.py").touch()
    sandbox.show(sandbox.layer, sandbox.base)
    assert sandbox.why_fresh() == ""
    assert layers_of(sandbox.command, sandbox.facts) == [str(sandbox.layer)]


@pytest.mark.parametrize("name", ["json.py", "numpy.pyc", "torch.cpython-311-x86_64-linux-gnu.so", "torch.abi3.so"])
@pytest.mark.parametrize("where", ["code", "layer"])
def test_a_module_that_would_be_hidden_by_a_loaded_one_may_not(sandbox: Sandbox, where: str, name: str) -> None:
    sandbox.show(sandbox.layer, sandbox.base)
    (getattr(sandbox, where) / name).touch()
    assert f"{name} has the name of a preloaded module" in sandbox.why_fresh()


def test_a_package_that_would_be_hidden_may_not(sandbox: Sandbox) -> None:
    (sandbox.code / "numpy").mkdir()
    (sandbox.code / "numpy" / "__init__.py").touch()
    assert "numpy has the name of a preloaded module" in sandbox.why_fresh()


@pytest.mark.parametrize("name", ["a.pth", "sitecustomize.py", "usercustomize.py"])
def test_requirements_that_act_at_a_start_may_not(sandbox: Sandbox, name: str) -> None:
    sandbox.show(sandbox.layer, sandbox.base)
    (sandbox.layer / name).touch()
    assert sandbox.why_fresh() == f"{sandbox.layer} holds {name}"


def test_another_environment_than_the_parents_may_not(sandbox: Sandbox) -> None:
    sandbox.show(sandbox.layer)
    assert sandbox.why_fresh() == "its environment is not the parent's"
    sandbox.show(sandbox.base)
    (sandbox.site / "more.pth").touch()
    assert sandbox.why_fresh() == f"{sandbox.site} holds more.pth"


@pytest.mark.parametrize(
    "line", ["os.environ['OMP_NUM_THREADS'] = '1'", 'x = {"TORCH_LOGS": "+dynamo"}', "env('MKL_NUM_THREADS', 2)"]
)
def test_code_that_names_such_a_variable_may_not(sandbox: Sandbox, line: str) -> None:
    (sandbox.code / "deep").mkdir()
    (sandbox.code / "deep" / "settings.py").write_text(line)
    assert "settings.py names " in sandbox.why_fresh()


def test_more_code_than_is_looked_through_may_not(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainshed_worker.preload.eligibility.MAX_SCANNED_BYTES", 100)
    (sandbox.code / "big.py").write_text("x = 1\n" * 100)
    assert "more code than is looked through" in sandbox.why_fresh()


def test_what_cannot_be_read_may_not(sandbox: Sandbox) -> None:
    (sandbox.site / "_below.pth").unlink()
    assert "cannot be read" in sandbox.why_fresh()
