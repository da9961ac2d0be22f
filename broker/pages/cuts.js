// @ts-check
// Which part of a volume is seen, one slice of it, and which step of time.

import { make, say } from './dom.js';

const AXES = ['x', 'y', 'z'];
/** How long a step of time is shown at least. */
const STEP_MS = 200;

/**
 * @typedef {{axis: number, at: number}} Slice of no axis where it is -1; a voxel's number
 * @typedef {{clip: [number, number][], slice: Slice, step: number}} Cut
 */

/** @returns {Cut} */
export function uncut() {
  return { clip: [[0, 1], [0, 1], [0, 1]], slice: { axis: -1, at: 0 }, step: 0 };
}

/**
 * The part of a volume that is seen: of a slice, one voxel across it.
 * @param {Cut} cut
 * @param {import('./camera.js').Vector} size
 */
export function clipOf({ clip, slice }, size) {
  if (slice.axis < 0) return clip;
  // From the middle of the first voxel to that of the last one.
  const steps = Math.max(size[slice.axis] - 1, 1);
  const at = Math.min(slice.at, steps);
  return clip.map((part, axis) =>
    (axis === slice.axis ? [Math.max(0, (at - 0.5) / steps), Math.min(1, (at + 0.5) / steps)] : part));
}

export class Cuts {
  /**
   * @param {{size: import('./camera.js').Vector, steps: number}} status
   * @param {Cut} cut
   * @param {() => void} changed
   */
  constructor({ size, steps }, cut, changed) {
    this.size = size;
    this.steps = steps;
    this.cut = cut;
    this.changed = changed;
    this.playing = 0;
    const axis = /** @type {HTMLSelectElement} */ (make('select', {
      onchange: () => {
        cut.slice.axis = Number(axis.value);
        if (cut.slice.axis >= 0) cut.slice.at = Math.floor(size[cut.slice.axis] / 2);
        this.show();
        changed();
      },
    }, make('option', { value: -1 }, 'none'), ...AXES.map((name, of) => make('option', { value: of }, `across ${name}`))));
    this.axis = axis;
    this.at = /** @type {HTMLInputElement} */ (make('input', {
      type: 'range', min: 0, max: 1, step: 1,
      oninput: () => {
        cut.slice.at = Number(this.at.value);
        this.show();
        changed();
      },
    }));
    this.atText = make('output');
    /** @type {HTMLInputElement[][]} */
    this.inputs = [];
    /** @type {HTMLElement[]} */
    this.texts = [];
    const rows = AXES.map((name, of) => this.row(name, of));
    this.element = make('div', {},
      make('div', { class: 'cuts' }, ...rows.flat()),
      make('div', { class: 'tools' },
        make('button', { type: 'button', onclick: () => this.whole() }, 'Show all'),
        make('label', {}, 'Slice', axis), make('label', {}, 'at', this.at), this.atText),
      steps > 1 && this.time());
    this.show();
  }

  close() {
    this.pause();
  }

  /**
   * @param {string} name
   * @param {number} of
   */
  row(name, of) {
    const part = this.cut.clip[of];
    const inputs = ['from', 'to'].map((word, end) => {
      const input = /** @type {HTMLInputElement} */ (make('input', {
        type: 'range', min: 0, max: 1, step: 0.005, 'aria-label': `${name} ${word}`,
        oninput: () => {
          part[end] = Number(input.value);
          // The other end is pushed on.
          if (part[0] > part[1]) part[1 - end] = part[end];
          this.show();
          this.changed();
        },
      }));
      return input;
    });
    this.inputs.push(inputs);
    const text = make('output', { class: 'soft' });
    this.texts.push(text);
    return [make('span', {}, name), ...inputs, text];
  }

  whole() {
    this.cut.clip.forEach((part) => part.splice(0, 2, 0, 1));
    this.cut.slice.axis = -1;
    this.show();
    this.changed();
  }

  time() {
    this.step = /** @type {HTMLInputElement} */ (make('input', {
      type: 'range', min: 0, max: this.steps - 1, step: 1,
      oninput: () => {
        this.pause();
        this.cut.step = Number(this.step?.value);
        this.show();
        this.changed();
      },
    }));
    this.stepText = make('output');
    this.play = make('button', { type: 'button', 'aria-pressed': 'false', onclick: () => (this.playing ? this.pause() : this.run()) }, 'Play');
    return make('div', { class: 'tools' }, make('label', {}, 'Step of time', this.step), this.stepText, this.play);
  }

  run() {
    this.play?.setAttribute('aria-pressed', 'true');
    this.playing = setInterval(() => {
      if (document.hidden) return;
      this.cut.step = (this.cut.step + 1) % this.steps;
      this.show();
      this.changed();
    }, STEP_MS);
  }

  pause() {
    clearInterval(this.playing);
    this.playing = 0;
    this.play?.setAttribute('aria-pressed', 'false');
  }

  show() {
    const { clip, slice, step } = this.cut;
    clip.forEach((part, of) => {
      part.forEach((value, end) => { this.inputs[of][end].value = String(value); });
      say(this.texts[of], part.map((value) => `${Math.round(value * 100)} %`).join(' to '));
    });
    const isSliced = slice.axis >= 0;
    this.axis.value = String(slice.axis);
    this.at.disabled = !isSliced;
    if (isSliced) {
      this.at.max = String(this.size[slice.axis] - 1);
      this.at.value = String(slice.at);
    }
    say(this.atText, isSliced ? `${slice.at + 1} of ${this.size[slice.axis]}` : '');
    if (this.step) this.step.value = String(step);
    if (this.stepText) say(this.stepText, `${step + 1} of ${this.steps}`);
  }
}
