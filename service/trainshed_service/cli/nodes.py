"""nodes: the slots of all agents; drain: keep new jobs off one; node: run an agent here, for a service elsewhere."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rich.table import Table

from trainshed_service.cli.connection import Connection
from trainshed_service.cli.errors import CommandError
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
            f"[{_COLOURS.get(state, 'white')}]{state}[/]" + (" [yellow]draining[/]" if node["drainingSince"] else ""),
            ", ".join(node.get("instanceTypes") or []) or "any",
            str(node.get("job") or ""),
            str(node.get("hostname") or ""),
            str(node.get("isolation") or ""),
        )
    out.print(table if table.row_count else "no nodes")


def drain(folder: Path | None, wanted: str, undo: bool) -> None:
    """`wanted`: a node's id or its beginning, as far as it is the only one."""
    connection = Connection(folder)
    found = [node["id"] for node in connection.get("/v1/nodes")["nodes"] if node["id"].startswith(wanted)]
    found = [wanted] if wanted in found else found
    if len(found) != 1:
        what = f"{len(found)} nodes begin" if found else "no node begins"
        raise CommandError(f"{what} with {wanted!r}; `trainshed nodes` lists them")
    connection.post(f"/v1/nodes/{found[0]}/{'undrain' if undo else 'drain'}")
    print(f"{found[0]} takes jobs again" if undo else f"{found[0]} takes no new job; its running job goes on")


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
