"""``trailmark recover --dry-run``."""

from __future__ import annotations

import argparse
import json
from typing import Any

from trailmark import units
from trailmark.cli.codes import OK, WRONG
from trailmark.cli.place import chosen_buckets, only_operator, open_to_look
from trailmark.errors import LogError, SettingError
from trailmark.inspection.logs import OperatorFiles
from trailmark.inspection.plan import plan_bucket, predict_us
from trailmark.recovery import RecoveryPlan


def run(options: argparse.Namespace) -> int:
    """Prints the plan of each bucket."""
    if not options.dry_run:
        raise SettingError(
            "Recovery happens by itself when the query starts.",
            fix="Give --dry-run to see what it would do.",
        )
    files = only_operator(
        open_to_look(options.path),
        "A written stream has no state, so there is nothing to recover: a batch is in it whole or "
        "not at all.",
        "Run trailmark verify to see whether all of it can be read.",
    )
    described: list[dict[str, Any]] = []
    for bucket in chosen_buckets(files, options.bucket):
        try:
            plan = plan_bucket(files, bucket, options.to_batch)
        except LogError as error:
            described.append({"bucket": bucket, "problem": error.what, "next": error.fix})
            lines = [
                f"bucket {bucket} cannot be recovered: {error.what}",
                f"  next     {error.fix}",
            ]
        else:
            described.append(_describe(files, bucket, plan))
            lines = _plan_lines(described[-1], plan)
        if not options.json:
            print("\n".join(lines))
    if options.json:
        print(json.dumps({"path": options.path, "plans": described}, indent=1))
    return WRONG if any("problem" in each for each in described) else OK


def _describe(files: OperatorFiles, bucket: int, plan: RecoveryPlan) -> dict[str, Any]:
    return {
        "bucket": bucket,
        **plan.describe(),
        "replay_from": plan.replay_from,
        "predicted_us": predict_us(files, bucket, plan),
    }


def _plan_lines(described: dict[str, Any], plan: RecoveryPlan) -> list[str]:
    first, *rest = str(plan).splitlines()
    predicted = described["predicted_us"]
    took = "unknown" if predicted is None else units.duration(predicted)
    return [f"bucket {described['bucket']}: {first}", *rest, f"  takes    about {took}"]
