"""What the benchmark is doing now: a bar on a terminal, and a line for each step when it is done."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich import progress as bars
from rich.console import Console

from millstream.bench.jobs import Tell


class Step:
    """A step under way. Whoever does it may leave a few words on its result."""

    def __init__(self, tell: Tell) -> None:
        self.tell = tell
        self.result = ""


class Progress:
    """Steps one after the other; ``steps`` is how many there will be."""

    def __init__(self, console: Console, steps: int) -> None:
        self._console = console
        self._steps = steps
        self._number = 0
        self._began = time.monotonic()

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """One step: its bar follows ``tell``, and its line stays."""
        self._number += 1
        name = f"{self._number}/{self._steps} {title}"
        began = time.monotonic()
        columns = (bars.SpinnerColumn(), bars.TextColumn("{task.description}"), bars.BarColumn(24))
        more = (bars.TextColumn("{task.fields[words]}"), bars.TimeElapsedColumn())
        # Without a terminal there is nothing to redraw: the line at the end must do.
        plain = not self._console.is_terminal
        with bars.Progress(*columns, *more, console=self._console, transient=True, disable=plain) as bar:
            task = bar.add_task(name, total=1.0, words="starting")

            def tell(share: float, words: str) -> None:
                bar.update(task, completed=share, words=words)

            step = Step(tell)
            yield step
        now = time.monotonic()
        left = time_left(self._number, self._steps, now - self._began)
        line = f"{name}: {step.result or 'done'}  ({now - began:.0f} s{left})"
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def time_left(done: int, steps: int, seconds: float) -> str:
    """How long the rest takes if its steps are like those that are done; nothing where that is little.

    >>> time_left(10, 112, 300.0), time_left(2, 30, 600.0), time_left(3, 4, 9.0)
    (', about 51 min left', ', about 2 h 20 min left', '')
    """
    minutes = round(seconds / done * max(0, steps - done) / 60)
    if not minutes:
        return ""
    hours, rest = divmod(minutes, 60)
    return f", about {f'{hours} h ' if hours else ''}{rest} min left"
