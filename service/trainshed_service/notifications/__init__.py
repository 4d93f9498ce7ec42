"""Telling people and programs in time: when a job ends, when a pool is warm and when it is about to go."""

from trainshed_service.notifications.targets import NotificationService

__all__ = ["NotificationService"]
