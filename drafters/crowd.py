"""Whether drafts pay while several texts are decoded at once."""

from __future__ import annotations

from drafters.line import Line


class Crowd:
    """Texts that are decoded at once: what their rounds take without drafts, and whether drafts pay.

    Drafts prolong the round of all, so the choice is one for all: stretches with drafts are compared with what the same
    tokens would have taken without, and where that is less, drafts are tried again only after a long while.

    Attributes:
        texts: how many are decoded at once.
    """

    PLAIN_ROUNDS, SETTLING = 12, 3
    """Rounds without drafts that come before each stretch with drafts, and how many of them are not measured: just
    after drafts a round without takes longer than where none are made."""
    TRIED_ROUNDS, LONGEST_TRIED = 16, 256
    """Rounds of the first stretch with drafts; each that pays is followed by one of twice as many, up to the most."""
    PAUSE, PAUSE_GROWTH, LONGEST_PAUSE = 16, 4, 1024
    """Rounds without drafts after a stretch in which they did not pay, for each of the texts that drafted in vain; and
    by how much longer from time to time."""
    TOLERANCE = 0.03
    """By how much a stretch may fall behind, as a share of its time."""
    LOST_ROUNDS = 4
    """A stretch that is so many rounds without drafts behind ends at once."""

    def __init__(self) -> None:
        self.texts = 1
        self.plain = Line()
        """Seconds of a round without drafts, by the number of texts."""
        self.rounds, self.pause, self.tried = -self.PLAIN_ROUNDS, self.PAUSE, self.TRIED_ROUNDS
        self.seconds, self.plain_seconds = 0.0, 0.0
        self._emitted, self._drafted, self._settled = 0, False, 0

    @property
    def drafts(self) -> bool:
        """Whether texts may draft now."""
        return self.texts == 1 or self.rounds >= 0

    @property
    def share(self) -> float | None:
        """Each text's part of the seconds of a round without drafts; ``None`` for a text alone, or while unknown."""
        return self.plain.at(self.texts) / self.texts if self.texts > 1 and self.plain.weight else None

    def played(self, emitted: int, drafted: bool) -> None:
        """A text has had a round."""
        self._emitted += emitted
        self._drafted |= drafted

    def passed(self, seconds: float) -> None:
        """All have had one."""
        self._settled = 0 if self._drafted else self._settled + 1
        # The last round before a stretch ends with what its texts do to begin drafts.
        if self.rounds < 0 and self._settled > self.SETTLING:
            self.plain.clock(self.texts, seconds)
        if self.rounds >= 0 and self.share:
            self.seconds += seconds
            self.plain_seconds += self._emitted * self.share
        self.rounds += 1
        lost = self.seconds - self.plain_seconds > self.LOST_ROUNDS * self.plain.at(self.texts)
        if self.rounds == self.tried or lost:
            pays = self.seconds <= (1.0 + self.TOLERANCE) * self.plain_seconds
            self.tried = min(2 * self.tried, self.LONGEST_TRIED) if pays else self.TRIED_ROUNDS
            self.rounds = -self.PLAIN_ROUNDS if pays else -self.pause * self.texts
            self.pause = self.PAUSE if pays else min(self.PAUSE_GROWTH * self.pause, self.LONGEST_PAUSE)
            self.seconds = self.plain_seconds = 0.0
        self._emitted, self._drafted = 0, False
