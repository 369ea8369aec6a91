"""What to do about a problem in a written stream: bring the file back, or give the batch up."""

from __future__ import annotations

from collections.abc import Mapping

from trailmark.log.verify import Problem, Trouble

#: What helps whatever batch it is.
_FIXES: Mapping[Trouble, str] = {
    "unknown": (
        "Use the Trailmark that wrote it, or a newer one. Leave the file where it is: nothing is "
        "wrong with it."
    ),
    "foreign": "It does not belong here: bring the right file back from a backup.",
    "ambiguous": (
        "The pack counts. A writer came back late: move the .seg file out of the log. Its query "
        "writes the batch again."
    ),
    "unlinked": (
        "Files come from different backups, or somebody has copied streams into one another. "
        "Bring both files back from one backup."
    ),
}


def about_manifest(problem: Problem, newest: int) -> str:
    """What to do about a problem in the log of batches, whose newest batch is given."""
    if problem.trouble in _FIXES:
        return _FIXES[problem.trouble]
    if problem.batch == newest:
        return (
            "Nobody can write to the stream until this is put right. Bring the file back from a "
            "backup. Without one, stop the writers and move the file out of the log: the rows of "
            "this batch are lost then, unless its query writes them again."
        )
    return f"Bring the file back from a backup, or {_give_up(problem.batch)}"


def about_data(problem: Problem, newest: int) -> str:
    """What to do about a problem with a data file of a batch."""
    if problem.trouble in ("unknown", "foreign"):
        return _FIXES[problem.trouble]
    when = "once there is a newer batch, " if problem.batch == newest else ""
    return f"Bring the file back from a backup, or {when}{_give_up(problem.batch)}"


def _give_up(batch: int) -> str:
    return (
        f"give the batch up: trailmark trim PATH --before-batch {batch + 1} removes the stream up "
        "to it. Readers that wait for it then go on with failOnDataLoss set to false; named ones "
        "have to be forgotten before, with trailmark readers."
    )
