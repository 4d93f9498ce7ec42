"""Telemetry and the watchdog."""
