"""Write results into docs/benchmarks.md, its plots, pipeline.md and reliability.md: ``python benchmarks/_page.py``.

All figures come from figures/NAME.json, none is typed in. A group that was measured on this machine (build/bench) takes
the place of the one there; the others stay, as does the prose above the mark. Groups whose rows have ``at``, a size
(growth.py, pipeline_spark.py), are also plotted; the same figures give the same file, byte for byte.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from textwrap import fill
from typing import Any

from _fault_table import FAULTS, ROOMS, Room, reason

from _measuring import BUSY, HEADS, OLDER, RESULTS

FIGURES = Path(__file__).parent / "figures"
PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
PAYS = PAGE.with_name("pipeline.md")  # ends with the sizes from which Spark pays off
RELIABILITY = PAGE.with_name("reliability.md")  # ends with the figures of `MATRIX`
MATRIX = "faults"
BAD = ("lost", "doubled", "wrong", "by_hand")
MARK = "<!-- measured: python benchmarks/_page.py writes what follows -->\n"
RATIOS, END = "<!-- ratios: python benchmarks/_page.py writes them -->\n", "<!-- end -->\n"
HEAD = "## `python3 dev.py bench "
TITLE = 48  # characters of a line above a plot: two plots stand side by side
CROWDED = 10_000  # of the largest value to the smallest: with more, labels at 2 and 5 would run into each other

VERDICTS = {"aim": "goal reached", "kept": "kept", "MISSED": "**missed**", "": ""}

CORES = 2  # of the measured machine
NETWORK = 125e6  # bytes a second of an assumed machine in a cluster, each way

# The plotted figure: the first of these in the rows.
PLOTTED = {
    "cpu_us": "CPU, us",
    "with_start": "seconds, Spark's start among them",
    "per_second": "a second",
    "p50_ms": "ms, median",
    "seconds": "seconds",
}


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def rounded(value: Any) -> Any:
    """Return a figure as the page shows it, anything else as it is."""
    value = float(number(value).replace(",", "")) if isinstance(value, float) else value
    return int(value) if isinstance(value, float) and value.is_integer() else value


def taken(group: dict[str, Any]) -> dict[str, Any]:
    """Return a measured group as it is kept: figures as shown, and once what the rows say of their measurement."""
    found = []
    for row in group["rows"]:
        one = row["sitting"]
        rounds = f"{one['rounds']} rounds of {one['seconds']:g} s, medians" if one["rounds"] > 1 else "One round"
        found.append(f"{rounds}; load average {one['load']:.1f} when it began. {one['machine']}.")
    return {
        "group": group["group"],
        "measured": " ".join(dict.fromkeys(found)),
        "rows": [{key: rounded(row[key]) for key in row if key != "sitting"} for row in group["rows"]],
        "promises": [
            {**each, "ratio": round(each["ratio"], 2), "spread": [round(one, 2) for one in each["spread"]]}
            for each in group["promises"]
        ],
    }


def groups_of(name: str) -> list[dict[str, Any]]:
    path = FIGURES / f"{name}.json"
    kept: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return kept


def store(name: str, groups: list[dict[str, Any]]) -> None:
    """Write the figures of a benchmark, a group a line."""
    lines = ",\n".join(json.dumps(group, ensure_ascii=False, separators=(",", ":")) for group in groups)
    (FIGURES / f"{name}.json").write_text(f"[\n{lines}\n]\n")


def spread(promise: dict[str, Any]) -> str:
    low, high = promise["spread"]
    return f"{low:,.2f} to {high:,.2f}"


def both_kinds(groups: list[dict[str, Any]]) -> list[str]:
    """Return a table of ratios, each as measured as the machine is and beside a busy process.

    The rows in which nngkit is furthest behind come first.
    """
    rows: dict[str, dict[bool, dict[str, Any]]] = {}
    for group in groups:
        for each in group["promises"]:
            rows.setdefault(each["what"], {})[group["group"].endswith(BUSY)] = each

    def behind(kinds: dict[bool, dict[str, Any]]) -> float:
        return max(one["ratio"] if one["bound"] == "at most" else 1 / one["ratio"] for one in kinds.values())

    def said(cells: Iterable[str]) -> str:
        return "; ".join(dict.fromkeys(cells))

    lines = [
        "| work | ratio | quiet | beside a busy process | required | goal | |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for what, kinds in sorted(rows.items(), key=lambda row: -behind(row[1])):
        ratios = [one["ratio"] for one in kinds.values()]
        cells = [what, f"**{min(ratios):.2f}x to {max(ratios):.2f}x**"]
        cells += [f"{one['ratio']:.2f}x ({spread(one)})" if one else "-" for one in map(kinds.get, (False, True))]
        asked = [one for one in kinds.values() if one["verdict"]]
        cells.append(said(f"{one['bound']} {one['least']:g}x" for one in asked))
        cells.append(said(f"{one['aim']:g}x" for one in asked))
        cells.append(said(VERDICTS[one["verdict"]] for one in asked))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def conditions(groups: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any] | None, str]]:
    """Return each group with the same one under another condition, if it was measured under it, and that condition."""
    named = {group["group"]: group for group in groups}
    pairs = {name: name + end for name in named for end in (BUSY, OLDER) if name + end in named}
    return [
        (group, named.get(pairs.get(name, "")), pairs.get(name, name).removeprefix(name).removeprefix(", "))
        for name, group in named.items()
        if name not in pairs.values()
    ]


def cell(rows: list[dict[str, Any]], key: str) -> str:
    figures = [number(row[key]) if key in row else "-" for row in rows]
    return "-" if set(figures) == {"-"} else " / ".join(figures)


def tables(groups: list[dict[str, Any]], *, ratios: bool = True) -> list[str]:
    """Return the tables of groups, and below each its ratios unless they are elsewhere."""
    usual = Counter(group["measured"] for group in groups).most_common(1)[0][0]
    lines = [usual, ""]
    for group, other, condition in conditions(groups):
        keys = [key for key in HEADS if any(key in row for row in group["rows"])]
        lines += [f"### {group['group']}", ""]
        said = [group["measured"]] if group["measured"] != usual else []
        if other:
            said.append(f"The second figure of each cell is that {condition}.")
            said += [other["measured"]] if other["measured"] != group["measured"] else []
        lines += [" ".join(said), ""] if said else []
        lines += ["| way | " + " | ".join(HEADS[key] for key in keys) + " |"]
        lines.append("|---|" + "---:|" * len(keys))
        rows = {row["way"]: [row] for row in group["rows"]}
        for row in other["rows"] if other else ():
            rows.setdefault(row["way"], [{}]).append(row)
        for way, each in rows.items():
            lines.append(f"| {way} | " + " | ".join(cell(each, key) for key in keys) + " |")
        lines.append("")
        shown = [(one, "") for one in group["promises"]]
        shown += [(one, f", {condition}") for one in other["promises"]] if other else []
        for one, end in shown if ratios else ():
            line = f"- {one['what']}{end}: **{one['ratio']:,.2f}{one['unit']}** ({spread(one)})"
            if word := VERDICTS[one["verdict"]]:
                line += f"; required {one['bound']} {one['least']:g}, goal {one['aim']:g}: {word}"
            lines.append(line)
        if shown and ratios:
            lines.append("")
    return lines


def drawn(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the groups to be plotted: those of several sizes.

    A level of a tree is none, and 0 has no place on the axis.
    """
    sizes = {group["group"]: {row.get("at", 0) for row in group["rows"]} for group in groups}
    return [group for group in groups if len(sizes[group["group"]]) > 1 and min(sizes[group["group"]]) > 0]


def plot(groups: list[dict[str, Any]], path: Path) -> None:
    """Plot a panel for each group, its figure against size; both axes logarithmic."""
    from _plots import panels, save  # here, as the text of the page needs no matplotlib
    from matplotlib.ticker import EngFormatter, LogLocator, NullLocator

    figure, places = panels(len(groups))
    for axes, group in zip(places, groups, strict=True):
        rows = group["rows"]
        shown = next(key for key in PLOTTED if key in rows[0])
        for line, marker in zip(dict.fromkeys(row["line"] for row in rows), "os^vDPX*", strict=False):
            points = sorted((row for row in rows if row["line"] == line), key=lambda row: row["at"])
            axes.plot([row["at"] for row in points], [row[shown] for row in points], marker=marker, label=line)
        axes.set(
            xscale="log",
            yscale="log",
            title=fill(group["group"], TITLE),
            xlabel=rows[0]["of"] + "s",
            ylabel=PLOTTED[shown],
        )
        for axis, labels in ((axes.xaxis, EngFormatter(sep="")), (axes.yaxis, lambda value, _: number(value))):
            low, high = axis.get_data_interval()
            axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low <= CROWDED else (1,)))
            axis.set_major_formatter(labels)
            axis.set_minor_locator(NullLocator())
        axes.grid(alpha=0.3)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)  # below: no line is hidden
    save(figure, path)


def pays(group: dict[str, Any]) -> list[str]:
    """Return a table with the duration by size, Spark's start included, and the size from which Spark is fastest.

    The last column of a group is the alternative without Spark.
    """
    lines = list(dict.fromkeys(row["line"] for row in group["rows"]))
    took: dict[int, dict[str, float]] = {}
    for row in group["rows"]:
        took.setdefault(row["at"], {})[row["line"]] = row["with_start"]
    took = {at: each for at, each in sorted(took.items()) if each.keys() >= set(lines)}
    unit = group["rows"][0]["of"] + "s"
    found = [f"{group['group'].capitalize()}, seconds:", "", f"| {unit} | " + " | ".join(lines) + " |"]
    found.append("|---:|" + "---:|" * len(lines))
    for at, each in took.items():
        found.append(f"| {at:,} | " + " | ".join(number(each[line]) for line in lines) + " |")
    *spark, alone = lines
    ahead = {at: min(each[line] for line in spark) < each[alone] for at, each in took.items()}
    behind = [at for at, first in ahead.items() if not first]
    since = [at for at in ahead if at > max(behind, default=0)]
    if since:
        found += ["", f"Spark is fastest from {min(since):,} {unit} on."]
    else:
        found += ["", f"Up to {max(ahead):,} {unit}, Spark is never fastest."]
    return [*found, ""]


def machines(group: dict[str, Any]) -> list[str]:
    """Return a table with the seconds that N machines like this one would take, from Spark's rows of a group.

    Linear in the size, by the smallest and the largest measured: what does not depend on the size stays, the rest is
    divided; of the shuffled bytes, (N - 1)/N cross the network. Not measured: stragglers, and reading from storage.
    """
    rows = sorted((row for row in group["rows"] if "shuffle_mib" in row), key=lambda row: row["at"])
    if len(rows) < 2:
        return []
    small, large = rows[0], rows[-1]
    each = max(0.0, large["seconds"] - small["seconds"]) / (large["at"] - small["at"])
    fixed = max(0.0, large["seconds"] - each * large["at"])
    alone = min(row["seconds"] for row in group["rows"] if row["at"] == large["at"] and "shuffle_mib" not in row)
    told = (
        f"Computed from these: {large['at']:,} rows of {group['group']}, warm, on N machines of {CORES} cores with "
        f"{NETWORK / 125e6:g} Gbit/s. A core does {1 / each / CORES:,.0f} rows/s, {fixed:.2g} s do not depend on the "
        f"size, {large['shuffle_mib']:,.0f} MiB are shuffled. DuckDB on one: {number(alone)} s."
    )
    found = [told, "", "| machines | seconds | of it, the network |", "|---:|---:|---:|"]
    for count in (1, 2, 4, 8, 16):
        network = large["shuffle_mib"] * (1 << 20) * (count - 1) / count / (count * NETWORK)
        found.append(f"| {count} | {number(fixed + each * large['at'] / count + network)} | {number(network)} |")
    return [*found, ""]


def matrix(groups: list[dict[str, Any]]) -> list[str]:
    """Return the faults, a table of rooms by faults, the cells that do not apply, and the sums."""
    rows = {(group["group"], row["way"]): row for group in groups for row in group["rows"]}

    def cell(room: Room, fault: str) -> str:
        row = rows.get((fault, room.name))
        if row is None:
            return "not measured" if reason(room, fault) is None else "-"
        bad = [f"{row[key]:,} {HEADS[key]}" for key in BAD if row[key]]
        said = [f"**{', '.join(bad)}**"] if bad else [f"{row['records']:,} kept", f"{number(row['back_s'])} s"]
        return "; ".join([*said, *(f"{word} {row[word]:,}" for word in ("repeated", "ended") if row[word])])

    lines = ["| fault | what is done to the process |", "|---|---|"]
    lines += [f"| {fault} | {said} |" for fault, said in FAULTS.items()]
    lines += ["", "| room | " + " | ".join(FAULTS) + " |", "|---|" + "---|" * len(FAULTS)]
    lines += [f"| {room.name} | " + " | ".join(cell(room, fault) for fault in FAULTS) + " |" for room in ROOMS]
    lines += ["", "| does not apply | to | as it |", "|---|---|---|"]
    whys: dict[tuple[str, str], list[str]] = {}
    for fault in FAULTS:
        for room in ROOMS:
            if why := reason(room, fault):
                whys.setdefault((fault, why), []).append(room.name)
    lines += [f"| {fault} | {', '.join(names)} | {why} |" for (fault, why), names in whys.items()]
    sums = (f"{sum(row[key] for row in rows.values()):,} {HEADS[key]}" for key in BAD)
    seeds = sum(row["times"] for row in rows.values())
    measured = dict.fromkeys(group["measured"] for group in groups)
    return [*lines, "", f"In all, of {seeds:,} runs: {', '.join(sums)}.", "", *measured]


def with_figures(page: Path, lines: list[str]) -> str:
    """Return the text of a page with these lines after the mark."""
    prose = page.read_text().partition(MARK)[0]
    return prose + MARK + "\n" + "\n".join(lines).rstrip() + "\n"


def with_ratios(page: str) -> str:
    """Return the page with the table of ``speed`` at its begin, and what it was measured on."""
    groups = groups_of("speed")
    measured = list(dict.fromkeys(group["measured"] for group in groups))
    above, mark, rest = page.partition(RATIOS)
    table = [*both_kinds(groups), "", *measured] if groups else ["Not measured yet."]
    return "\n".join([above + mark, *table, "", END + rest.partition(END)[2]])


def pages() -> dict[Path, str]:
    """Return the pages as they are to be, from the figures."""
    lines: list[str] = []
    compared: list[str] = []
    for name in sorted(path.stem for path in FIGURES.glob("*.json") if path.stem != MATRIX):
        groups = groups_of(name)
        lines += [f"{HEAD}{name}`", ""]
        if drawn(groups):
            lines += [f"![Plot by size; the tables below have the figures]({name}.svg)", ""]
        lines += tables(groups, ratios=name != "speed")  # the first table has them
        for group in groups:
            if all("with_start" in row for row in group["rows"]):
                compared += [*pays(group), *machines(group)]
    return {
        PAGE: with_ratios(with_figures(PAGE, lines)),
        PAYS: with_figures(PAYS, compared),
        RELIABILITY: with_figures(RELIABILITY, matrix(groups_of(MATRIX))),
    }


def plots(folder: Path) -> None:
    """Write the plots of the page into a folder."""
    for path in FIGURES.glob("*.json"):
        if groups := drawn(groups_of(path.stem)):
            plot(groups, folder / f"{path.stem}.svg")


def merge() -> None:
    """Put what was measured on this machine into the figures, a group in the place of the one of its name."""
    for path in RESULTS.glob("*.json"):
        groups = {group["group"]: group for group in groups_of(path.stem)}
        groups |= {group["group"]: taken(group) for group in json.loads(path.read_text())["groups"]}
        store(path.stem, list(groups.values()))


def main() -> None:
    merge()
    for page, text in pages().items():
        page.write_text(text)
    plots(PAGE.parent)


if __name__ == "__main__":
    main()
