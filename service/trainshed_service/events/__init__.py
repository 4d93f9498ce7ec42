"""Events: what happened, for people and for server-sent events."""

from trainshed_service.events.log import EventLog, EventRecord, record

__all__ = ["EventLog", "EventRecord", "record"]
