"""Writes text with a trained model: `python generate.py model.tar.gz --prompt "def "`, or a folder in its place."""

import argparse
import sys
import tarfile
import tempfile
from pathlib import Path

from model import GPT, load


def load_artifact(path: Path) -> GPT:
    """The model of a job's model.tar.gz, or of a folder with its content."""
    if path.is_dir():
        return load(path)
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(path) as archive:
            archive.extractall(folder, filter="data")
        return load(Path(folder))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--prompt", default="def ")
    parser.add_argument("--length", type=int, default=300, help="bytes")
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    text = load_artifact(options.model).generate(
        options.prompt.encode(), options.length, options.temperature, options.seed
    )
    sys.stdout.write(options.prompt + text.decode("utf-8", "replace") + "\n")
