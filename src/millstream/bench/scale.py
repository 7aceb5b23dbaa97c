"""``make bench-scale``: how throughput, deployment latency and state change from 1 to 1000 queries, beside plain Spark.

Each system runs in a process of its own, one after the other, on the same files. Only ratios within one run count.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from millstream.bench import plot
from millstream.bench.dataset import Dataset, write_dataset
from millstream.bench.jobs import Cell, CellResult, DeployJob, MillstreamJob, PlainJob, Tell
from millstream.bench.machine import describe_machine
from millstream.bench.plain_stores import STATE_STORES
from millstream.bench.process import JobFailed, deploy, measure
from millstream.bench.progress import Progress
from millstream.bench.report import MANY, ONE, PLAIN_MANY, Measurements, as_json, input_rate, targets
from millstream.bench.tables import print_report
from millstream.bench.workload import DEFAULT_SEED
from millstream.errors import SpecError
