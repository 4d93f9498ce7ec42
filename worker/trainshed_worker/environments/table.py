"""Which Python environment a TrainingImage means: a table of image patterns, the agent's own environment by default.

The table is a JSON file, `[{"image": "*pytorch-training:2.1*", "prefix": "/opt/envs/torch21", "name": "…"}]`; the first
row whose pattern (as of a shell) matches the whole image name wins.
"""

import json
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from trainshed_worker.environments.base import own_prefix


@dataclass(frozen=True)
class Row:
    """Images that match `image` run in the environment at `prefix`."""

    image: str
    prefix: Path
    name: str


class EnvironmentTable:
    """Rows in order of precedence; always ends with the default."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = [*rows, Row("*", own_prefix(), "default")]

    @classmethod
    def load(cls, path: Path | None) -> "EnvironmentTable":
        """Read the file; ValueError says which row is wrong."""
        if path is None:
            return cls([])
        document: Any = json.loads(path.read_text())
        if not isinstance(document, list):
            raise ValueError(f"{path}: expected a list of rows")
        rows: list[Row] = []
        for number, item in enumerate(document, 1):
            if not isinstance(item, dict) or not {"image", "prefix"} <= item.keys():
                raise ValueError(f"{path}: row {number} needs 'image' and 'prefix'")
            prefix = Path(item["prefix"])
            if not prefix.is_absolute():
                raise ValueError(f"{path}: row {number}: the prefix {prefix} must be absolute")
            rows.append(Row(item["image"], prefix, item.get("name") or str(prefix)))
        return cls(rows)

    def choose(self, image: str | None) -> Row:
        """The row for a TrainingImage (None: a job that names none)."""
        return next(row for row in self.rows if fnmatchcase(image or "", row.image))
