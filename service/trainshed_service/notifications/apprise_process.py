"""The parent's side of a helper process that runs apprise for one target.

A process of its own, since apprise's services are other people's code that blocks, follows redirects and reads files:
it can be ended when it takes too long, gets the URL by a pipe (nothing of it is in a command line or a variable), and
limits itself for the targets of ordinary users (`apprise_guard`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from typing import Any, ClassVar

from trainshed_service.notifications.masking import scrub
from trainshed_service.notifications.messages import Message
from trainshed_service.notifications.outcome import DELIVERED, Outcome

START_SECONDS = 60.0
SEND_SECONDS = 60.0
_MAX_LINE = 64 * 1024
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "PYTHONPATH")


class AppriseChannel:
    """`start_seconds` and `send_seconds`: how long the helper may take to start, and for one message."""

    heavy: ClassVar[bool] = True

    def __init__(
        self,
        url: str,
        *,
        any_address: bool,
        trusted: bool,
        start_seconds: float = START_SECONDS,
        send_seconds: float = SEND_SECONDS,
    ) -> None:
        self._url = url
        self._any_address = any_address
        self._trusted = trusted
        self._start_seconds = start_seconds
        self._send_seconds = send_seconds
        self._process: asyncio.subprocess.Process | None = None
        self.recipients: list[str] = []
        """Mail addresses of the target, known once it was checked."""

    async def check(self) -> str | None:
        """Why no message can be sent with this URL, or None; sends nothing."""
        return (await self._guarded(self._started(), self._start_seconds)).error

    async def send(self, message: Message) -> Outcome:
        outcome = await self._guarded(self._started(), self._start_seconds)
        if outcome.error is not None:
            return outcome
        content = {"title": message.title, "text": message.text, "level": message.level}
        return await self._guarded(self._ask(content), self._send_seconds)

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        await process.wait()

    async def _guarded(self, work: Any, seconds: float) -> Outcome:
        """Whatever goes wrong with the helper ends it; the next message gets a new one."""
        try:
            async with asyncio.timeout(seconds):
                answer = await work
        except TimeoutError:
            await self.close()
            return Outcome(f"not delivered within {seconds:g} s")
        except (OSError, ValueError) as error:
            await self.close()
            return Outcome(scrub(f"the helper process failed: {error or type(error).__name__}", self._url))
        except asyncio.CancelledError:
            await self.close()
            raise
        if answer.get("ok"):
            return DELIVERED
        return Outcome(scrub(str(answer.get("error") or "the service did not accept it"), self._url))

    async def _started(self) -> dict[str, Any]:
        if self._process is not None:
            return {"ok": True}
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-BP",
            "-m",
            "trainshed_service.notifications.apprise_child",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,  # libraries may write the URL there
            env={**environment, "HOME": "/nonexistent"},
            cwd="/",
            limit=_MAX_LINE,
        )
        answer = await self._ask({"url": self._url, "anyAddress": self._any_address, "trusted": self._trusted})
        self.recipients = [str(each) for each in answer.get("recipients", [])]
        if not answer.get("ok"):
            await self.close()
        return answer

    async def _ask(self, content: dict[str, Any]) -> dict[str, Any]:
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(content).encode() + b"\n")
        await process.stdin.drain()
        line = await process.stdout.readline()
        if not line:
            code = await process.wait()
            raise OSError(f"it ended with code {code}")
        answer = json.loads(line)
        if not isinstance(answer, dict):
            raise ValueError("it answered something else than an object")
        return answer
