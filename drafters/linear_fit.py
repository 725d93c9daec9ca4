"""A line through measurements of which the old ones fade."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class LinearFit:
    """``seconds = fixed + per_unit * units`` by least squares in which old measurements fade.

    A measurement of more than ``OUTLIER`` times the expected counts as that much: a hiccup of the machine is not a
    property of the model.

    Attributes:
        origin: weight of an imaginary measurement of 0 units in 0 seconds, which does not fade: while all others are of
            the same units, their seconds count as proportional to these instead of fixed.
        memory: weight of a measurement one later.
        weight: how many measurements it knows; the fields after it are their sums.
    """

    MEMORY: ClassVar[float] = 0.98
    origin: float = 0.0
    memory: float = MEMORY
    weight: float = 0.0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0
    OUTLIER: ClassVar[float] = 3.0
    DISTURBED: ClassVar[float] = 0.5
    FASTER: ClassVar[float] = 0.8

    def clock(self, units: float, seconds: float) -> None:
        """Count the measured time of a piece of work, which whatever else the machine does can only lengthen.

        So one of less than ``DISTURBED`` of the least that a line through the mean allows shows that those before were
        measured at a bad time: together they then count as one of its own speed. After one of less than ``FASTER`` of
        what is expected, those before count the less, the less it is.
        """
        share = min(units * self.weight / self.x, 1.0) if self.x else 1.0
        least = share * self.mean if self.weight else 0.0
        expected = self.at(units) if share == 1.0 and self.weight else least
        if seconds < self.DISTURBED * least:
            scale, level = 1.0 / self.weight, seconds / self.at(units)
            self.weight, self.x, self.xx = 1.0, scale * self.x, scale * self.xx
            self.y, self.xy = scale * level * self.y, scale * level * self.xy
        elif seconds < self.FASTER * expected:
            sums = self.weight, self.x, self.y, self.xx, self.xy
            self.weight, self.x, self.y, self.xx, self.xy = (seconds / expected * each for each in sums)
        self.add(units, seconds)

    def add(self, units: float, seconds: float) -> None:
        if self.weight > 3.0:
            seconds = min(seconds, self.OUTLIER * self.at(units))
        self.weight = self.memory * self.weight + 1.0
        self.x = self.memory * self.x + units
        self.y = self.memory * self.y + seconds
        self.xx = self.memory * self.xx + units * units
        self.xy = self.memory * self.xy + units * seconds

    @property
    def mean(self) -> float:
        """Seconds of a measurement, whatever its units; at least one is needed."""
        return self.y / self.weight

    @property
    def per_unit(self) -> float:
        """Slope, never negative; without an ``origin`` 0 while all measurements were of the same units."""
        weight = self.weight + self.origin
        spread = self.xx * weight - self.x * self.x
        if spread <= 1e-9 * weight * weight:
            return 0.0
        slope = (self.xy * weight - self.x * self.y) / spread
        return min(max(slope, 0.0), self.y / self.x)

    @property
    def fixed(self) -> float:
        """Seconds of no units."""
        return self.at(0.0)

    @property
    def proportional(self) -> float:
        """Slope of the line through the origin."""
        return self.xy / self.xx if self.xx else 0.0

    def at(self, units: float) -> float:
        """Expected seconds of ``units``."""
        slope = self.per_unit
        return (self.y - slope * self.x) / (self.weight + self.origin) + slope * units if self.weight else 0.0
