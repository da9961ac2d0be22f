// @ts-check
// Views: datasets that can be looked at, and the views that are open.

import { get, post, raw } from './ask.js';
import { tell } from './dialog.js';
import { amount, fill, make, name, plain, say, size } from './dom.js';
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

/** Chunks whose copies are counted at most, and of how many is asked at once. */
const [COUNTED_MAX, PAGE] = [10_000, 1_000];
/** Hosts that are named at most. */
const NAMED_MAX = 500;

/**
 * Which hosts have copies of a dataset's chunks.
 * @param {any} dataset
 */
async function showCopies(dataset) {
  const path = `/v1/datasets/${encodeURIComponent(dataset.name)}`;
  const whose = `owner=${encodeURIComponent(dataset.owner)}`;
  const { copied } = await get(`${path}?${whose}`);
  /** @type {Map<string, number>} */
  const hosts = new Map();
  let counted = 0;
  while (counted < COUNTED_MAX) {
    const page = await get(`${path}/chunks?${whose}&from=${counted}&limit=${PAGE}`);
    if (page.length === 0) break;
    counted += page.length;
    for (const host of page.flatMap((/** @type {any} */ chunk) => chunk.hosts)) hosts.set(host, (hosts.get(host) ?? 0) + 1);
  }
  const rows = [...hosts].sort((one, other) => other[1] - one[1]).slice(0, NAMED_MAX);
  const byCount = copied.flatMap((/** @type {number} */ chunks, /** @type {number} */ count) => (chunks > 0 ? [`${amount(chunks)} on ${count}`] : []));
  tell(`Where ${plain(dataset.name)} is`,
    make('p', {}, `The broker has all of it. Chunks by how many connected hosts have a copy: ${byCount.join(', ') || 'there are none'}.`),
    rows.length === 0 ? make('p', {}, 'No host has a copy yet: hosts keep what they have read.')
      : make('div', { class: 'scroll short', tabindex: 0, role: 'group', 'aria-label': 'Hosts with copies' },
        make('table', {}, make('thead', {}, make('tr', {}, make('th', { scope: 'col' }, 'host'),
          make('th', { scope: 'col', class: 'number' }, `of ${amount(counted)} chunks`))),
        make('tbody', {}, ...rows.map(([host, count]) => make('tr', {}, make('th', { scope: 'row' }, name(host)),
          make('td', { class: 'number' }, amount(count))))))));
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
        { title: 'copies', class: 'number', cell: (row) => row.copies },
        {
          title: 'where',
          cell: (row) => make('button', {
            type: 'button', 'aria-label': `Where ${row.name} is`, onclick: () => this.tries(() => showCopies(row)),
          }, 'Where'),
        },
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
