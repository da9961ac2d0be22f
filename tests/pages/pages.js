// Drives a real browser through the pages of a broker, as people would.
//
//   node tests/pages/pages.js
'use strict';

const assert = require('node:assert/strict');
const { execFileSync } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { ask, drives, given, isAccessible, isLive, isReached, looks, modules, open, say, visitor } = require('./browser.js');

const readQr = modules('jsqr');

const PAGES = ['farm', 'jobs', `jobs/${given.hostile}`, `jobs/${given.drawn}`, 'views', 'people'];

async function admin(browser) {
  const page = await visitor(browser);
  await page.goto(given.admin);
  await page.locator('h1', { hasText: 'Farm' }).waitFor();
  await isLive(page);
  assert.ok(!page.url().includes('login'), page.url());
  assert.equal(await page.evaluate(() => document.cookie), '', 'no script reads the cookie');
  const [cookie] = await page.context().cookies();
  assert.ok(cookie.httpOnly && cookie.sameSite === 'Strict', JSON.stringify(cookie));
  await page.locator('.tile').nth(given.hosts - 1).waitFor();
  assert.equal(await page.locator('.tile').count(), given.hosts);
  say('a link lets an administrator in; the farm is there');

  const other = await visitor(browser);
  await other.goto(given.admin);
  await other.locator('[role=status]', { hasText: 'good no longer' }).waitFor();
  await isAccessible(other, 'login');
  await looks(other, 'login');
  await other.locator('#token').fill('not-the-token-at-all');
  await other.keyboard.press('Enter');
  await other.locator('.error', { hasText: 'token' }).waitFor();
  await other.locator('#token').fill(given.token);
  await other.keyboard.press('Enter');
  await isLive(other);
  await other.getByRole('button', { name: 'Log out' }).click();
  await other.locator('h1', { hasText: 'Log in' }).waitFor();
  await other.reload();
  await other.locator('h1', { hasText: 'Log in' }).waitFor();
  await other.context().close();
  say('a link is good once; a pasted token does as well, until one logs out');

  await page.getByLabel('Search').fill(given.search);
  await page.locator('[role=status]', { hasText: /^1 of / }).waitFor();
  assert.equal(await page.locator('.tile').count(), 1);
  await page.locator('.tile').click();
  await page.locator('dialog', { hasText: 'cores now' }).waitFor();
  await isAccessible(page, 'a host');
  await page.keyboard.press('Escape');
  await page.getByLabel('Search').fill('');
  await page.locator('dialog').waitFor({ state: 'detached' });
  say('hosts are found, and tell of themselves');
  return page;
}

/** Text of others is text. */
async function hostile(page) {
  await open(page, `jobs/${given.hostile}`);
  await page.locator('pre', { hasText: '<script>' }).first().waitFor();
  const shown = await page.locator('#content').innerText();
  assert.ok(shown.includes('<img src=x'), 'the name is shown as it is');
  assert.ok(shown.includes('\\u202e') && !shown.includes('\u202e'), 'what turns text around is told');
  assert.equal(await page.locator('#content img').count(), 0);
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  await open(page, `jobs/${given.picture}`);
  await page.getByRole('button', { name: /^Show .*png/ }).first().click();
  const picture = page.locator('.result img').first();
  await picture.waitFor();
  await page.waitForFunction(() => document.querySelector('.result img')?.naturalWidth > 0);
  await looks(page, 'job-picture');
  const waits = page.waitForEvent('download');
  await page.getByRole('link', { name: /^Save .*png/ }).first().click();
  const saved = await (await waits).path();
  assert.deepEqual([...fs.readFileSync(saved).subarray(1, 4)], [...Buffer.from('PNG')]);
  say('names and outputs are text, pictures are pictures, files can be saved');
}

/** What no browser shows by itself is drawn, and all of it comes as one archive. */
async function drawn(page) {
  await open(page, `jobs/${given.drawn}`);
  const result = page.locator('.result');
  const item = (name) => result.locator('li', { hasText: name });
  const pixel = (canvas, x, y) => canvas.evaluate((element, at) => [...element.getContext('2d').getImageData(at[0], at[1], 1, 1).data], [x, y]);
  await item('light.exr').getByRole('button', { name: /^Show/ }).click();
  const light = item('light.exr').locator('canvas');
  await light.waitFor();
  const [left, right, low] = [await pixel(light, 0, 0), await pixel(light, 19, 0), await pixel(light, 0, 17)];
  assert.ok(left[0] === 0 && right[0] > 240 && right[1] === 0 && low[1] > 240 && low[0] === 0, `${left} ${right} ${low}`);
  await item('light.exr').getByLabel('Exposure').fill('-10');
  assert.ok((await pixel(light, 19, 0))[0] < 30, 'it is dark');
  await item('of.nii').getByRole('button', { name: /^Show/ }).click();
  const slice = item('of.nii').locator('canvas');
  await slice.waitFor();
  assert.equal((await pixel(slice, 3, 3))[0], 255, 'the middle is bright');
  await item('of.nii').getByLabel('Slice').fill('2');
  assert.equal((await pixel(slice, 3, 3))[0], 0, 'another is not');
  for (const name of ['cut.nii', 'cut.exr']) {
    await item(name).getByRole('button', { name: /^Show/ }).click();
    await item(name).locator('.error', { hasText: 'It cannot be shown' }).waitFor();
  }
  await isAccessible(page, 'drawn');
  await looks(page, 'job-drawn');
  const waits = page.waitForEvent('download');
  await page.getByRole('link', { name: 'Save all as one archive' }).click();
  const download = await waits;
  assert.equal(download.suggestedFilename(), `job-${given.drawn}.tar`);
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'archive-'));
  execFileSync('tar', ['xf', await download.path(), '-C', folder]);
  const files = fs.readdirSync(path.join(folder, `job-${given.drawn}`, '0')).sort();
  assert.deepEqual(files, ['a table, wide.csv', 'cut.exr', 'cut.nii', 'light.exr', 'of.nii', 'stdout']);
  assert.equal(fs.readFileSync(path.join(folder, `job-${given.drawn}`, '0', 'a table, wide.csv'), 'utf8'), '1,2\n');
  fs.rmSync(folder, { recursive: true });
  const saves = page.waitForEvent('download');
  await page.getByRole('link', { name: 'Save a table, wide.csv of 0' }).click();
  assert.equal(fs.readFileSync(await (await saves).path(), 'utf8'), '1,2\n');
  say('EXR and NIfTI are drawn, and a whole job is saved as one file');
}

/** What was printed is shown as text, of what ended well and of what did not. */
async function logs(page) {
  const log = page.locator('section', { has: page.locator('h2', { hasText: /^Logs$/ }) });
  const shows = async (job) => {
    await open(page, `jobs/${job}`);
    await log.getByRole('button', { name: 'Show log' }).click();
  };
  await shows(given.hostile);
  await log.locator('pre', { hasText: '<script>' }).waitFor();
  await shows(given.printed);
  const text = log.getByRole('region', { name: 'stdout of output 1' });
  await text.waitFor();
  const shown = await text.innerText();
  assert.ok(shown.length <= 66_000 && shown.endsWith('the end\n') && !shown.includes('the begin'), `${shown.length} characters`);
  assert.ok(shown.includes('\\u001b[31m') && shown.includes('\\u202e'), 'what cannot be seen is told');
  await log.locator('p', { hasText: /^stdout, 2\d\d\.\d KiB: the last 64\.0 KiB$/ }).waitFor();
  await log.locator('p', { hasText: /^stderr, / }).waitFor();
  await isAccessible(page, 'a log');
  await looks(page, 'job-log');
  await shows(given.failed);
  await log.locator('h3', { hasText: 'was given up' }).waitFor();
  await log.locator('pre', { hasText: 'no such scene' }).waitFor();
  await shows(given.failing);
  await log.locator('h3', { hasText: /^desk\d failed$/ }).first().waitFor();
  await log.locator('pre', { hasText: 'try again' }).first().waitFor();
  assert.equal(await page.evaluate(async (job) => (await fetch(`/v1/jobs/${job}`, { method: 'DELETE' })).status, given.failing), 200);
  say('logs are shown as text, the end of long ones');
}

/** The red button ends everything, says who and why, and is taken back. */
async function stops(page) {
  await open(page, 'farm');
  await page.locator('.tile[data-state="harvested"]').first().waitFor();
  await page.getByRole('button', { name: 'Stop all harvest …' }).click();
  const dialog = page.locator('dialog');
  await dialog.getByRole('button', { name: 'Stop all harvest' }).click();
  await dialog.locator('.error', { hasText: 'reason must be a line' }).waitFor();
  await isAccessible(page, 'the red button');
  await looks(page, 'stop-question');
  await dialog.getByLabel(/^Why/).fill('<b>renders</b> are late');
  await dialog.getByRole('button', { name: 'Stop all harvest' }).click();
  await dialog.waitFor({ state: 'detached' });
  await page.locator('p', { hasText: /Harvest is stopped on all hosts since .* by admin \([0-9a-f]{16}\): <b>renders<\/b> are late/ }).waitFor();
  await page.locator('.tile[data-state="stopped"]').nth(given.hosts - 1).waitFor();
  for (const scheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme: scheme });
    await isAccessible(page, `stopped, ${scheme}`);
    await looks(page, `stopped-${scheme}`);
  }
  await ask('is stopped');
  await open(page, `jobs/${given.waiting}`);
  await page.locator('li', { hasText: "harvest was stopped by admin (" }).waitFor();
  await open(page, 'farm');
  await page.reload();
  await isLive(page);
  await page.getByRole('button', { name: 'Resume harvest …' }).click();
  await page.locator('dialog').getByRole('button', { name: 'Resume harvest' }).click();
  await page.locator('.tile[data-state="harvested"]').first().waitFor();
  await page.locator('[role=status]', { hasText: 'Harvest goes on.' }).getByRole('button', { name: 'Undo …' }).click();
  assert.equal(await page.locator('dialog').getByLabel(/^Why/).inputValue(), '<b>renders</b> are late');
  await page.keyboard.press('Escape');
  await open(page, 'people');
  await page.locator('tr', { hasText: 'the harvest of all hosts: <b>renders</b> are late' }).waitFor();
  await page.locator('tr', { hasText: 'resume' }).waitFor();
  say('the red button stops all hosts, says who did and why, and is taken back');
}

async function cancels(page) {
  await open(page, `jobs/${given.waiting}`);
  await page.locator('section', { hasText: 'Under way' }).locator('td', { hasText: given.search }).first().waitFor();
  await page.getByRole('button', { name: 'Explain it' }).click();
  await page.locator('[role=status] p', { hasText: /replica/ }).first().waitFor();
  await isAccessible(page, 'a job under way');
  await looks(page, 'job-under-way');
  await open(page, 'jobs');
  await page.getByRole('button', { name: `Cancel job-${given.waiting}` }).click();
  await isAccessible(page, 'a question');
  await looks(page, 'question');
  await page.locator('dialog').getByRole('button', { name: `Cancel job-${given.waiting}` }).click();
  const row = page.locator('tr', { hasText: `job-${given.waiting}` });
  await row.locator('td', { hasText: 'cancelled' }).waitFor();
  say('a job is cancelled after a question, and the page is told');
}

/** What a picture shows, as a camera sees it. */
function pixelsOf(page, picture) {
  return page.evaluate(async (text) => {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const bitmap = await createImageBitmap(new Blob([bytes], { type: 'image/png' }));
    const { width, height } = bitmap;
    const context = Object.assign(document.createElement('canvas'), { width, height }).getContext('2d');
    context.drawImage(bitmap, 0, 0);
    return [[...context.getImageData(0, 0, width, height).data], width, height];
  }, picture.toString('base64'));
}

async function invites(page) {
  await open(page, 'people');
  await page.getByRole('textbox', { name: 'Owner' }).fill('carl');
  await page.getByRole('button', { name: 'Invite' }).click();
  const line = await page.locator('code', { hasText: 'gleaner join' }).innerText();
  assert.match(line, /^gleaner join 'http:\/\/127\.0\.0\.1:\d+\/#[0-9a-f]{8}\.[0-9a-f]{32}'$/);
  const link = /'(.*)'/.exec(line)[1];
  const picture = page.getByRole('img', { name: /QR code/ });
  await page.emulateMedia({ colorScheme: 'dark' });
  const [pixels, width, height] = await pixelsOf(page, await picture.screenshot());
  assert.equal(readQr(Uint8ClampedArray.from(pixels), width, height)?.data, link, 'a camera reads the link');
  await isAccessible(page, 'an invitation');
  await looks(page, 'invitation');
  const waits = page.waitForEvent('download');
  await page.getByRole('link', { name: 'Save as CSV' }).click();
  const saved = fs.readFileSync(await (await waits).path(), 'utf8');
  assert.match(saved, /^project,owner,job,host,outcome,slot_s,/);
  say('an administrator invites, and saves what was used');
}

/** How long things took, and what lanes and projects had. */
async function times(page) {
  await open(page, 'farm');
  const row = page.locator('tr', { hasText: 'until they were on disk' });
  await row.locator('td', { hasText: /[µm]?s$/ }).first().waitFor();
  const cells = await row.locator('td').allInnerTexts();
  assert.ok(Number(cells[0]) >= 4 && cells.slice(1).every((cell) => /^(over )?[\d.,]+ (µs|ms|s)$/.test(cell)), cells.join());
  const [half, most, beyond, none] = await page.evaluate(async () => {
    const { bucketsOf, quantileOf } = await import('/pages/times.js');
    const line = (le, count) => `of_seconds_bucket{origin="farm",le="${le}"} ${count}`;
    const text = [line('0.1', 10), line('0.2', 90), line('+Inf', 100), 'of_seconds_bucket{origin="desktop",le="0.1"} 900'].join('\n');
    const buckets = bucketsOf(text, 'of_seconds', { origin: 'farm' });
    return [quantileOf(buckets, 0.5), quantileOf(buckets, 0.9), quantileOf(buckets, 0.99), quantileOf([], 0.5)];
  });
  assert.ok(Math.abs(half.s - 0.15) < 1e-9 && Math.abs(most.s - 0.2) < 1e-9 && !most.isMore, JSON.stringify([half, most]));
  assert.ok(beyond.isMore && beyond.s === 0.2 && none.s === 0, JSON.stringify([beyond, none]));
  await page.locator('section', { hasText: 'by project' }).locator('th', { hasText: 'of none' }).waitFor();
  await page.locator('polygon.part-0').waitFor({ state: 'attached' });
  assert.equal(await page.locator('svg.chart').count(), 3);
  const cost = page.locator('tr', { hasText: 'render hours per host and day' });
  assert.deepEqual(await cost.locator('td').allInnerTexts(), ['9', '11.5', '11.75', '-0.25', '-0.4 to -0.1', 'harvest costs']);
  await page.locator('tr', { hasText: '<img src=x' }).locator('td', { hasText: 'too few days' }).waitFor();
  const polls = page.locator('section', { has: page.locator('h2', { hasText: 'Polls and contradictions' }) });
  await polls.locator('p.bad', { hasText: /slurm, for \d+ (s|min) now \(2 polls\); its newest answer, of 12 hosts, is \d+ (s|min) old/ }).waitFor();
  const said = await polls.innerText();
  for (const words of ['`squeue` did not answer within 10 s', 'To mend it:', 'A part of its answer', 'mqtt://farm is not heard (no such host)', '4 times']) {
    assert.ok(said.includes(words), `${words} in ${said}`);
  }
  assert.match(await polls.locator('tr', { hasText: 'desk1' }).locator('td').last().innerText(), /^\d+ (s|min) ago$/);
  say('the farm says how long it took, and who harvested');
}

async function everywhere(browser, page) {
  for (const scheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme: scheme });
    for (const place of PAGES) {
      await open(page, place);
      await page.locator('section').first().waitFor();
      await isAccessible(page, `${place}, ${scheme}`);
      await looks(page, `${place.replace('/', '-')}-${scheme}`);
    }
  }
  await page.setViewportSize({ width: 400, height: 800 });
  for (const place of PAGES) {
    await open(page, place);
    await looks(page, `${place.replace('/', '-')}-narrow`);
    const wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(wider <= 0, `${place} is ${wider} pixels wider than a narrow screen`);
  }
  await page.setViewportSize({ width: 1280, height: 900 });
  say('every page passes axe, dark and light, and fits a narrow screen');
}

async function byKeyboard(page) {
  await open(page, 'farm');
  await page.reload();
  await isLive(page);
  await page.keyboard.press('Tab');
  await page.keyboard.press('Tab');
  await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Jobs');
  await page.keyboard.press('Enter');
  await page.locator('h1', { hasText: /jobs/i }).waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.id), 'content');
  say('pages are reached by keys alone');
}

async function keysEverywhere(page) {
  for (const place of PAGES) {
    await open(page, place);
    await page.locator('section').first().waitFor();
    await isReached(page, place);
  }
  await open(page, 'farm');
  await page.locator('.tile').first().focus();
  await page.keyboard.press('Enter');
  await page.locator('dialog', { hasText: 'cores now' }).waitFor();
  await page.keyboard.press('Escape');
  await page.locator('dialog').waitFor({ state: 'detached' });
  assert.equal(await page.evaluate(() => document.activeElement.className), 'tile', 'the focus is where it was');
  say('all that can be done on a page can be done by keys');
}

/** Over a slow link the pages come all the same, only later. */
async function slowly(browser) {
  const page = await visitor(browser);
  const link = await page.context().newCDPSession(page);
  await link.send('Network.enable');
  await link.send('Network.emulateNetworkConditions', { offline: false, latency: 400, downloadThroughput: 40 << 10, uploadThroughput: 10 << 10 });
  const to = `${new URL(given.admin).origin}/#jobs/${given.printed}`;
  // It takes seven seconds. A browser may drop what is under way where a network of its machine comes or
  // goes, and other tests have networks of their own: what stands still is loaded once more, as people do.
  await page.goto(to).catch((error) => {
    say(`loaded once more: ${error.message.split('\n')[0]}`);
    return page.reload();
  });
  await page.locator('#token').fill(given.token);
  await page.keyboard.press('Enter');
  await isLive(page);
  // What was pressed twice while it was under way is there once.
  const more = page.getByRole('button', { name: 'Show more' });
  await more.click();
  await more.click();
  await page.getByRole('button', { name: 'Show log' }).click();
  await page.getByRole('region', { name: 'stdout of output 1' }).waitFor();
  await page.locator('[role=status]', { hasText: 'These are all so far.' }).waitFor();
  assert.equal(await page.locator('h3', { hasText: `${given.printed}/0 decided` }).count(), 1);
  for (const place of PAGES) {
    await open(page, place);
    await page.locator('section').first().waitFor();
  }
  // Who goes on before a page has all of it is shown the page that they went to.
  await open(page, 'people');
  await open(page, 'farm');
  await page.locator('.tile').nth(given.hosts - 1).waitFor();
  assert.equal(await page.locator('h1').innerText(), 'Farm');
  await page.context().close();
  say('pages come over a slow link');
}

async function outlives(page) {
  await open(page, 'farm');
  await page.evaluate(() => { window.here = true; });
  const orders = (order, body) => page.evaluate(async ([path, text]) => (await fetch(path, { method: 'POST', body: text })).status, [`/v1/farm/${order}`, body]);
  assert.equal(await orders('stop', '{"reason":"to see whether it holds"}'), 200);
  await page.locator('p', { hasText: 'to see whether it holds' }).waitFor();
  await ask('stop');
  await page.locator('#link', { hasText: 'away' }).waitFor();
  await ask('start');
  await isLive(page);
  await page.locator('.tile[data-state="stopped"]').nth(given.hosts - 1).waitFor();
  await page.locator('p', { hasText: 'to see whether it holds' }).waitFor();
  assert.equal(await orders('resume', '{}'), 200);
  await page.locator('.tile[data-state="idle"]').nth(given.hosts - 1).waitFor();
  assert.equal(await page.evaluate(() => window.here), true, 'it was not loaded anew');
  say('a page goes on after the broker has been away, and so does a stop');
}

async function submitter(browser, page) {
  const anna = await visitor(browser);
  await anna.goto(given.submitter);
  await anna.locator('h1', { hasText: 'My jobs' }).waitFor();
  await isLive(anna);
  await anna.locator('a', { hasText: `job-${given.own}` }).first().waitFor();
  const rows = await anna.locator('tbody th').allInnerTexts();
  assert.deepEqual(rows, [`job-${given.own}`]);
  assert.equal(await anna.getByRole('link', { name: 'People' }).count(), 0);
  await open(anna, 'farm');
  await anna.locator('.tile').first().waitFor();
  assert.equal(await anna.getByRole('button', { name: 'Stop all harvest …' }).count(), 0);
  const tried = await anna.evaluate(async () => (await fetch('/v1/farm/stop', { method: 'POST', body: '{"reason":"mine"}' })).status);
  assert.equal(tried, 403, 'whoever submits stops nobody');
  assert.equal(await anna.evaluate(async (job) => (await fetch(`/v1/jobs/${job}/log/0`)).status, given.hostile), 404);
  await anna.evaluate((job) => { location.hash = `jobs/${job}`; }, given.hostile);
  await anna.locator('dd', { hasText: 'no such job' }).waitFor();
  assert.equal(await anna.evaluate(async (job) => (await fetch(`/v1/jobs/${job}/archive`)).status, given.hostile), 404);
  await looks(anna, 'submitter');
  await open(anna, 'hosts');
  await anna.locator('section', { hasText: 'What was counted' }).locator('tbody tr', { hasText: 'desk3' }).waitFor();
  assert.equal(await anna.locator('.tile').count(), 1, 'hosts of others are not mine');
  await looks(anna, 'my-hosts');
  await isAccessible(anna, 'my hosts');
  await isReached(anna, 'my hosts');
  await open(page, 'people');
  const row = page.locator('tr', { hasText: 'anna' }).filter({ hasText: 'submitter' });
  await row.getByRole('button', { name: /Revoke/ }).click();
  await page.locator('dialog').getByRole('button', { name: /^Revoke/ }).click();
  await anna.locator('h1', { hasText: 'Log in' }).waitFor();
  await anna.locator('[role=status]', { hasText: 'revoked' }).waitFor();
  say('a submitter sees their own jobs, and nothing once the key is revoked');
}

drives(async (browser) => {
  const page = await admin(browser);
  await hostile(page);
  await drawn(page);
  await logs(page);
  await times(page);
  await everywhere(browser, page);
  await stops(page);
  await cancels(page);
  await invites(page);
  await byKeyboard(page);
  await keysEverywhere(page);
  await slowly(browser);
  // Links do not outlive a restart.
  await submitter(browser, page);
  await outlives(page);
});
