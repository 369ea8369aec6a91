"""The page of `trailmark page`: what is looked at, told as JSON, and the files that show it.

What it promises: words and numbers are made here, by the same code as those of `trailmark status`;
the script in ``static`` only puts them in their places, as text. Nothing comes from another host.

What it leaves to others: looking and serving (:mod:`trailmark.watch`).
"""

from trailmark.dashboard.routes import page_routes

__all__ = ["page_routes"]
