"""Trains the byte-level GPT: an ordinary SageMaker script, for one process or many (DistributedDataParallel).

It reads `train*` and `val*` files from the channel `train` and leaves model.pt and config.json in SM_MODEL_DIR. Started
by torchrun, pytorchddp or mpi it finds RANK, WORLD_SIZE and MASTER_ADDR; started alone it trains in one process.
"""

import argparse
import math
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from data import batch, read_channel
from model import GPT, Config, loss_of, save
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--max-seconds", type=float, default=600.0, help="end early after so many seconds of training")
    parser.add_argument("--batch-size", type=int, default=8, help="sequences per process and step")
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--warmup", type=int, default=20, help="steps until the learning rate is reached")
    parser.add_argument("--context", type=int, default=Config.context)
    parser.add_argument("--width", type=int, default=Config.width)
    parser.add_argument("--depth", type=int, default=Config.depth)
    parser.add_argument("--heads", type=int, default=Config.heads)
    parser.add_argument("--log-every", type=int, default=20)
    parser.add_argument("--checkpoint-every", type=int, default=100, help="steps; 0 for none")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--train", type=Path, default=os.environ.get("SM_CHANNEL_TRAIN", "data"))
    parser.add_argument("--model-dir", type=Path, default=os.environ.get("SM_MODEL_DIR", "model"))
    parser.add_argument("--checkpoint-dir", type=Path, default="/opt/ml/checkpoints")
    return parser.parse_args()


class Training:
    """One process's share of the training."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.rank = int(os.environ.get("RANK", "0"))
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        self.device = self._device()
        torch.manual_seed(options.seed)
        self.gpt = GPT(Config(options.context, options.width, options.depth, options.heads)).to(self.device)
        self.model: nn.Module = self.gpt
        if self.world > 1:
            self.model = DistributedDataParallel(self.gpt)
        self.optimizer = torch.optim.AdamW(self.gpt.parameters(), lr=options.learning_rate, betas=(0.9, 0.95))
        self.text = read_channel(options.train, "train")
        self.generator = torch.Generator().manual_seed(options.seed * 10_007 + self.rank)
        self.step = 0

    def _device(self) -> torch.device:
        if not torch.cuda.is_available():
            return torch.device("cpu")
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
        return device

    def learning_rate(self) -> float:
        """Linear warm-up, then a cosine down to a tenth."""
        options = self.options
        if self.step < options.warmup:
            return options.learning_rate * (self.step + 1) / options.warmup
        done = (self.step - options.warmup) / max(1, options.steps - options.warmup)
        return options.learning_rate * (0.55 + 0.45 * math.cos(math.pi * min(done, 1.0)))

    def train_step(self) -> Tensor:
        """One step of this process; returns its loss in nats per byte."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate()
        inputs, targets = batch(self.text, self.options.batch_size, self.options.context, self.generator)
        loss = loss_of(self.model(inputs.to(self.device)), targets.to(self.device))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.gpt.parameters(), 1.0)
        self.optimizer.step()
        self.step += 1
        return loss.detach()

    def mean(self, value: Tensor) -> float:
        """The mean of a number over all processes."""
        if self.world > 1:
            dist.all_reduce(value)
        return float(value) / self.world

    def run(self) -> None:
        options = self.options
        started, seen, recent = time.monotonic(), 0, []
        while self.step < options.steps:
            recent.append(self.train_step())
            seen += options.batch_size * options.context * self.world
            if self.step == 1 or self.step % options.log_every == 0 or self.step == options.steps:
                mean, seconds = self.mean(torch.stack(recent).mean()), time.monotonic() - started
                recent.clear()
                if self.rank == 0:
                    print(
                        f"step={self.step}/{options.steps} progress={100 * self.step // options.steps}% "
                        f"loss={mean:.4f}; tokens/s={seen / seconds:.0f}; seconds={seconds:.1f}",
                        flush=True,
                    )
                # all processes must leave the loop at the same step, so they ask for the slowest one's time
                if self.mean(torch.tensor(float(seconds > options.max_seconds), device=self.device)) > 0:
                    break
            if options.checkpoint_every and self.step % options.checkpoint_every == 0:
                self.save_checkpoint()

    @torch.no_grad()
    def validate(self, batches: int = 8) -> float:
        """Mean loss over the same held-out windows in every process."""
        text, generator = read_channel(self.options.train, "val"), torch.Generator().manual_seed(1)
        self.gpt.eval()
        total = 0.0
        for _ in range(batches):
            inputs, targets = batch(text, 16, self.options.context, generator)
            total += float(loss_of(self.gpt(inputs.to(self.device)), targets.to(self.device)))
        self.gpt.train()
        return total / batches

    def save_checkpoint(self) -> None:
        """Rank 0 writes the state whole or not at all; where there is no checkpoint folder, none is kept."""
        folder = self.options.checkpoint_dir
        if self.rank != 0 or not folder.is_dir():
            return
        partial = folder / ".checkpoint.partial"
        state = {"step": self.step, "model": self.gpt.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save(state, partial)
        partial.replace(folder / "checkpoint.pt")

    def restore_checkpoint(self) -> None:
        """Goes on where a former attempt of the job stopped."""
        file = self.options.checkpoint_dir / "checkpoint.pt"
        if not file.is_file():
            return
        state = torch.load(file, map_location=self.device, weights_only=True)
        self.gpt.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]
        # another stretch of the random sequence than the one that was already trained on
        self.generator.manual_seed(self.options.seed * 10_007 + self.rank + 1_000_003 * self.step)
        print(f"rank {self.rank} goes on at step {self.step}", flush=True)


def main() -> None:
    options = arguments()
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world > 1:
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    training = Training(options)
    training.restore_checkpoint()
    if training.rank == 0:
        parameters = sum(p.numel() for p in training.gpt.parameters())
        hosts = os.environ.get("SM_HOSTS", "one host")
        print(
            f"{parameters:,} parameters, {len(training.text):,} bytes of text, {world} processes on {hosts}, "
            f"{torch.get_num_threads()} threads each",
            flush=True,
        )
    training.run()
    if training.rank == 0:
        print(f"validation_loss={training.validate():.4f};", flush=True)
        save(training.gpt, options.model_dir)
    if world > 1:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
