"""Preloaded parents: training scripts start as forks of a process that has torch imported, where that makes no
difference.

The agent's side: `parents.Parents`, and `eligibility.fresh_reason` for the launchers. The parent's own side is started
by `hook`. What the two ways of starting share, and what they do not, is in docs/warm-start.md. Nothing is imported
here: the parent loads only what it needs.
"""
