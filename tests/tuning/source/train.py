"""A trial: a loss that falls from epoch to epoch, faster with a good learning rate. It reports as Syne Tune says."""

import argparse
import threading

from syne_tune import Reporter

parser = argparse.ArgumentParser()
parser.add_argument("--learning_rate", type=float, required=True)
parser.add_argument("--width", type=int, required=True)
parser.add_argument("--epochs", type=int, required=True)
parser.add_argument("--st_checkpoint_dir", required=True)
arguments, _ = parser.parse_known_args()

report = Reporter()
for epoch in range(1, arguments.epochs + 1):
    threading.Event().wait(1.0)  # an epoch's work
    distance = abs(arguments.learning_rate - 0.1) + 1.0 / arguments.width
    report(epoch=epoch, loss=distance + 1.0 / epoch)
