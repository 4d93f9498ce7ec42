"""Collects the Python standard library's own sources into train.txt and val.txt: real text that every machine has.

The same Python version gives the same bytes: files in name order, whole files only, every 20th of them held out.
"""

import argparse
import sysconfig
from pathlib import Path

SKIPPED = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "__pycache__", "pydoc_data"}


def sources(library: Path) -> list[Path]:
    """The library's .py files in name order, without tests and without what only happens to be installed."""
    found = [
        path
        for path in library.rglob("*.py")
        if not SKIPPED.intersection(path.relative_to(library).parts[:-1]) and not path.name.startswith("_sysconfigdata")
    ]
    return sorted(found, key=lambda path: path.relative_to(library).as_posix())


def prepare(folder: Path, limit: int = 3_000_000, library: Path | None = None) -> tuple[Path, Path]:
    """Writes train.txt and val.txt, together at most `limit` bytes, and returns their paths."""
    library = library or Path(sysconfig.get_paths()["stdlib"])
    parts: dict[str, list[bytes]] = {"train": [], "val": []}
    total = 0
    for number, path in enumerate(sources(library)):
        text = path.read_bytes()
        if total + len(text) > limit:
            continue
        total += len(text)
        parts["val" if number % 20 == 19 else "train"].append(text)
    if not parts["train"] or not parts["val"]:
        raise FileNotFoundError(f"{library} holds too few Python sources to train on")
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / "train.txt", folder / "val.txt"
    for path, name in zip(paths, ("train", "val"), strict=True):
        path.write_bytes(b"\n".join(parts[name]))
    return paths


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("data"))
    parser.add_argument("--limit", type=int, default=3_000_000, help="bytes")
    options = parser.parse_args()
    for written in prepare(options.folder, options.limit):
        print(f"{written}: {written.stat().st_size:,} bytes")
