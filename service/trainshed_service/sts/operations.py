"""STS: who am I. Tokens are not handed out here; jobs get theirs with their assignment."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainshed_service.wire import Context, Operations


async def get_caller_identity(ctx: Context, request: dict[str, Any]) -> dict[str, Any]:
    principal = ctx.principal
    session = principal.arn.rsplit("/", 1)[-1]
    digest = hashlib.sha256(principal.arn.encode()).hexdigest()[:17].upper()
    assumed = ":assumed-role/" in principal.arn
    return {
        "UserId": f"AROA{digest}:{session}" if assumed else f"AIDA{digest}",
        "Account": principal.account_id,
        "Arn": principal.arn,
    }


OPERATIONS: Operations = {"GetCallerIdentity": get_caller_identity}
