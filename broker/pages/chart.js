// @ts-check
// Areas on top of each other, over time.

import { make, time } from './dom.js';

const SPACE = 'http://www.w3.org/2000/svg';
const [WIDTH, HEIGHT, LEFT, BOTTOM, TOP] = [720, 220, 44, 22, 8];

/**
 * @param {string} tag
 * @param {Record<string, string | number>} properties
 * @param {...(Node | string)} children
 */
function shape(tag, properties, ...children) {
  const element = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(properties)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

/** @param {number} value */
function short(value) {
  return value.toLocaleString('en', { notation: 'compact', maximumFractionDigits: 1 });
}

/** @param {number} most */
function nice(most) {
  const step = 10 ** Math.floor(Math.log10(Math.max(most, 1)));
  const found = [1, 2, 2.5, 5, 10].find((factor) => factor * step >= most);
  return (found ?? 10) * step;
}

/**
 * @param {{label: string, rows: any[], lengthMs: number, series: {key: string, title: string}[]}} what
 */
export function areas(what) {
  const { rows, series, lengthMs } = what;
  const svg = shape('svg', {
    class: 'chart', viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img',
    'aria-label': what.label,
  });
  if (rows.length === 0) return svg;
  const first = rows[0].start_ms;
  const last = rows[rows.length - 1].start_ms + lengthMs;
  const sum = (/** @type {any} */ row) => series.reduce((all, { key }) => all + row[key], 0);
  const most = nice(Math.max(...rows.map(sum)));
  const x = (/** @type {number} */ ms) => LEFT + ((ms - first) / (last - first)) * (WIDTH - LEFT - 4);
  const y = (/** @type {number} */ value) => HEIGHT - BOTTOM - (value / most) * (HEIGHT - BOTTOM - TOP);
  for (const part of [0, 0.5, 1]) {
    const at = y(most * part);
    svg.append(shape('line', { class: 'grid', x1: LEFT, x2: WIDTH, y1: at, y2: at }));
    svg.append(shape('text', { x: LEFT - 6, y: at + 4, 'text-anchor': 'end' }, short(most * part)));
  }
  // Rows that are apart are not joined: nobody saw the farm between them.
  const runs = [];
  for (const row of rows) {
    const run = runs[runs.length - 1];
    const before = run?.[run.length - 1];
    if (before && row.start_ms - before.start_ms <= lengthMs) run.push(row);
    else runs.push([row]);
  }
  for (const run of runs) {
    const below = run.map(() => 0);
    for (const { key } of series) {
      const bottom = [...below];
      run.forEach((row, at) => { below[at] += row[key]; });
      const steps = (/** @type {number[]} */ values) => run.flatMap((row, at) => {
        const height = y(values[at]).toFixed(1);
        return [`${x(row.start_ms).toFixed(1)},${height}`,
          `${x(row.start_ms + lengthMs).toFixed(1)},${height}`];
      });
      const [over, under] = [steps(below), steps(bottom).reverse()];
      svg.append(shape('polygon', { class: key, points: [...over, ...under].join(' ') }));
      svg.append(shape('polyline', { class: 'edge', points: over.join(' ') }));
    }
  }
  const ends = [[first, 'start'], [last, 'end']];
  for (const [ms, anchor] of ends) {
    svg.append(shape('text', { x: x(Number(ms)), y: HEIGHT - 5, 'text-anchor': anchor }, time(Number(ms))));
  }
  return svg;
}

/**
 * What the colours of a chart are.
 * @param {{key: string, title: string}[]} series
 */
export function legend(series) {
  return make('p', { class: 'soft' }, ...series.map(({ key, title }) =>
    make('span', { class: 'legend' }, make('span', { class: `key ${key}` }), `${title}   `)));
}
