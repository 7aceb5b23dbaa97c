"""The queries of the demo: what marketing people might ask about purchases, with random thresholds and windows."""

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
OWNERS = ("marketing", "finance", "fraud", "product", "support")

# Windows in seconds: short enough that a spectator sees several of them fire.
SIZES = (2, 3, 4, 5, 6, 8, 10)


def random_query(random: Random, packs: int, top_price: int) -> tuple[str, str]:
    """A query and its owner.

    >>> random_query(Random(7), 20, 100) == random_query(Random(7), 20, 100)
    True
    """
    size = random.choice(SIZES)
    slide = random.randint(1, size)
    window = (
        f"window(time, '{size} seconds')" if slide == size else f"window(time, '{size} seconds', '{slide} seconds')"
    )
    price = random.randint(1, top_price - 1)
    sql = random.choice(TEMPLATES).format(
        window=window,
        price=price,
        upper=random.randint(price + 1, top_price),
        pack=random.randint(1, packs),
        other=random.randint(1, packs),
    )
    return sql, random.choice(OWNERS)
