"""Writes what was measured into docs/default-model.md: the quality table, the speed table and two pictures.

    python benchmarks/default_model/report.py

Reads benchmarks/default_model/results/*.json, benchmarks/results/*.json and benchmarks/default_model/log.jsonl.
"""

import itertools
import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PAGE = ROOT / "docs/default-model.md"
IMAGES = ROOT / "docs/img"
LOG = HERE / "log.jsonl"  # of the shipped adapter: the stages' logs in a row
SETS = ("values", "phrasings", "tools", "no tool")


def quality() -> str:
    """One row per model and mode: right answers per set with their interval."""
    lines = ["| model | mode | unseen values | unseen phrasings | unseen tools | no tool needed | tokens per forward |"]
    lines.append("|---|---|---|---|---|---|---|")
    identical = total = 0
    for file in sorted((HERE / "results").glob("*.json"), reverse=True):
        report = json.loads(file.read_text())
        modes = [mode for mode in ("ar", "verified", "diffusion") if mode in report["sets"][SETS[0]]]
        for mode in modes:
            rows = [report["sets"][name][mode] for name in SETS]
            cells = [f"{100 * r['share']:.1f} % [{100 * r['low']:.1f}, {100 * r['high']:.1f}]" for r in rows]
            speed = sum(r["tokens_per_forward"] for r in rows[:3]) / 3
            lines.append(f"| {report['name']} | {mode} | {' | '.join(cells)} | {speed:.2f} |")
        for name in SETS:
            rows = report["sets"][name]
            if {"ar", "verified"} <= set(rows):
                pairs = list(zip(rows["ar"]["ids"], rows["verified"]["ids"], strict=True))
                identical += sum(first == second for first, second in pairs)
                total += len(pairs)
    lines += ["", f"`verified` and `ar` gave identical ids on {identical} of {total} prompts."]
    return "\n".join(lines)


def speed() -> str:
    """The race of benchmarks/tool_calls.py."""
    file = ROOT / "benchmarks/results/tool_calls.json"
    if not file.exists():
        return "Not measured."
    rows: dict[str, Any] = json.loads(file.read_text())["contenders"]
    lines = [
        "| contender | median ms | p95 ms | tokens per forward | forwards per call | tokens/s | time relative to ar |"
    ]
    lines.append("|---|---|---|---|---|---|---|")
    for name, r in rows.items():
        lines.append(
            f"| {name} | {r['median_ms']:.0f} | {r['p95_ms']:.0f} | {r['tokens_per_forward']:.2f} "
            f"| {r['forwards_per_call']:.1f} | {r['tokens_per_s']:.1f} | {r['ratio_to_ar']:.2f} |"
        )
    return "\n".join(lines)


def draw_training() -> None:
    """Loss of both streams over steps, smoothed over 20."""
    rows = [json.loads(line) for line in LOG.read_text().splitlines()]
    seen = [row["conversations"] for row in rows]
    figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
    for key, label in (("ar_loss", "AR (clean stream)"), ("diffusion_loss", "diffusion (masked rows)")):
        values = [row[key] for row in rows]
        smooth = [sum(values[max(0, i - 19) : i + 1]) / len(values[max(0, i - 19) : i + 1]) for i in range(len(values))]
        axes.plot(seen, smooth, label=label)
    for first, second in itertools.pairwise(rows):
        if first["stage"] != second["stage"]:
            axes.axvline(first["conversations"], color="grey", linewidth=0.8, linestyle=":")
    axes.set(
        xlabel="conversations (dotted: a new stage, lower rate)",
        ylabel="nats per token",
        yscale="log",
        title="smol-agent, training loss",
    )
    axes.legend()
    figure.savefig(IMAGES / "default-model-training.png", dpi=120)


def draw_quality() -> None:
    """Exact calls by mode and set."""
    figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
    bars: list[tuple[str, dict[str, Any]]] = []
    for file in sorted((HERE / "results").glob("*.json"), reverse=True):
        report = json.loads(file.read_text())
        for mode in ("ar", "verified", "diffusion"):
            if mode in report["sets"][SETS[0]]:
                bars.append((f"{report['name']}, {mode}", {name: report["sets"][name][mode] for name in SETS}))
    width = 0.8 / len(bars)
    for index, (label, rows) in enumerate(bars):
        at = [i + index * width for i in range(len(SETS))]
        heights = [100 * rows[name]["share"] for name in SETS]
        below = [100 * (rows[name]["share"] - rows[name]["low"]) for name in SETS]
        above = [100 * (rows[name]["high"] - rows[name]["share"]) for name in SETS]
        axes.bar(at, heights, width, yerr=(below, above), label=label, capsize=2)
    axes.set_xticks([i + 0.4 - width / 2 for i in range(len(SETS))], SETS)
    axes.set(ylabel="right, %", ylim=(0, 100), title="held-out requests, 95 % intervals")
    axes.legend(fontsize=8)
    figure.savefig(IMAGES / "default-model-quality.png", dpi=120)


def replace_block(text: str, name: str, content: str) -> str:
    """Replaces what stands between the page's two markers of that name."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    head, rest = text.split(begin)
    return f"{head}{begin}\n{content}\n{end}{rest.split(end)[1]}"


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    draw_training()
    draw_quality()
    page = PAGE.read_text(encoding="utf-8")
    page = replace_block(page, "quality", quality())
    page = replace_block(page, "speed", speed())
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
