// A comparison of all recordings, each its own test; random ones of a kind are one.
import { describe, expect, test } from "vitest";
import { type Comparison, judge } from "./differences";
import { randomRecordings, type Recorded, recordings } from "./memlab";

// `seed` chooses filters and moments.
export function everyRecording(area: string, check: (recording: Recorded, seed: number) => Promise<Comparison>): void {
  describe(area, () => {
    let compared = 0;
    for (const recording of recordings())
      test(`${recording.name} ${recording.seed}`, async () => {
        const found = await check(recording, 1);
        compared += found.compared;
        judge(area, recording.name, [found]);
      });
    test("random recordings", async () => {
      const of = new Map<string, Comparison[]>();
      for (const [i, recording] of (await randomRecordings()).entries()) {
        const found = await check(recording, i);
        compared += found.compared;
        of.set(recording.name, [...(of.get(recording.name) ?? []), found]);
      }
      for (const [name, comparisons] of of) judge(area, name, comparisons);
    });
    test("many figures were compared", () => {
      expect(compared).toBeGreaterThan(300);
    });
  });
}
