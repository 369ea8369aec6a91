"""Puts places into layers, so that rows go one way."""

from __future__ import annotations

from collections.abc import Sequence


def layers(places: Sequence[str], edges: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Places by how many others their rows have gone through at most, each as near as can be to
    those that it reads.

    >>> layers(["c", "a", "b"], [("a", "c"), ("b", "c")])
    [['a', 'b'], ['c']]

    Where places read one another in a circle, every one of them is put somewhere.

    >>> layers(["a", "b"], [("a", "b"), ("b", "a")])
    [['a'], ['b']]
    """
    read: dict[str, list[str]] = {place: [] for place in places}
    for source, target in edges:
        read[target].append(source)
    depth: dict[str, int] = {}
    for place in places:
        _visit(place, read, depth, set())
    found: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for place in places:
        found[depth[place]].append(place)
    return [_near(layer, found[:number], read) for number, layer in enumerate(found)]


def _visit(place: str, read: dict[str, list[str]], depth: dict[str, int], on_way: set[str]) -> int:
    if place in depth:
        return depth[place]
    on_way.add(place)
    sources = [each for each in read[place] if each not in on_way]
    found = max((_visit(each, read, depth, on_way) + 1 for each in sources), default=0)
    on_way.discard(place)
    depth[place] = found
    return found


def _near(layer: list[str], before: list[list[str]], read: dict[str, list[str]]) -> list[str]:
    """A layer in the order of what its places read."""
    places = {place: at for each in before for at, place in enumerate(each)}

    def middle(place: str) -> float:
        known = [places[source] for source in read[place] if source in places]
        return sum(known) / len(known) if known else float(len(places))

    return sorted(layer, key=middle) if before else layer
