// What a view is, and what all of them are given.
import type { SourceFile } from "../data";
import type { Scene } from "../model/scene";
import type { Store } from "../state";

export interface View {
  readonly id: string;
  readonly title: string;
  readonly element: HTMLElement;
  update: (scene: Scene) => void;
  redraw?: () => void; // colours or sizes have changed
  markdown: (scene: Scene) => string;
  count?: (scene: Scene) => number | null; // a number beside the title
}

export interface Surroundings {
  store: Store;
  files: Map<string, SourceFile[]>; // by path
}
