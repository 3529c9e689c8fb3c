#!/usr/bin/env python3
"""Draws what `memlab-report timeline --csv` prints as an SVG: the picture in the README.

    memlab-report timeline --csv --from 3.28s --until 3.46s tests/data/h200/pytorch_transformer.memlog |
        python3 docs/timeline_svg.py "TITLE" > docs/timeline.svg
"""

import csv
import html
import sys

WIDTH, HEIGHT = 900, 330
LEFT, RIGHT, TOP, BOTTOM = 64, 886, 64, 296
LAYERS = (("reserved", "#d9dee7", "reserved: taken from the driver"),
          ("active", "#f2b872", "active: freed, the GPU may still use it"),
          ("allocated", "#3b6fb6", "allocated: what the program holds"))
GIB = 1 << 30


def steps(rows, curve, at_x, at_y):
    """The curve's area: the highest value within each row, the last one until the next row."""
    points = [(LEFT, BOTTOM)]
    for row, following in zip(rows, rows[1:] + [None]):
        begin, end = at_x(int(row["begin_ns"])), at_x(int(row["end_ns"]))
        until = at_x(int(following["begin_ns"])) if following else RIGHT
        highest, last = at_y(int(row[f"{curve}_max"])), at_y(int(row[f"{curve}_last"]))
        points += [(begin, highest), (end, highest), (end, last), (max(until, end), last)]
    points.append((points[-1][0], BOTTOM))
    thinned = [point for i, point in enumerate(points) if i == 0 or point != points[i - 1]]
    return "M" + " ".join(f"{x:.1f},{y:.1f}" for x, y in thinned) + "Z"


def main():
    title = sys.argv[1]
    rows = [row for row in csv.DictReader(sys.stdin) if row["device"] == "0"]
    start, end = int(rows[0]["begin_ns"]), int(rows[-1]["end_ns"])
    top = max(int(row["reserved_max"]) for row in rows) * 1.04

    def at_x(time_ns):
        return LEFT + (RIGHT - LEFT) * (time_ns - start) / (end - start)

    def at_y(size):
        return BOTTOM - (BOTTOM - TOP) * size / top

    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
          'font-family="Verdana, DejaVu Sans, sans-serif" font-size="12" fill="#222">')
    print(f"<title>{html.escape(title)}</title>")
    print('<rect width="100%" height="100%" rx="6" fill="#fff"/>')
    print(f'<text x="{LEFT}" y="24" font-size="15">{html.escape(title)}</text>')
    x = LEFT
    for _, colour, text in reversed(LAYERS):
        print(f'<rect x="{x}" y="37" width="11" height="11" fill="{colour}"/>'
              f'<text x="{x + 16}" y="47">{text}</text>')
        x += 36 + 7.1 * len(text)
    for i in range(1, int(top / GIB * 4) + 1):
        y = at_y(i * GIB / 4)
        print(f'<path d="M{LEFT},{y:.1f}H{RIGHT}" stroke="#eee"/>')
        if i % 2 == 0:
            print(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{i / 4:.1f} GiB</text>')
    for curve, colour, _ in LAYERS:
        print(f'<path d="{steps(rows, curve, at_x, at_y)}" fill="{colour}"/>')
    for curve, place in (("allocated", -6), ("reserved", -6)):
        peak = max(rows, key=lambda row: int(row[f"{curve}_max"]))
        size = int(peak[f"{curve}_max"])
        x = at_x(int(peak["begin_ns"]))
        print(f'<text x="{x:.1f}" y="{at_y(size) + place:.1f}" text-anchor="{"end" if x > RIGHT - 150 else "middle"}">'
              f"{curve} peak {size / GIB:.2f} GiB</text>")
    print(f'<path d="M{LEFT},{TOP}V{BOTTOM}H{RIGHT}" fill="none" stroke="#888"/>')
    for ms in range(0, (end - start) // 1_000_000 + 1, 20):
        print(f'<text x="{at_x(start + ms * 1_000_000):.1f}" y="{BOTTOM + 18}" text-anchor="middle">{ms} ms</text>')
    print("</svg>")


if __name__ == "__main__":
    main()
