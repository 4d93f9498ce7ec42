"""The request's hyperparameters as the launchers read them.

SageMaker's SDK v2 JSON-encodes every value (`"\\"train.py\\""`, `"true"`, `"[1, 2]"`), SDK v3 and plain boto3 calls
send bare strings (`"train.py"`). Both forms mean the same here; so do booleans that were sent as strings.
"""

from collections.abc import Mapping

from trainshed_worker.contract import decode
from trainshed_worker.launchers.types import LaunchRefused
from trainshed_worker.protocol import FailureCause


class Hyperparameters:
    """Typed reads over the string map; a value of the wrong kind is the user's error and names the key."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str) -> str | None:
        """The value as text; None where it is absent, null or empty."""
        if name not in self._values:
            return None
        value = decode(self._values[name])
        if value is None or value == "":
            return None
        return value if isinstance(value, str) else self._values[name]

    def flag(self, name: str) -> bool:
        """Whether the option is on; absent is off. Refuses what is neither true nor false."""
        if name not in self._values:
            return False
        value = decode(self._values[name])
        word = str(value).strip().lower()
        if word in {"true", "1", "yes"}:
            return True
        if word in {"false", "0", "no", "none", ""}:
            return False
        raise _wrong(name, self._values[name], "true or false")

    def positive(self, name: str) -> int | None:
        """The value as an integer of at least 1; None where it is absent."""
        text = self.text(name)
        if text is None:
            return None
        try:
            number = int(text)
        except ValueError:
            raise _wrong(name, text, "a whole number") from None
        if number < 1:
            raise _wrong(name, text, "at least 1")
        return number

    def words(self, name: str) -> list[str] | None:
        """A JSON list of strings; None where it is absent or empty."""
        if name not in self._values:
            return None
        value = decode(self._values[name])
        if value is None or value == [] or value == "":
            return None
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            raise _wrong(name, self._values[name], "a list of names")
        return list(value)


def _wrong(name: str, value: str, wanted: str) -> LaunchRefused:
    return LaunchRefused(FailureCause.USER_INPUT, f"Hyperparameter {name} is {value!r}; it must be {wanted}.")
