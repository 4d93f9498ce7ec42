"""The container-credentials endpoint: GET /creds with a token answers with that token's credentials file.

Invariant: a token opens its own file alone and nothing without a token; tokens are compared in constant time, and files
are read anew at each request, so credentials that the agent refreshed or withdrew hold at once.
"""

import asyncio
import hmac
import json
from pathlib import Path

from trainshed_worker.sandbox.httphead import BadRequest, Head, answer, read_head
from trainshed_worker.sandbox.netplan import CREDENTIALS_PATH
from trainshed_worker.sandbox.spec import read_json

_FIELDS = ("AccessKeyId", "SecretAccessKey", "Token", "Expiration")
_JSON = "application/json"


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tokens_file: Path) -> None:
    """One connection, one request."""
    try:
        head = await read_head(reader)
        if head is not None:
            writer.write(_answer(head, tokens_file))
    except BadRequest as error:
        writer.write(_refusal(400, str(error)))
    await writer.drain()


def _answer(head: Head, tokens_file: Path) -> bytes:
    if head.target.split("?")[0] != CREDENTIALS_PATH:
        return _refusal(404, f"only {CREDENTIALS_PATH} is served here")
    if head.method != "GET":
        return _refusal(405, "only GET is served here")
    file = _file_of(head.get("authorization") or "", tokens_file)
    if file is None:
        return _refusal(403, "the Authorization token is missing, unknown or withdrawn")
    try:
        credentials = read_json(file)
    except (OSError, ValueError):
        credentials = None
    if credentials is None or any(not isinstance(credentials.get(name), str) for name in _FIELDS):
        return _refusal(503, "no credentials at the moment; try again")
    return answer(200, json.dumps({name: credentials[name] for name in _FIELDS}), _JSON)


def _file_of(token: str, tokens_file: Path) -> Path | None:
    found = None
    for known, file in (read_json(tokens_file) or {}).items():
        if hmac.compare_digest(known.encode(), token.encode()):
            found = Path(file)
    return found


def _refusal(status: int, text: str) -> bytes:
    return answer(status, json.dumps({"code": str(status), "message": text}), _JSON)
