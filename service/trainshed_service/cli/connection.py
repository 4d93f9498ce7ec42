"""How the commands reach an installation: its own key and token over the public APIs, as any client would.

The home decides, not the user's AWS settings: profiles, proxies and endpoint variables do not matter here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from trainshed_service.cli.errors import CommandError
from trainshed_service.embedded.aws_client import aws_client
from trainshed_service.embedded.home import Home, HomeConfig, HomeError, default_home


class Connection:
    """One home's service. Raises CommandError with what to do where the home is unknown."""

    def __init__(self, folder: Path | None) -> None:
        self.home = Home(folder or default_home())
        try:
            self.config: HomeConfig = self.home.read()
        except HomeError as error:
            raise CommandError(str(error)) from error
        if "main" not in self.config.ports:
            raise CommandError(f"Trainshed in {self.home.folder} has never come up; run `trainshed up` first")

    def aws(self, service: str, *, retries: int = 3, timeout: float = 60.0) -> Any:
        """A boto3 client of the service with the home's admin key. `timeout`: seconds for each answer."""
        return aws_client(self.config, service, retries=retries, timeout=timeout)

    def get(self, path: str, query: dict[str, str] | None = None, *, timeout: float = 30.0) -> Any:
        """GET over REST with the home's bearer token; the JSON of the answer. `timeout`: seconds for each step."""
        return self._call("GET", path, query or {}, timeout=timeout)

    def post(self, path: str, body: Any = None) -> Any:
        """POST, by default without a body, as `get`."""
        return self._call("POST", path, {}, body)

    def put(self, path: str, body: Any) -> Any:
        return self._call("PUT", path, {}, body)

    def patch(self, path: str, body: Any) -> Any:
        return self._call("PATCH", path, {}, body)

    def delete(self, path: str, **query: str) -> Any:
        return self._call("DELETE", path, query)

    def _call(self, method: str, path: str, query: dict[str, str], body: Any = None, *, timeout: float = 30.0) -> Any:
        headers = {"Authorization": f"Bearer {self.config.token}"}
        try:
            # Plain HTTP to this machine, so no certificates: loading them takes longer than most commands.
            with httpx.Client(
                base_url=self.config.main_url, headers=headers, trust_env=False, timeout=timeout, verify=False
            ) as client:
                answer = client.request(method, path, params=query, json=body)
        except httpx.TransportError as error:
            raise self.unreachable() from error
        if answer.is_error:
            raise CommandError(f"the service refused {path} ({answer.status_code}): {_message(answer)}")
        return answer.json()

    def unreachable(self) -> CommandError:
        return CommandError(
            f"Trainshed does not answer at {self.config.main_url}; start it with `trainshed up --home "
            f"{self.home.folder}`, or see {self.home.log}"
        )

    def explain(self, error: Exception) -> CommandError:
        """The sentence for an error of an AWS client."""
        from botocore.exceptions import BotoCoreError, ClientError, EndpointConnectionError

        if isinstance(error, EndpointConnectionError):
            return self.unreachable()
        if isinstance(error, ClientError):
            details = error.response.get("Error", {})
            return CommandError(f"{details.get('Message') or error} ({details.get('Code', 'error')})")
        if isinstance(error, BotoCoreError):
            return CommandError(str(error))
        raise error


def _message(answer: httpx.Response) -> str:
    try:
        content = answer.json()
    except ValueError:
        return answer.text[:300]
    return str(content.get("message") or content.get("detail") or content)[:600] if isinstance(content, dict) else ""
