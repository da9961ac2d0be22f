// @ts-check
// Reads OpenEXR pictures: one part, lines or tiles, without or with lossless compression.

/** Most pixels of a picture that is shown, and most bytes of one of its blocks. */
export const PIXELS_MAX = 9_000_000;
const BLOCK_BYTES_MAX = 64 << 20;
const NAMES = ['none', 'RLE', 'ZIPS', 'ZIP', 'PIZ', 'PXR24', 'B44', 'B44A', 'DWAA', 'DWAB'];
/** Lines of a block, by compression. */
const LINES = [1, 1, 1, 16];
const [MAGIC, TILED, DEEP, PARTS] = [20_000_630, 0x200, 0x800, 0x1000];

/** @param {string} why */
const no = (why) => new Error(`It cannot be shown: ${why}. Save it instead.`);

/** @param {Uint8Array} bytes */
export function isExr(bytes) {
  return bytes.length > 8 && new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true) === MAGIC;
}

/** Reads numbers and texts one after the other; beyond the end it throws. */
class Reader {
  /**
   * @param {Uint8Array} bytes
   * @param {number} [at]
   */
  constructor(bytes, at = 0) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.at = at;
  }

  byte() { return this.view.getUint8(this.at++); }

  int() { return this.view.getInt32((this.at += 4) - 4, true); }

  long() {
    const value = this.view.getBigUint64((this.at += 8) - 8, true);
    return value < BigInt(this.bytes.length) ? Number(value) : this.bytes.length;
  }

  word() {
    const end = this.bytes.indexOf(0, this.at);
    if (end < 0 || end - this.at > 255) throw no('a name in it has no end');
    const word = new TextDecoder().decode(this.bytes.subarray(this.at, end));
    this.at = end + 1;
    return word;
  }

  /** @param {number} length */
  take(length) {
    if (length < 0 || this.at + length > this.bytes.length) throw no('it breaks off');
    return this.bytes.subarray(this.at, (this.at += length));
  }
}

/**
 * @param {Reader} reader
 * @returns {Map<string, Uint8Array>}
 */
function attributesOf(reader) {
  const all = new Map();
  for (let name = reader.word(); name !== ''; name = reader.word()) {
    reader.word();
    all.set(name, reader.take(reader.int()));
    if (all.size > 1_000) throw no('its head is too long');
  }
  return all;
}

/**
 * @typedef {{name: string, kind: number, bytes: number, offset: number}} Channel
 * @param {Uint8Array} list
 * @returns {Channel[]}
 */
function channelsOf(list) {
  const reader = new Reader(list);
  const all = [];
  let offset = 0;
  for (let name = reader.word(); name !== ''; name = reader.word()) {
    const kind = reader.int();
    reader.int();
    if (reader.int() !== 1 || reader.int() !== 1) throw no(`channel ${name} has fewer pixels than the picture`);
    if (kind < 0 || kind > 2) throw no(`channel ${name} is of an unknown kind`);
    const bytes = kind === 1 ? 2 : 4;
    all.push({ name, kind, bytes, offset });
    offset += bytes;
    if (all.length > 256) throw no('it has more than 256 channels');
  }
  return all;
}

/**
 * The channels that are shown as red, green and blue.
 * @param {Channel[]} channels
 */
function colours(channels) {
  const layers = new Set(channels.map(({ name }) => name.slice(0, name.lastIndexOf('.') + 1)));
  for (const layer of ['', ...layers]) {
    const found = ['R', 'G', 'B'].map((name) => channels.find((channel) => channel.name === layer + name));
    if (found.every(Boolean)) return /** @type {Channel[]} */ (found);
  }
  const one = channels.find(({ name }) => /(^|\.)Y$/.test(name)) ?? channels[0];
  if (!one) throw no('it has no channels');
  return [one, one, one];
}

/** @param {number} bits */
function half(bits) {
  const [sign, exponent, part] = [bits & 0x8000 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  if (exponent === 31) return part ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 25) * (1024 + part) : 2 ** -24 * part);
}

/**
 * @param {Uint8Array} packed
 * @param {number} length
 */
function unrun(packed, length) {
  const out = new Uint8Array(length);
  let [from, to] = [0, 0];
  while (from < packed.length) {
    const count = (packed[from++] << 24) >> 24;
    const many = count < 0 ? -count : count + 1;
    if (to + many > length) throw no('a block in it is too long');
    if (count < 0) {
      out.set(packed.subarray(from, from + many), to);
      from += many;
    } else {
      out.fill(packed[from++], to, to + many);
    }
    to += many;
  }
  return out;
}

/**
 * What a compressed stream holds, which must be no longer than so many bytes.
 * @param {Uint8Array} packed
 * @param {CompressionFormat} format
 * @param {number} length
 */
export async function unpacked(packed, format, length) {
  const out = new Uint8Array(length);
  const stream = new Blob([/** @type {any} */ (packed)]).stream().pipeThrough(new DecompressionStream(format));
  const reader = stream.getReader();
  let at = 0;
  for (let { done, value } = await reader.read(); !done; { done, value } = await reader.read()) {
    const piece = /** @type {Uint8Array} */ (value).subarray(0, length - at);
    out.set(piece, at);
    at += piece.length;
    if (at === length) {
      await reader.cancel();
      break;
    }
  }
  return out.subarray(0, at);
}

/** Undoes what makes bytes of pixels easy to pack. @param {Uint8Array} bytes */
function unmixed(bytes) {
  for (let at = 1; at < bytes.length; at += 1) bytes[at] = bytes[at - 1] + bytes[at] - 128;
  const out = new Uint8Array(bytes.length);
  const middle = (bytes.length + 1) >> 1;
  for (let at = 0; at < bytes.length; at += 1) out[at] = bytes[(at & 1 ? middle : 0) + (at >> 1)];
  return out;
}

/**
 * @param {Uint8Array} packed
 * @param {number} compression
 * @param {number} length
 */
async function blockOf(packed, compression, length) {
  if (packed.length === length || compression === 0) return packed;
  const bytes = compression === 1 ? unrun(packed, length) : await unpacked(packed, 'deflate', length);
  return unmixed(bytes);
}

/**
 * A picture in linear light: three numbers for each pixel.
 * @param {Uint8Array} bytes
 * @returns {Promise<{width: number, height: number, light: Float32Array, channels: string[]}>}
 */
export async function readExr(bytes) {
  const reader = new Reader(bytes, 4);
  const version = reader.int();
  if (version & DEEP) throw no('it is a deep picture');
  if (version & PARTS) throw no('it has several parts');
  const attributes = attributesOf(reader);
  const compression = attributes.get('compression')?.[0] ?? 0;
  if (compression > 3) throw no(`${NAMES[compression] ?? 'its'} compression is not known here`);
  const box = new Reader(attributes.get('dataWindow') ?? new Uint8Array());
  const [left, top, right, bottom] = [box.int(), box.int(), box.int(), box.int()];
  const [width, height] = [right - left + 1, bottom - top + 1];
  if (!(width > 0 && height > 0 && width * height <= PIXELS_MAX)) throw no(`it has ${width} × ${height} pixels`);
  const channels = channelsOf(attributes.get('channels') ?? new Uint8Array());
  const shown = colours(channels);
  const pixelBytes = channels.reduce((all, channel) => all + channel.bytes, 0);
  const isTiled = (version & TILED) !== 0;
  const tile = isTiled ? new Reader(attributes.get('tiles') ?? new Uint8Array()) : null;
  const [across, down] = tile ? [tile.int(), tile.int()] : [width, LINES[compression]];
  if (!(across > 0 && down > 0)) throw no('its tiles have no pixels');
  if (Math.min(across, width) * Math.min(down, height) * pixelBytes > BLOCK_BYTES_MAX) throw no('its blocks are too long');
  const light = new Float32Array(3 * width * height);
  const count = Math.ceil(width / across) * Math.ceil(height / down);
  const offsets = Array.from({ length: count }, () => reader.long());
  for (const offset of offsets) {
    const block = new Reader(bytes, offset);
    const [x, y] = isTiled ? [block.int() * across, block.int() * down] : [0, block.int() - top];
    if (isTiled && (block.int() !== 0 || block.int() !== 0)) throw no('its tiles are in no order');
    const packed = block.take(block.int());
    const [wide, high] = [Math.min(across, width - x), Math.min(down, height - y)];
    if (!(x >= 0 && y >= 0 && wide > 0 && high > 0)) throw no('a block is outside of the picture');
    const length = wide * high * pixelBytes;
    const content = await blockOf(packed, compression, length);
    if (content.length !== length) throw no('a block is too short');
    const view = new DataView(content.buffer, content.byteOffset, length);
    shown.forEach(({ kind, bytes: size, offset: before }, colour) => {
      for (let row = 0; row < high; row += 1) {
        let from = row * wide * pixelBytes + wide * before;
        let to = 3 * ((y + row) * width + x) + colour;
        for (let at = 0; at < wide; at += 1, from += size, to += 3) {
          if (kind === 1) light[to] = half(view.getUint16(from, true));
          else light[to] = kind === 2 ? view.getFloat32(from, true) : view.getUint32(from, true);
        }
      }
    });
  }
  return { width, height, light, channels: channels.map(({ name }) => name) };
}
