// @ts-check
// What values look like.

/**
 * @typedef {{value: number, opacity: number, colour: [number, number, number]}} TransferPoint
 * @typedef {[number, number]} Range
 * @typedef {{points: TransferPoint[], density: number, isShaded: boolean}} Look
 */

/** Most points of a view's transfer function. */
export const POINTS_MAX = 64;

export const SHADING = { ambient: 0.3, diffuse: 0.7, specular: 0.2, shininess: 20 };

/** Layers that opacities are of, along the volume's longest side. */
const LAYERS = 100;

/**
 * Shares of the range, opacities and colours of each.
 * @type {Record<string, {title: string, isShaded: boolean, density: number, points: [number, number, string][]}>}
 */
const PRESETS = {
  usual: {
    title: 'Usual', isShaded: true, density: 0,
    points: [[0, 0, '#3a2a7a'], [0.3, 0, '#7a2a4a'], [0.5, 0.12, '#d2562e'], [0.75, 0.4, '#f0a848'], [1, 0.8, '#fff2cf']],
  },
  shell: {
    title: 'Shell', isShaded: true, density: 2,
    points: [[0, 0, '#d8a06a'], [0.42, 0, '#d8a06a'], [0.47, 0.85, '#f0c08c'], [0.52, 0, '#ffe0b8'], [1, 0, '#ffe0b8']],
  },
  soft: {
    title: 'Soft tissue', isShaded: true, density: 0,
    points: [[0, 0, '#5a1a1a'], [0.2, 0, '#8a3030'], [0.35, 0.1, '#c86a58'], [0.5, 0.22, '#e8b096'], [0.65, 0.05, '#f4d8c8'], [1, 0.02, '#ffffff']],
  },
  bone: {
    title: 'Bone', isShaded: true, density: 1,
    points: [[0, 0, '#6a4a30'], [0.55, 0, '#a07a50'], [0.65, 0.35, '#d8c098'], [0.8, 0.8, '#f4ead0'], [1, 0.95, '#ffffff']],
  },
  ray: {
    title: 'X-ray', isShaded: false, density: 0,
    points: [[0, 0, '#dfe8f0'], [1, 0.08, '#dfe8f0']],
  },
  full: {
    title: 'Full range', isShaded: false, density: 0,
    points: [[0, 0, '#440154'], [0.25, 0.06, '#3b528b'], [0.5, 0.14, '#21918c'], [0.75, 0.26, '#5ec962'], [1, 0.4, '#fde725']],
  },
};

export const PRESET_NAMES = Object.entries(PRESETS).map(([name, { title }]) => ({ name, title }));

/**
 * A range in which two values differ.
 * @param {Range} range
 * @returns {Range}
 */
export function wide([least, most]) {
  return most > least ? [least, most] : [least, least + Math.max(1, Math.abs(least) * 1e-3)];
}

/**
 * @param {string} name
 * @param {Range} range
 * @returns {Look}
 */
export function preset(name, range) {
  const [least, most] = wide(range);
  const { points, density, isShaded } = PRESETS[name];
  return {
    points: points.map(([share, opacity, colour]) =>
      ({ value: least + share * (most - least), opacity, colour: fromHex(colour) })),
    density,
    isShaded,
  };
}

/**
 * What a slice looks like: every value, and nothing shines through.
 * @param {Range} range
 * @returns {TransferPoint[]}
 */
export function flat(range) {
  const [least, most] = wide(range);
  return [{ value: least, opacity: 1, colour: [0, 0, 0] }, { value: most, opacity: 1, colour: [1, 1, 1] }];
}

/**
 * The thickness of a layer that opacities are of.
 * @param {number} longest
 * @param {number} density
 */
export function opacityUnit(longest, density) {
  return (longest / LAYERS) * 2 ** -density;
}

/**
 * @param {number} longest
 * @param {number} unit
 */
export function densityOf(longest, unit) {
  return Math.min(4, Math.max(-4, -Math.log2((unit * LAYERS) / longest)));
}

/**
 * What a function is at a value.
 * @param {TransferPoint[]} points
 * @param {number} value
 * @returns {TransferPoint}
 */
export function at(points, value) {
  const after = points.findIndex((point) => point.value >= value);
  if (after <= 0) return { ...(after === 0 ? points[0] : points[points.length - 1]), value };
  const [one, other] = [points[after - 1], points[after]];
  const share = other.value > one.value ? (value - one.value) / (other.value - one.value) : 1;
  const between = (/** @type {number} */ from, /** @type {number} */ to) => from + share * (to - from);
  return {
    value,
    opacity: between(one.opacity, other.opacity),
    colour: /** @type {[number, number, number]} */ (one.colour.map((part, of) => between(part, other.colour[of]))),
  };
}

/** @param {[number, number, number]} colour */
export function toHex(colour) {
  return `#${colour.map((part) => Math.round(255 * part).toString(16).padStart(2, '0')).join('')}`;
}

/** @param {string} text @returns {[number, number, number]} */
export function fromHex(text) {
  const part = (/** @type {number} */ from) => Number.parseInt(text.slice(from, from + 2), 16) / 255 || 0;
  return [part(1), part(3), part(5)];
}
