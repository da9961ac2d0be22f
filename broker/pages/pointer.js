// @ts-check
// Mouse, fingers and keys on a picture: they turn, move and zoom a camera.

/** What a picture's height turns the camera by. */
const DEGREES = 180;
const KEY_DEGREES = 5;
const KEY_PAN = 0.05;
const KEY_ZOOM = 1.1;
/** A step of the wheel, where it counts lines. */
const LINE_PIXELS = 16;

/** How it is done, in words. */
export const HELP = 'Drag to turn, drag with the right button or Shift to move, turn the wheel or pinch to zoom. '
  + 'Keys: arrows turn, Shift and arrows move, + and − zoom, Home shows all.';

/** @typedef {{x: number, y: number}} Point */

/**
 * Has an element move a camera.
 * @param {HTMLElement} element
 * @param {import('./camera.js').Camera} camera
 * @param {{moved: () => void, byKey: () => void}} tell
 */
export function moves(element, camera, { moved, byKey }) {
  /** @type {Map<number, Point>} */
  const held = new Map();
  const height = () => Math.max(element.clientHeight, 1);
  /** The middle of two fingers, and how far they are apart. */
  const fingers = () => {
    const [one, other] = [...held.values()];
    return { x: (one.x + other.x) / 2, y: (one.y + other.y) / 2, apart: Math.hypot(one.x - other.x, one.y - other.y) };
  };
  element.addEventListener('pointerdown', (event) => {
    if (event.button === 1) return;
    held.set(event.pointerId, { x: event.clientX, y: event.clientY });
    element.setPointerCapture(event.pointerId);
    element.focus({ preventScroll: true });
    event.preventDefault();
  });
  element.addEventListener('pointermove', (event) => {
    const before = held.get(event.pointerId);
    if (!before) return;
    const now = { x: event.clientX, y: event.clientY };
    if (held.size === 2) {
      const were = fingers();
      held.set(event.pointerId, now);
      const are = fingers();
      camera.zoom(Math.max(were.apart, 1) / Math.max(are.apart, 1));
      camera.pan((are.x - were.x) / height(), (were.y - are.y) / height());
    } else {
      held.set(event.pointerId, now);
      const [right, down] = [(now.x - before.x) / height(), (now.y - before.y) / height()];
      if (event.shiftKey || (event.buttons & 2) !== 0) camera.pan(right, -down);
      else camera.turn(-right * DEGREES, down * DEGREES);
    }
    moved();
  });
  for (const end of ['pointerup', 'pointercancel', 'lostpointercapture']) {
    element.addEventListener(end, (event) => held.delete(/** @type {PointerEvent} */ (event).pointerId));
  }
  element.addEventListener('contextmenu', (event) => event.preventDefault());
  element.addEventListener('wheel', (event) => {
    event.preventDefault();
    const lines = event.deltaMode === WheelEvent.DOM_DELTA_PIXEL ? 1 : LINE_PIXELS;
    // A pinch on a touchpad comes as a wheel with Ctrl, in small steps.
    camera.zoom(Math.exp(event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.001)));
    moved();
  }, { passive: false });
  element.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const across = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (across && event.shiftKey) camera.pan(across[0] * KEY_PAN, across[1] * KEY_PAN);
    else if (across) camera.turn(across[0] * KEY_DEGREES, across[1] * KEY_DEGREES);
    else if (event.key === '+' || event.key === '=') camera.zoom(1 / KEY_ZOOM);
    else if (event.key === '-' || event.key === '_') camera.zoom(KEY_ZOOM);
    else if (event.key === 'Home') camera.reset();
    else return;
    event.preventDefault();
    moved();
    byKey();
  });
}
