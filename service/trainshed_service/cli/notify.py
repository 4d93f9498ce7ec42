"""The commands `trainshed notify …` and their options."""

from __future__ import annotations

from typing import Annotated

import typer

from trainshed_service.cli.options import HomeOption, JsonOption

notify = typer.Typer(
    help="Where events of jobs and warm pools go: add, list, remove, test.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
IdArgument = Annotated[str, typer.Argument(help="Id of the target, see `trainshed notify list`.")]


@notify.command("add")
def notify_add(
    url: Annotated[str, typer.Argument(help="A webhook (https://…), or a URL of apprise: mailto://…, slack://…")],
    user: Annotated[str | None, typer.Option("--user", help="Events of this user, and pools it may use.")] = None,
    mine: Annotated[bool, typer.Option("--mine", help="Events of the one who calls.")] = False,
    on: Annotated[
        list[str] | None,
        typer.Option("--on", help="Only this kind (repeatable): job.ended, job.failed, pool, pool.expiring …"),
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send events to a webhook, by mail or to a chat. Without --user and --mine: everybody's."""
    from trainshed_service.cli import notifications

    notifications.add(home, url, user, mine, on or [], as_json)


@notify.command("list")
def notify_list(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List the targets (secrets masked), and how delivery to each goes."""
    from trainshed_service.cli import notifications

    notifications.list_targets(home, as_json)


@notify.command("remove")
def notify_remove(target_id: IdArgument, home: HomeOption = None) -> None:
    """Take a target away."""
    from trainshed_service.cli import notifications

    notifications.remove(home, target_id)


@notify.command("test")
def notify_test(target_id: IdArgument, home: HomeOption = None) -> None:
    """Send a test message now and say whether it was delivered."""
    from trainshed_service.cli import notifications

    notifications.test(home, target_id)
