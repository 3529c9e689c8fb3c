// From the text that memlab-report put into the page to the data: base64 of gzip of JSON.
import type { PageData } from "../data";

export class NoData extends Error {}

export async function decode(text: string): Promise<PageData> {
  const trimmed = text.trim();
  if (!/^[A-Za-z0-9+/]+=*$/.test(trimmed.slice(-64)))
    // the placeholder has an underscore, base64 has none
    throw new NoData("This page holds no recording. Write one with: memlab-report html -o page.html RECORDING");
  const stream = new Blob([fromBase64(trimmed)]).stream().pipeThrough(new DecompressionStream("gzip"));
  const data = JSON.parse(withoutDirections(await new Response(stream).text())) as PageData;
  if (data.version !== 2)
    throw new Error(`The data of this page has version ${String(data.version)}; this page reads version 2.`);
  return data;
}

// Characters that turn the direction of text around could make a name read as another: they become U+FFFD.
export function withoutDirections(json: string): string {
  const plain = json.replace(/[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "\ufffd");
  if (!/\\u(?:061c|20)/i.test(plain)) return plain;
  return plain.replace(/\\\\|\\u(?:061c|200[ef]|202[a-e]|206[6-9])/gi, (found) =>
    found === "\\\\" ? found : "\ufffd",
  );
}

function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; ++i) bytes[i] = binary.charCodeAt(i);
  return bytes;
}
