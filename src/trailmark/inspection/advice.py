"""What to do about a problem in a log: it depends on whether a recovery needs the batch."""

from __future__ import annotations

from collections.abc import Mapping

from trailmark.checkpoint.account import Account
from trailmark.log.verify import Problem, Trouble
from trailmark.records import Loss, Stream

#: What helps whatever batch it is.
_FIXES: Mapping[Trouble, str] = {
    "unknown": (
        "Use the Trailmark that wrote it, or a newer one. Leave the file where it is: nothing is "
        "wrong with it."
    ),
    "foreign": "It does not belong here: move the file out of the log.",
    "ambiguous": "The pack counts. A writer came back late: move the .seg file out of the log.",
    "unlinked": (
        "Two queries wrote to this path, or files come from different backups. Bring both files "
        "back from one backup, or stop the query and cut the log before them with trailmark "
        "truncate."
    ),
}


def next_step(problem: Problem, stream: Stream, account: Account | None, newest: int) -> str:
    """What to do about a problem.

    Parameters
    ----------
    problem, stream
        What is wrong, and in which log.
    account
        Where the bucket stands, by the newest footer of its output; None if that is not known.
    newest
        The newest batch of this log.
    """
    if problem.trouble in _FIXES:
        return _FIXES[problem.trouble]
    if stream is Stream.INPUT:
        return _about_input(problem.batch, account)
    if stream is Stream.SNAPSHOT:
        return (
            "A recovery begins at an older snapshot or replays more input. Nothing has to be done."
        )
    return _about_output(problem.batch, account, newest)


def _about_input(batch: int, account: Account | None) -> str:
    if account is not None and account.loss is Loss.BOUNDED:
        return _about_input_that_is_not_replayed(batch, account)
    if account is None or batch >= account.reads_from:
        return (
            "A recovery needs it. Bring the file back from a backup. Until then keep the query "
            "running: as long as its state is cached, it needs no recovery, and once trailmark "
            f"recover --dry-run replays nothing up to batch {batch}, the file is not needed."
        )
    if batch >= account.keep_from:
        return (
            "A recovery needs it only if an output segment is damaged, too. Nothing has to be "
            "done; a file from a backup is welcome."
        )
    return "No recovery needs it any more. It is removed when the query trims its log."


def _about_input_that_is_not_replayed(batch: int, account: Account) -> str:
    if batch >= account.keep_from:
        return (
            "The batch that follows is linked to it. Bring the file back from a backup, or keep "
            "the query running until it has written another batch."
        )
    return "No recovery needs it: loss is accepted. It is removed when the query trims its log."


def _about_output(batch: int, account: Account | None, newest: int) -> str:
    if batch == newest:
        return (
            "A recovery goes around it. If the query asks for this batch again and is refused, "
            f"stop it and run trailmark truncate PATH --to-batch {batch - 1}."
        )
    if account is not None and account.loss is Loss.BOUNDED and batch >= account.keep_output_from:
        return (
            "A recovery passes over it: footprints in it are lost, and what it closed may be back. "
            "Nothing has to be done; a file from a backup is welcome."
        )
    if account is None or batch >= account.keep_output_from:
        return (
            "A recovery goes around it by replaying more input, and writes new footprints. "
            "Nothing has to be done. Its results are lost to readers of the log unless a backup "
            "has them."
        )
    return (
        "No recovery needs it. Its results are lost to readers of the log: bring the file back "
        f"from a backup, or remove the log up to it with trailmark trim PATH --before-batch "
        f"{batch + 1}."
    )
