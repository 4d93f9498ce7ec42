"""What goes wrong in a way that the user can mend."""


class CommandError(Exception):
    """`str` is one sentence that says what is wrong and what to do."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code
