"""A Kafka broker on loopback, a process of its own that can be killed and started again; and what
tests write to its topics and read from them, with Kafka's ordinary client for Python."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from build_support.kafka import BROKER, CONNECTOR
from build_support.maven import java, spark_jars
from tests.support.spark_runs import PATIENCE_S, wait_until

_CLUSTER = "trailmark-tests-kafkaQ"
_JAVA = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_LOG = ("slf4j-api", "log4j-slf4j2-impl", "log4j-core", "log4j-api")
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    # Without these, what a single broker keeps for itself would have many copies and partitions.
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    # A broker that was killed may come back as soon as it is taken for dead.
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "2000",
    "log.cleaner.enable": "false",  # its buffers are half of the memory
}


def why_there_is_none() -> str:
    """Why no broker can be run here; empty if one can."""
    if not (BROKER.exists() and CONNECTOR.exists()):
        return "Kafka is not installed (make kafka installs it)"
    if importlib.util.find_spec("confluent_kafka") is None:
        return "confluent-kafka is not installed"
    return ""


class Broker:
    """A broker that is its own controller.

    Parameters
    ----------
    directory
        For all that it keeps: who starts it again in the same one has the same topics.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True)
        plain, behind, line, controller = _free_ports(4)
        self.address = f"127.0.0.1:{plain}"
        #: The same broker, behind a line that stands still when it is told to.
        self.line = Line(line, behind)
        local = "127.0.0.1"
        settings = {
            **_SETTINGS,
            "controller.quorum.voters": f"1@{local}:{controller}",
            "listeners": f"PLAINTEXT://{local}:{plain},LINE://{local}:{behind},"
            f"CONTROLLER://{local}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.address},LINE://{self.line.address}",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LINE:PLAINTEXT,"
            "CONTROLLER:PLAINTEXT",
            "log.dirs": str(directory / "data"),
        }
        self._settings = directory / "server.properties"
        self._settings.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        format_it = ("format", "--cluster-id", _CLUSTER, "--config", str(self._settings))
        process = self._run("kafka.tools.StorageTool", *format_it)
        assert process.wait(PATIENCE_S) == 0, self.said()
        self.start()

    def _run(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        # It comes without a log of its own. With Spark's, it says what is wrong.
        log = [str(jar) for name in _LOG for jar in spark_jars().glob(f"{name}-[0-9]*.jar")]
        classes = [*log, str(BROKER / "*")]
        command = [str(java()), *_JAVA, "-cp", os.pathsep.join(classes), name, *words]
        with open(self._directory / "said", "ab") as said:
            return subprocess.Popen(
                command, cwd=self._directory, stdin=subprocess.DEVNULL, stdout=said, stderr=said
            )

    def said(self) -> str:
        return (self._directory / "said").read_text(errors="replace")

    def start(self) -> None:
        """Also again, when it was killed; returns when it answers."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        self._process = self._run("kafka.Kafka", str(self._settings))
        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})

        def answers() -> bool:
            assert self._process.poll() is None, self.said()
            with suppress(KafkaException):
                return bool(admin.list_topics(timeout=0.5).brokers)
            return False

        wait_until("the broker answers", answers)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self._process.kill()
        self._process.wait(PATIENCE_S)

    def close(self) -> None:
        self.kill()
        self.line.close()


class Line:
    """Passes on what comes to a port to another one, while it is not held up."""

    def __init__(self, port: int, target: int) -> None:
        self._target = target
        self._flows = threading.Event()
        self._flows.set()
        self._listener = socket.create_server(("127.0.0.1", port))
        self.address = f"127.0.0.1:{port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def hold(self) -> None:
        """Connections stay, and nothing comes through."""
        self._flows.clear()

    def go_on(self) -> None:
        """What was held up comes first."""
        self._flows.set()

    def close(self) -> None:
        self.go_on()
        self._listener.shutdown(socket.SHUT_RDWR)  # whoever accepts is told
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # it is closed
            while True:
                near, _ = self._listener.accept()
                self._flows.wait()
                try:
                    far = socket.create_connection(("127.0.0.1", self._target))
                except OSError:
                    near.close()
                    continue
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError), source, target:
            while data := source.recv(1 << 16):
                self._flows.wait()
                target.sendall(data)
            # The other direction ends with this one.
            source.shutdown(socket.SHUT_RDWR)


def _free_ports(count: int) -> list[int]:
    found = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in found]
    for each in found:
        each.close()
    return ports


class Message(NamedTuple):
    """A message of a topic; who writes one with a key need not say to which partition."""

    key: str
    value: str


class Topic:
    """A topic that is made for a test."""

    def __init__(self, broker: Broker, name: str, partitions: int = 1) -> None:
        from confluent_kafka import Producer
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        self.name, self._partitions = name, range(partitions)
        self._servers: dict[str, Any] = {"bootstrap.servers": broker.address, "log_level": 0}
        # One that does not get an answer asks again, and the broker knows what it has.
        self._producer = Producer({**self._servers, "enable.idempotence": True, "linger.ms": 5})
        self._admin = AdminClient(self._servers)
        self._admin.create_topics([NewTopic(name, partitions, 1)])[name].result(PATIENCE_S)

    def write(self, messages: Iterable[Message]) -> None:
        """Returns when the topic has them, each once and in their order, however long that takes
        while the broker is gone."""
        failed: list[Any] = []
        for message in messages:
            self._producer.produce(
                self.name,
                message.value,
                message.key,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
        assert self._producer.flush(PATIENCE_S) == 0
        assert not failed

    def read(self) -> list[Message]:
        """All that is in it, those of a partition in their order."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        consumer = Consumer({**self._servers, "group.id": "tests", "enable.auto.commit": False})
        try:
            ends = {n: self._range(consumer, n) for n in self._partitions}
            left = sum(end - begin for begin, end in ends.values())
            consumer.assign([TopicPartition(self.name, n, OFFSET_BEGINNING) for n in ends])
            found: list[Message] = []
            while len(found) < left:
                for message in consumer.consume(left - len(found), PATIENCE_S):
                    assert message.error() is None, message.error()
                    found.append(Message(_text(message.key()), _text(message.value())))
            return found
        finally:
            consumer.close()

    def _range(self, consumer: Any, partition: int) -> tuple[int, int]:
        from confluent_kafka import TopicPartition

        where = TopicPartition(self.name, partition)
        begin, end = consumer.get_watermark_offsets(where, PATIENCE_S)
        return begin, end

    def forget_before(self, offset: int, partition: int = 0) -> None:
        """What retention does, at once."""
        from confluent_kafka import TopicPartition

        where = TopicPartition(self.name, partition, offset)
        for done in self._admin.delete_records([where]).values():
            done.result(PATIENCE_S)


def _text(data: bytes | str | None) -> str:
    assert data is not None
    return data.decode() if isinstance(data, bytes) else data
