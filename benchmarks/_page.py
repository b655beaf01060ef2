"""Write the measured part of docs/benchmarks.md from build/bench/*.json: ``python benchmarks/_page.py``.

No figure of that page is typed in. What stands above the mark is prose, and stays.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from _measuring import RESULTS, UNITS

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
MARK = "<!-- measured: python benchmarks/_page.py writes what follows -->\n"
HEADS = {
    "per_second": "per second",
    "cpu_us": "CPU, us",
    "p50_us": "p50, us",
    "p99_us": "p99, us",
    "rss_mib": "memory, MiB",
    "part": "part",
}


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def tables(kept: dict[str, Any]) -> list[str]:
    begun = f"load average {kept['load']:.1f} when it began"
    lines = [f"{kept['rounds']} rounds of {kept['seconds']:g} s, medians; {begun}.", ""]
    for group in kept["groups"]:
        keys = [key for key in UNITS if any(key in row for row in group["rows"])]
        lines += [f"### {group['group']}", "", "| way | " + " | ".join(HEADS[key] for key in keys) + " |"]
        lines.append("|---|" + "---:|" * len(keys))
        for row in group["rows"]:
            cells = (number(row[key]) if key in row else "-" for key in keys)
            lines.append(f"| {row['way']} | " + " | ".join(cells) + " |")
        lines.append("")
        for one in group["promises"]:
            low, high = one["spread"]
            word = {"aim": "the aim is reached", "kept": "kept", "MISSED": "**missed**"}[one["verdict"]]
            lines.append(
                f"- {one['what']}: **{one['ratio']:.2f}x** ({low:.2f} to {high:.2f});"
                f" at least {one['least']:g} was asked, {one['aim']:g} hoped for: {word}"
            )
        if group["promises"]:
            lines.append("")
    return lines


def main() -> None:
    lines = []
    for path in sorted(RESULTS.glob("*.json")):
        lines += [f"## `python3 dev.py bench {path.stem}`", "", *tables(json.loads(path.read_text()))]
    prose = PAGE.read_text().partition(MARK)[0]
    PAGE.write_text(prose + MARK + "\n" + "\n".join(lines).rstrip() + "\n")


if __name__ == "__main__":
    main()
