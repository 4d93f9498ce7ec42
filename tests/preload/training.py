"""Training scripts with numpy and torch, by name; see `scripts` for the rules. They take a fresh process seconds."""

from __future__ import annotations

from tests.integration.preload.support import Job
from trainshed_worker.environments import Installed

_TORCH: dict[str, str] = {
    "numpy": (
        "import numpy as np\nnp.random.seed(3); print(np.random.rand(3), np.random.default_rng(4).normal(size=2))\n"
        "a = np.arange(40000.0).reshape(200, 200); print((a @ a).sum(), np.linalg.svd(a)[1][:2].round(3), np.fft.fft(a[0])[:2])\n"
        "b = np.random.RandomState().rand(4); c = np.random.RandomState().rand(4); print((b == c).any(), np.geterr())"
    ),
    "tensors": (
        "import torch\ntorch.manual_seed(1); a = torch.randn(300, 300); b = (a @ a).relu().sum(); print(f'{b.item():.1f}')\n"
        "x = torch.randn(5, requires_grad=True); (x ** 2).sum().backward(); print(torch.equal(x.grad, 2 * x), torch.initial_seed())\n"
        "print(torch.get_default_dtype(), torch.is_grad_enabled(), torch.linalg.svdvals(a)[:2])"
    ),
    "threads": (
        "import ctypes, os, torch, numpy, glob\nprint(torch.get_num_threads(), torch.get_num_interop_threads())\n"
        "import threading\nt = threading.Thread(target=lambda: print(torch.get_num_threads(), torch.ones(9).sum())); t.start(); t.join()\n"
        "text = torch.__config__.parallel_info(); print('\\n'.join(l for l in text.splitlines() if 'hardware' not in l))\n"
        "path = glob.glob(os.path.join(os.path.dirname(numpy.__file__), '..', 'numpy.libs', '*openblas*'))\n"
        "for p in path: print(ctypes.CDLL(os.path.realpath(p)).scipy_openblas_get_num_threads64_())\n"
        "a = numpy.ones((600, 600)); print((a @ a).sum()); b = torch.ones(900, 900); print((b @ b).sum())"
    ),
    "training": (
        "import torch\ntorch.manual_seed(0)\nm = torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(50, 2))\n"
        "o = torch.optim.AdamW(m.parameters(), lr=1e-2); s = torch.optim.lr_scheduler.CosineAnnealingLR(o, 10)\n"
        "x, y = torch.randn(64, 20), torch.randint(0, 2, (64,))\nfor i in range(10):\n    loss = torch.nn.functional.cross_entropy(m(x), y)\n"
        "    o.zero_grad(); loss.backward(); o.step(); s.step()\nprint(f'{loss.item():.5f}', s.get_last_lr())\n"
        "torch.save(m.state_dict(), 'm.pt'); print(sorted(torch.load('m.pt')))"
    ),
    "convolution and lstm": (
        "import torch\ntorch.manual_seed(0)\nc = torch.nn.Conv2d(3, 8, 3); l = torch.nn.LSTM(8, 16, batch_first=True)\n"
        "h = c(torch.randn(2, 3, 10, 10)).flatten(2).transpose(1, 2); out, _ = l(h); out.mean().backward()\nprint(out.shape, f'{c.weight.grad.norm():.6f}')\n"
        "a = torch.nn.functional.scaled_dot_product_attention(*torch.randn(3, 2, 4, 8, 16)); print(a.shape)"
    ),
    "loaders": (
        "import torch\nfrom torch.utils.data import DataLoader, TensorDataset, get_worker_info\nclass D(torch.utils.data.Dataset):\n"
        "    def __len__(self): return 12\n    def __getitem__(self, i):\n        w = get_worker_info(); return torch.full((2,), float(i)), torch.get_num_threads()\n"
        "if __name__ == '__main__':\n    torch.manual_seed(5)\n    for way in ('fork', 'spawn'):\n"
        "        d = DataLoader(D(), batch_size=4, num_workers=2, shuffle=True, multiprocessing_context=way)\n"
        "        print(way, [(x.sum().item(), n.tolist()) for x, n in d])"
    ),
    "torch processes": (
        "import torch, torch.multiprocessing as mp\ndef f(rank, shared): shared[rank] = rank + 1\ndef bad(rank): raise ValueError(f'rank {rank}')\n"
        "if __name__ == '__main__':\n    shared = torch.zeros(2).share_memory_(); mp.spawn(f, (shared,), nprocs=2); print(shared)\n"
        "    try: mp.spawn(bad, nprocs=1)\n    except mp.ProcessRaisedException as e: print(e.exit_code if hasattr(e, 'exit_code') else '', str(e).splitlines()[-1], str(e).splitlines()[1])"
    ),
    "fails in autograd": (
        "import torch\nclass F(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x): return x * 2\n    @staticmethod\n"
        "    def backward(ctx, g): raise RuntimeError('in backward')\nF.apply(torch.ones(1, requires_grad=True)).backward()"
    ),
    "wrong shape": "import torch\ntorch.ones(2, 3) @ torch.ones(2, 3)",
    "seeds differ": (
        "import torch, random, numpy\nprint(torch.default_generator.initial_seed() == 0, torch.Generator().initial_seed())\n"
        "torch.manual_seed(9); a = torch.rand(2); torch.seed(); b = torch.rand(2); print(a, torch.equal(a, b))\n"
        "state = torch.get_rng_state(); x = torch.rand(3); torch.set_rng_state(state); print(torch.equal(x, torch.rand(3)))"
    ),
    "script and trace": (
        "import torch\n@torch.jit.script\ndef f(x: torch.Tensor) -> torch.Tensor:\n    return x * 2 + 1\nprint(f(torch.ones(2)))\n"
        "print(torch.fx.symbolic_trace(torch.nn.Linear(2, 2)).code.splitlines()[-2:])"
    ),
    "compiled eagerly": (
        "import torch\n@torch.compile(backend='eager')\ndef f(x):\n    return (x.sin() + 1).sum()\nprint(f(torch.zeros(3)), f(torch.ones(4) * 0))\n"
        "import torch._dynamo as d\nprint(d.explain(lambda x: x + 1)(torch.ones(1)).graph_count)"
    ),
    "profiler": (
        "import torch\nfrom torch.profiler import profile\nwith profile() as p:\n    torch.ones(10) + 1\nprint(sorted({e.key for e in p.key_averages()} & {'aten::add', 'aten::ones'}))"
    ),
    "one rank": (
        "import os, torch, torch.distributed as dist\ndist.init_process_group('gloo', rank=0, world_size=1)\nx = torch.ones(3); dist.all_reduce(x); print(x, dist.get_backend())\n"
        "dist.barrier(); dist.destroy_process_group()"
    ),
    "threads of Python": (
        "import torch\nfrom concurrent.futures import ThreadPoolExecutor\ndef f(i):\n    x = torch.full((50, 50), float(i), requires_grad=True); (x @ x).sum().backward(); return x.grad.sum().item()\n"
        "with ThreadPoolExecutor(4) as pool: print(list(pool.map(f, range(8))))"
    ),
    "fork after torch": (
        "import os, torch\nprint((torch.ones(400, 400) @ torch.ones(400, 400)).sum(), flush=True)\npid = os.fork()\nif pid == 0:\n    print(torch.ones(3).sum(), flush=True); os._exit(0)\nprint(os.waitpid(pid, 0)[1])"
    ),
    "hooks and weak references": (
        "import torch, weakref, gc, atexit\nm = torch.nn.Linear(2, 2); r = weakref.ref(m); m.register_forward_hook(lambda *a: print('hook')); m(torch.ones(1, 2))\n"
        "del m; gc.collect(); print(r()); atexit.register(lambda: print('at exit', torch.ones(2).sum()))\nclass A:\n    def __del__(self): print('end', torch.ones(1))\na = A(); t = torch.ones(3)"
    ),
    "modules in an exit": (
        "import torch, sys, logging, torch.distributed\nlogging.getLogger('torch').warning('from torch'); torch._C._log_api_usage_once('x')\n"
        "import warnings\nwarnings.warn_explicit('w', UserWarning, 'f.py', 3); sys.exit(f'{torch.ones(2)}')"
    ),
    "lazy imports": (
        "import importlib, torch\nfor n in ('torch.utils.checkpoint', 'torch.distributed.fsdp', 'torch.distributed.checkpoint', 'torch.ao.quantization', 'torch.testing', 'torch.export', 'torch.func', 'numpy.polynomial', 'numpy.ma', 'sympy'):\n"
        "    print(n, importlib.import_module(n).__name__)"
    ),
}

_RANKS: dict[str, str] = {
    "ddp": (
        "import os, torch, torch.distributed as dist\nfrom torch.nn.parallel import DistributedDataParallel as DDP\ndist.init_process_group('gloo'); rank = dist.get_rank()\n"
        "torch.manual_seed(0); m = DDP(torch.nn.Linear(4, 2)); o = torch.optim.SGD(m.parameters(), lr=0.1)\n"
        "for i in range(3):\n    o.zero_grad(); m(torch.full((2, 4), float(rank + i))).sum().backward(); o.step()\n"
        "total = torch.tensor([float(rank + 1)]); dist.all_reduce(total)\nboxes = [None, None]; dist.all_gather_object(boxes, {'rank': rank})\n"
        "if rank == 0: print(total, boxes, f'{sum(p.sum() for p in m.parameters()).item():.5f}', os.environ['WORLD_SIZE'])\ndist.destroy_process_group()"
    ),
    "sharded": (
        "import torch, torch.distributed as dist\nfrom torch.distributed.fsdp import fully_shard\nfrom torch.distributed.device_mesh import init_device_mesh\n"
        "mesh = init_device_mesh('cpu', (2,)); torch.manual_seed(0); m = torch.nn.Linear(8, 8); fully_shard(m, mesh=mesh)\n"
        "o = torch.optim.AdamW(m.parameters()); m(torch.ones(2, 8)).sum().backward(); o.step()\n"
        "if dist.get_rank() == 0: print(m.weight)\ndist.barrier(); dist.destroy_process_group()"
    ),
}


def heavy() -> dict[str, Job]:
    """Scripts with torch."""
    jobs = {name: Job(script) for name, script in _TORCH.items()}
    jobs["two threads"] = Job(_TORCH["threads"], threads=2)
    jobs |= {name: Job(script, ranks=2) for name, script in _RANKS.items()}
    return jobs


_LIBRARIES: dict[str, str] = {
    "lightning": (
        "import logging, torch, lightning as L\nfrom torch.utils.data import DataLoader, TensorDataset\nclass M(L.LightningModule):\n"
        "    def __init__(self): super().__init__(); self.l = torch.nn.Linear(4, 1)\n"
        "    def training_step(self, b, i): return self.l(b[0]).pow(2).mean()\n"
        "    def configure_optimizers(self): return torch.optim.Adam(self.parameters(), lr=0.1)\n"
        "L.seed_everything(3); m = M(); d = DataLoader(TensorDataset(torch.randn(32, 4)), batch_size=8)\n"
        "t = L.Trainer(max_epochs=2, accelerator='cpu', logger=False, enable_checkpointing=False, enable_progress_bar=False)\n"
        "t.fit(m, d); print(f'{m.l.weight.sum().item():.5f}', t.global_step)"
    ),
    "transformers": (
        "import torch, transformers as t\nt.set_seed(1)\nc = t.GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=50, n_positions=16)\nm = t.GPT2LMHeadModel(c)\n"
        "x = torch.randint(0, 50, (2, 8)); out = m(x, labels=x); out.loss.backward()\nprint(f'{out.loss.item():.4f}', sum(p.numel() for p in m.parameters()))\n"
        "m.eval(); print(m.generate(x[:, :2], max_new_tokens=3, do_sample=False).shape)"
    ),
}


def with_libraries(installed: Installed) -> dict[str, Job]:
    """Scripts that need `installed`."""
    return {name: Job(script, installed=installed) for name, script in _LIBRARIES.items()}


LIBRARIES = tuple(_LIBRARIES)
