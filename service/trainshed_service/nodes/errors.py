"""The one error of the agent protocol: `{"code": …, "message": …}` with an HTTP status."""


class AgentError(Exception):
    """401: enroll again; 409: stop, a newer start of this agent took over; 4xx otherwise: the message is wrong."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.status = status
        self.code = code
        self.message = message
