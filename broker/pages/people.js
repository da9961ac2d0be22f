// @ts-check
// Who is known, who is invited, and who used what.

import { get, post, remove } from './ask.js';
import { confirm } from './dialog.js';
import { amount, fill, make, name, plain, time } from './dom.js';
import { LongTable } from './rows.js';

const ROLES = ['submitter', 'viewer', 'agent', 'hook', 'monitor', 'operator', 'admin'];
/** Lines of the audit that are shown, the last ones. */
const AUDIT_SHOWN = 1_000;
const USAGE_KEYS = ['project', 'owner', 'job', 'host', 'outcome', 'slot_s', 'cpu_s', 'replicas', 'accepted', 'charged_s', 'credit_s'];

const SVG = 'http://www.w3.org/2000/svg';

/** A link as a QR code, which is dark on light whatever the page is. @param {{qr_side: number, qr_path: string}} link @param {string} label */
function code(link, label) {
  const picture = document.createElementNS(SVG, 'svg');
  const all = { viewBox: `0 0 ${link.qr_side} ${link.qr_side}`, class: 'qr', role: 'img', 'aria-label': label, 'shape-rendering': 'crispEdges' };
  Object.entries(all).forEach(([key, value]) => picture.setAttribute(key, value));
  const path = document.createElementNS(SVG, 'path');
  path.setAttribute('d', link.qr_path);
  picture.append(path);
  return picture;
}

export class People {
  constructor() {
    this.note = make('p', { class: 'error', role: 'alert' });
    this.showAudit = async () => {};
    this.table = new LongTable({
      label: 'People and hosts with keys',
      key: (row) => row.id,
      height: 43,
      columns: [
        { title: 'key', cell: (row) => make('code', {}, row.id) },
        { title: 'role', cell: (row) => row.role },
        { title: 'owner', class: 'wide', cell: (row) => name(row.owner) },
        { title: 'project', class: 'wide', cell: (row) => (row.project ? name(row.project) : '') },
        { title: 'host', class: 'wide', cell: (row) => (row.host ? name(row.host) : '') },
        { title: 'joined', cell: (row) => time(row.made_ms) },
        {
          title: 'revoked',
          cell: (row) => (row.revoked_ms ? time(row.revoked_ms) : make('button', {
            type: 'button', class: 'danger', 'aria-label': `Revoke ${row.id}`, onclick: () => this.revoke(row),
          }, 'revoke')),
        },
      ],
    });
    this.element = make('div', {},
      make('h1', {}, 'People'), this.note,
      make('section', { 'aria-labelledby': 'known' }, make('h2', { id: 'known' }, 'Keys'), this.table.element),
      make('div', { class: 'beside' }, this.invitation(), this.shares()),
      this.usage(), this.audit());
    this.load();
  }

  close() {}

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

  load() {
    return this.tries(async () => {
      const people = await get('/v1/people');
      people.sort((/** @type {any} */ one, /** @type {any} */ other) =>
        Number(Boolean(one.revoked_ms)) - Number(Boolean(other.revoked_ms)) || other.made_ms - one.made_ms);
      this.table.show(people);
    });
  }

  /** @param {any} row */
  revoke(row) {
    confirm({
      title: `Revoke ${row.id}?`,
      text: make('span', {}, `The ${row.role} of `, name(row.owner), row.host ? ' on ' : '', row.host ? name(row.host) : '',
        ' may nothing any more from that moment on. This cannot be undone: they have to be invited again.'),
      act: `Revoke ${row.id}`,
      run: async () => {
        await remove(`/v1/people/${row.id}`);
        await this.load();
        await this.showAudit();
      },
    });
  }

  invitation() {
    const role = make('select', { id: 'role' }, ...ROLES.map((of) => make('option', {}, of)));
    const owner = make('input', { id: 'owner', required: true, size: 16, autocomplete: 'off' });
    const project = make('input', { id: 'project', size: 14, autocomplete: 'off' });
    const uses = make('input', { id: 'uses', type: 'number', min: 1, max: 10_000, value: 1 });
    const hours = make('input', { id: 'hours', type: 'number', min: 1, max: 720, value: 24 });
    const trusted = make('input', { id: 'trusted', type: 'checkbox' });
    const value = (/** @type {HTMLElement} */ of) => /** @type {HTMLInputElement} */ (of).value;
    const line = make('div', { role: 'status' });
    const form = make('form', {
      class: 'tools',
      onsubmit: (/** @type {Event} */ event) => {
        event.preventDefault();
        this.tries(async () => {
          const request = {
            role: value(role), owner: value(owner), project: value(project) || null, uses: Number(value(uses)), valid_s: 3_600 * Number(value(hours)),
            address: location.origin,
            trusted: value(role) === 'agent' && /** @type {HTMLInputElement} */ (trusted).checked,
          };
          const { link } = await post('/v1/invitations', request);
          await this.showAudit();
          const text = `gleaner join '${link.url}'`;
          const copy = make('button', {
            type: 'button',
            onclick: async () => {
              await navigator.clipboard.writeText(text);
              fill(copy, 'copied');
            },
          }, 'copy');
          fill(line, make('p', {}, 'Pass this line on by a way that others do not read. It is not shown again:'),
            make('p', {}, make('code', {}, text), ' ', navigator.clipboard && copy),
            code(link, 'The link of this invitation as a QR code'));
        });
      },
    }, make('label', {}, 'Role', role), make('label', {}, 'Owner', owner), make('label', {}, 'Project, if any', project), make('label', {}, 'Uses', uses),
    make('label', {}, 'Good for hours', hours),
    make('label', { title: "Of agents: what their hosts compute counts as what the farm's own hosts compute" }, 'Trusted agents', trusted),
    make('button', { type: 'submit' }, 'Invite'));
    return make('section', { 'aria-labelledby': 'invite' }, make('h2', { id: 'invite' }, 'Invite'), form, line);
  }

  shares() {
    const body = make('tbody');
    this.tries(async () => {
      const shares = await get('/v1/shares');
      fill(body, ...shares.map((/** @type {any} */ of) => make('tr', {}, make('th', { scope: 'row' }, name(of.project ? `project ${of.project}` : of.owner)),
        make('td', { class: 'number' }, of.weight), make('td', { class: 'number' }, amount(of.used_s / 3_600)),
        make('td', { class: 'number' }, amount(of.held_permille / 1e3)),
        make('td', { class: 'number' }, of.budget_core_h == null ? '' : `${amount(of.charged_core_h)} of ${amount(of.budget_core_h)}`))));
    });
    return make('section', { 'aria-labelledby': 'shares' }, make('h2', { id: 'shares' }, 'Shares'),
      make('div', { class: 'scroll short', tabindex: 0, role: 'group', 'aria-label': 'Shares' },
        make('table', {}, make('caption', {}, 'Whoever comes next stands first.'),
          make('thead', {}, make('tr', {}, make('th', { scope: 'col' }, 'whose'),
            ...['weight', 'core hours used', 'cores held', 'budget, core hours'].map((title) => make('th', { scope: 'col', class: 'number' }, title)))),
          body)));
  }

  audit() {
    const table = new LongTable({
      label: 'What was done',
      short: true,
      key: (row) => row.number,
      columns: [
        { title: 'line', cell: (row) => row.number },
        { title: 'when', cell: (row) => time(row.at_ms) },
        { title: 'who', class: 'wide', cell: (row) => name(row.who) },
        { title: 'did', cell: (row) => name(row.what) },
        { title: 'what', cell: (row) => name(row.on) },
      ],
    });
    this.showAudit = () => this.tries(async () => {
      const { text } = await get('/v1/audit');
      const lines = text.split('\n').filter((/** @type {string} */ line) => line !== '');
      table.show(lines.slice(-AUDIT_SHOWN).reverse().map((/** @type {string} */ line) => JSON.parse(line)));
    });
    this.showAudit();
    return make('section', { 'aria-labelledby': 'audit' }, make('h2', { id: 'audit' }, 'What was done'),
      table.element, make('p', { class: 'soft' }, 'Whether each line is as it was written: ', make('code', {}, 'gleaner audit --verify')));
  }

  usage() {
    const hours = (/** @type {string} */ key) => (/** @type {any} */ row) => amount(row[key] / 3_600);
    const of = (/** @type {any} */ row) => row.owner ?? row.project ?? (row.job !== null ? `job-${row.job}` : row.host ?? row.outcome ?? '');
    const table = new LongTable({
      label: 'Usage',
      short: true,
      key: (row) => String(of(row)),
      columns: [
        { title: 'of', class: 'wide', cell: (row) => name(of(row)) },
        { title: 'replicas', class: 'number', cell: (row) => row.replicas },
        { title: 'accepted', class: 'number', cell: (row) => row.accepted },
        { title: 'slot hours', class: 'number', cell: hours('slot_s') },
        { title: 'CPU hours', class: 'number', cell: hours('cpu_s') },
        { title: 'charged hours', class: 'number', cell: hours('charged_s') },
      ],
    });
    const save = make('a', { href: '#people', download: 'usage.csv' }, 'Save as CSV');
    let address = '';
    const load = (/** @type {string} */ by) => this.tries(async () => {
      const rows = await get(`/v1/usage?by=${by}`);
      table.show(rows);
      const lines = rows.map((/** @type {any} */ row) => USAGE_KEYS.map((key) => row[key] ?? '').join(','));
      URL.revokeObjectURL(address);
      address = URL.createObjectURL(new Blob([[USAGE_KEYS.join(','), ...lines, ''].join('\n')], { type: 'text/csv' }));
      save.setAttribute('href', address);
      save.setAttribute('download', `usage-by-${plain(by)}.csv`);
    });
    const by = make('select', { onchange: (/** @type {any} */ event) => load(event.target.value) },
      ...['owner', 'project', 'job', 'host', 'outcome'].map((word) => make('option', {}, word)));
    load('owner');
    return make('section', { 'aria-labelledby': 'usage' }, make('h2', { id: 'usage' }, 'Usage'),
      make('div', { class: 'tools' }, make('label', {}, 'By', by), save), table.element);
  }
}
