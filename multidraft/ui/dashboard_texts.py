"""What the dashboard says besides figures: its sections, explained, and what to do where it is empty."""

from __future__ import annotations

EMPTY = (
    '<div class="md-empty"><p><b>No runs yet.</b></p><p>Every run of <i>Play</i>, <i>Race</i> and <i>Batch</i> is '
    "recorded and appears here: speed-up over time, regret by policy, and which drafter does well on which task. "
    "Start one there, then come back.</p></div>"
)
NOTHING_FITS = (
    '<div class="md-empty"><p><b>No finished run fits these filters.</b></p><p>Clear one of them to see more.</p></div>'
)
FAST = (
    "How fast",
    "Speed-up is tokens per second divided by those of plain decoding of the same prompt on the same machine. "
    "Means of it are geometric. Intervals take runs as independent, and policies may have met different prompts.",
)
LEARNING = (
    "How well they choose",
    "Regret counts the rounds more than the best single drafter would have needed for the same text: a flat line has "
    "learnt, a falling one beats every single drafter. It is known of greedy runs.",
)
TIME = (
    "Where the time goes",
    "Decoding is drafting, the target's check, and what choosing costs. The first token waits for the prefill as well.",
)
RUNS = ("Runs", "All runs that fit the filters, finished or not. Open one to see what it wrote, round by round.")
