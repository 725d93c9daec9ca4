"""Whether drafts pay while several texts are decoded at once."""

from __future__ import annotations

from heapq import nlargest

from drafters.linear_fit import LinearFit


class Crowd:
    """Texts that are decoded at once: what their rounds take without drafts, and whether drafts pay.

    Drafts prolong the round of all, so the choice is one for all: stretches with drafts, the drafters' reading of
    prompts included, are compared with what the same tokens would have taken without. Where drafts lose, they are not
    tried again until that loss is a small share of the time; so trials cost little, as in conservative bandits
    (Wu et al. 2016, arXiv 1602.04282), whose budget is a share of what the safe arm makes. What rounds take is known
    from batch to batch.
    """

    PLAIN_ROUNDS, SETTLING = 12, 3
    """Rounds without drafts that come before each stretch with drafts, and how many of them are not measured: just
    after drafts a round without takes longer than where none are made."""
    TRIED_ROUNDS, LONGEST_TRIED = 64, 256
    """Rounds of the first stretch with drafts, enough to outweigh what its texts read first; each that pays is followed
    by one of twice as many, up to the most."""
    LOST_ROUNDS = 12
    """A stretch that is so many rounds without drafts behind ends at once. Of its rounds the one that lost most counts
    as the next one does: one alone may have lost to what else the machine did."""
    SPARED = 0.02
    """The share of the time that stretches in which drafts do not pay may cost."""

    def __init__(self) -> None:
        self._texts, self._measured = 1, set[int]()
        self.plain = LinearFit()
        """Seconds of a round without drafts, by the number of texts."""
        self.rounds, self.tried = -self.PLAIN_ROUNDS, self.TRIED_ROUNDS
        self.lost: list[float] = []
        """By how many rounds without drafts each round of this stretch was behind."""
        self._emitted, self._drafted, self._settled = 0, False, 0

    def begin(self) -> None:
        """A batch begins: drafts are tried, whatever they were worth to the texts before, for ``TRIED_ROUNDS`` or more:
        in fewer what its texts read first would decide."""
        if not -self.PLAIN_ROUNDS <= self.rounds <= self.LONGEST_TRIED - self.TRIED_ROUNDS:
            self.rounds = -self.PLAIN_ROUNDS
        self.tried, self.lost = max(self.tried, self.rounds + self.TRIED_ROUNDS), []
        self._emitted, self._drafted = 0, False

    @property
    def texts(self) -> int:
        """How many are decoded at once. Before drafts are made by so many, by powers of two, it is measured what their
        rounds take without."""
        return self._texts

    @texts.setter
    def texts(self, texts: int) -> None:
        self._texts = texts
        if self.rounds >= 0 and texts > 1 and texts.bit_length() not in self._measured:
            self.rounds, self.lost = -self.PLAIN_ROUNDS, []

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
            self._measured.add(self.texts.bit_length())
        if self.rounds >= 0 and self.texts > 1 and self.plain.weight:
            self.lost.append(seconds / self.plain.at(self.texts) - self._emitted / self.texts)
        self.rounds += 1
        most, next_most = nlargest(2, [0.0, 0.0, *self.lost])
        behind = sum(self.lost) - most + next_most
        if self.rounds == self.tried or behind > self.LOST_ROUNDS:
            self.tried = self.TRIED_ROUNDS if behind > 0.0 else min(2 * self.tried, self.LONGEST_TRIED)
            self.rounds = -max(self.PLAIN_ROUNDS, round(behind / self.SPARED))
            self.lost = []
        self._emitted, self._drafted = 0, False
