"""Who is compared: engines, and what each of them has for the same task."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from bench.experiment import Note
from bench.peers.environments import PROJECT, NotInstallable, environment
from bench.peers.orders import Oracle

JOBS = Path(__file__).parent / "jobs"


@dataclass(frozen=True, slots=True)
class Peer:
    """An engine as it is run: a script of `bench.peers.jobs` and a variant of it.

    ``counts`` says what it gives results for: "windows" that are full, "updates" of an id by a
    batch, or "rows" that it only hands on. ``is_slow`` peers get smaller batches; one that
    ``runs_once`` is not repeated where time is short. Engines without batches read ``input_times``
    as much, so that none takes minutes. ``modules`` are needed in the project's own environment.
    """

    name: str
    label: str
    tolerance: str
    script: str
    variant: str
    environment: str = PROJECT
    counts: str = "windows"
    is_slow: bool = False
    runs_once: bool = False
    has_batches: bool = True
    input_times: float = 1.0
    modules: tuple[str, ...] = ()

    def interpreter(self, note: Note) -> Path:
        """The Python that runs it; raises `NotInstallable` where there can be none."""
        missing = [module for module in self.modules if not _is_there(module)]
        if missing:
            raise NotInstallable(f"There is no {missing[0]} in this environment.")
        return environment(self.environment, note)

    def expected(self, oracle: Oracle) -> list[int] | None:
        """How many results there are after each batch; None where the oracle cannot say."""
        return {"windows": oracle.results, "updates": oracle.updates, "rows": None}[self.counts]


def _is_there(module: str) -> bool:
    package, _, rest = module.partition(".")
    return find_spec(package) is not None and (not rest or find_spec(module) is not None)


def _spark(name: str, label: str, tolerance: str, **more: object) -> Peer:
    return Peer(name, label, tolerance, "spark_job.py", name, **more)  # type: ignore[arg-type]


_ROCKSDB = "RocksDB, a changelog file per partition and batch"

TRAILMARK = _spark("trailmark", "Trailmark", "footprints, recovers within 2 seconds")
PASS_THROUGH = _spark("pass-through", "Spark pass-through", "keeps no state", counts="rows")
BUILT_IN = _spark("built-in", "Spark groupBy().avg() in the JVM", _ROCKSDB, counts="updates")
APPLY_IN_PANDAS = _spark(
    "apply-in-pandas-with-state",
    "Spark applyInPandasWithState",
    _ROCKSDB,
    is_slow=True,
    runs_once=True,
)
TRANSFORM_WITH_STATE = _spark(
    "transform-with-state",
    "Spark transformWithState",
    _ROCKSDB,
    is_slow=True,
    runs_once=True,
    modules=("google.protobuf",),
)
TRANSFORM_IN_PANDAS = _spark(
    "transform-with-state-in-pandas",
    "Spark transformWithStateInPandas",
    _ROCKSDB,
    is_slow=True,
    runs_once=True,
    modules=("google.protobuf",),
)


def _flink(variant: str, label: str, tolerance: str, input_times: float) -> Peer:
    return Peer(
        name=f"flink-{variant}",
        label=label,
        tolerance=tolerance,
        script="flink_job.py",
        variant=variant,
        environment="flink",
        has_batches=False,
        input_times=input_times,
        runs_once=True,
    )


FLINK_HASHMAP = _flink("hashmap", "Flink, hashmap", "a full checkpoint every second", 1.0)
FLINK_ROCKSDB = _flink("rocksdb", "Flink, RocksDB", "an incremental checkpoint every second", 0.25)
BYTEWAX = Peer(
    name="bytewax",
    label="Bytewax",
    tolerance="snapshots of changed state every second",
    script="bytewax_job.py",
    variant="recovery",
    environment="bytewax",
    has_batches=False,
    input_times=0.25,
)

ALL = (
    PASS_THROUGH,
    TRAILMARK,
    BUILT_IN,
    FLINK_HASHMAP,
    FLINK_ROCKSDB,
    BYTEWAX,
    APPLY_IN_PANDAS,
    TRANSFORM_WITH_STATE,
    TRANSFORM_IN_PANDAS,
)
BY_NAME = {peer.name: peer for peer in ALL}


def installable(peers: tuple[Peer, ...], note: Note) -> tuple[dict[str, Path], dict[str, str]]:
    """Interpreters of the peers that can be had here, and why there is none of the others."""
    found, skipped = {}, {}
    for peer in peers:
        try:
            found[peer.name] = peer.interpreter(note)
        except NotInstallable as why:
            skipped[peer.label] = str(why)
    return found, skipped
