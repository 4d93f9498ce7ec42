"""nodes: the slots of all agents; node: run an agent here, for a service elsewhere."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rich.table import Table

from trainshed_service.cli.connection import Connection
from trainshed_service.cli.shown import out

_COLOURS = {"free": "green", "leased": "cyan", "warm": "blue", "quarantined": "red", "lost": "red"}


def list_nodes(folder: Path | None) -> None:
    answer = Connection(folder).get("/v1/nodes")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("NODE", "STATE", "TYPES", "JOB", "MACHINE", "ISOLATION"):
        table.add_column(heading, overflow="fold")
    for node in answer["nodes"]:
        state = str(node.get("state", "")).lower()
        table.add_row(
            str(node.get("id", "")),
            f"[{_COLOURS.get(state, 'white')}]{state}[/]",
            ", ".join(node.get("instanceTypes") or []) or "any",
            str(node.get("job") or ""),
            str(node.get("hostname") or ""),
            str(node.get("isolation") or ""),
        )
    out.print(table if table.row_count else "no nodes")


def run_agent(
    home: Path,
    server: str,
    token_file: Path,
    slots: int,
    instance_types: list[str],
    preload: bool | None,
    advertise: str,
) -> None:
    """Become the agent; it ends by SIGTERM or Ctrl-C and leaves running instances to its next start."""
    command = [sys.executable, "-m", "trainshed_worker.agent", "--home", str(home), "--server", server]
    command += ["--token-file", str(token_file), "--slots", str(slots)]
    if advertise != "none":
        command += ["--advertise", advertise]
    for name in instance_types:
        command += ["--instance-type", name]
    if preload is not None:
        command.append("--preload" if preload else "--no-preload")
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.execv(sys.executable, command)
