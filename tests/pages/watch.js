// What 50 open dashboards cost a broker: replicas a second that its hosts do, in turns without and with 50 sockets
// of /v1/watch, and how long turns of the driver took. Prints figures; asserts nothing, since it measures the
// machine as well.
//
//   node --experimental-websocket tests/pages/watch.js target/debug/gleaner
'use strict';

const { spawn } = require('node:child_process');
const fs = require('node:fs');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');

const [WATCHERS, HOSTS, CORES, ROUNDS, MEASURED_MS, JOBS] = [50, 2, 4, 4, 8_000, 200];

const pause = (ms) => new Promise((done) => { setTimeout(done, ms); });

async function free() {
  const server = net.createServer().listen(0, '127.0.0.1');
  await new Promise((done) => server.on('listening', done));
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}

async function main() {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'watch-'));
  const url = `http://127.0.0.1:${await free()}`;
  const parts = [];
  const start = (...words) => parts.push(spawn(process.argv[2], words, { stdio: 'ignore' }));
  process.on('exit', () => {
    parts.forEach((part) => part.kill('SIGKILL'));
    fs.rmSync(folder, { recursive: true, force: true });
  });
  start('broker', '--listen', url.slice(7), '--data-dir', path.join(folder, 'data'), '--min-free-mib', '1');
  while (!(await fetch(`${url}/healthz`).catch(() => null))?.ok) await pause(50);
  for (let number = 0; number < HOSTS; number += 1) {
    start('agent', '--broker', url, '--name', `host${number}`, '--cores', String(CORES), '--give-way', 'false', '--kernel', 'noop',
      '--run-dir', path.join(folder, `run${number}`), '--work-dir', path.join(folder, `work${number}`));
  }
  const submit = async (kernel, count) => {
    const body = JSON.stringify({ task: { kernel }, workunits: { count }, replication: 1 });
    const answer = await fetch(`${url}/v1/jobs`, { method: 'POST', body });
    if (!answer.ok) throw new Error(await answer.text());
    return (await answer.json()).job;
  };
  // Jobs that wait, so that there is something to show.
  for (let job = 0; job < JOBS; job += 1) await submit('gametree', 100);
  const job = await submit('noop', 10_000_000);
  const decided = async () => (await (await fetch(`${url}/v1/jobs/${job}`)).json()).decided;
  while (await decided() < 1_000) await pause(50);

  let messages = 0;
  const opens = (count) => Promise.all(Array.from({ length: count }, () => new Promise((done) => {
    const socket = new WebSocket(`${url.replace('http', 'ws')}/v1/watch`);
    socket.binaryType = 'arraybuffer';
    socket.addEventListener('message', () => {
      messages += 1;
      done(socket);
    });
  })));
  const measure = async () => {
    const [begin, before] = [performance.now(), await decided()];
    await pause(MEASURED_MS);
    return ((await decided()) - before) / ((performance.now() - begin) / 1_000);
  };
  const ratios = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const alone = await measure();
    const sockets = await opens(WATCHERS);
    messages = 0;
    const watched = await measure();
    sockets.forEach((socket) => socket.close());
    await pause(500);
    ratios.push(watched / alone);
    console.log(`${alone.toFixed(0)} replicas/s; with ${WATCHERS} dashboards ${watched.toFixed(0)} (${messages} messages): ${(watched / alone).toFixed(3)}`);
  }
  ratios.sort((one, other) => one - other);
  console.log(`with ${WATCHERS} dashboards ${((ratios[1] + ratios[2]) / 2).toFixed(3)} of the replicas/s (middle of ${ROUNDS})`);
  const text = await (await fetch(`${url}/metrics`)).text();
  const turns = text.split('\n').filter((line) => /^gleaner_turn_decided_seconds_(bucket|count)/.test(line));
  console.log(turns.join('\n'));
  process.exit(0);
}

main();
