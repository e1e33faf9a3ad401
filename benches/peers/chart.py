"""Draws a record of `peers.py`: the time of a step of clip + AdamW, on one thread.

    target/peers/bin/python benches/peers/chart.py RECORD.csv docs/images/peers.svg
"""

import csv
import sys
from statistics import median

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

TREES = [("1e7", "one array of 10⁷"), ("gpt2", "GPT-2 small, 148 arrays, 1.24·10⁸")]
PEERS = [
    ("torch", "PyTorch {}, fused"),
    ("optax", "Optax {}, jitted"),
    ("burn", "burn {}"),
    ("candle", "candle {}"),
]


def main():
    record, picture = sys.argv[1:]
    with open(record, encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["chain"] == "clip+adamw" and row["threads"] == "1"]
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "peers", "font.family": "sans-serif", "font.size": 11})
    figure, axes = plt.subplots(1, 2, figsize=(9, 2.8), sharey=True, facecolor="white")
    for axis, (tree, title) in zip(axes, TREES):
        of_tree = {row["peer"]: row for row in rows if row["tree"] == tree}
        ours = median(float(row["ours_ms"]) for row in of_tree.values())
        bars = [("gradchain", ours)]
        bars += [(name.format(of_tree[peer]["version"]), float(of_tree[peer]["peer_ms"])) for peer, name in PEERS]
        colors = ["#2f6fde"] + ["#5b6270"] * len(PEERS)
        axis.set_xscale("log")
        axis.set_xlim(ours / 1.5, max(ms for _, ms in bars) * 5)
        for i, ((_, ms), color) in enumerate(zip(bars, colors)):
            axis.plot([ours / 1.5, ms], [i, i], color="#d8dbe0", linewidth=1.5, zorder=1)
            axis.plot(ms, i, "o", color=color, markersize=8)
            text = f"{ms:.3g} ms" if ms < 1000 else f"{ms:.0f} ms"
            axis.annotate(text, (ms, i), (9, 0), textcoords="offset points", va="center")
        axis.set_yticks(range(len(bars)), [name for name, _ in bars])
        axis.set_ylim(len(bars) - 0.5, -0.5)
        axis.set_xlabel("time of a step, logarithmic")
        axis.set_title(title, fontsize=11)
        axis.spines[["top", "right", "bottom"]].set_visible(False)
        axis.tick_params(axis="x", which="both", bottom=False, labelbottom=False)
        axis.tick_params(axis="y", length=0)
    figure.tight_layout()
    figure.savefig(picture, metadata={"Date": None})


main()
