"""up, down, env, server: the life of an installation on this machine."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from trainshed_service.cli.errors import CommandError
from trainshed_service.embedded import control
from trainshed_service.embedded.home import Home, HomeConfig, HomeError, UpError, default_home
from trainshed_service.embedded.sdk_config import shell_lines

DEFAULT_NODES = 2
console = Console(stderr=True, highlight=False, soft_wrap=True)


def home_at(folder: Path | None) -> Home:
    return Home(folder or default_home())


def start(
    folder: Path | None,
    *,
    port: int = 0,
    nodes: int | None = None,
    instance_types: list[str] | None = None,
    detach: bool = False,
    with_agent: bool = True,
) -> None:
    """Raises CommandError where it does not come up. A detached start of what already runs is no error."""
    home = home_at(folder)
    try:
        home.prepare()
        if control.running(home):
            _already_up(home, detach)
            return
        with home.changing():
            config = _remember(home, nodes, instance_types)
        if detach:
            control.start_detached(home, port=port, with_agent=with_agent)
            _say_ready(home, home.read(), with_agent)
        else:
            _run_here(home, config, port, with_agent)
    except (HomeError, UpError) as error:
        raise CommandError(str(error)) from error


def stop(folder: Path | None, *, keep_jobs: bool = False) -> None:
    home = home_at(folder)
    if not home.folder.is_dir():
        raise CommandError(f"there is no Trainshed in {home.folder}; name its home by --home")
    if control.running(home):
        _tell_of_running_jobs(home, keep_jobs)
    if control.end(home, keep_jobs=keep_jobs):
        console.print(f"Trainshed in {escape(str(home.folder))} has ended.")
    else:
        console.print(f"Trainshed was not running in {escape(str(home.folder))}.")


def print_environment(folder: Path | None) -> None:
    home = home_at(folder)
    try:
        config = home.read()
    except HomeError as error:
        raise CommandError(str(error)) from error
    if not config.access_key_id or "main" not in config.ports:
        raise CommandError(f"Trainshed in {home.folder} has never come up; run `trainshed up` first")
    sys.stdout.write(shell_lines(home, config))
    if not control.running(home):
        console.print("note: it is not running now; start it with [bold]trainshed up[/]")


def _tell_of_running_jobs(home: Home, keep_jobs: bool) -> None:
    """Name the jobs that this end touches. A service that does not answer must not keep anyone from ending it."""
    from trainshed_service.cli.connection import Connection

    try:
        listed = Connection(home.folder).get(
            "/v1/training-jobs", {"StatusEquals": "InProgress", "MaxResults": "100"}, timeout=5.0
        )
    except CommandError as error:
        console.print(f"which jobs run is not known: {escape(str(error))}")
        return
    found = listed["TrainingJobSummaries"]
    names = [job["TrainingJobName"] for job in found if job.get("SecondaryStatus") != "Pending"]
    if names:
        what = "go on and are taken up by the next `trainshed up`" if keep_jobs else "end now, without artifacts"
        console.print(f"{len(names)} running job(s) {what}: {escape(', '.join(names))}")


def _already_up(home: Home, detach: bool) -> None:
    config = home.read()
    if "main" not in config.ports:
        raise CommandError(
            f"Trainshed is already running in {home.folder}, and is still starting; try again in a moment"
        )
    if not detach:
        raise CommandError(
            f"Trainshed already runs in {home.folder} at {config.main_url}; end it with `trainshed down`, or give "
            "another --home"
        )
    console.print(f"Trainshed already runs at [bold]{config.main_url}[/] (home {escape(str(home.folder))})")


def _remember(home: Home, nodes: int | None, instance_types: list[str] | None) -> HomeConfig:
    config = home.read() if home.exists() else HomeConfig(nodes=DEFAULT_NODES)
    if nodes is not None:
        config = config.model_copy(update={"nodes": nodes})
    if instance_types is not None:
        config = config.model_copy(update={"instance_types": instance_types})
    home.write(config)
    return config


def _run_here(home: Home, config: HomeConfig, port: int, with_agent: bool) -> None:
    from trainshed_service.embedded.__main__ import set_up_logging
    from trainshed_service.embedded.supervisor import Supervisor

    set_up_logging(home, console=True)
    supervisor = Supervisor(home, config, main_port=port, with_agent=with_agent)
    supervisor.run(lambda ready: _say_ready(home, ready, with_agent))


def _say_ready(home: Home, config: HomeConfig, with_agent: bool) -> None:
    console.print(f"Trainshed is up at [bold]{config.main_url}[/] (S3 at {config.gateway_url})")
    nodes = f"{config.nodes} nodes" if with_agent else f"nodes join by the token in {home.enrollment_path}"
    console.print(f"home {escape(str(home.folder))} · {escape(nodes)} · logs in {escape(str(home.log))}")
    shown = escape(repr(str(home.folder)))
    console.print(f"a link that logs you in to the dashboard: [bold]trainshed dashboard --home {shown}[/]")
    console.print(f'point AWS clients here: [bold]eval "$(trainshed env --home {shown})"[/]')
