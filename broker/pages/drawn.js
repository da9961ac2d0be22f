// @ts-check
// Pictures that no browser shows by itself, drawn: EXR, and slices of NIfTI volumes.

import { readExr } from './exr.js';
import { fill, make, plain, say } from './dom.js';
import { readNifti } from './nifti.js';

/**
 * A canvas and what draws into it.
 * @param {string} label
 * @param {number} width
 * @param {number} height
 */
function canvasOf(label, width, height) {
  const canvas = /** @type {HTMLCanvasElement} */ (make('canvas', { width, height, role: 'img', 'aria-label': label, class: 'drawn' }));
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
  const picture = context.createImageData(width, height);
  picture.data.fill(255);
  return { canvas, pixels: picture.data, draw: () => context.putImageData(picture, 0, 0) };
}

/**
 * A slider with its value beside it.
 * @param {string} title
 * @param {{min: number, max: number, step: number, value: number}} range
 * @param {(value: number) => void} changed
 */
function slider(title, range, changed) {
  const told = make('span', {}, String(range.value));
  const input = /** @type {HTMLInputElement} */ (make('input', {
    type: 'range', ...range,
    oninput: () => {
      say(told, input.value);
      changed(Number(input.value));
    },
  }));
  return make('label', {}, title, input, told);
}

/** From linear light to what a screen is sent, for so many steps. */
const SCREEN = Uint8ClampedArray.from({ length: 4_096 }, (_, at) => {
  const light = at / 4_095;
  return 255 * (light <= 0.0031308 ? 12.92 * light : 1.055 * light ** (1 / 2.4) - 0.055);
});

/**
 * What is read of a file, or in words why it cannot be.
 * @template T
 * @param {Promise<T>} reading
 */
async function readable(reading) {
  try {
    return await reading;
  } catch (error) {
    if (error instanceof Error && error.message.startsWith('It cannot')) throw error;
    throw new Error('It cannot be shown: it is damaged. Save it instead.');
  }
}

/**
 * @param {Uint8Array} bytes
 * @param {string} label
 * @param {HTMLElement} place
 */
export async function showExr(bytes, label, place) {
  const { width, height, light, channels } = await readable(readExr(bytes));
  const { canvas, pixels, draw } = canvasOf(label, width, height);
  const expose = (/** @type {number} */ stops) => {
    const scale = 4_095 * 2 ** stops;
    for (let at = 0, to = 0; at < light.length; to += 4) {
      for (let colour = 0; colour < 3; colour += 1, at += 1) {
        // What is no number is black.
        pixels[to + colour] = SCREEN[Math.min(4_095, Math.max(0, Math.round(light[at] * scale))) || 0];
      }
    }
    draw();
  };
  expose(0);
  fill(place, make('div', { class: 'tools' }, slider('Exposure in stops', { min: -10, max: 10, step: 0.5, value: 0 }, expose)),
    canvas, make('p', { class: 'soft' }, `${width} × ${height}, channels ${plain(channels.slice(0, 20).join(', '), 300)}`));
}

/**
 * @param {Uint8Array} bytes
 * @param {string} label
 * @param {HTMLElement} place
 */
export async function showNifti(bytes, label, place) {
  const { size: [width, height, depth], at, range: [low, high] } = await readable(readNifti(bytes));
  const { canvas, pixels, draw } = canvasOf(label, width, height);
  const cut = (/** @type {number} */ z) => {
    for (let y = 0, to = 0; y < height; y += 1) {
      for (let x = 0; x < width; x += 1, to += 4) {
        const shade = (255 * (at(x, height - 1 - y, z) - low)) / (high - low);
        pixels.fill(Number.isFinite(shade) ? shade : 0, to, to + 3);
      }
    }
    draw();
  };
  canvas.classList.add('slice');
  const middle = depth >> 1;
  cut(middle);
  fill(place, make('div', { class: 'tools' }, slider('Slice', { min: 0, max: depth - 1, step: 1, value: middle }, cut)),
    canvas, make('p', { class: 'soft' }, `${width} × ${height} × ${depth} voxels, black is ${low.toPrecision(4)}, white ${high.toPrecision(4)}`));
}
