// Drives a real browser through the page of one host, as its owner would.
//
//   node tests/pages/agent.js
'use strict';

const assert = require('node:assert/strict');
const { ask, drives, given, isAccessible, isLive, looks, say, visitor } = require('./browser.js');

const state = (page, words) => page.locator('dd', { hasText: words }).first().waitFor();
const press = (page, name) => page.getByRole('button', { name }).click();

drives(async (browser) => {
  const page = await visitor(browser);
  await page.goto(given.link);
  await page.locator('h1', { hasText: given.host }).waitFor();
  await isLive(page);
  assert.ok(!page.url().includes('login'), page.url());
  assert.equal(await page.evaluate(() => document.cookie), '', 'no script reads the cookie');
  const [cookie] = await page.context().cookies();
  assert.ok(cookie.httpOnly && cookie.sameSite === 'Strict', JSON.stringify(cookie));
  await page.locator('td', { hasText: given.runs }).first().waitFor();
  say('a link lets the owner in; what runs is there');

  const other = await visitor(browser);
  await other.goto(given.link);
  await other.locator('[role=status]', { hasText: 'good no longer' }).waitFor();
  await isAccessible(other, 'a link that was used');
  await other.context().close();
  say('a link is good once');

  const wish = page.locator('tr', { hasText: 'preferences.keep_frozen_s' });
  assert.match(await wish.innerText(), /600/);
  assert.ok((await wish.innerText()).includes(given.file), 'the file that said it');
  const cores = page.locator('tr', { has: page.locator('th', { hasText: /^cores$/ }) });
  assert.match(await cores.innerText(), /--cores/);
  assert.match(await page.locator('tr', { hasText: 'preferences.on_battery' }).innerText(), /default/);
  say('each wish has its value, and who said it');

  await press(page, 'Pause for an hour');
  await state(page, '◇ paused');
  await page.locator('li', { hasText: /paused for 3(600|5\d\d) s more/ }).waitFor();
  await page.locator('td', { hasText: 'stands still' }).first().waitFor();
  await ask('paused');
  await looks(page, 'agent-paused');
  await press(page, 'Go on');
  await state(page, '● harvested');
  await ask('runs');
  await press(page, /^Pause until tomorrow/);
  await state(page, '◇ paused');
  const [left, until] = await page.evaluate(async () => {
    const { untilTomorrow } = await import('/pages/agent.js');
    return [untilTomorrow(new Date(2026, 10, 28, 23, 0)), untilTomorrow(new Date(2026, 10, 28, 1, 30))];
  });
  assert.deepEqual([left, until], [9 * 3_600_000, 30.5 * 3_600_000]);
  await press(page, 'Go on');
  await press(page, 'Finish, then stop');
  await state(page, '◔ finishing');
  await page.locator('li', { hasText: 'comes to its end, and nothing new begins' }).waitFor();
  await press(page, 'Go on');
  await state(page, '● harvested');
  say('a host is paused, finishes and goes on by clicks');

  for (const scheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme: scheme });
    await isAccessible(page, `a host, ${scheme}`);
    await looks(page, `agent-${scheme}`);
  }
  await page.setViewportSize({ width: 400, height: 800 });
  await looks(page, 'agent-narrow');
  const wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(wider <= 0, `it is ${wider} pixels wider than a narrow screen`);
  await page.setViewportSize({ width: 1280, height: 900 });
  say('it passes axe, dark and light, and fits a narrow screen');

  await page.reload();
  await isLive(page);
  const reached = [];
  for (let key = 0; key < 12; key += 1) {
    await page.keyboard.press('Tab');
    reached.push(await page.evaluate(() => document.activeElement.textContent));
    if (reached.at(-1) === 'Pause for an hour') break;
  }
  assert.equal(reached.at(-1), 'Pause for an hour', reached.join());
  await page.keyboard.press('Enter');
  await state(page, '◇ paused');
  await press(page, 'Go on');
  await state(page, '● harvested');
  say('keys alone do as well');

  await ask('end the work');
  await page.locator('.figures div', { hasText: 'outputs' }).locator('dd', { hasText: /^[1-9]/ }).waitFor();
  await page.locator('td', { hasText: /^nothing$/ }).waitFor();
  say('what has ended is counted');
  await ask('stop the agent');
  await page.locator('#link', { hasText: 'no agent answers' }).waitFor();
  await ask('stop the page');
  await page.locator('#link', { hasText: 'has ended' }).waitFor();
  say('it says when the agent is away, and when it has itself ended');
});
