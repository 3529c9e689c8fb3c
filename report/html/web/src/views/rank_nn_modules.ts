// The nn.Modules of a run's ranks side by side, as `memlab-report merge --by nn-module` has them.
import { bytes } from "../model/format";
import { h } from "../ui/dom";
import { bar, type Column, figures, Table } from "../ui/table";

export interface NnModuleOfRanks {
  name: string;
  difference_bytes: number;
  bytes: number[]; // by rank
}

interface Row extends NnModuleOfRanks {
  most: number; // indices of ranks
  least: number;
}

const ranksShown = 6; // with a column each; of more those with the most and the least

// `ranks`: the numbers of those that the figures are of.
export function nnModulesOfRanks(list: NnModuleOfRanks[], ranks: number[]): HTMLElement | null {
  if (list.length === 0 || ranks.length < 2) return null;
  const rows = list.map((one): Row => {
    const at = (value: number) => one.bytes.indexOf(value);
    return { ...one, most: at(Math.max(...one.bytes)), least: at(Math.min(...one.bytes)) };
  });
  const largest = rows.reduce((most, row) => Math.max(most, row.difference_bytes), 1);
  const each: Column<Row>[] =
    ranks.length <= ranksShown
      ? ranks.map((rank, i) => figures<Row>(`rank-${rank}`, `rank ${rank}`, 96, (row) => row.bytes[i] ?? 0, bytes))
      : (["most", "least"] as const).map((which) =>
          figures<Row>(
            which,
            which,
            170,
            (row) => row.bytes[row[which]] ?? 0,
            (value, row) => `${bytes(value)}, rank ${ranks[row[which]]}`,
          ),
        );
  const table = new Table<Row>(
    "nn.Modules on each rank",
    [
      {
        id: "nn-module",
        head: "nn.Module",
        width: "minmax(0, 1fr)",
        cell: (row) => h("span", { title: row.name }, row.name),
        sort: (row) => row.name,
      },
      figures<Row>(
        "difference",
        "difference",
        112,
        (row) => row.difference_bytes,
        (value) => bar(bytes(value), value / largest, "more"),
        { low: false, hint: "Between the ranks with the most and the least" },
      ),
      ...each,
    ],
    "difference",
  );
  table.set(rows);
  return h("section", h("h2", "nn.Modules, at the allocated peak of each rank"), table.element);
}
