"""The stand-in shim with real torch: each claim of its docstring, in a process that loads it by PYTHONPATH."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainshed_worker.launchers.support import standin_path

pytest.importorskip("torch")


def run_python(script: str, *, hook: bool = True, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "LOCAL_RANK"}}
    environment.update({"OMP_NUM_THREADS": "1", **variables})
    if hook:
        paths = [str(standin_path()), *variables.get("PYTHONPATH", "").split(os.pathsep)]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120)


def facts(script: str, **variables: str) -> dict[str, Any]:
    done = run_python(script, **variables)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


SCRIPT = """
import json, os, tempfile
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
gpu = torch.device("cuda", 1)
torch.cuda.set_device(gpu)
model = torch.nn.Linear(3, 2)
tensor = torch.ones(3)
placed = {
    "module.cuda": model.cuda(0).weight, "module.to(name)": model.to("cuda:1").weight,
    "module.to(number)": model.to(1).weight, "module.to(device, dtype)": model.to(gpu, torch.float64).weight,
    "tensor.cuda": tensor.cuda(1, non_blocking=True), "tensor.to(device)": tensor.to(gpu, non_blocking=True),
    "tensor.to(device=)": tensor.to(device="cuda", dtype=torch.float64), "tensor.to(number)": tensor.to(0),
    "tensor": torch.tensor([1.0], device="cuda"), "zeros_like": torch.zeros_like(tensor, device=gpu),
    "new_ones": tensor.new_ones(2, device="cuda:0"), "pin_memory": tensor.pin_memory(),
    "randn": torch.randn(2, device=gpu, generator=torch.Generator(device="cuda")),
}
with tempfile.TemporaryDirectory() as folder:
    torch.save(tensor, folder + "/t.pt")
    for name, where in {"name": "cuda:0", "device": gpu, "map": {"cuda:0": "cuda:1"}, "none": None}.items():
        placed["load(" + name + ")"] = torch.load(folder + "/t.pt", map_location=where)
dist.init_process_group("nccl", init_method="tcp://127.0.0.1:0", rank=0, world_size=1, device_id=gpu)
wrapped = DistributedDataParallel(torch.nn.Linear(3, 2), device_ids=[torch.cuda.current_device()], output_device=gpu)
wrapped(tensor).sum().backward()
torch.cuda.synchronize()
facts = {
    "placed": {name: str(value.device) for name, value in placed.items()},
    "dtypes": [str(placed["module.to(device, dtype)"].dtype), str(placed["tensor.to(device=)"].dtype)],
    "backend": dist.get_backend(),
    "group": dist.get_backend(dist.new_group([0], backend="nccl")),
    "mesh": dist.init_device_mesh("cuda", (1,)).device_type,
    "current": torch.cuda.current_device(),
    "available": torch.cuda.is_available(),
    "count": torch.cuda.device_count(),
    "device": torch.device("cuda:1").type,
    "generators": isinstance(torch.default_generator, torch.Generator),
    "same tensor": tensor.cuda() is tensor,
}
dist.destroy_process_group()
print(json.dumps(facts))
"""


def test_what_a_gpu_script_calls_means_the_cpu() -> None:
    found = facts(SCRIPT)
    assert found["placed"] == dict.fromkeys(found["placed"], "cpu")
    assert len(found["placed"]) == 17
    assert found["dtypes"] == ["torch.float64", "torch.float64"]
    assert (found["backend"], found["group"], found["mesh"]) == ("gloo", "gloo", "cpu")
    assert found["current"] == 1
    assert found["generators"] and found["same tensor"]
    # not mapped, on purpose
    assert (found["available"], found["count"], found["device"]) == (False, 0, "cuda")


def test_without_the_hook_torch_is_untouched() -> None:
    done = run_python("import torch; torch.ones(1).cuda()", hook=False)
    assert done.returncode != 0
    assert "stand-in" not in done.stderr


def test_it_prints_nothing_into_the_script_s_output() -> None:
    done = run_python("import torch; torch.ones(1).cuda()")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_process_that_does_not_import_torch_is_left_alone() -> None:
    done = run_python("import sys, json; print(json.dumps('torch' in sys.modules))")
    assert (done.stdout.strip(), done.stderr) == ("false", "")


def test_the_users_own_sitecustomize_still_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.theirs = 'ran'\n")
    assert run_python("print(theirs)", PYTHONPATH=str(tmp_path)).stdout.strip() == "ran"


@pytest.mark.parametrize(
    ("asked", "given"),
    [("nccl", "gloo"), ("NCCL", "gloo"), ("cpu:gloo,cuda:nccl", "cpu:gloo"), ("cuda:nccl", "gloo"), ("gloo", "gloo")],
)
def test_backends(asked: str, given: str) -> None:
    from trainshed_runtime.standin import cpu_backend

    assert cpu_backend(asked) == given
