"""Who looks at a page."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainshed_service.identity import Principal


@dataclass(frozen=True)
class Visitor:
    """A person with a session. `csrf` goes into every form that they get."""

    principal: Principal
    token: str = field(repr=False)
    csrf: str = field(repr=False)
