"""The figures to reach, as targets that are met or missed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from millstream.bench.driving.model import Claim
from millstream.bench.report import Target
from millstream.bench.tables import verdict


def target_of(claim: Claim) -> Target:
    return Target(claim.name, claim.wanted, claim.got, claim.at_most, claim.unit, claim.held)


def claim_json(claim: Claim) -> dict[str, Any]:
    """The claim with its verdict, for whoever reads the JSON and not the page."""
    target = target_of(claim)
    return asdict(claim) | {"met": target.met, "verdict": verdict(target).plain}
