"""All workloads by name."""

from __future__ import annotations

from millstream.bench.workloads import ajoin, astream, gaming, nexmark, poison
from millstream.bench.workloads.load import Workload
from millstream.config import nearest
from millstream.errors import SpecError

WORKLOADS: dict[str, Workload] = {
    workload.name: workload for family in (astream, ajoin, gaming, nexmark, poison) for workload in family.workloads()
}


def find(name: str) -> Workload:
    """A workload of the catalogue, or an ad-hoc run of Nexmark with numbers of its own."""
    found = WORKLOADS.get(name) or nexmark.ad_hoc_named(name)
    if found is None:
        raise SpecError("BAD_SPEC", f"no workload {name!r}", hint=nearest(name, WORKLOADS))
    return found
