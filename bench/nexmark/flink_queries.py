"""The queries in Flink's SQL. Read by Flink's own Python, so nothing else is imported here."""

from __future__ import annotations

_WINDOW, _SLIDE, _GAP = "INTERVAL '10' SECOND", "INTERVAL '2' SECOND", "INTERVAL '10' SECOND"

#: Columns in the files, then times. A watermark is a millisecond behind: more rows may come with
#: the time of the last one.
TABLES = {
    "person": (
        "id BIGINT, name STRING, city STRING, state STRING, joined_ms BIGINT",
        {"joined": "joined_ms"},
    ),
    "auction": (
        "id BIGINT, seller BIGINT, category BIGINT, opened_ms BIGINT, expires_ms BIGINT",
        {"opened": "opened_ms", "expires": "expires_ms"},
    ),
    "bid": (
        "auction BIGINT, bidder BIGINT, price BIGINT, at_ms BIGINT, arrived_ms BIGINT",
        {"at_time": "at_ms", "arrived": "arrived_ms"},
    ),
}
#: The time of each table that a query goes by.
ROWTIMES = {
    "q3": {"person": "joined", "auction": "opened"},
    "q4": {"auction": "expires", "bid": "at_time"},
    "q5": {"bid": "at_time"},
    "q6": {"auction": "expires", "bid": "at_time"},
    "q7": {"bid": "at_time"},
    "q8": {"person": "joined", "auction": "opened"},
    "q11": {"bid": "at_time"},
    "q12": {"bid": "arrived"},
}
#: Columns of the results, as in `bench.nexmark.plain`.
RESULTS = {
    "q3": "auction BIGINT, name STRING, city STRING, state STRING",
    "q4": "category BIGINT, start_time TIMESTAMP(3), price DOUBLE",
    "q5": "auction BIGINT, start_time TIMESTAMP(3), num BIGINT",
    "q6": "seller BIGINT, expires TIMESTAMP(3), price DOUBLE",
    "q7": "auction BIGINT, start_time TIMESTAMP(3), bidder BIGINT, price BIGINT, "
    "at_time TIMESTAMP(3)",
    "q8": "id BIGINT, start_time TIMESTAMP(3), name STRING",
    "q11": "bidder BIGINT, start_time TIMESTAMP(3), end_time TIMESTAMP(3), num BIGINT",
    "q12": "bidder BIGINT, start_time TIMESTAMP(3), num BIGINT",
}

_Q3 = """
SELECT A.id, P.name, P.city, P.state
FROM auction A, person P
WHERE A.seller = P.id AND A.category = 10 AND P.state IN ('OR', 'ID', 'CA')
  AND A.opened BETWEEN P.joined - INTERVAL '10' SECOND AND P.joined + INTERVAL '10' SECOND
"""

#: Bids of auctions that were open then. ``longest`` bounds how long the join keeps bids.
_BIDS = """
SELECT A.id, A.category, A.seller, A.expires, B.price
FROM auction A, bid B
WHERE A.id = B.auction AND B.at_time >= A.opened
  AND B.at_time BETWEEN A.expires - INTERVAL {longest} SECOND(3, 3) AND A.expires
"""

_Q4 = f"""
SELECT category, window_start, AVG(CAST(price AS DOUBLE))
FROM (
  SELECT id, category, window_start, window_end, MAX(price) AS price
  FROM TABLE(TUMBLE(DATA => TABLE bids, TIMECOL => DESCRIPTOR(expires), SIZE => {_WINDOW}))
  GROUP BY id, category, window_start, window_end
)
GROUP BY category, window_start, window_end
"""

_COUNTS = f"""
SELECT auction, window_start, window_end, COUNT(*) AS num
FROM TABLE(HOP(TABLE bid, DESCRIPTOR(at_time), {_SLIDE}, {_WINDOW}))
GROUP BY auction, window_start, window_end
"""

_Q5 = """
SELECT C.auction, C.window_start, C.num
FROM counts C JOIN (
  SELECT window_start, window_end, MAX(num) AS most
  FROM counts
  GROUP BY window_start, window_end
) M
ON C.window_start = M.window_start AND C.window_end = M.window_end AND C.num = M.most
"""

#: A window of a millisecond has the time of its auction's end, which OVER can go by.
_Q6 = """
SELECT seller, CAST(ended AS TIMESTAMP(3)), AVG(CAST(price AS DOUBLE)) OVER (
  PARTITION BY seller ORDER BY ended ROWS BETWEEN 9 PRECEDING AND CURRENT ROW
)
FROM (
  SELECT id, seller, window_time AS ended, MAX(price) AS price
  FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(expires), INTERVAL '0.001' SECOND(1, 3)))
  GROUP BY id, seller, window_start, window_end, window_time
)
"""

_Q7 = f"""
SELECT auction, window_start, bidder, price, CAST(at_time AS TIMESTAMP(3))
FROM (
  SELECT *, ROW_NUMBER() OVER (
    PARTITION BY window_start, window_end ORDER BY price DESC, at_ms, auction, bidder
  ) AS place
  FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(at_time), {_WINDOW}))
)
WHERE place <= 1
"""

_Q8 = f"""
SELECT P.id, P.window_start, P.name
FROM (
  SELECT id, name, window_start, window_end
  FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(joined), {_WINDOW}))
  GROUP BY id, name, window_start, window_end
) P
JOIN (
  SELECT seller, window_start, window_end
  FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(opened), {_WINDOW}))
  GROUP BY seller, window_start, window_end
) A
ON P.id = A.seller AND P.window_start = A.window_start AND P.window_end = A.window_end
"""

_Q11 = f"""
SELECT bidder, window_start, window_end, COUNT(*)
FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(at_time), {_GAP}))
GROUP BY bidder, window_start, window_end
"""

_Q12 = f"""
SELECT bidder, window_start, COUNT(*)
FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(arrived), {_WINDOW}))
GROUP BY bidder, window_start, window_end
"""

QUERIES = {
    "q3": _Q3,
    "q4": _Q4,
    "q5": _Q5,
    "q6": _Q6,
    "q7": _Q7,
    "q8": _Q8,
    "q11": _Q11,
    "q12": _Q12,
}
#: Parts of queries that have a name.
VIEWS = {"q4": {"bids": _BIDS}, "q5": {"counts": _COUNTS}, "q6": {"bids": _BIDS}}


def declaration(kind: str, query: str, longest_ms: int, options: str) -> str:
    """Creates the table of a kind as a query reads it."""
    columns, times = TABLES[kind]
    computed = [f"{name} AS TO_TIMESTAMP_LTZ({ms}, 3)" for name, ms in times.items()]
    rowtime = ROWTIMES[query][kind]
    # Auctions come in the order in which they open, not in that in which they end.
    delay_ms = longest_ms if rowtime == "expires" else 1
    watermark = f"WATERMARK FOR {rowtime} AS {rowtime} - INTERVAL {seconds(delay_ms)} SECOND(3, 3)"
    inside = ", ".join([columns, *computed, watermark])
    return f"CREATE TABLE {kind} ({inside}) WITH ({options})"


def seconds(ms: int) -> str:
    return f"'{ms // 1000}.{ms % 1000:03d}'"
