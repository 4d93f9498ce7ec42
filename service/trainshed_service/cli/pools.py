"""pools, explain, keep-alive: the warm pools there are, why a job does or does not match one, and for how long."""

from __future__ import annotations

import json
import time
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rich.table import Table

from trainshed_service.cli.connection import Connection
from trainshed_service.cli.jobs import explained, read_request
from trainshed_service.cli.shown import out


def list_pools(folder: Path | None, as_json: bool) -> None:
    answer = Connection(folder).get("/v1/pools")
    if as_json:
        print(json.dumps(answer, indent=2))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("INSTANCES", "STATUS", "JOB", "UNTIL", "ROLE"):
        table.add_column(heading, overflow="fold")
    for pool in answer["pools"]:
        fields = pool["fields"]
        table.add_row(
            _instances(fields),
            pool["status"],
            pool["job"] or "",
            _until(pool),
            str(fields["RoleArn"]).rpartition("/")[2],
        )
    out.print(table if table.row_count else "no warm pools, and no job whose instances could become one")


def explain(folder: Path | None, what: str, as_json: bool) -> None:
    """`what`: a file with a CreateTrainingJob request, or the name of a job."""
    connection = Connection(folder)
    if what == "-" or Path(what).is_file():
        answer = connection.post("/v1/pools/explain", read_request(Path(what)))
    else:
        answer = connection.get(f"/v1/training-jobs/{quote(what, safe='')}/pools")
    if as_json:
        print(json.dumps(answer, indent=2))
        return
    if answer.get("waitingReason"):
        print(f"The job waits: {answer['waitingReason']}")
    if not answer["canMatch"]:
        print(answer["reason"])
        return
    if not answer["pools"]:
        print("There is no warm pool, and no job whose instances could become one.")
        return
    for pool in answer["pools"]:
        state = f"until {_until(pool)}" if pool["until"] else "in use"
        of = f", of job {pool['job']}" if pool["job"] else ""
        colour = "green" if pool["matches"] else "yellow"
        out.print(
            f"[{colour}]{'matches' if pool['matches'] else 'differs'}[/]  {_instances(pool['fields'])}, {state}{of}"
        )
        if pool["differences"]:
            table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 2))
            for heading in ("FIELD", "WANTED", "HAS"):
                table.add_column(heading, overflow="fold")
            for difference in pool["differences"]:
                table.add_row(difference["field"], _plain(difference["wanted"]), _plain(difference["has"]))
            out.print(table)
        out.print(f"  {pool['advice']}", markup=False)


def keep_alive(folder: Path | None, name: str, seconds: int) -> None:
    connection = Connection(folder)
    with explained(connection):
        connection.aws("sagemaker").update_training_job(
            TrainingJobName=name, ResourceConfig={"KeepAlivePeriodInSeconds": seconds}
        )
    print(
        f"the warm pool of {name} ends now" if seconds == 0 else f"the warm pool of {name} stays for {seconds} s more"
    )


def _instances(fields: dict[str, Any]) -> str:
    return f"{fields['ResourceConfig.InstanceCount']} × {fields['ResourceConfig.InstanceType']}"


def _until(pool: dict[str, Any]) -> str:
    if pool["until"] is None:
        return ""
    left = max(0, int(pool["until"] - time.time()))
    return f"{datetime.fromtimestamp(pool['until']):%H:%M:%S} ({left // 60}:{left % 60:02} left)"


def _plain(value: Any) -> str:
    return "-" if value in (None, []) else ", ".join(map(str, value)) if isinstance(value, list) else str(value)
