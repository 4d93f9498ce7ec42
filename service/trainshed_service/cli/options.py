"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

HomeOption = Annotated[
    Path | None,
    typer.Option("--home", help="Folder that holds all state; default: $TRAINSHED_HOME, else ~/.trainshed."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
