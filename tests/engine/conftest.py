"""What several tests of the engine start from."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millstream.runtime.fire import kept


@pytest.fixture
def fresh_worker() -> Iterator[None]:
    """What a worker keeps in memory would hide damage."""
    kept.clear()
    yield
    kept.clear()
