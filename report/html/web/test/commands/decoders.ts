// The exports' formats, as far as their sums need them: protocol buffers (pprof, Perfetto), a pickle (PyTorch), metrics.
import { gunzipSync } from "node:zlib";

// ---- protocol buffers: fields of a message, numbers and bytes

type Fields = [field: number, value: number | Buffer][];

function varint(data: Buffer, at: number): [value: number, next: number] {
  let value = 0;
  for (let scale = 1; ; scale *= 128) {
    const byte = data[at++]!;
    value += (byte & 0x7f) * scale;
    if (byte < 0x80) return [value, at];
  }
}

function fields(data: Buffer): Fields {
  const found: Fields = [];
  for (let at = 0; at < data.length;) {
    let key: number, value: number;
    [key, at] = varint(data, at);
    const field = Math.floor(key / 8);
    if (key % 8 === 1) {
      found.push([field, data.readDoubleLE(at)]);
      at += 8;
    } else if (key % 8 === 0) {
      [value, at] = varint(data, at);
      found.push([field, value]);
    } else {
      [value, at] = varint(data, at);
      found.push([field, data.subarray(at, at + value)]);
      at += value;
    }
  }
  return found;
}

const numbers = (message: Fields, field: number) =>
  message.filter(([of]) => of === field).map(([, value]) => value as number);
const messages = (message: Fields, field: number) =>
  message.filter(([of]) => of === field).map(([, value]) => value as Buffer);

function packed(data: Buffer): number[] {
  const values: number[] = [];
  for (let at = 0, value; at < data.length;) {
    [value, at] = varint(data, at);
    values.push(value);
  }
  return values;
}

// ---- pprof: the sum of each of its values

export function pprof(file: Buffer): Map<string, number> {
  const profile = fields(gunzipSync(file));
  const strings = messages(profile, 6).map((text) => text.toString("utf8"));
  const names = messages(profile, 1).map((type) => strings[numbers(fields(type), 1)[0]!]!);
  const sums = new Map(names.map((name) => [name, 0]));
  for (const sample of messages(profile, 2))
    packed(messages(fields(sample), 2)[0]!).forEach((value, i) => sums.set(names[i]!, sums.get(names[i]!)! + value));
  return sums;
}

// ---- Perfetto: the values of each counter, by its track's name and its parent's

export function perfetto(file: Buffer): Map<string, number[]> {
  const tracks = new Map<number, { name: string; parent: number; values: number[] }>();
  const usual = new Map<number, number[]>(); // counters beside each event, by sequence
  const name = (id: number): string => {
    const track = tracks.get(id);
    return track ? [name(track.parent), track.name].filter(Boolean).join(" / ") : "";
  };
  for (const bytes of messages(fields(file), 1)) {
    const packet = fields(bytes);
    const sequence = numbers(packet, 10)[0] ?? 0;
    for (const defaults of messages(packet, 59))
      for (const event of messages(fields(defaults), 11)) usual.set(sequence, numbers(fields(event), 31));
    for (const descriptor of messages(packet, 60)) {
      const track = fields(descriptor);
      tracks.set(numbers(track, 1)[0]!, {
        name: messages(track, 2)[0]?.toString("utf8") ?? "",
        parent: numbers(track, 5)[0] ?? 0,
        values: [],
      });
    }
    for (const each of messages(packet, 11)) {
      const event = fields(each);
      if (numbers(event, 9)[0] === 4) tracks.get(numbers(event, 11)[0]!)!.values.push(numbers(event, 30)[0]!);
      const own = numbers(event, 31);
      const beside = own.length > 0 ? own : (usual.get(sequence) ?? []);
      numbers(event, 12).forEach((value, i) => tracks.get(beside[i]!)!.values.push(value));
    }
  }
  const found = new Map<string, number[]>();
  for (const [id, track] of tracks) if (track.values.length > 0) found.set(name(id), track.values);
  return found;
}

// ---- pickle: what memlab-report writes of protocol 2

export function pickle(data: Buffer): unknown {
  const stack: unknown[] = [];
  const marks: number[] = [];
  const memo = new Map<number, unknown>();
  const sinceMark = () => stack.splice(marks.pop()!);
  const text = (size: number, at: number) => data.toString("utf8", at, at + size);
  for (let at = 0; ;) {
    const op = String.fromCharCode(data[at++]!);
    if (op === ".") return stack.pop();
    else if (op === "\x80") ++at;
    else if (op === "(") marks.push(stack.length);
    else if (op === "}") stack.push({});
    else if (op === "]") stack.push([]);
    else if (op === "\x88" || op === "\x89") stack.push(op === "\x88");
    else if (op === "K") stack.push(data[at++]!);
    else if (op === "M") stack.push(data.readUInt16LE((at += 2) - 2));
    else if (op === "J") stack.push(data.readInt32LE((at += 4) - 4));
    else if (op === "\x8a") {
      const size = data[at++]!;
      let value = 0;
      for (let i = 0; i < size; ++i) value += data[at + i]! * 256 ** i;
      stack.push(size > 0 && data[at + size - 1]! >= 128 ? value - 256 ** size : value);
      at += size;
    } else if (op === "X") {
      const size = data.readUInt32LE(at);
      stack.push(text(size, at + 4));
      at += 4 + size;
    } else if (op === "q") memo.set(data[at++]!, stack.at(-1));
    else if (op === "r") memo.set(data.readUInt32LE((at += 4) - 4), stack.at(-1));
    else if (op === "h") stack.push(memo.get(data[at++]!));
    else if (op === "j") stack.push(memo.get(data.readUInt32LE((at += 4) - 4)));
    else if (op === "\x86") stack.push(stack.splice(-2));
    else if (op === "e") {
      const items = sinceMark();
      for (const item of items) (stack.at(-1) as unknown[]).push(item);
    } else if (op === "u") {
      const items = sinceMark();
      for (let i = 0; i < items.length; i += 2)
        (stack.at(-1) as Record<string, unknown>)[String(items[i])] = items[i + 1];
    } else throw new Error(`the pickle has the operation ${JSON.stringify(op)} at ${at - 1}`);
  }
}

// ---- metrics: name and labels, in that order, to their value

export function metrics(text: string): { name: string; labels: Record<string, string>; value: number }[] {
  return text
    .split("\n")
    .filter((line) => line !== "" && !line.startsWith("#"))
    .map((line) => {
      const [, name, labels, value] = /^(\w+)\{(.*)\} (\S+)$/.exec(line)!;
      const of = [...labels!.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, key, text_]) => [key!, text_!] as const);
      return { name: name!, labels: Object.fromEntries(of), value: Number(value) };
    });
}
