"""The `trainshed` command. `main` is its entry; everything else is imported when a command is run, so that help is
there at once."""

import sys

from trainshed_service.cli.errors import CommandError


def main() -> None:
    """Run the command line; errors that a person can mend are one sentence on stderr and exit code 1."""
    from trainshed_service.cli.app import app

    try:
        app()
    except CommandError as error:
        print(f"trainshed: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.exit(141)
