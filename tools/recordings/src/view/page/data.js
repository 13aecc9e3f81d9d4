// The data of the page. `PageData` in page_data.rs describes how it is packed.

/** The object of the page, with its tables: objects of columns, which are arrays of numbers. */
async function unpack(text) {
  const packed = bytesOfBase64(text);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const about = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  const reader = { bytes, place: 4 + length };
  about.tables = about.tables.map(heads => Object.fromEntries(heads.map(({ name, count }) => [name, columnOf(reader, count)])));
  return about;
}

function columnOf(reader, count) {
  const { bytes } = reader;
  let { place } = reader;
  const column = new Float64Array(count);
  for (let i = 0; i < count; i++) {
    // Shifts would end at 32 bits.
    let number = 0, factor = 1, byte;
    do {
      byte = bytes[place++];
      number += (byte & 0x7f) * factor;
      factor *= 128;
    } while (byte & 0x80);
    column[i] = number;
  }
  reader.place = place;
  return column;
}

function bytesOfBase64(text) {
  const binary = atob(text.trim());
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/** Numbers from their differences. */
function risen(steps) {
  const numbers = new Float64Array(steps.length);
  let now = 0;
  for (let i = 0; i < steps.length; i++) numbers[i] = now += steps[i];
  return numbers;
}
