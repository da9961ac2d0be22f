// @ts-check
// What is seen of a view, as a link carries it. Links come from anybody: what is no state is none.

import { densityOf, fromHex, POINTS_MAX, toHex } from './transfer.js';

/**
 * @typedef {import('./camera.js').ViewCamera} ViewCamera
 * @typedef {import('./transfer.js').Look} Look
 * @typedef {{dataset: string, camera: ViewCamera, look: Look, cut: import('./cuts.js').Cut}} Saved
 */

const LINK_CHARS_MAX = 8_192;
const FAR = 1e12;

/** @param {number} value */
const short = (value) => Number(value.toPrecision(6));

/** @param {Saved} saved */
export function encode({ dataset, camera: { eye, target, up, fov_degrees: fov }, look, cut }) {
  const told = {
    d: dataset,
    c: [...eye, ...target, ...up, fov].map(short),
    t: look.points.map(({ value, opacity, colour }) => [short(value), short(opacity), toHex(colour).slice(1)]),
    o: short(look.density),
    l: look.isShaded ? 1 : 0,
    k: cut.clip.flat().map(short),
    s: [cut.slice.axis, cut.slice.at],
    n: cut.step,
  };
  const bytes = new TextEncoder().encode(JSON.stringify(told));
  return btoa(String.fromCharCode(...bytes)).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');
}

/**
 * @param {unknown} of
 * @param {number} count
 * @param {number} [least]
 * @param {number} [most]
 * @returns {of is number[]}
 */
function areNumbers(of, count, least = -FAR, most = FAR) {
  return Array.isArray(of) && of.length === count
    && of.every((value) => typeof value === 'number' && value >= least && value <= most);
}

/**
 * @param {string} text
 * @returns {Saved | null}
 */
export function decode(text) {
  if (text.length > LINK_CHARS_MAX) return null;
  try {
    const bytes = Uint8Array.from(atob(text.replaceAll('-', '+').replaceAll('_', '/')), (of) => of.charCodeAt(0));
    const { d, c, t, o, l, k, s, n } = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
    const isPoint = (/** @type {unknown} */ of) => Array.isArray(of) && areNumbers([of[0]], 1) && areNumbers([of[1]], 1, 0, 1) && /^[0-9a-f]{6}$/.test(of[2]);
    const isGood = typeof d === 'string' && areNumbers(c, 10) && isCamera(c)
      && Array.isArray(t) && t.length >= 1 && t.length <= POINTS_MAX && t.every(isPoint)
      && areNumbers([o], 1, -4, 4) && areNumbers(k, 6, 0, 1) && [0, 2, 4].every((at) => k[at] <= k[at + 1])
      && areNumbers(s, 2, -1, 1e6) && s.every(Number.isInteger) && s[0] <= 2 && s[1] >= 0
      && Number.isInteger(n) && n >= 0;
    if (!isGood) return null;
    const points = t.map(([value, opacity, colour]) => ({ value, opacity, colour: fromHex(`#${colour}`) }));
    points.sort((one, other) => one.value - other.value);
    return {
      dataset: d,
      camera: {
        eye: [c[0], c[1], c[2]], target: [c[3], c[4], c[5]], up: [c[6], c[7], c[8]], fov_degrees: c[9],
      },
      look: { points, density: o, isShaded: l === 1 },
      cut: { clip: [[k[0], k[1]], [k[2], k[3]], [k[4], k[5]]], slice: { axis: s[0], at: s[1] }, step: n },
    };
  } catch {
    return null;
  }
}

/** @param {number[]} c */
function isCamera(c) {
  const arm = [0, 1, 2].map((axis) => c[axis] - c[3 + axis]);
  return Math.hypot(...arm) > 0 && Math.hypot(c[6], c[7], c[8]) > 0 && c[9] >= 1 && c[9] <= 170;
}

/**
 * What a broker knows of a view.
 * @param {any} status
 * @param {number} longest
 * @returns {Saved | null}
 */
export function known({ dataset, state }, longest) {
  if (!state) return null;
  return {
    dataset,
    camera: state.camera,
    look: { points: state.transfer, density: densityOf(longest, state.opacity_unit), isShaded: state.shading !== null },
    cut: { clip: state.clip, slice: { axis: -1, at: 0 }, step: state.step },
  };
}
