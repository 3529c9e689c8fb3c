import { describe, expect, test } from "vitest";
import { nextScope } from "../src/model/scopes";
import { greatestMoment, type Scopes } from "../src/model/recording";
import { Recordings } from "../src/model/scene";
import { initial, movesTime } from "../src/state";
import { compare, single } from "./sample";

describe("what is looked at", () => {
  const recordings = new Recordings(single());
  const model = recordings.model(0);

  test("is the peak of the device that held most, where nothing is chosen", () => {
    const scene = recordings.scene(initial);
    const peak = greatestMoment(scene.totals, 0, model.moments.length - 1);
    expect(scene).toMatchObject({
      recording: 0,
      device: model.usualDevice(),
      usual: true,
      range: false,
      compared: null,
    });
    expect(scene.selection).toEqual([model.timeOf(peak), model.timeOf(peak)]);
    expect(scene.totals[scene.shown]).toBe(scene.totals[peak]);
  });

  test("is a range within the recording, however it was given", () => {
    const scene = recordings.scene({ ...initial, from: model.duration * 2, to: -5 });
    expect(scene.selection).toEqual([0, model.duration]);
    expect(scene.range).toBe(true);
    const at = (moment: "peak" | "begin" | "end") =>
      recordings.scene({ ...initial, from: 0, to: model.duration, at: moment }).shown;
    expect([at("begin"), at("end")]).toEqual([scene.begin, scene.end]);
    expect(scene.totals[at("peak")]).toBe(Math.max(...scene.totals));
  });

  test("steps back to what there is", () => {
    for (const recording of [-1, 7, NaN]) expect(recordings.scene({ ...initial, recording }).recording).toBe(0);
    expect(recordings.scene({ ...initial, device: 99 }).device).toBe(model.usualDevice());
  });

  test("has two selections in a comparison", () => {
    const both = new Recordings(compare());
    const state = { ...initial, beforeFrom: 5e8, beforeTo: 1e9, from: 2e8, to: 2e8 };
    const after = both.scene(state);
    expect(after.recording).toBe(1);
    expect(after.selection).toEqual([2e8, 2e8]);
    const before = both.scene({ ...state, recording: 0 });
    expect(before.selection).toEqual([5e8, 1e9]);
    const side = after.compared!.before;
    expect(side.selection).toEqual(before.selection);
    expect(side.moment).toBe(before.shown);
    expect(after.compared!.after.moment).toBe(after.shown);
  });

  test("moves the timeline, or the view alone", () => {
    expect(movesTime(new Set(["filter", "shape"]))).toBe(false);
    expect(movesTime(new Set(["filter", "zoomFrom"]))).toBe(true);
  });
});

test("one goes from a scope to the next of its name, else to the nearest outermost", () => {
  const scopes: Scopes = {
    names: ["step", "forward", "save"],
    name: Int32Array.from([0, 1, 2, 0]),
    depth: Int32Array.from([0, 1, 0, 0]),
    thread: Int32Array.from([0, 0, 0, 0]),
    begin: Float64Array.from([100, 110, 300, 500]),
    end: Float64Array.from([200, 150, 400, 600]),
    leftOut: 0,
  };
  expect(nextScope(scopes, [0, 0], 1)).toBe(0);
  expect(nextScope(scopes, [100, 200], 1)).toBe(3);
  expect(nextScope(scopes, [500, 600], -1)).toBe(0);
  expect(nextScope(scopes, [500, 600], 1)).toBe(-1);
  expect(nextScope(scopes, [450, 450], -1)).toBe(2);
});
