// @ts-check
// Views: datasets that can be looked at, and the views that are open.

import { get, post, raw } from './ask.js';
import { fill, make, name, say, size } from './dom.js';
import { LongTable } from './rows.js';

const REFRESH_MS = 5_000;

/** What draws a view. */
const KERNELS = [
  { kernel: 'volume', title: 'the volume' },
  { kernel: 'synthetic', title: 'numbers of frames, to see how late they come' },
];

/**
 * Opens a view of a dataset; its name in addresses.
 * @param {string} dataset
 * @param {string} [kernel]
 * @returns {Promise<string>}
 */
export async function openView(dataset, kernel = 'volume') {
  return (await post('/v1/views', { dataset, kernel })).view;
}

/** @param {any} dataset */
export function canBeSeen(dataset) {
  return dataset.kind === 'bricks';
}

export class Views {
  /** @param {import('./app.js').App} app */
  constructor(app) {
    this.may = app.me.submits;
    this.note = make('p', { class: 'error', role: 'alert' });
    this.count = make('p', { class: 'soft', role: 'status' });
    this.openCount = make('p', { class: 'soft', role: 'status' });
    const kernel = /** @type {HTMLSelectElement} */ (make('select', {},
      ...KERNELS.map(({ kernel: value, title }) => make('option', { value }, title))));
    this.datasets = new LongTable({
      label: 'Datasets that can be viewed',
      short: true,
      key: (row) => row.id,
      columns: [
        { title: 'dataset', class: 'wide', cell: (row) => name(row.name) },
        { title: 'owner', class: 'wide', cell: (row) => name(row.owner) },
        { title: 'voxels', cell: (row) => (row.size ?? []).join(' × ') },
        { title: 'steps', class: 'number', cell: (row) => row.steps ?? 1 },
        { title: 'bricks', class: 'number', cell: (row) => row.chunks },
        { title: 'size', class: 'number', cell: (row) => size(row.bytes) },
        {
          title: 'do',
          cell: (row) => (this.may ? make('button', {
            type: 'button', 'aria-label': `Open ${row.name}`,
            onclick: () => this.tries(async () => { location.hash = `views/${await openView(row.name, kernel.value)}`; }),
          }, 'Open') : ''),
        },
      ],
    });
    this.views = new LongTable({
      label: 'Open views',
      short: true,
      key: (row) => row.view,
      columns: [
        { title: 'view', cell: (row) => make('a', { href: `#views/${encodeURIComponent(row.view)}` }, name(row.view)) },
        { title: 'dataset', class: 'wide', cell: (row) => name(row.dataset) },
        { title: 'draws', cell: (row) => row.kernel },
        { title: 'on a screen', cell: (row) => (row.connected ? 'yes' : 'no') },
        {
          title: 'do',
          cell: (row) => make('button', {
            type: 'button', 'aria-label': `Close ${row.view}`,
            onclick: () => this.tries(async () => {
              await raw('DELETE', `/v1/views/${encodeURIComponent(row.view)}`);
              await this.load();
            }),
          }, 'Close'),
        },
      ],
    });
    this.element = make('div', {}, make('h1', {}, 'Views'), this.note,
      make('section', { 'aria-labelledby': 'seen' }, make('h2', { id: 'seen' }, 'Datasets that can be viewed'),
        this.may ? make('div', { class: 'tools' }, make('label', {}, 'Open with', kernel))
          : make('p', {}, 'Your role looks at the farm only: whoever submits may open views.'),
        this.count, this.datasets.element),
      this.may && make('section', { 'aria-labelledby': 'open' }, make('h2', { id: 'open' }, 'Open views'), this.openCount, this.views.element));
    this.load();
    this.timer = setInterval(() => this.load(), REFRESH_MS);
  }

  close() {
    clearInterval(this.timer);
  }

  change() {}

  /** @param {() => Promise<void>} work */
  async tries(work) {
    try {
      await work();
      fill(this.note);
    } catch (error) {
      fill(this.note, error instanceof Error ? error.message : String(error));
    }
  }

  async load() {
    try {
      const datasets = (await get('/v1/datasets')).filter(canBeSeen);
      say(this.count, datasets.length === 0 ? 'There is no volume yet: `gleaner dataset add head.nrrd --name head` adds one.'
        : `${datasets.length} datasets`);
      this.datasets.show(datasets);
      if (!this.may) return;
      const views = await get('/v1/views');
      say(this.openCount, views.length === 0 ? 'None is open.' : `${views.length} open`);
      this.views.show(views);
    } catch (error) {
      say(this.count, error instanceof Error ? error.message : String(error));
    }
  }
}
