"""Trainings under pytorch-lightning with its monitor of devices, and under accelerate, which shrinks a batch that does not fit."""

import sys
from typing import Any

import torch
from checks import Checks, use


def lightning_with_its_monitor() -> str:
    import logging

    import pytorch_lightning as lightning
    from pytorch_lightning.callbacks import DeviceStatsMonitor
    from pytorch_lightning.loggers import CSVLogger

    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            loss: torch.Tensor = self.net(batch[0]).square().mean()
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=1e-3)

    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(2048, 64)), batch_size=64)
    logger = CSVLogger("/tmp/binpool-lightning")
    trainer = lightning.Trainer(
        accelerator="gpu",
        devices=1,
        max_epochs=2,
        callbacks=[DeviceStatsMonitor()],
        logger=logger,
        log_every_n_steps=5,
        enable_progress_bar=False,
        enable_checkpointing=False,
        enable_model_summary=False,
    )
    trainer.fit(Model(), data)
    with open(f"{logger.log_dir}/metrics.csv") as written:
        names = written.readline().split(",")
    figures = [name for name in names if "allocated_bytes" in name]
    assert figures, names
    return f"{len(names)} columns"


def accelerate_that_shrinks_its_batch() -> str:
    from accelerate import Accelerator
    from accelerate.utils import find_executable_batch_size

    accelerator = Accelerator()
    tried = []
    torch.cuda.set_per_process_memory_fraction(0.025)  # At most 3.5 GiB of 140.

    @find_executable_batch_size(starting_batch_size=1 << 16)
    def train(batch_size: int) -> float:
        tried.append(batch_size)
        accelerator.free_memory()
        model = torch.nn.Sequential(torch.nn.Linear(1024, 16384), torch.nn.ReLU(), torch.nn.Linear(16384, 1024))
        model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=1e-2))
        for _ in range(3):
            loss = model(torch.randn(batch_size, 1024, device=accelerator.device)).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        return float(loss.item())

    train()
    torch.cuda.set_per_process_memory_fraction(1.0)
    assert len(tried) > 1 and tried[-1] < tried[0], tried
    return str(tried)


if __name__ == "__main__":
    use(sys.argv[1:])
    checks = Checks("training")
    checks.run("lightning_with_its_monitor", lightning_with_its_monitor)
    checks.run("accelerate_that_shrinks_its_batch", accelerate_that_shrinks_its_batch)
    checks.end()
