"""The commands of sharing and their options: user, key, token, role, quota. Each is a few lines over a module that is
imported when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from trainshed_service.cli.options import HomeOption, JsonOption


def _group(text: str) -> typer.Typer:
    return typer.Typer(help=text, no_args_is_help=True, pretty_exceptions_enable=False)


user = _group("Users: create, list, show, allow, deny, update, delete.")
key = _group("Access keys of users: create, list, deactivate, activate, delete.")
token = _group("Bearer tokens for REST: create, list, revoke.")
role = _group("Roles, which jobs run in: create, list, show, delete.")
quota = _group("Quotas of instances: set, list, show, delete.")
GROUPS = {"user": user, "key": key, "token": token, "role": role, "quota": quota}

UserArgument = Annotated[str, typer.Argument(help="Name of the user.")]
RoleArgument = Annotated[str, typer.Argument(help="Name or ARN of the role.")]
RolesArgument = Annotated[list[str], typer.Argument(help="Names or ARNs of roles.")]
KeyArgument = Annotated[str, typer.Argument(help="The AWS access key id.")]
UserOption = Annotated[str | None, typer.Option("--user", help="Of this user.")]
RoleOption = Annotated[str | None, typer.Option("--role", help="Of this role (name or ARN).")]
AllOption = Annotated[bool, typer.Option("--all", help="Of everybody together.")]


# -- users -------------------------------------------------------------------------------------------------------------


@user.command("create")
def user_create(
    name: UserArgument,
    admin: Annotated[bool, typer.Option("--admin", help="An administrator: sees and may do everything.")] = False,
    may_pass: Annotated[
        list[str] | None, typer.Option("--may-pass", help="Run jobs only in this role (repeatable).")
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a user and print its access key as shell lines: eval "$(trainshed user create anna)"."""
    from trainshed_service.cli import users

    users.create(home, name, admin, may_pass, as_json)


@user.command("list")
def user_list(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List the users."""
    from trainshed_service.cli import users

    users.list_users(home, as_json)


@user.command("show")
def user_show(name: UserArgument, home: HomeOption = None) -> None:
    """Show a user with its keys, tokens and roles, as JSON (no secrets)."""
    from trainshed_service.cli import users

    users.show(home, name)


@user.command("allow")
def user_allow(name: UserArgument, roles: RolesArgument, home: HomeOption = None) -> None:
    """Let a user run jobs in these roles. From then on it may use only the roles on its list."""
    from trainshed_service.cli import users

    users.change(home, name, {"allow": roles})


@user.command("deny")
def user_deny(name: UserArgument, roles: RolesArgument, home: HomeOption = None) -> None:
    """Take roles off a user's list. The list holds also when it is empty."""
    from trainshed_service.cli import users

    users.change(home, name, {"deny": roles})


@user.command("update")
def user_update(
    name: UserArgument,
    admin: Annotated[
        bool | None, typer.Option("--admin/--no-admin", help="Make the user an administrator, or not one.")
    ] = None,
    any_role: Annotated[
        bool | None,
        typer.Option("--any-role/--listed-roles", help="Whether the user may run jobs in roles that are not listed."),
    ] = None,
    home: HomeOption = None,
) -> None:
    """Change what a user is."""
    from trainshed_service.cli import users

    users.update(home, name, admin, any_role)


@user.command("delete")
def user_delete(name: UserArgument, home: HomeOption = None) -> None:
    """Delete a user: its keys, tokens and sessions end. Its jobs stay with its name; those that run go on."""
    from trainshed_service.cli import users

    users.delete(home, name)


# -- keys and tokens ---------------------------------------------------------------------------------------------------


@key.command("create")
def key_create(name: UserArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Make a further access key of a user and print it as shell lines."""
    from trainshed_service.cli import keys

    keys.create(home, name, as_json)


@key.command("list")
def key_list(
    name: Annotated[str | None, typer.Argument(help="Name of the user; default: all.")] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """List access keys, without secrets."""
    from trainshed_service.cli import keys

    keys.list_keys(home, name, as_json)


@key.command("deactivate")
def key_deactivate(access_key_id: KeyArgument, home: HomeOption = None) -> None:
    """Switch an access key off. `key activate` takes it back."""
    from trainshed_service.cli import keys

    keys.switch(home, access_key_id, False)


@key.command("activate")
def key_activate(access_key_id: KeyArgument, home: HomeOption = None) -> None:
    """Switch an access key on again."""
    from trainshed_service.cli import keys

    keys.switch(home, access_key_id, True)


@key.command("delete")
def key_delete(access_key_id: KeyArgument, home: HomeOption = None) -> None:
    """Delete an access key for good."""
    from trainshed_service.cli import keys

    keys.delete(home, access_key_id)


@token.command("create")
def token_create(
    name: UserArgument,
    label: Annotated[str, typer.Option("--name", help="What the token is for.")] = "token",
    days: Annotated[int | None, typer.Option("--days", min=1, max=3650, help="It ends after so many days.")] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a bearer token of a user for REST and print it as a shell line."""
    from trainshed_service.cli import keys

    keys.create_token(home, name, label, days, as_json)


@token.command("list")
def token_list(name: UserArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List the tokens of a user by their ids."""
    from trainshed_service.cli import keys

    keys.list_tokens(home, name, as_json)


@token.command("revoke")
def token_revoke(
    token_id: Annotated[str, typer.Argument(help="The id that `token list` shows.")], home: HomeOption = None
) -> None:
    """End a token, and the dashboard sessions that were opened with it."""
    from trainshed_service.cli import keys

    keys.revoke_token(home, token_id)


# -- roles -------------------------------------------------------------------------------------------------------------


@role.command("create")
def role_create(name: RoleArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Make a role that jobs can run in; print its ARN."""
    from trainshed_service.cli import roles

    roles.create(home, name, as_json)


@role.command("list")
def role_list(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List the roles."""
    from trainshed_service.cli import roles

    roles.list_roles(home, as_json)


@role.command("show")
def role_show(name: RoleArgument, home: HomeOption = None) -> None:
    """Show a role and the users on whose lists it is, as JSON."""
    from trainshed_service.cli import roles

    roles.show(home, name)


@role.command("delete")
def role_delete(name: RoleArgument, home: HomeOption = None) -> None:
    """Delete a role that no job, warm pool or quota uses."""
    from trainshed_service.cli import roles

    roles.delete(home, name)


# -- quotas ------------------------------------------------------------------------------------------------------------

TypeOption = Annotated[
    str | None, typer.Option("--instance-type", help="For this type; default: for all types together.")
]


@quota.command("set")
def quota_set(
    user: UserOption = None,
    role: RoleOption = None,
    everybody: AllOption = False,
    instance_type: TypeOption = None,
    instances: Annotated[int | None, typer.Option("--instances", min=0, help="Instances of jobs at a time.")] = None,
    warm_instances: Annotated[
        int | None, typer.Option("--warm-instances", min=0, help="Instances kept warm at a time.")
    ] = None,
    hard: Annotated[bool, typer.Option("--hard", help="Refuse a job that does not fit; else it waits.")] = False,
    home: HomeOption = None,
) -> None:
    """Set a quota; it replaces the one of the same subject and type."""
    from trainshed_service.cli import quotas

    quotas.put(home, user, role, everybody, instance_type, instances, warm_instances, hard)


@quota.command("list")
def quota_list(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List all quotas with what is used of each."""
    from trainshed_service.cli import quotas

    quotas.list_quotas(home, {}, as_json)


@quota.command("show")
def quota_show(
    user: UserOption = None,
    role: RoleOption = None,
    everybody: AllOption = False,
    instance_type: TypeOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the quotas of one subject."""
    from trainshed_service.cli import quotas

    quotas.list_quotas(home, quotas.subject(user, role, everybody, instance_type), as_json)


@quota.command("delete")
def quota_delete(
    user: UserOption = None,
    role: RoleOption = None,
    everybody: AllOption = False,
    instance_type: TypeOption = None,
    home: HomeOption = None,
) -> None:
    """Take a quota away."""
    from trainshed_service.cli import quotas

    quotas.delete(home, quotas.subject(user, role, everybody, instance_type))
