// @ts-check
// What came of a job's workunits: texts as text, pictures as pictures, the rest to be saved.

import { get, raw } from './ask.js';
import { showExr, showNifti } from './drawn.js';
import { isExr } from './exr.js';
import { fill, make, name, plain, size } from './dom.js';

/** Results that are asked for at once. */
const PAGE = 20;
/** Longest text that is shown, in characters, and longest file that is looked into for one. */
const TEXT_CHARS_MAX = 65_536;
const TEXT_BYTES_MAX = 262_144;
/** Largest picture that is shown. */
const PICTURE_BYTES_MAX = 32 << 20;

const PICTURES = [
  { kind: 'image/png', begin: [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a] },
  { kind: 'image/jpeg', begin: [0xff, 0xd8, 0xff] },
];

export class Results {
  /** @param {number} job */
  constructor(job) {
    this.job = job;
    this.next = 0;
    this.list = make('div');
    this.note = make('p', { class: 'soft', role: 'status' });
    this.more = make('button', { type: 'button', onclick: () => this.load() }, 'Show more');
    /** @type {string[]} */
    this.addresses = [];
    this.element = make('section', { 'aria-labelledby': 'results' },
      make('h2', { id: 'results' }, 'Results'),
      make('p', {}, make('a', { href: `/v1/jobs/${job}/archive`, download: `job-${job}.tar` }, 'Save all as one archive')),
      this.list, this.note,
      make('div', { class: 'tools' }, this.more));
    this.isLoading = false;
  }

  close() {
    for (const address of this.addresses) URL.revokeObjectURL(address);
  }

  async load() {
    if (this.isLoading) return;
    this.isLoading = true;
    try {
      const results = await get(`/v1/jobs/${this.job}/results?from=${this.next}&limit=${PAGE}`);
      for (const result of results) {
        this.list.append(this.resultOf(result));
        this.next = result.index + 1;
      }
      const nothing = this.list.childElementCount === 0 ? 'No workunit has ended yet.' : 'These are all so far.';
      fill(this.note, results.length === 0 ? nothing : null);
    } catch (error) {
      fill(this.note, error instanceof Error ? error.message : String(error));
    }
    this.isLoading = false;
  }

  /** @param {any} result */
  resultOf(result) {
    const element = make('div', { class: 'result' }, make('h3', {}, `${this.job}/${result.index} ${result.state}`));
    if (result.state !== 'decided') {
      element.append(make('pre', { class: 'bad', tabindex: 0, role: 'region', 'aria-label': `Why ${result.index} has no output` },
        plain(result.reason, TEXT_CHARS_MAX)));
      return element;
    }
    const files = result.files.map((/** @type {any} */ file) => this.fileOf(result.index, file));
    element.append(make('ul', { class: 'files' }, ...files));
    return element;
  }

  /**
   * @param {number} index
   * @param {any} file
   */
  fileOf(index, file) {
    const path = `/v1/jobs/${this.job}/results/${index}/${encodeURIComponent(file.name)}`;
    const place = make('div');
    const label = `${plain(file.name)} of ${index}`;
    const isPicture = /\.(png|jpe?g|exr|nii(\.gz)?)$/i.test(file.name) && file.bytes <= PICTURE_BYTES_MAX;
    const show = make('button', {
      type: 'button', 'aria-label': `Show ${label}`,
      onclick: () => this.show(path, label, file, place),
    }, 'show');
    const item = make('li', {}, name(file.name), make('span', { class: 'soft' }, ` ${size(file.bytes)} `),
      (isPicture || (file.text === undefined && file.bytes <= TEXT_BYTES_MAX)) && show, ' ',
      make('a', { href: path, download: `${this.job}-${index}-${plain(file.name)}`, 'aria-label': `Save ${label}` }, 'save'),
      place);
    if (file.text !== undefined) fill(place, textOf(file.text, label));
    return item;
  }

  /**
   * @param {string} path
   * @param {string} label
   * @param {any} file
   * @param {HTMLElement} place
   */
  async show(path, label, file, place) {
    try {
      const content = new Uint8Array(await (await raw('GET', path)).arrayBuffer());
      const kind = PICTURES.find(({ begin }) => begin.every((byte, at) => content[at] === byte))?.kind;
      if (kind) {
        const address = URL.createObjectURL(new Blob([content], { type: kind }));
        this.addresses.push(address);
        const picture = make('img', { src: address, alt: label });
        picture.addEventListener('error', () => fill(place, make('p', { class: 'error' }, 'It is no picture that can be shown.')));
        fill(place, picture);
        return;
      }
      if (isExr(content)) {
        await showExr(content, label, place);
        return;
      }
      if (/\.nii(\.gz)?$/i.test(file.name)) {
        await showNifti(content, label, place);
        return;
      }
      const text = new TextDecoder('utf-8', { fatal: true }).decode(content);
      fill(place, textOf(text, label));
    } catch (error) {
      const why = error instanceof Error && error.message.startsWith('It cannot') ? error.message
        : error instanceof TypeError || error instanceof RangeError ? 'It is neither a picture nor text: save it.' : String(error);
      fill(place, make('p', { class: 'error' }, plain(why, 500)));
    }
  }
}

/**
 * @param {string} text
 * @param {string} label
 */
function textOf(text, label) {
  return make('pre', { tabindex: 0, role: 'region', 'aria-label': label }, plain(text, TEXT_CHARS_MAX));
}
