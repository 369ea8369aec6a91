"""Reads PromQL far enough to refuse what Prometheus would: a small parser of its grammar."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>\d+(?:\.\d+)?)(?![\w.])
      | (?P<duration>(?:\d+(?:ms|[smhdwy]))+)
      | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<name>[A-Za-z_:][\w:]*)
      | (?P<sign>=~|!~|!=|==|>=|<=|[-+*/%^<>=(){}\[\],])
    )""",
    re.VERBOSE,
)
_AGGREGATIONS = {"sum", "min", "max", "avg", "count"}
_OF_RANGES = {"rate", "increase", "max_over_time", "changes"}
_FUNCTIONS = _OF_RANGES | {"time", "clamp_min", "abs"}
_SIGNS = {"+", "-", "*", "/", "%", "^", "==", "!=", ">", "<", ">=", "<="}
_WORDS = {"and", "or", "unless"}


@dataclass
class Parsed:
    """The metrics that an expression names, and the labels that it asks for."""

    metrics: set[str] = field(default_factory=set)
    labels: set[str] = field(default_factory=set)


def parse(text: str) -> Parsed:
    """What an expression is about; raises ``ValueError`` where it is none."""
    parser = _Parser(_tokens(text))
    parser.expression()
    parser.expect("end")
    return parser.found


def _tokens(text: str) -> list[tuple[str, str]]:
    found, at = [], 0
    while text[at:].strip():
        token = _TOKEN.match(text, at)
        if token is None or token.lastgroup is None:
            raise ValueError(f"unknown at {text[at : at + 20]!r}")
        found.append((token.lastgroup, token[token.lastgroup]))
        at = token.end()
    return [*found, ("end", "")]


class _Parser:
    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self.found = Parsed()

    def expression(self) -> None:
        """Operands with operators between them."""
        self._operand()
        while self._peek() in _SIGNS | _WORDS:
            self._take()
            if self._peek() in ("on", "ignoring"):
                self._take()
                self._labels()
            self._operand()

    def expect(self, kind: str, value: str | None = None) -> str:
        found = self._tokens.pop(0)
        if found[0] != kind or value not in (None, found[1]):
            raise ValueError(f"{value or kind} expected, not {found[1]!r}")
        return found[1]

    def _operand(self) -> None:
        kind, value = self._tokens[0]
        if value == "(":
            self._take()
            self.expression()
            self.expect("sign", ")")
        elif kind == "number":
            self._take()
        elif value in _AGGREGATIONS:
            self._take()
            if self._peek() in ("by", "without"):
                self._take()
                self._labels()
            self._operand()
        elif value in _FUNCTIONS and self._tokens[1][1] == "(":
            self._call(self._take())
        else:
            self._selector()

    def _call(self, name: str) -> None:
        self.expect("sign", "(")
        if name in _OF_RANGES:
            self._selector()
            self.expect("sign", "[")
            self.expect("duration")
            self.expect("sign", "]")
        while self._peek() != ")" and name not in _OF_RANGES:
            self.expression()
            if self._peek() == ",":
                self._take()
        self.expect("sign", ")")

    def _selector(self) -> None:
        self.found.metrics.add(self.expect("name"))
        if self._peek() != "{":
            return
        self._take()
        while self._peek() != "}":
            self.found.labels.add(self.expect("name"))
            if self._take() not in ("=", "!=", "=~", "!~"):
                raise ValueError("no matcher")
            self.expect("string")
            if self._peek() == ",":
                self._take()
        self._take()

    def _labels(self) -> None:
        self.expect("sign", "(")
        while self._peek() != ")":
            self.found.labels.add(self.expect("name"))
            if self._peek() == ",":
                self._take()
        self._take()

    def _peek(self) -> str:
        return self._tokens[0][1]

    def _take(self) -> str:
        return self._tokens.pop(0)[1]
