/** Reads the data blocks of the page; `src/unstall/report/payload.py` writes them. */

type ColumnFields = [name: string, length: number, width: number, base: number, rising: boolean];

interface Header {
  columns: ColumnFields[];
  strings: string[];
  window: [number, number];
  notes: string[];
}

export interface Block {
  strings: string[];
  window: [number, number];
  notes: string[];
  numbers(name: string): Float64Array;
}

export async function decodeResult(base64: string): Promise<{ schema: string }> {
  return JSON.parse(new TextDecoder().decode(await inflate(base64))) as { schema: string };
}

export async function decodeBlock(base64: string): Promise<Block> {
  return unpack(await inflate(base64));
}

async function inflate(base64: string): Promise<Uint8Array> {
  const text = atob(base64.trim());
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const inflated = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(inflated).arrayBuffer());
}

export function unpack(bytes: Uint8Array): Block {
  const headLength = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + headLength))) as Header;
  const columns = new Map<string, { fields: ColumnFields; offset: number }>();
  let offset = 4 + headLength;
  for (const fields of header.columns) {
    columns.set(fields[0], { fields, offset });
    offset += fields[1] * fields[2];
  }
  return {
    strings: header.strings,
    window: header.window,
    notes: header.notes,
    numbers(name) {
      const column = columns.get(name);
      if (!column) throw new Error(`the page holds no column ${name}`);
      return unpackColumn(bytes, column.offset, column.fields);
    },
  };
}

/** Exact up to 2⁵³: the columns are counts, indices, and nanoseconds of a run of under a hundred days. */
function unpackColumn(bytes: Uint8Array, offset: number, fields: ColumnFields): Float64Array {
  const [, length, width, base, rising] = fields;
  const values = new Float64Array(length).fill(base);
  for (let plane = 0; plane < width; plane++) {
    const unit = 256 ** plane;
    const from = offset + plane * length;
    for (let i = 0; i < length; i++) values[i]! += bytes[from + i]! * unit;
  }
  if (rising) for (let i = 1; i < length; i++) values[i]! += values[i - 1]!;
  return values;
}
