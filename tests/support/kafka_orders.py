"""Orders for topics of Kafka, a process that writes them, and what must be made of them."""

from __future__ import annotations

import json
import random
import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from tests.support.kafka import Message, Topic
from tests.support.spark_runs import PATIENCE_S

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
_ITEMS = 5
#: What is written at once, and how much of event time that is.
_ROWS = 20
_STEP_S = 1.0
_PAUSE_S = 0.05
#: Less than what the windows wait for.
_DISORDER_S = 2.0

#: Count and sum, by item and begin of the window.
Counts = dict[tuple[int, int], tuple[int, int]]


@dataclass(frozen=True)
class Order:
    """A row; its time is in seconds since a beginning."""

    item: int
    price: int
    at_s: float

    def message(self, begin: datetime = START) -> Message:
        at = begin + timedelta(seconds=self.at_s)
        value = {"item": self.item, "price": self.price, "ordered_at": at.isoformat()}
        return Message(str(self.item), json.dumps(value))


def random_orders(rng: random.Random, number: int, at_s: float) -> list[Order]:
    """None is older than the newest by more than a little."""
    times = [max(0.0, at_s - rng.uniform(0, _DISORDER_S)) for _ in range(number)]
    return [Order(rng.randrange(_ITEMS), rng.randrange(1000), round(at, 3)) for at in times]


def counted(orders: Iterable[Order], size_s: int) -> Counts:
    """The windows of these orders, one order at a time."""
    found: Counts = defaultdict(lambda: (0, 0))
    for order in orders:
        window = order.item, int(order.at_s // size_s) * size_s
        n, total = found[window]
        found[window] = n + 1, total + order.price
    return dict(found)


class Producing:
    """Writes orders to a topic, whatever becomes of the broker meanwhile."""

    def __init__(self, topic: Topic, seed: int) -> None:
        self._topic, self._rng = topic, random.Random(seed)
        #: What the topic has of it.
        self.orders: list[Order] = []
        self._ends = threading.Event()
        self._failures: list[Exception] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        step = 0
        try:
            while not self._ends.wait(_PAUSE_S):
                self._write(random_orders(self._rng, _ROWS, step * _STEP_S))
                step += 1
        except Exception as error:  # noqa: BLE001 - whoever ends it is told
            self._failures.append(error)

    def _write(self, orders: Sequence[Order]) -> None:
        self._topic.write(order.message() for order in orders)
        self.orders += orders

    def end(self) -> None:
        """With an order so much later that all windows before it are over."""
        self.stop()
        assert not self._failures, self._failures
        self._write([Order(0, 0, 86_400.0)])

    def stop(self) -> None:
        self._ends.set()
        self._thread.join(PATIENCE_S)

    def __enter__(self) -> Producing:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
