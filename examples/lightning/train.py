"""PyTorch Lightning with DDP, as SageMaker's guide sets it up for `pytorchddp` and `smdistributed.dataparallel`.

The launcher has started one process per rank already; LightningEnvironment is told the world's size and this rank from
WORLD_SIZE and RANK. It fits a noisy line, so the loss that it must reach is known.
"""

import argparse
import os
from pathlib import Path

import lightning as pl
import torch
from lightning.pytorch.plugins.environments import LightningEnvironment
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

SLOPE, OFFSET, NOISE = 2.0, -1.0, 0.1


class Line(pl.LightningModule):
    """y = w x + b."""

    def __init__(self, learning_rate: float) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1)
        self.learning_rate = learning_rate

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        x, y = batch
        return nn.functional.mse_loss(self.layer(x), y)

    def on_train_epoch_end(self) -> None:
        if self.trainer.is_global_zero:
            error = abs(self.layer.weight.item() - SLOPE) + abs(self.layer.bias.item() - OFFSET)
            backend = torch.distributed.get_backend() if torch.distributed.is_initialized() else "none"
            world = f"world_size={self.trainer.world_size} backend={backend}"
            print(f"epoch={self.current_epoch} {world} error={error:.4f};", flush=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=self.learning_rate)


def strategy(backend: str) -> DDPStrategy | str:
    if "RANK" not in os.environ:
        return "auto"
    environment = LightningEnvironment()
    environment.world_size = lambda: int(os.environ["WORLD_SIZE"])
    environment.global_rank = lambda: int(os.environ["RANK"])
    if backend == "smddp":
        import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401  (makes torch know the backend)
    return DDPStrategy(cluster_environment=environment, process_group_backend=backend)


def main() -> None:
    usual = "nccl" if torch.cuda.is_available() else "gloo"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--backend", choices=("gloo", "nccl", "smddp"), default=usual)
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--model-dir", type=Path, default=os.environ.get("SM_MODEL_DIR", "model"))
    options = parser.parse_args()
    pl.seed_everything(0)
    x = torch.rand(1024, 1) * 2 - 1
    y = SLOPE * x + OFFSET + NOISE * torch.randn_like(x)
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    trainer = pl.Trainer(
        max_epochs=options.epochs,
        accelerator="gpu" if torch.cuda.is_available() else "cpu",
        devices=local,
        num_nodes=int(os.environ.get("WORLD_SIZE", "1")) // local,
        strategy=strategy(options.backend),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    model = Line(options.learning_rate)
    trainer.fit(model, DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True))
    if trainer.is_global_zero:
        options.model_dir.mkdir(parents=True, exist_ok=True)
        torch.save(model.state_dict(), options.model_dir / "model.pt")


if __name__ == "__main__":
    main()
