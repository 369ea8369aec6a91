"""What ends the demonstration early, with a message for its reader."""

from __future__ import annotations


class DemoFailure(Exception):
    """Says what went wrong, in a sentence or a few lines."""
