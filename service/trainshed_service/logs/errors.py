"""What a caller of the log store can do wrong. The AWS operations and REST map these to their own error forms."""


class LogStoreError(Exception):
    """Base of the errors below; the text is fit for a user."""


class UnknownStream(LogStoreError):
    """No such log stream. `missing` is what was asked for."""

    def __init__(self, missing: str) -> None:
        super().__init__(f"no log stream {missing!r}")
        self.missing = missing


class InvalidToken(LogStoreError):
    """A paging token or cursor that this store did not give out for this request."""


class InvalidPattern(LogStoreError):
    """A filter pattern that cannot be read, or a kind of pattern that is not offered."""
