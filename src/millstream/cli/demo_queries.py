"""The queries of the demo: what marketing people might ask about purchases and ads, with random thresholds and
windows."""

from __future__ import annotations

from random import Random

# Each is filled with random numbers; together they use every part of a query that the pipeline shares.
TEMPLATES = (
    "SELECT gem_pack, SUM(price) AS revenue FROM purchases WHERE price > {price} GROUP BY gem_pack, {window}",
    "SELECT gem_pack, COUNT(*) AS sold FROM purchases WHERE gem_pack > {pack} GROUP BY gem_pack, {window}",
    "SELECT gem_pack, AVG(price) AS mean FROM purchases WHERE price <= {upper} GROUP BY gem_pack, {window}",
    "SELECT COUNT(*) AS sold FROM purchases WHERE price BETWEEN {price} AND {upper} AND gem_pack < 9 GROUP BY {window}",
    "SELECT gem_pack, MAX(price) AS best FROM purchases WHERE gem_pack IN ({pack}, {other}) GROUP BY 1, {window}",
    "SELECT MIN(price) AS cheapest, MAX(price) AS dearest FROM purchases WHERE gem_pack = {pack} GROUP BY {window}",
)
# Joins are by gem pack, a key with few values: each window has more pairs of rows than any machine could build.
JOIN_TEMPLATE = (
    "WITH p AS (SELECT *, {window} AS w FROM purchases WHERE price > {price}), "
    "a AS (SELECT *, {window} AS w FROM ads WHERE user_id < {users}) "
    "SELECT p.gem_pack, {aggregate} FROM p JOIN a ON p.gem_pack = a.gem_pack AND p.w = a.w GROUP BY p.gem_pack, p.w"
)
JOIN_AGGREGATES = ("COUNT(*) AS pairs", "AVG(p.price) AS mean", "SUM(p.price) AS weighed")
# Of a hundred queries.
JOIN_PERCENT = 10
OWNERS = ("marketing", "finance", "fraud", "product", "support")

# Windows in seconds: short enough that a spectator sees several of them fire.
SIZES = (2, 3, 4, 5, 6, 8, 10)


def random_query(random: Random, packs: int, top_price: int, users: int) -> tuple[str, str]:
    """A query and its owner.

    >>> random_query(Random(7), 20, 100, 1000) == random_query(Random(7), 20, 100, 1000)
    True
    """
    size = random.choice(SIZES)
    slide = random.randint(1, size)
    window = (
        f"window(time, '{size} seconds')" if slide == size else f"window(time, '{size} seconds', '{slide} seconds')"
    )
    price = random.randint(1, top_price - 1)
    template = JOIN_TEMPLATE if random.randrange(100) < JOIN_PERCENT else random.choice(TEMPLATES)
    sql = template.format(
        window=window,
        price=price,
        upper=random.randint(price + 1, top_price),
        pack=random.randint(1, packs),
        other=random.randint(1, packs),
        users=random.randint(1, users),
        aggregate=random.choice(JOIN_AGGREGATES),
    )
    return sql, random.choice(OWNERS)
