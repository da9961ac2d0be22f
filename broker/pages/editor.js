// @ts-check
// Changes what values look like: points over a histogram, and the same points as a table.

import { fill, make, say } from './dom.js';
import { at, fromHex, POINTS_MAX, preset, PRESET_NAMES, toHex, wide } from './transfer.js';

const SPACE = 'http://www.w3.org/2000/svg';
const [WIDTH, HEIGHT, EDGE] = [600, 170, 12];
/** How far from a point a pointer still takes it. */
const REACH = 14;

/**
 * @param {string} tag
 * @param {Record<string, string | number>} properties
 */
function shape(tag, properties) {
  const element = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(properties)) element.setAttribute(name, String(value));
  return element;
}

/** @param {number} value */
function short(value) {
  return String(Number(value.toPrecision(5)));
}

export class Editor {
  /** @param {{changed: () => void}} what */
  constructor(what) {
    this.what = what;
    /** @type {import('./transfer.js').Range} */
    this.range = [0, 1];
    /** @type {import('./transfer.js').Look} */
    this.look = preset('usual', this.range);
    /** @type {number[]} */
    this.counts = [];
    this.held = -1;
    this.fade = shape('linearGradient', { id: 'look-colours', gradientUnits: 'userSpaceOnUse', x1: EDGE, x2: WIDTH - EDGE, y1: 0, y2: 0 });
    this.bars = shape('path', { class: 'bars' });
    this.area = shape('path', { fill: 'url(#look-colours)' });
    this.line = shape('polyline', { class: 'curve' });
    this.handles = shape('g', {});
    this.svg = shape('svg', {
      class: 'look', viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img',
      'aria-label': 'Opacity over values, with how often each value is there. The table below has the points.',
    });
    this.svg.append(this.fade, this.bars, this.area, this.line, this.handles);
    this.byPointer();
    this.rows = make('tbody');
    this.count = make('span', { class: 'soft', role: 'status' });
    this.scale = make('p', { class: 'soft scale' });
    this.density = /** @type {HTMLInputElement} */ (make('input', {
      type: 'range', min: -4, max: 4, step: 0.1,
      oninput: () => {
        this.look.density = Number(this.density.value);
        this.what.changed();
      },
    }));
    this.shaded = /** @type {HTMLInputElement} */ (make('input', {
      type: 'checkbox',
      onchange: () => {
        this.look.isShaded = this.shaded.checked;
        this.what.changed();
      },
    }));
    this.add = /** @type {HTMLButtonElement} */ (make('button', { type: 'button', onclick: () => this.widest() }, 'Add a point'));
    this.element = make('div', {},
      make('div', { class: 'tools', role: 'group', 'aria-label': 'Ready-made looks' },
        ...PRESET_NAMES.map(({ name, title }) => make('button', { type: 'button', 'data-preset': name, onclick: () => this.ready(name) }, title))),
      this.svg, this.scale,
      make('div', { class: 'tools' }, make('label', {}, 'Thin to dense', this.density), make('label', {}, this.shaded, 'Light'), this.add, this.count),
      make('div', { class: 'scroll short', tabindex: 0, role: 'group', 'aria-label': 'Points' },
        make('table', {}, make('caption', { class: 'hidden' }, 'Points of the transfer function'),
          make('thead', {}, make('tr', {}, ...['value', 'opacity', 'colour', 'do'].map((title) => make('th', { scope: 'col' }, title)))),
          this.rows)));
  }

  /**
   * Which look is changed.
   * @param {import('./transfer.js').Look} look
   * @param {import('./transfer.js').Range} range
   * @param {number[]} counts
   */
  show(look, range, counts) {
    this.look = look;
    this.range = wide(range);
    this.counts = counts;
    this.drawBars();
    this.list();
    this.draw();
  }

  /** @param {string} name */
  ready(name) {
    Object.assign(this.look, preset(name, this.range));
    this.list();
    this.changed();
  }

  changed() {
    this.draw();
    this.what.changed();
  }

  /** @param {number} value */
  x(value) {
    const [least, most] = this.range;
    return EDGE + ((value - least) / (most - least)) * (WIDTH - 2 * EDGE);
  }

  /** @param {number} opacity */
  y(opacity) {
    return HEIGHT - EDGE - opacity * (HEIGHT - 2 * EDGE);
  }

  /** @param {PointerEvent | MouseEvent} event */
  spot(event) {
    const box = this.svg.getBoundingClientRect();
    const [x, y] = [((event.clientX - box.left) / box.width) * WIDTH, ((event.clientY - box.top) / box.height) * HEIGHT];
    const [least, most] = this.range;
    const share = (/** @type {number} */ of) => Math.min(1, Math.max(0, of));
    return {
      x, y,
      value: least + share((x - EDGE) / (WIDTH - 2 * EDGE)) * (most - least),
      opacity: share((HEIGHT - EDGE - y) / (HEIGHT - 2 * EDGE)),
    };
  }

  /** @param {{x: number, y: number}} spot */
  near({ x, y }) {
    const far = this.look.points.map((point) => Math.hypot(this.x(point.value) - x, this.y(point.opacity) - y));
    const nearest = far.indexOf(Math.min(...far));
    return far[nearest] <= REACH ? nearest : -1;
  }

  byPointer() {
    const svg = /** @type {any} */ (this.svg);
    svg.addEventListener('pointerdown', (/** @type {PointerEvent} */ event) => {
      this.held = this.near(this.spot(event));
      if (this.held < 0) return;
      svg.setPointerCapture(event.pointerId);
      event.preventDefault();
    });
    svg.addEventListener('pointermove', (/** @type {PointerEvent} */ event) => {
      if (this.held < 0) return;
      const { value, opacity } = this.spot(event);
      const { points } = this.look;
      const [before, after] = [points[this.held - 1]?.value ?? -Infinity, points[this.held + 1]?.value ?? Infinity];
      Object.assign(points[this.held], { value: Math.min(after, Math.max(before, value)), opacity });
      this.writeRow(this.held);
      this.changed();
    });
    for (const end of ['pointerup', 'pointercancel', 'lostpointercapture']) {
      svg.addEventListener(end, () => { this.held = -1; });
    }
    svg.addEventListener('dblclick', (/** @type {MouseEvent} */ event) => {
      const spot = this.spot(event);
      if (this.near(spot) < 0) this.put({ ...at(this.look.points, spot.value), opacity: spot.opacity });
    });
  }

  /** A point in the middle of the widest gap. */
  widest() {
    const { points } = this.look;
    const values = [this.range[0], ...points.map(({ value }) => value), this.range[1]];
    let found = 1;
    for (let of = 1; of < values.length; of += 1) {
      if (values[of] - values[of - 1] > values[found] - values[found - 1]) found = of;
    }
    this.put(at(points, (values[found - 1] + values[found]) / 2));
  }

  /** @param {import('./transfer.js').TransferPoint} point */
  put(point) {
    const { points } = this.look;
    if (points.length >= POINTS_MAX) return;
    points.push(point);
    this.sort();
    this.focus(points.indexOf(point));
    this.changed();
  }

  /** @param {number} index */
  drop(index) {
    const { points } = this.look;
    if (points.length <= 1) return;
    points.splice(index, 1);
    this.list();
    this.focus(Math.min(index, points.length - 1));
    this.changed();
  }

  sort() {
    this.look.points.sort((one, other) => one.value - other.value);
    this.list();
  }

  /**
   * Puts a point in its place, which may be another one.
   * @param {import('./transfer.js').TransferPoint} point
   */
  moved(point) {
    const { points } = this.look;
    const before = points.indexOf(point);
    points.sort((one, other) => one.value - other.value);
    const now = points.indexOf(point);
    if (now === before) return;
    this.list();
    // The field that was left, or was about to be, is another one now.
    setTimeout(() => {
      if (document.activeElement === document.body) this.focus(now);
    });
  }

  /** @param {number} index */
  focus(index) {
    /** @type {HTMLElement | null | undefined} */ (this.rows.children[index]?.querySelector('input'))?.focus();
  }

  list() {
    const { points } = this.look;
    this.density.value = String(this.look.density);
    this.shaded.checked = this.look.isShaded;
    this.add.disabled = points.length >= POINTS_MAX;
    say(this.count, `${points.length} points`);
    fill(this.rows, ...points.map((point, index) => this.row(point, index)));
  }

  /**
   * @param {import('./transfer.js').TransferPoint} point
   * @param {number} index
   */
  row(point, index) {
    const number = index + 1;
    const value = make('input', {
      type: 'number', step: 'any', value: short(point.value), 'aria-label': `Value of point ${number}`,
      onchange: (/** @type {any} */ event) => {
        if (!Number.isFinite(event.target.valueAsNumber)) return;
        point.value = Math.fround(event.target.valueAsNumber);
        this.moved(point);
        this.changed();
      },
    });
    const opacity = make('input', {
      type: 'number', step: 0.01, min: 0, max: 1, value: short(point.opacity), 'aria-label': `Opacity of point ${number}`,
      oninput: (/** @type {any} */ event) => {
        if (!Number.isFinite(event.target.valueAsNumber)) return;
        point.opacity = Math.min(1, Math.max(0, event.target.valueAsNumber));
        this.changed();
      },
    });
    const colour = make('input', {
      type: 'color', value: toHex(point.colour), 'aria-label': `Colour of point ${number}`,
      oninput: (/** @type {any} */ event) => {
        point.colour = fromHex(event.target.value);
        this.changed();
      },
    });
    return make('tr', {}, make('td', {}, value), make('td', {}, opacity), make('td', {}, colour),
      make('td', {}, make('button', { type: 'button', 'aria-label': `Remove point ${number}`, onclick: () => this.drop(index) }, 'remove')));
  }

  /** @param {number} index */
  writeRow(index) {
    const inputs = this.rows.children[index]?.querySelectorAll('input');
    if (!inputs) return;
    inputs[0].value = short(this.look.points[index].value);
    inputs[1].value = short(this.look.points[index].opacity);
  }

  draw() {
    const { points } = this.look;
    const [least, most] = this.range;
    const corners = [at(points, least), ...points.filter(({ value }) => value >= least && value <= most), at(points, most)];
    const line = corners.map(({ value, opacity }) => `${this.x(value).toFixed(1)},${this.y(opacity).toFixed(1)}`);
    this.line.setAttribute('points', line.join(' '));
    this.area.setAttribute('d', `M${EDGE},${this.y(0)} L${line.join(' L')} L${WIDTH - EDGE},${this.y(0)} Z`);
    this.fade.replaceChildren(...corners.map(({ value, colour }) =>
      shape('stop', { offset: (value - least) / (most - least), 'stop-color': toHex(colour) })));
    this.handles.replaceChildren(...points.map(({ value, opacity, colour }) =>
      shape('circle', { cx: this.x(value), cy: this.y(opacity), r: 7, fill: toHex(colour) })));
    say(this.scale, `Values from ${short(least)} to ${short(most)}. Drag a point, or press twice for another one.`);
  }

  /** Counts are told apart by their logarithms: most voxels are of the background. */
  drawBars() {
    const most = Math.log1p(Math.max(0, ...this.counts));
    if (!(most > 0)) {
      this.bars.setAttribute('d', '');
      return;
    }
    const width = (WIDTH - 2 * EDGE) / this.counts.length;
    const tops = this.counts.map((count, index) => {
      const y = this.y(Math.log1p(count) / most).toFixed(1);
      return `L${(EDGE + index * width).toFixed(1)},${y} L${(EDGE + (index + 1) * width).toFixed(1)},${y}`;
    });
    this.bars.setAttribute('d', `M${EDGE},${this.y(0)} ${tops.join(' ')} L${WIDTH - EDGE},${this.y(0)} Z`);
  }
}
