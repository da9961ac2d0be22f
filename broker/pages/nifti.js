// @ts-check
// Reads the first volume of a NIfTI-1 file.

import { PIXELS_MAX, unpacked } from './exr.js';

/** Most bytes of voxels that are read. */
const VOXEL_BYTES_MAX = 256 << 20;
const HEAD_BYTES = 348;

/** How voxels are read, by the number of their kind. */
const KINDS = /** @type {Record<number, {bytes: number, get: (view: DataView, at: number, little: boolean) => number}>} */ ({
  2: { bytes: 1, get: (view, at) => view.getUint8(at) },
  4: { bytes: 2, get: (view, at, little) => view.getInt16(at, little) },
  8: { bytes: 4, get: (view, at, little) => view.getInt32(at, little) },
  16: { bytes: 4, get: (view, at, little) => view.getFloat32(at, little) },
  64: { bytes: 8, get: (view, at, little) => view.getFloat64(at, little) },
  256: { bytes: 1, get: (view, at) => view.getInt8(at) },
  512: { bytes: 2, get: (view, at, little) => view.getUint16(at, little) },
  768: { bytes: 4, get: (view, at, little) => view.getUint32(at, little) },
});

/** @param {string} why */
const no = (why) => new Error(`It cannot be shown: ${why}. Save it instead.`);

/** @param {Uint8Array} bytes */
const isPacked = (bytes) => bytes[0] === 0x1f && bytes[1] === 0x8b;

/**
 * @typedef {{size: number[], at: (x: number, y: number, z: number) => number, range: [number, number]}} Volume
 * @param {Uint8Array} file
 * @returns {Promise<Volume>}
 */
export async function readNifti(file) {
  const start = isPacked(file) ? await unpacked(file, 'gzip', HEAD_BYTES) : file;
  if (start.length < HEAD_BYTES) throw no('it breaks off');
  const head = new DataView(start.buffer, start.byteOffset, HEAD_BYTES);
  const little = head.getInt32(0, true) === HEAD_BYTES;
  if (!little && head.getInt32(0, false) !== HEAD_BYTES) throw no('it is no NIfTI-1 file');
  if (head.getUint32(344, false) !== 0x6e2b3100) throw no('its voxels are in another file');
  const sides = Math.min(3, Math.max(0, head.getInt16(40, little)));
  const size = [0, 1, 2].map((side) => (side < sides ? head.getInt16(42 + 2 * side, little) : 1));
  const kind = KINDS[head.getInt16(70, little)];
  if (!kind) throw no('its voxels are of a kind that is not known here');
  const voxels = size.reduce((all, side) => all * side, 1);
  const begin = head.getFloat32(108, little);
  const end = begin + voxels * kind.bytes;
  if (!(size.every((side) => side > 0) && begin >= HEAD_BYTES && end <= VOXEL_BYTES_MAX)) throw no(`it has ${size.join(' × ')} voxels`);
  if (size[0] * size[1] > PIXELS_MAX) throw no(`a slice of it has ${size[0]} × ${size[1]} pixels`);
  const all = isPacked(file) ? await unpacked(file, 'gzip', end) : file;
  if (all.length < end) throw no('it breaks off');
  const view = new DataView(all.buffer, all.byteOffset, all.byteLength);
  const [slope, more] = [head.getFloat32(112, little), head.getFloat32(116, little)];
  const scale = Number.isFinite(slope) && slope !== 0 ? slope : 1;
  const shift = Number.isFinite(more) && scale === slope ? more : 0;
  const at = (/** @type {number} */ x, /** @type {number} */ y, /** @type {number} */ z) =>
    scale * kind.get(view, begin + kind.bytes * (x + size[0] * (y + size[1] * z)), little) + shift;
  return { size, at, range: rangeOf(size, at) };
}

/**
 * What is shown from black to white: most of the values.
 * @param {number[]} size
 * @param {Volume['at']} at
 * @returns {[number, number]}
 */
function rangeOf(size, at) {
  const steps = size.map((side) => Math.max(1, Math.ceil(side / 48)));
  /** @type {number[]} */
  const values = [];
  for (let z = 0; z < size[2]; z += steps[2]) {
    for (let y = 0; y < size[1]; y += steps[1]) {
      for (let x = 0; x < size[0]; x += steps[0]) {
        const value = at(x, y, z);
        if (Number.isFinite(value)) values.push(value);
      }
    }
  }
  values.sort((one, other) => one - other);
  const part = (/** @type {number} */ share) => values[Math.round(share * (values.length - 1))] ?? 0;
  const [low, high] = [part(0.01), part(0.995)];
  return low < high ? [low, high] : [part(0), Math.max(part(1), part(0) + 1)];
}
