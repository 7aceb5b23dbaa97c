"""Files of jobs that failed, removed at once: where space is short, what a failed try leaves behind would keep it so.

What a transaction names stays. If it is not known whether the transaction has happened, or the metastore cannot be
asked, everything stays until the sweep at the next start.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from millstream.catalog.metastore import Metastore
from millstream.catalog.outage import in_doubt
from millstream.runtime.home import ANSWERS, BUCKETS, DEAD, Home


@contextmanager
def no_leftovers_of_batch(metastore: Metastore, home: Home, stream: str, batch: int) -> Iterator[None]:
    """Around the job and the commit of a batch."""
    try:
        yield
    except Exception as error:
        if not in_doubt(error):
            remove_leftovers_of_batch(metastore, home, stream, batch)
        raise


def remove_leftovers_of_batch(metastore: Metastore, home: Home, stream: str, batch: int) -> None:
    """Remove what no transaction names; no job of the batch runs now."""
    places = [(f"{BUCKETS}/{stream}", f"{batch}-"), (f"{DEAD}/{stream}", f"{batch}-")]
    _remove(metastore, home, [*places, (ANSWERS, f"{stream}-{batch}-")])


@contextmanager
def no_leftovers_of_fire(metastore: Metastore, home: Home, stream: str, stem: str) -> Iterator[None]:
    """Around the job and the commit of a fire; fires of one stream, or joined name, with the same stem follow one
    another."""
    try:
        yield
    except Exception as error:
        if not in_doubt(error):
            answers = (ANSWERS, f"{stream.replace('&', '+')}-{stem}-")
            _remove(metastore, home, [answers, (f"{BUCKETS}/{stream}", f"{stem}-compact-")])
        raise


def _remove(metastore: Metastore, home: Home, places: list[tuple[str, str]]) -> None:
    with suppress(Exception):
        found = [
            f"{folder}/{name}"
            for folder, prefix in places
            if os.path.isdir(home.path(folder))
            for name in os.listdir(home.path(folder))
            if name.startswith(prefix)
        ]
        if found:
            named = metastore.referenced_files()
            home.remove([path for path in found if path not in named])
