// @ts-check
// A path of the camera, key by key, and the specification of an animation along it.

import { fill, make, plain, say } from './dom.js';
import { SHADING } from './transfer.js';

const KEYS_MAX = 64;
const FRAMES = 120;
const FRAMES_MAX = 9_999;
const FILE = 'turn.toml';

/**
 * @typedef {import('./camera.js').Vector} Vector
 * @typedef {import('./camera.js').ViewCamera & {azimuth: number, elevation: number, distance: number}} Key
 * @typedef {{transfer: import('./transfer.js').TransferPoint[], opacity_unit: number, shading: any, size: number[]}} Looks
 */

/** @param {number} value */
function number(value) {
  const text = String(Number(value.toPrecision(7)));
  return /[.e]/.test(text) ? text : `${text}.0`;
}

/** @param {number[]} values */
const list = (values) => `[${values.map(number).join(', ')}]`;

/**
 * A specification of `gleaner submit volume`.
 * @param {string} volume
 * @param {Key[]} keys
 * @param {number} frames
 * @param {Looks} looks
 */
export function specification(volume, keys, frames, looks) {
  const [first] = keys;
  const isTurntable = keys.every(({ up }) => up.every((part, axis) => part === first.up[axis]));
  // About one axis the eye goes in arcs; else from place to place.
  const key = (/** @type {Key} */ of, /** @type {number} */ index) => {
    const at = `at = ${number(keys.length > 1 ? index / (keys.length - 1) : 0)}`;
    const arm = first.eye.map((part, axis) => part - first.target[axis]);
    const where = isTurntable
      ? [`eye = ${list(of.target.map((part, axis) => part + arm[axis]))}`, `target = ${list(of.target)}`,
        `azimuth = ${number(of.azimuth - first.azimuth)}`, `elevation = ${number(of.elevation - first.elevation)}`,
        `distance = ${number(of.distance / first.distance)}`]
      : [`eye = ${list(of.eye)}`, `target = ${list(of.target)}`, `up = ${list(of.up)}`];
    return `  { ${[at, ...where, `fov_degrees = ${number(of.fov_degrees)}`].join(', ')} },`;
  };
  return [
    `volume = ${JSON.stringify(volume)}`, 'picture = "turn.png"', `size = [${looks.size.join(', ')}]`,
    `opacity_unit = ${number(looks.opacity_unit)}`, '',
    '[camera]', `eye = ${list(first.eye)}`, `target = ${list(first.target)}`, `up = ${list(first.up)}`, `fov_degrees = ${number(first.fov_degrees)}`, '',
    ...looks.transfer.flatMap(({ value, colour, opacity }) =>
      ['[[transfer]]', `value = ${number(value)}`, `colour = ${list(colour)}`, `opacity = ${number(opacity)}`]),
    ...(looks.shading ? ['', '[shading]', ...Object.entries(SHADING).map(([name, value]) =>
      `${name} = ${name === 'shininess' ? value : number(value)}`)] : []),
    '', '[animation]', `frames = ${frames}`, 'path = [', ...keys.map(key), ']', '',
  ].join('\n');
}

export class Flight {
  /**
   * @param {{dataset: string, camera: import('./camera.js').Camera, looks: () => Looks, moved: () => void}} what
   */
  constructor(what) {
    this.what = what;
    /** @type {Key[]} */
    this.keys = [];
    this.rows = make('ol', { class: 'keys' });
    this.note = make('div', { role: 'status' });
    this.frames = /** @type {HTMLInputElement} */ (make('input', { type: 'number', min: 1, max: FRAMES_MAX, value: FRAMES }));
    this.save = /** @type {HTMLButtonElement} */ (make('button', { type: 'button', disabled: true, onclick: () => this.saves() }, 'Save as animation'));
    this.element = make('div', {},
      make('p', { class: 'soft' }, 'Turn the volume, add a key, turn it on, add another: an animation goes from key to key.'),
      this.rows,
      make('div', { class: 'tools' }, make('button', { type: 'button', onclick: () => this.add() }, 'Add key'),
        make('label', {}, 'Frames', this.frames), this.save),
      this.note);
  }

  add() {
    if (this.keys.length >= KEYS_MAX) return;
    const { azimuth, elevation, distance } = this.what.camera;
    this.keys.push({ ...this.what.camera.told(), azimuth, elevation, distance });
    this.show();
  }

  show() {
    this.save.disabled = this.keys.length === 0;
    fill(this.rows, ...this.keys.map((key, index) => make('li', {},
      `${Math.round(key.azimuth)}° around, ${Math.round(key.elevation)}° up `,
      make('button', { type: 'button', 'aria-label': `Show key ${index + 1}`, onclick: () => this.goes(key) }, 'show'), ' ',
      make('button', {
        type: 'button', 'aria-label': `Remove key ${index + 1}`,
        onclick: () => {
          this.keys.splice(index, 1);
          this.show();
        },
      }, 'remove'))));
  }

  /** @param {Key} key */
  goes(key) {
    this.what.camera.take(key);
    Object.assign(this.what.camera, { azimuth: key.azimuth, elevation: key.elevation });
    this.what.moved();
  }

  saves() {
    const frames = Math.min(FRAMES_MAX, Math.max(1, Math.round(this.frames.valueAsNumber) || FRAMES));
    const { dataset } = this.what;
    const text = specification(dataset, this.keys, frames, this.what.looks());
    const address = URL.createObjectURL(new Blob([text], { type: 'application/toml' }));
    const link = make('a', { href: address, download: FILE });
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), 1_000);
    const command = make('code');
    say(command, `gleaner submit volume ${FILE} --dataset ${plain(dataset)}`);
    fill(this.note, make('p', {}, `${FILE} is saved. This draws its frames:`), make('p', {}, command));
  }
}
