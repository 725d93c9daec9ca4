"""The figures of the documents: ``python -m docs.figures drafters`` or ``… policies report.json`` (of ``bench --out``).

Draws with Plotly and takes a picture of it with the browser that the tests use, so it needs requirements-dev.txt.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import mean

import numpy as np
import plotly.graph_objects as go

from multidraft.bench.simulate import draw_table
from multidraft.replay.walk import replay
from tests.browser.find_chromium import started

ROOT = Path(__file__).resolve().parents[1]
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
K, TOKENS, SEEDS = 8, 1000, 20
LEARNERS = ("ucb:reward=be", "ucbspec", "exp3spec", "normal-hedge:every=1", "ada-normal-hedge:every=1")


def regret_by_drafters() -> go.Figure:
    """Regret as the pool grows: one drafter with an acceptance of 0.85, all others 0.5, in simulation."""
    counts = (2, 4, 8, 16, 32, 64)
    figure = blank("Regret grows with the pool, or hardly", "drafters in the pool", "rounds above the best drafter")

    def regret(spec: str, count: int, seed: int) -> int:
        rng = np.random.default_rng((seed, count))
        chances = np.full((count, TOKENS), 0.5)
        chances[rng.integers(count)] = 0.85
        return replay(draw_table(chances, K, rng), spec, seed, draft_length=K).regret

    for spec, colour in zip(LEARNERS, COLOURS):
        means = [mean(regret(spec, count, seed) for seed in range(SEEDS)) for count in counts]
        print(spec, [round(value, 1) for value in means])
        figure.add_scatter(x=counts, y=means, name=spec, mode="lines+markers", line={"color": colour})
    figure.update_xaxes(type="log", tickvals=counts)
    return figure


def speed_by_policy(report: Path) -> go.Figure:
    """Speed-up of every policy of a benchmark, by task in dots and over all prompts in bars."""
    policies = json.loads(report.read_text(encoding="utf-8"))["policies"]
    speed = {spec: policy["speedup"] for spec, policy in policies.items() if policy["speedup"] is not None}
    order = sorted(speed, key=speed.__getitem__)
    figure = blank("Decode speed-up, bar: all prompts, dots: by task", "times autoregressive decoding", "")
    own = ["#d55e00" if spec.startswith("rate-hedge") else "#56b4e9" for spec in order]
    figure.add_bar(y=order, x=[speed[spec] for spec in order], orientation="h", marker_color=own)
    dots = [(part["speedup"], spec) for spec in order for part in policies[spec]["by_task"].values()]
    x, y = zip(*dots)
    figure.add_scatter(x=x, y=y, mode="markers", marker={"color": "#333", "size": 5})
    figure.update_layout(height=60 + 30 * len(order), margin={"l": 190}, showlegend=False)
    return figure


def blank(title: str, x: str, y: str) -> go.Figure:
    """An empty figure in the documents' style."""
    figure = go.Figure()
    figure.update_layout(
        title=title, xaxis_title=x, yaxis_title=y, template="plotly_white", width=860, height=440, font={"size": 14}
    )
    return figure


def take_picture(figure: go.Figure, path: Path) -> None:
    """Write the figure as PNG."""
    width, height = int(figure.layout.width), int(figure.layout.height)
    with started() as browser:
        page = browser.new_page(viewport={"width": width, "height": height}, device_scale_factor=2)
        page.set_content(figure.to_html(include_plotlyjs=True, config={"staticPlot": True}, default_width="100%"))
        page.wait_for_selector(".main-svg")
        page.add_style_tag(content="body { margin: 0 }")
        page.screenshot(path=str(path))
    print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    images = ROOT / "docs" / "images"
    match sys.argv[1:]:
        case ["drafters"]:
            take_picture(regret_by_drafters(), images / "drafters.png")
        case ["policies", report]:
            take_picture(speed_by_policy(Path(report)), images / "policies.png")
        case _:
            raise SystemExit(__doc__)
