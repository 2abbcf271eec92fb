#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""plots.py ROWS.json FOLDER -- draws the output of bench/run --json as SVG, without a library.

stall.svg     time of the call of an asynchronous save, by the size of the state
timeline.svg  one save in each way, with the steps of the trainer that run during it
rates.svg     each measured duration next to that of its reference
"""
import html
import json
import os
import sys

OURS, THEIRS, INK, PALE = "#1b7f79", "#b9b9b9", "#222222", "#e4e4e4"
LINES = (OURS, "#d98032", "#5a5fb0", "#a33b5c", "#777777", "#3f8f3f")
WIDTH = 760


class Picture:
    """The shapes of an SVG file and their total height."""

    def __init__(self):
        self.shapes, self.height = [], 0

    def text(self, x, y, words, anchor="start", bold=False, size=12):
        weight = ' font-weight="bold"' if bold else ""
        self.shapes.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"{weight} '
                           f'fill="{INK}">{html.escape(words)}</text>')
        self.height = max(self.height, y + 12)

    def box(self, x, y, width, height, color):
        self.shapes.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{height:.1f}" fill="{color}"/>')
        self.height = max(self.height, y + height + 12)

    def line(self, points, color, width=2):
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.shapes.append(f'<polyline points="{places}" fill="none" stroke="{color}" stroke-width="{width}"/>')

    def dot(self, x, y, color):
        self.shapes.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{color}"/>')

    def write(self, path):
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{self.height:.0f}" '
                       'font-family="sans-serif"><rect width="100%" height="100%" fill="#ffffff"/>'
                       + "".join(self.shapes) + "</svg>\n")


def milliseconds(seconds):
    return f"{seconds * 1e3:.3g} ms"


def stalls(rows):
    """{label: [(GiB, seconds)]}: calls with cow, and with copy where that is the reference."""
    series = {}
    for row in rows:
        if row["kind"] != "stall" or not row["mib"] or not row["what"].startswith("cow call"):
            continue
        series.setdefault(row["what"], []).append((row["mib"] / 1024, row["median"]))
        if row.get("reference") == "by copy":
            series.setdefault("by copy", []).append((row["mib"] / 1024, row["reference_median"]))
    return {label: sorted(dict(points).items()) for label, points in series.items()}


def draw_stalls(rows, path):
    series = stalls(rows)
    if not series:
        return False
    left, top, right, bottom = 70.0, 44.0, WIDTH - 20.0, 304.0
    most_x = max(x for points in series.values() for x, _ in points)
    most_y = max(y for points in series.values() for _, y in points)
    picture = Picture()
    picture.text(12, 24, "how long the call of an asynchronous save stops the trainer, by size of the state", bold=True, size=13)
    for part in range(5):
        y = bottom - (bottom - top) * part / 4
        picture.line([(left, y), (right, y)], PALE, 1)
        picture.text(left - 6, y + 4, milliseconds(most_y * part / 4), "end")
    for x in sorted({x for points in series.values() for x, _ in points}):
        picture.text(left + (right - left) * x / most_x, bottom + 18, f"{x:g} GiB", "end" if x == most_x else "middle")
    for number, (label, points) in enumerate(series.items()):
        color = LINES[number % len(LINES)]
        places = [(left + (right - left) * x / most_x, bottom - (bottom - top) * y / most_y) for x, y in points]
        picture.line(places, color)
        for place in places:
            picture.dot(*place, color)
        picture.box(left, bottom + 30 + 18 * number, 12, 12, color)
        picture.text(left + 18, bottom + 41 + 18 * number, label)
    picture.write(path)
    return True


def draw_timelines(rows, path):
    """Draw a lane for each way to save: the call and the steps (computing, rewriting the state), and
    below them the save in the background."""
    lanes = {row["what"]: row for row in rows if row["kind"] == "timeline"}
    if not lanes:
        return False
    left, right, y = 12.0, WIDTH - 20.0, 62.0
    most = max(max(max(step[-1] for step in lane["steps"]), *lane["phases"].values()) for lane in lanes.values())
    picture = Picture()
    picture.text(left, 24, "one save beside the steps of a trainer that computes 200 ms, then rewrites all of its state", bold=True, size=13)

    def bar(began, ended, color, height, down=0.0):
        picture.box(left + (right - left) * began / most, y + down, (right - left) * (ended - began) / most, height, color)

    for number, (color, label) in enumerate((("#a33b5c", "the call"), (PALE, "computes"), (THEIRS, "rewrites the state"),
                                             (OURS, "in the background, until it is committed"))):
        picture.box(left + 130 * number, 34, 12, 12, color)
        picture.text(left + 130 * number + 16, 44, label, size=11)
    for label, lane in lanes.items():
        phases = lane["phases"]
        ended = phases.get("ended", phases["returned"])
        picture.text(left, y + 10, f"{label}: call {milliseconds(phases['returned'])}, ended after {milliseconds(ended)}", size=11)
        y += 16
        bar(0, phases["returned"], "#a33b5c", 14)
        for began, rewrote, done in lane["steps"]:
            bar(began, rewrote, PALE, 14)
            bar(rewrote, done, THEIRS, 14)
        bar(0, ended, OURS, 4, 16)
        y += 34
    picture.write(path)
    return True


def draw_rates(rows, path):
    speeds = [row for row in rows if row["kind"] == "speed" and row.get("reference_median")]
    if not speeds:
        return False
    picture = Picture()
    picture.text(12, 24, "time of sidestep (green) beside the plain way, or the peer (grey)", bold=True, size=13)
    y, middle = 48.0, 330.0
    for row in speeds:
        most = max(row["median"], row["reference_median"])
        size = f"{row['mib'] / 1024:g} GiB " if row["mib"] else ""
        picture.text(middle - 8, y + 11, size + row["what"], "end")
        for name, value, color in (("", row["median"], OURS), (row["reference"], row["reference_median"], THEIRS)):
            width = (WIDTH - middle - 240) * value / most
            picture.box(middle, y, width, 12, color)
            picture.text(middle + width + 6, y + 11, f"{milliseconds(value)}  {name}", size=11)
            y += 14
        y += 8
    picture.write(path)
    return True


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.split("\n", maxsplit=1)[0])
    with open(sys.argv[1], encoding="utf-8") as file:
        rows = json.load(file)["rows"]
    os.makedirs(sys.argv[2], exist_ok=True)
    for draw, name in ((draw_stalls, "stall.svg"), (draw_timelines, "timeline.svg"), (draw_rates, "rates.svg")):
        path = os.path.join(sys.argv[2], name)
        if draw(rows, path):
            print(f"bench: {os.path.relpath(path)}", file=sys.stderr)


if __name__ == "__main__":
    main()
