// @ts-check
// Draws a link as a QR code (ISO/IEC 18004): bytes, error correction M, up to version 20.

/** For each version: code words of error correction in a block, and blocks. */
const BLOCKS = [
  [10, 1], [16, 1], [26, 1], [18, 2], [24, 2], [16, 4], [18, 4], [22, 4], [22, 5], [26, 5],
  [30, 5], [22, 8], [22, 9], [24, 9], [24, 10], [28, 10], [28, 11], [26, 13], [26, 14], [26, 16],
];
/** Light modules around it. */
const QUIET = 4;
const SVG = 'http://www.w3.org/2000/svg';

/** Modules that carry data, in a version. @param {number} version */
function dataModules(version) {
  let modules = (16 * version + 128) * version + 64;
  if (version >= 2) {
    const aligned = Math.floor(version / 7) + 2;
    modules -= (25 * aligned - 10) * aligned - 55;
    if (version >= 7) modules -= 36;
  }
  return modules;
}

/** Code words of data in a version. @param {number} version */
function dataWords(version) {
  const [check, blocks] = BLOCKS[version - 1];
  return Math.floor(dataModules(version) / 8) - check * blocks;
}

/** Product in GF(256) with x^8 + x^4 + x^3 + x^2 + 1. @param {number} one @param {number} other */
function product(one, other) {
  let sum = 0;
  for (let bit = 7; bit >= 0; bit -= 1) {
    sum = (sum << 1) ^ ((sum >>> 7) * 0x11d);
    sum ^= ((other >>> bit) & 1) * one;
  }
  return sum;
}

/** The Reed-Solomon code of a block. @param {number[]} block @param {number} count */
function check(block, count) {
  const divisor = Array(count).fill(0);
  divisor[count - 1] = 1;
  let root = 1;
  for (let at = 0; at < count; at += 1) {
    for (let power = 0; power < count; power += 1) {
      divisor[power] = product(divisor[power], root) ^ (divisor[power + 1] ?? 0);
    }
    root = product(root, 2);
  }
  const rest = Array(count).fill(0);
  for (const word of block) {
    const factor = word ^ rest.shift();
    rest.push(0);
    divisor.forEach((of, at) => { rest[at] ^= product(of, factor); });
  }
  return rest;
}

/** All code words of a text, blocks woven into each other. @param {Uint8Array} bytes @param {number} version */
function wordsOf(bytes, version) {
  const room = dataWords(version);
  /** @type {number[]} */
  const bits = [];
  const push = (/** @type {number} */ value, /** @type {number} */ length) => {
    for (let at = length - 1; at >= 0; at -= 1) bits.push((value >>> at) & 1);
  };
  push(4, 4);
  push(bytes.length, version < 10 ? 8 : 16);
  for (const byte of bytes) push(byte, 8);
  push(0, Math.min(4, 8 * room - bits.length));
  push(0, (8 - (bits.length % 8)) % 8);
  for (let pad = 0xec; bits.length < 8 * room; pad ^= 0xec ^ 0x11) push(pad, 8);
  const data = Array.from({ length: room }, (_, at) => parseInt(bits.slice(8 * at, 8 * at + 8).join(''), 2));
  const [checks, count] = BLOCKS[version - 1];
  const short = count - (room % count);
  const [blocks, codes] = [/** @type {number[][]} */ ([]), /** @type {number[][]} */ ([])];
  for (let at = 0, begin = 0; at < count; at += 1) {
    const end = begin + Math.floor(room / count) + (at < short ? 0 : 1);
    blocks.push(data.slice(begin, end));
    codes.push(check(data.slice(begin, end), checks));
    begin = end;
  }
  const woven = [];
  for (let at = 0; at <= Math.floor(room / count); at += 1) {
    for (const block of blocks) if (at < block.length) woven.push(block[at]);
  }
  for (let at = 0; at < checks; at += 1) for (const code of codes) woven.push(code[at]);
  return woven;
}

/** Where the centres of alignment patterns are. @param {number} version */
function alignments(version) {
  if (version === 1) return [];
  const count = Math.floor(version / 7) + 2;
  const step = Math.ceil((4 * version + 4) / (2 * count - 2)) * 2;
  const at = [6];
  for (let place = 4 * version + 10; at.length < count; place -= step) at.splice(1, 0, place);
  return at;
}

const MASKS = /** @type {((x: number, y: number) => boolean)[]} */ ([
  (x, y) => (x + y) % 2 === 0,
  (_, y) => y % 2 === 0,
  (x) => x % 3 === 0,
  (x, y) => (x + y) % 3 === 0,
  (x, y) => (Math.floor(x / 3) + Math.floor(y / 2)) % 2 === 0,
  (x, y) => ((x * y) % 2) + ((x * y) % 3) === 0,
  (x, y) => (((x * y) % 2) + ((x * y) % 3)) % 2 === 0,
  (x, y) => (((x + y) % 2) + ((x * y) % 3)) % 2 === 0,
]);

/** A number with its BCH code. @param {number} value @param {number} divisor @param {number} bits */
function withCode(value, divisor, bits) {
  let rest = value;
  for (let at = 0; at < bits; at += 1) rest = (rest << 1) ^ ((rest >>> (bits - 1)) * divisor);
  return (value << bits) | rest;
}

/** How much a pattern looks like one that readers look for, or is unbalanced. @param {boolean[][]} grid */
function penalty(grid) {
  const size = grid.length;
  let sum = 0;
  const lines = [...grid, ...grid.map((_, x) => grid.map((row) => row[x]))];
  for (const line of lines) {
    const text = line.map((dark) => (dark ? '1' : '0')).join('');
    for (const run of text.match(/0{5,}|1{5,}/g) ?? []) sum += run.length - 2;
    for (let at = 0; at + 11 <= size; at += 1) {
      const part = text.slice(at, at + 11);
      if (part === '10111010000' || part === '00001011101') sum += 40;
    }
  }
  for (let y = 1; y < size; y += 1) {
    for (let x = 1; x < size; x += 1) {
      if (grid[y][x] === grid[y - 1][x] && grid[y][x] === grid[y][x - 1] && grid[y][x] === grid[y - 1][x - 1]) sum += 3;
    }
  }
  const dark = grid.flat().filter(Boolean).length / (size * size);
  return sum + 10 * Math.floor(Math.abs(dark - 0.5) * 20);
}

/**
 * The modules of a text, true where they are dark; nothing where it is too long.
 * @param {string} text
 * @returns {boolean[][] | null}
 */
export function modulesOf(text) {
  const bytes = new TextEncoder().encode(text);
  let version = 1;
  while (version <= BLOCKS.length && 8 * dataWords(version) < 4 + (version < 10 ? 8 : 16) + 8 * bytes.length) version += 1;
  if (version > BLOCKS.length) return null;
  const size = 4 * version + 17;
  const grid = Array.from({ length: size }, () => Array(size).fill(false));
  const fixed = Array.from({ length: size }, () => Array(size).fill(false));
  const set = (/** @type {number} */ x, /** @type {number} */ y, /** @type {boolean} */ dark) => {
    if (x < 0 || y < 0 || x >= size || y >= size) return;
    grid[y][x] = dark;
    fixed[y][x] = true;
  };
  for (let at = 0; at < size; at += 1) {
    set(6, at, at % 2 === 0);
    set(at, 6, at % 2 === 0);
  }
  for (const [x, y] of [[3, 3], [size - 4, 3], [3, size - 4]]) {
    for (let dy = -4; dy <= 4; dy += 1) {
      for (let dx = -4; dx <= 4; dx += 1) {
        const ring = Math.max(Math.abs(dx), Math.abs(dy));
        set(x + dx, y + dy, ring !== 2 && ring !== 4);
      }
    }
  }
  const centres = alignments(version);
  const last = centres.length - 1;
  centres.forEach((x, column) => centres.forEach((y, row) => {
    if ((column === 0 && row === 0) || (column === 0 && row === last) || (column === last && row === 0)) return;
    for (let dy = -2; dy <= 2; dy += 1) {
      for (let dx = -2; dx <= 2; dx += 1) set(x + dx, y + dy, Math.max(Math.abs(dx), Math.abs(dy)) !== 1);
    }
  }));
  if (version >= 7) {
    const bits = withCode(version, 0x1f25, 12);
    for (let at = 0; at < 18; at += 1) {
      const [far, near] = [size - 11 + (at % 3), Math.floor(at / 3)];
      set(far, near, ((bits >>> at) & 1) === 1);
      set(near, far, ((bits >>> at) & 1) === 1);
    }
  }
  const format = (/** @type {number} */ mask) => {
    // Of error correction M the first two bits are 0.
    const bits = withCode(mask, 0x537, 10) ^ 0x5412;
    const bit = (/** @type {number} */ at) => ((bits >>> at) & 1) === 1;
    for (let at = 0; at < 6; at += 1) set(8, at, bit(at));
    set(8, 7, bit(6));
    set(8, 8, bit(7));
    set(7, 8, bit(8));
    for (let at = 9; at < 15; at += 1) set(14 - at, 8, bit(at));
    for (let at = 0; at < 8; at += 1) set(size - 1 - at, 8, bit(at));
    for (let at = 8; at < 15; at += 1) set(8, size - 15 + at, bit(at));
    set(8, size - 8, true);
  };
  format(0);
  const words = wordsOf(bytes, version);
  let next = 0;
  for (let right = size - 1; right >= 1; right -= 2) {
    if (right === 6) right = 5;
    for (let down = 0; down < size; down += 1) {
      for (const x of [right, right - 1]) {
        const y = ((right + 1) & 2) === 0 ? size - 1 - down : down;
        if (fixed[y][x]) continue;
        if (next < 8 * words.length) grid[y][x] = ((words[next >>> 3] >>> (7 - (next & 7))) & 1) === 1;
        next += 1;
      }
    }
  }
  const masked = (/** @type {number} */ mask) => {
    format(mask);
    return grid.map((row, y) => row.map((dark, x) => (fixed[y][x] ? dark : dark !== MASKS[mask](x, y))));
  };
  const all = MASKS.map((_, mask) => masked(mask));
  return all.reduce((best, one) => (penalty(one) < penalty(best) ? one : best));
}

/**
 * A picture of a text that a camera reads; nothing where it is too long.
 * @param {string} text
 * @param {string} label
 */
export function pictureOf(text, label) {
  const modules = modulesOf(text);
  if (!modules) return null;
  const side = modules.length + 2 * QUIET;
  const picture = document.createElementNS(SVG, 'svg');
  picture.setAttribute('viewBox', `0 0 ${side} ${side}`);
  picture.setAttribute('class', 'qr');
  picture.setAttribute('role', 'img');
  picture.setAttribute('aria-label', label);
  picture.setAttribute('shape-rendering', 'crispEdges');
  const path = document.createElementNS(SVG, 'path');
  const squares = modules.flatMap((row, y) => row.flatMap((dark, x) => (dark ? [`M${x + QUIET} ${y + QUIET}h1v1h-1z`] : [])));
  path.setAttribute('d', squares.join(''));
  picture.append(path);
  return picture;
}
