import { describe, expect, test } from "vitest";
import { matchSites, usedSites } from "../src/model/filter";
import { groupsOf } from "../src/model/groups";
import {
  beginnings,
  belongsToNnModule,
  comparedName,
  deepestNnModule,
  namesOutside,
  type NnModule,
  nnModuleMatcher,
  nnModuleName,
  nnModulesOf,
  outsideNnModules,
} from "../src/model/nn_modules";
import { RecordingModel } from "../src/model/recording";
import { recording } from "./sample";

const model = new RecordingModel(recording({ steps: 6, sites: 30, moments: 120, layers: 3 }));
const table = model.sites;
const moment = 60;
const figures = model.figures(moment);
const found = nnModulesOf(table, figures, usedSites(table, 0, ""));

const all = (of: NnModule): NnModule[] => [of, ...of.children.flatMap(all)];

describe("names of nn.Modules", () => {
  test("components", () => {
    expect(beginnings("")).toEqual([]);
    expect(beginnings("a.b.c")).toEqual(["a", "a.b", "a.b.c"]);
    expect(beginnings(".a.")).toEqual([".a", ".a."]);
    expect(beginnings("a.".repeat(100)).length).toBe(32);
  });
  test("are compared without what wraps them", () => {
    expect(comparedName("module._orig_mod.a._fsdp_wrapped_module.b")).toBe("a.b");
    expect(comparedName("a.module.b")).toBe("a.module.b");
    expect(comparedName("")).toBe("");
  });
  test("match with what is within, with or without their first part", () => {
    const encoder = nnModuleMatcher("encoder");
    expect(["encoder", "encoder.layers.0", "model.encoder", "module.encoder.mlp"].every(encoder)).toBe(true);
    expect(["", "encoders", "a.b.encoder"].some(encoder)).toBe(false);
    expect(nnModuleMatcher("encoder.*")("model.encoder.layers.0")).toBe(true);
    expect(nnModuleMatcher("encoder.*")("encoder")).toBe(false);
    expect(nnModuleMatcher("*.mlp")("encoder.layers.0.mlp.up")).toBe(true);
    expect(nnModuleMatcher("a._orig_mod.b")("a.b")).toBe(true);
  });
});

describe("names of memory", () => {
  test("belong to the nn.Module whose parameters and states they are of", () => {
    const known = new Set(["encoder.0", "head", ""]);
    for (const name of [
      "encoder.0.weight",
      "encoder.0.weight.grad",
      "Adam.encoder.0.weight.exp_avg",
      "head.weight+embedding.weight",
      "weight",
      "weight.grad",
      "Adam.weight.exp_avg",
      "Adam.weight+bias",
    ])
      expect(belongsToNnModule(name, known), name).toBe(true);
    for (const name of ["batch.0", "encoder.1.weight", "targets.x", "Adam.", "two words", ".grad"])
      expect(belongsToNnModule(name, known), name).toBe(false);
    expect(belongsToNnModule("weight", new Set(["head"]))).toBe(false);
  });
  test("of no nn.Module are told, those of nn.Modules are not", () => {
    const source = recording({ steps: 6, sites: 30, moments: 120, layers: 3 });
    const sites = [...found.outsideSites.slice(0, 3)];
    const names = ["batch.inputs", "transformer.h.0.mlp.weight", "ema.0"].map((name) => source.strings.push(name) - 1);
    source.labels = { site: sites, name: names, detail: sites.map(() => -1), bytes: [1, 2, 3] };
    const named = new RecordingModel(source);
    const again = nnModulesOf(named.sites, named.figures(moment), usedSites(named.sites, 0, ""));
    expect(again.outsideSites).toEqual(found.outsideSites);
    expect(namesOutside(named, again)).toEqual(["ema.0", "batch.inputs"]);
  });
});

describe("the tree of nn.Modules", () => {
  test("holds everything once", () => {
    const { outermost, outside, unnamed } = found;
    expect(outermost.bytes + unnamed.bytes + outside.bytes).toBe(model.totals(0)[moment]);
    expect(outermost.className).toBe("GPT");
    for (const one of all(outermost)) {
      expect(one.own.bytes + one.children.reduce((sum, child) => sum + child.bytes, 0)).toBe(one.bytes);
      expect([...one.categories.values()].reduce((sum, bytes) => sum + bytes, 0)).toBe(one.bytes);
      expect(one.depth).toBe(beginnings(one.name).length);
      for (let i = 1; i < one.children.length; ++i)
        expect(one.children[i]!.bytes).toBeLessThanOrEqual(one.children[i - 1]!.bytes);
    }
  });
  test("has what a filter by its names has", () => {
    for (const one of all(found.outermost).slice(1)) {
      const matched = matchSites(table, `nn_module=${one.name}`)!;
      expect(figures.bytes.reduce((sum, bytes, site) => sum + (matched[site] ? bytes : 0), 0)).toBe(one.bytes);
    }
    expect(matchSites(table, "nn_module=none")!.some((hit) => hit === 1)).toBe(false);
  });
  test("is drawn over time to any depth", () => {
    const deepest = deepestNnModule(table);
    expect(deepest).toBe(4);
    for (let depth = 0; depth <= deepest; ++depth) {
      const groups = groupsOf(model, { device: 0, by: "nn-module", filter: "", depth }, [moment], () => figures);
      expect(groups.reduce((sum, one) => sum + one.series[moment]!, 0)).toBe(model.totals(0)[moment]);
    }
    const names = new Set(Array.from({ length: table.count }, (_, site) => nnModuleName(table, site, 2)));
    expect([...names].sort()).toEqual(["GPT", outsideNnModules, "transformer.h"]);
  });
});
