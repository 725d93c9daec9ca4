"""What a pool has learnt from its traffic: the default policy on recorded texts, with and without it."""

from __future__ import annotations

from markupsafe import Markup

from multidraft.replay.stream import in_parts
from multidraft.service.lab import WITH, WITHOUT, Learnt
from multidraft.ui.widgets import markup
from multidraft.ui.widgets.markup import count
from storage.figures import ratio_of_totals

COLUMNS = ("queries", "tokens per round without", "with", "decoding, times as fast with it (95 % interval)")


def learnt_html(found: Learnt) -> Markup:
    """A sentence, and a table by part of the stream."""
    rows = []
    for part in in_parts(len(found.texts)):
        without, learnt = ([played[n] for n in part] for played in (found.without, found.learnt))
        ratio = ratio_of_totals([p.seconds or 0.0 for p in without], [p.seconds or 0.0 for p in learnt])
        each = (sum(sum(p.emitted) for p in of) / sum(p.rounds for p in of) for of in (without, learnt))
        tokens = tuple(f"{mean:.2f}" for mean in each)
        rows.append((f"{part.start + 1}–{part.stop}", *tokens, ratio.text() if ratio else markup.UNKNOWN))
    about = (
        f"{count(len(found.texts), 'recorded text')} replayed in their order as traffic: {WITHOUT} knows nothing of "
        f"those before, {WITH} what they taught. Times are by the costs measured on this machine."
    )
    table = markup.table_html(COLUMNS, rows, figures=3, label="What the pool has learnt")
    return markup.message_html("idle", about) + table
