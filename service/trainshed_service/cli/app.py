"""The commands and their options. Each is a few lines over a module that is imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainshed_service.cli import sharing
from trainshed_service.cli.notify import notify
from trainshed_service.cli.options import HomeOption, JsonOption
from trainshed_service.cli.plan import plan

app = typer.Typer(
    name="trainshed",
    help="A self-hosted, drop-in replacement for Amazon SageMaker Training.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
for _name, _commands in {**sharing.GROUPS, "notify": notify}.items():
    app.add_typer(_commands, name=_name)
app.command()(plan)

PortOption = Annotated[int, typer.Option("--port", min=0, max=65535, help="Main port; 0: a free one is chosen.")]
NodesOption = Annotated[
    int | None, typer.Option("--nodes", min=0, max=256, help="Slots of this machine; default: as last time, else 2.")
]
TypesOption = Annotated[
    list[str] | None,
    typer.Option("--instance-type", help="Only offer this type (repeatable); default: whatever a job asks for."),
]
NameArgument = Annotated[str, typer.Argument(help="Name of the training job.")]
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
def down(
    home: HomeOption = None,
    keep_jobs: Annotated[
        bool, typer.Option("--keep-jobs", help="Leave the processes of running jobs to the next `up`.")
    ] = False,
) -> None:
    """End everything that `up` started, the processes of running jobs included."""
    from trainshed_service.cli.life import stop as end

    end(home, keep_jobs=keep_jobs)


@app.command()
def env(home: HomeOption = None) -> None:
    """Print shell lines that point every AWS client here: eval "$(trainshed env)"."""
    from trainshed_service.cli.life import print_environment

    print_environment(home)


@app.command()
def submit(
    file: Annotated[Path, typer.Argument(help="A CreateTrainingJob request in JSON or YAML; - reads standard input.")],
    priority: Annotated[
        int | None,
        typer.Option("--priority", min=-100, max=100, help="Higher goes first; above 0 for administrators only."),
    ] = None,
    home: HomeOption = None,
) -> None:
    """Submit a training job and print its ARN."""
    from trainshed_service.cli.jobs import submit as send

    send(home, file, priority)


@app.command()
def ps(
    home: HomeOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Newest jobs to show.")] = 20,
    status: Annotated[str | None, typer.Option("--status", help="Only InProgress, Completed, Failed …")] = None,
) -> None:
    """List jobs, newest first."""
    from trainshed_service.cli.jobs import list_jobs

    list_jobs(home, limit, status)


@app.command()
def describe(name: NameArgument, home: HomeOption = None) -> None:
    """Show all that is known of a job, as JSON."""
    from trainshed_service.cli.jobs import describe as show

    show(home, name)


@app.command()
def logs(
    name: NameArgument,
    home: HomeOption = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
) -> None:
    """Print a job's log. With -f the exit code is 0 for Completed, 2 for Failed, 3 for Stopped."""
    from trainshed_service.cli.jobs import logs as show

    show(home, name, follow)


@app.command()
def stop(name: NameArgument, home: HomeOption = None) -> None:
    """Stop a job: SIGTERM, then SIGKILL after its grace; its artifacts are kept."""
    from trainshed_service.cli.jobs import stop as ask

    ask(home, name)


@app.command()
def nodes(home: HomeOption = None) -> None:
    """List the nodes and what each does."""
    from trainshed_service.cli.nodes import list_nodes

    list_nodes(home)


@app.command()
def drain(
    node: Annotated[str, typer.Argument(help="Id of the node, or as much of it as no other begins with.")],
    home: HomeOption = None,
    undo: Annotated[bool, typer.Option("--undo", help="Let it take jobs again.")] = False,
) -> None:
    """Keep new jobs off a node: its running job goes on, its warm pool ends."""
    from trainshed_service.cli.nodes import drain as set_draining

    set_draining(home, node, undo)


@app.command()
def pools(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List the warm pools, and the clusters in use that may become one."""
    from trainshed_service.cli.pools import list_pools

    list_pools(home, as_json)


@app.command()
def explain(
    what: Annotated[str, typer.Argument(help="A CreateTrainingJob request (file), or the name of a job.")],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say of each warm pool whether a job matches it, what differs, and what would make it match."""
    from trainshed_service.cli.pools import explain as show

    show(home, what, as_json)


@app.command(name="keep-alive")
def keep_alive(
    name: NameArgument,
    seconds: Annotated[int, typer.Argument(min=0, help="How long from now; 0 ends the pool.")],
    home: HomeOption = None,
) -> None:
    """Extend, shorten or end the warm pool of a job that has ended."""
    from trainshed_service.cli.pools import keep_alive as change

    change(home, name, seconds)


@app.command()
def dashboard(home: HomeOption = None) -> None:
    """Print a link to the dashboard that logs you in; it works once, for 5 minutes."""
    from trainshed_service.cli.dashboard import print_link

    print_link(home)


@app.command()
def doctor(home: HomeOption = None) -> None:
    """Say what this machine can and cannot do, and how to mend it."""
    from trainshed_service.cli.doctor import run

    run(home)


@app.command()
def server(home: HomeOption = None, port: PortOption = 0, detach: DetachOption = False) -> None:
    """Start everything but the agent: the service alone, for nodes that join by `trainshed node`."""
    from trainshed_service.cli.life import start

    start(home, port=port, detach=detach, with_agent=False)


@app.command()
def node(
    server: Annotated[str, typer.Option("--server", help="URL of the service.")],
    token_file: Annotated[Path, typer.Option("--token-file", help="File with the enrollment token.")],
    home: HomeOption = None,
    slots: Annotated[int, typer.Option("--slots", min=1, max=256, help="Instances at a time.")] = 1,
    instance_type: TypesOption = None,
    preload: Annotated[
        bool | None,
        typer.Option("--preload/--no-preload", help="Start scripts as forks of a process that has torch imported."),
    ] = None,
    advertise: Annotated[
        str,
        typer.Option(
            "--advertise",
            help="Address for jobs over several machines; auto: that from which it reaches the service; none: "
            "it takes part in none.",
        ),
    ] = "auto",
) -> None:
    """Run the agent alone: this machine joins a service."""
    from trainshed_service.cli.nodes import run_agent
    from trainshed_service.embedded.home import default_home

    place = (home or default_home()).absolute()
    run_agent(place, server, token_file.absolute(), slots, instance_type or [], preload, advertise)
