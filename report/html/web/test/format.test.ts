import { describe, expect, test } from "vitest";
import { tick } from "../src/model/axis";
import * as format from "../src/model/format";

describe("sizes read as memlab-report prints them", () => {
  test.each([
    [0, "0 B"],
    [1023, "1023 B"],
    [1024, "1.00 KiB"],
    [4000000, "3.81 MiB"],
    [1048570, "1023.99 KiB"],
    [1048571, "1.00 MiB"],
    [1152, "1.12 KiB"],
    [1408, "1.38 KiB"],
    [271982080, "259.38 MiB"],
    [85017493504, "79.18 GiB"],
    [2 ** 50, "1024.00 TiB"],
    [-4000000, "-3.81 MiB"],
  ])("%d is %s", (size, text) => {
    expect(format.bytes(size)).toBe(text);
  });
  test("changes have a sign", () => {
    expect(format.signedBytes(4000000)).toBe("+3.81 MiB");
    expect(format.signedBytes(-512)).toBe("-512 B");
    expect(format.signedBytes(0)).toBe("0 B");
    expect(format.signedCount(1234)).toBe("+1,234");
  });
});

test.each([
  [999, "999 ns"],
  [1250, "1.2 us"],
  [15645000, "15.64 ms"],
  [999_995_000, "1.000 s"],
  [59_999_499_999, "59.999 s"],
  [60e9, "1 min 00 s"],
  [3_725e9, "1 h 02 min"],
])("a time of %d ns is %s", (ns, text) => expect(format.duration(ns)).toBe(text));

test("counts are grouped", () => {
  expect(format.count(1234567)).toBe("1,234,567");
  expect(format.count(-1234)).toBe("-1,234");
  expect(format.plural(1, "block")).toBe("1 block");
  expect(format.plural(0, "block")).toBe("0 blocks");
  expect(format.plural(2, "process")).toBe("2 processes");
});

test("shares", () => {
  expect(format.percent(1, 0)).toBe("-");
  expect(format.percent(1, 1000000)).toBe("<0.1%");
  expect(format.percent(1, 3)).toBe("33.3%");
});

test("ticks have the digits that their step needs, all in one unit", () => {
  expect([0, 2.5e9, 5e9].map((at) => tick(at, 2.5e9, 7e9))).toEqual(["0", "2.5 s", "5.0 s"]);
  expect(tick(500e6, 500e6, 4e9)).toBe("0.5 s");
  expect(tick(200e6, 100e6, 8e8)).toBe("200 ms");
  expect(tick(3_338_287_500, 500, 3.4e9)).toBe("3.3382875 s");
});

test("names cannot break out of a Markdown table", () => {
  const table = format.markdownTable(["where"], [["a|b\nc<img src=x>[x](y)`z`"]], [false]);
  expect(table.split("\n")).toHaveLength(3);
  expect(table.split("\n")[2]).toBe("| a\\|b c\\<img src=x\\>\\[x\\](y)\\`z\\` |");
});
