"""Several processes of the service on one database: who leads, and what each tells the others at once."""

from trainshed_service.replicas.group import Group, open_group
from trainshed_service.replicas.message import Message

__all__ = ["Group", "Message", "open_group"]
