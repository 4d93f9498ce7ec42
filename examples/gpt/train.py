"""Trains the byte-level GPT with sharded data parallelism: a SageMaker script of `smdistributed.modelparallel`.

It reads `train*` and `val*` files from the channel `train` and leaves model.pt and config.json in SM_MODEL_DIR. How
many processes share the model's states, and the rest of smp's settings, come from the job's `mp_parameters`. Started
by torchrun, mpi or alone it trains as well: then every process has the states whole.
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
from torch import Tensor

import smdistributed.modelparallel.torch as smp


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
    return parser.parse_known_args()[0]  # smp's settings are on the command line, too, as --mp_parameters


@smp.step
def train_microbatches(model: smp.DistributedModel, inputs: Tensor, targets: Tensor) -> Tensor:
    """Runs once per microbatch; smp moves the batch to the device."""
    loss = loss_of(model(inputs), targets)
    model.backward(loss)
    return loss


class Training:
    """One process's share of the training."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.config = Config(options.context, options.width, options.depth, options.heads)
        torch.manual_seed(options.seed)
        with smp.model_creation():
            gpt = GPT(self.config)
        self.parameters = sum(parameter.numel() for parameter in gpt.parameters())
        self.model = smp.DistributedModel(gpt)
        adam = torch.optim.AdamW(self.model.parameters(), lr=options.learning_rate, betas=(0.9, 0.95))
        self.optimizer = smp.DistributedOptimizer(adam)
        self.text = read_channel(options.train, "train")
        self.generator = torch.Generator().manual_seed(options.seed * 10_007 + smp.rank())
        self.step = 0

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
        loss = train_microbatches(self.model, inputs, targets).reduce_mean()
        self.optimizer.step()  # clips the gradients, too
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return loss

    def mean(self, value: Tensor) -> float:
        """The mean of a number over all processes."""
        dist.all_reduce(value, group=smp.get_dp_process_group())
        return float(value) / smp.dp_size()

    def run(self) -> None:
        options = self.options
        started, seen, recent = time.monotonic(), 0, []
        while self.step < options.steps:
            recent.append(self.train_step())
            seen += options.batch_size * options.context * smp.dp_size()
            if self.step == 1 or self.step % options.log_every == 0 or self.step == options.steps:
                losses = torch.stack(recent)
                mean, seconds = self.mean(losses.mean()), time.monotonic() - started
                recent.clear()
                if smp.rank() == 0:
                    print(
                        f"step={self.step}/{options.steps} progress={100 * self.step // options.steps}% "
                        f"loss={mean:.4f}; tokens/s={seen / seconds:.0f}; seconds={seconds:.1f}",
                        flush=True,
                    )
                # all processes must leave the loop at the same step, so they ask for the slowest one's time
                if self.mean(losses.new_tensor(float(seconds > options.max_seconds))) > 0:
                    break
            if options.checkpoint_every and self.step % options.checkpoint_every == 0:
                self.save_checkpoint()

    @torch.no_grad()
    def validate(self, batches: int = 8) -> float:
        """Mean loss over the same held-out windows in every process."""
        text, generator = read_channel(self.options.train, "val"), torch.Generator().manual_seed(1)
        self.model.eval()
        device = next(self.model.parameters()).device
        total = 0.0
        for _ in range(batches):
            inputs, targets = batch(text, 16, self.options.context, generator)
            total += float(loss_of(self.model(inputs.to(device)), targets.to(device)))
        self.model.train()
        return total / batches

    def save_checkpoint(self) -> None:
        """The whole state, written whole or not at all; where there is no checkpoint folder, none is kept.

        All processes gather the states together, rank 0 writes them.
        """
        folder = self.options.checkpoint_dir
        if not all(smp.allgather(folder.is_dir())):
            return
        state = {"step": self.step, "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        if smp.rank() == 0:
            partial = folder / ".checkpoint.partial"
            torch.save(state, partial)
            partial.replace(folder / "checkpoint.pt")

    def restore_checkpoint(self) -> None:
        """Goes on where a former attempt of the job stopped, under whatever degree that was."""
        file = self.options.checkpoint_dir / "checkpoint.pt"
        if not all(smp.allgather(file.is_file())):
            return
        state = torch.load(file, map_location="cpu", weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]
        # another stretch of the random sequence than the one that was already trained on
        self.generator.manual_seed(self.options.seed * 10_007 + smp.rank() + 1_000_003 * self.step)
        print(f"rank {smp.rank()} goes on at step {self.step}", flush=True)


def main() -> None:
    options = arguments()
    smp.init()
    training = Training(options)
    training.restore_checkpoint()
    if smp.rank() == 0:
        hosts = os.environ.get("SM_HOSTS", "one host")
        print(
            f"{training.parameters:,} parameters, {len(training.text):,} bytes of text, {smp.size()} processes on "
            f"{hosts}, {training.model.engine.mesh.degree} share the states, {torch.get_num_threads()} threads each",
            flush=True,
        )
    training.run()
    loss, state = training.validate(), training.model.state_dict()
    if smp.rank() == 0:
        print(f"validation_loss={loss:.4f};", flush=True)
        save(state, training.config, options.model_dir)
    smp.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
