"""The commands and their options. Each is a few lines over a module that is imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="trainshed",
    help="A self-hosted, drop-in replacement for Amazon SageMaker Training.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

HomeOption = Annotated[
    Path | None,
    typer.Option("--home", help="Folder that holds all state; default: $TRAINSHED_HOME, else ~/.trainshed."),
]
PortOption = Annotated[int, typer.Option("--port", min=0, max=65535, help="Main port; 0: a free one is chosen.")]
NodesOption = Annotated[
    int | None, typer.Option("--nodes", min=0, max=256, help="Slots of this machine; default: as last time, else 2.")
]
TypesOption = Annotated[
    list[str] | None,
    typer.Option("--instance-type", help="Only offer this type (repeatable); default: whatever a job asks for."),
]
DetachOption = Annotated[bool, typer.Option("--detach", "-d", help="Return when the service answers.")]


@app.command()
def up(
    home: HomeOption = None,
    port: PortOption = 0,
    nodes: NodesOption = None,
    instance_type: TypesOption = None,
    detach: DetachOption = False,
) -> None:
    """Start everything on this machine (127.0.0.1 only)."""
    from trainshed_service.cli.life import start

    start(home, port=port, nodes=nodes, instance_types=instance_type, detach=detach)


@app.command()
def down(home: HomeOption = None) -> None:
    """End everything that `up` started, running jobs included."""
    from trainshed_service.cli.life import stop

    stop(home)


@app.command()
def env(home: HomeOption = None) -> None:
    """Print shell lines that point every AWS client here: eval "$(trainshed env)"."""
    from trainshed_service.cli.life import print_environment

    print_environment(home)
