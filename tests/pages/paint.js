// How soon the pages of a large farm are there: 10,000 jobs at a real broker, and 1,000 hosts that are
// put into what it pushes. Prints figures; asserts nothing, since it measures the machine as well.
//
//   GLEANER_PAGES='{"modules":"target/pages","chromium":"/usr/bin/chromium"}' node tests/pages/paint.js target/debug/gleaner
'use strict';

const { spawn } = require('node:child_process');
const fs = require('node:fs');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');
const { drives, say } = require('./browser.js');

const [JOBS, HOSTS, OWNERS, ROUNDS] = [10_000, 1_000, 50, 5];
const STATES = ['rendering', 'harvested', 'idle', 'quiet', 'given-way', 'lost'];

function hostOf(number) {
  const state = STATES[number % STATES.length];
  return {
    host: `render${String(number).padStart(4, '0')}.farm`, origin: 'farm', owner: null, connected: state !== 'lost', cores: 64,
    slots: 60, running: 12, epoch: { incarnation: 1, count: number }, reported: 100, disagreed: 0, released: 3, state,
    closed: state === 'quiet' ? 'the quiet period is not over' : undefined,
  };
}

/** The broker's own pushes, with hosts: they are put into the text before the page reads it. */
async function withHosts(page) {
  const hosts = JSON.stringify(Array.from({ length: HOSTS }, (_, number) => hostOf(number)));
  await page.addInitScript((all) => {
    const { addEventListener } = WebSocket.prototype;
    WebSocket.prototype.addEventListener = function listen(type, listener) {
      const take = (event) => {
        const text = new TextDecoder().decode(event.data);
        const told = text.includes('"since":null') ? text.replace('"hosts":[]', `"hosts":${all}`) : text;
        listener({ data: new TextEncoder().encode(told) });
      };
      addEventListener.call(this, type, type === 'message' ? take : listener);
    };
  }, hosts);
}

const middle = (values) => [...values].sort((one, other) => one - other)[values.length >> 1];

async function free() {
  const server = net.createServer().listen(0, '127.0.0.1');
  await new Promise((done) => server.on('listening', done));
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}

async function main() {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'paint-'));
  const url = `http://127.0.0.1:${await free()}`;
  const broker = spawn(process.argv[2], ['broker', '--listen', url.slice(7), '--data-dir', path.join(folder, 'data')], { stdio: 'ignore' });
  process.on('exit', () => {
    broker.kill('SIGKILL');
    fs.rmSync(folder, { recursive: true, force: true });
  });
  while (!(await fetch(`${url}/healthz`).catch(() => null))?.ok) await new Promise((done) => setTimeout(done, 50));
  const submit = async (number) => {
    const body = { task: { kernel: 'gametree' }, workunits: { count: 100 }, owner: `owner${number % OWNERS}`, name: `job of scene ${number}` };
    const answer = await fetch(`${url}/v1/jobs`, { method: 'POST', body: JSON.stringify(body) });
    if (!answer.ok) throw new Error(await answer.text());
  };
  for (let begin = 0; begin < JOBS; begin += 100) await Promise.all(Array.from({ length: 100 }, (_, at) => submit(begin + at)));
  say(`${JOBS} jobs are there`);
  await drives(async (browser) => {
    for (const [place, seen, hasHosts] of [['farm', '.tile', true], ['jobs', 'tbody th', true], ['jobs', 'tbody th', false]]) {
      const [paints, rows] = [[], []];
      for (let round = 0; round < ROUNDS; round += 1) {
        const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
        if (hasHosts) await withHosts(page);
        // Told by the page itself, so that this process' own time is not in it.
        await page.addInitScript((what) => {
          const look = () => {
            if (document.querySelector(what)) requestAnimationFrame(() => { window.rowsMs = performance.now(); });
            else requestAnimationFrame(look);
          };
          look();
        }, seen);
        await page.goto(`${url}/#${place}`);
        await page.waitForFunction(() => window.rowsMs);
        rows.push(await page.evaluate(() => window.rowsMs));
        paints.push(await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime));
        await page.close();
      }
      say(`${place}${hasHosts ? ` with ${HOSTS} hosts` : ''}: first paint ${middle(paints).toFixed(0)} ms, rows ${middle(rows).toFixed(0)} ms (middle of ${ROUNDS})`);
    }
    const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
    await page.goto(`${url}/#jobs`);
    await page.locator('tbody th').first().waitFor();
    const seen = [];
    for (let round = 0; round < ROUNDS; round += 1) {
      const job = JOBS - round;
      seen.push(await page.evaluate(async (number) => {
        const row = () => [...document.querySelectorAll('tr')].find((of) => of.textContent.includes(`job-${number}`));
        const begin = performance.now();
        await fetch(`/v1/jobs/${number}`, { method: 'DELETE' });
        while (!row()?.textContent.includes('cancelled')) await new Promise((done) => { requestAnimationFrame(done); });
        return performance.now() - begin;
      }, job));
    }
    say(`a cancelled job is seen after ${middle(seen).toFixed(0)} ms (middle of ${ROUNDS})`);
  });
}

main();
