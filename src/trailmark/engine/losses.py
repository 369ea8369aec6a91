"""Who may accept loss, and who may not."""

from __future__ import annotations

from typing import Literal, TypeAlias, cast

from trailmark.errors import SettingError
from trailmark.operators.protocol import AnyOperator
from trailmark.records import Loss

#: As users give it.
LossText: TypeAlias = Literal["none", "bounded"]


def asked_loss(loss: LossText | Loss) -> Loss:
    """The loss that the author of a query accepts."""
    if loss not in tuple(Loss):
        raise SettingError(
            f"loss must be 'none' or 'bounded', got {loss!r}.",
            where="loss",
            fix="With 'none' a recovery is exact; with 'bounded' it replays no input, and counts "
            "what is lost.",
        )
    return Loss(cast(str, loss))


def check_may_lose(operator: AnyOperator, loss: Loss) -> None:
    """Refuses loss where the rest of a state would be worth nothing without what is lost."""
    if loss is Loss.NONE:
        return
    streams = [port.name for port in operator.ports if port.is_stream]
    if len(streams) > 1 and operator.group_size is None:
        raise _refusal(
            f"The operator pairs the tuples of its inputs ({', '.join(streams)}). Once some are "
            "lost, what it pairs does not belong together."
        )
    if operator.identities.has_start and not operator.copied_together.has_start:
        raise _refusal(
            "Windows of a count that overlap begin by the count of one another. Once one is lost, "
            "those that are left of its key have lost count."
        )


def check_refers_to_nothing(looks_back: int | None, loss: Loss) -> None:
    """Refuses loss for a state that is made of places in the input log, which is not kept."""
    if loss is Loss.BOUNDED and looks_back is not None:
        raise _refusal(
            "The state of the operator refers to tuples in the input log (from batch "
            f"{looks_back} on), which is not kept where loss is accepted."
        )


def _refusal(why: str) -> SettingError:
    return SettingError(why, where="loss", fix="Leave loss out: the recovery is exact then.")
