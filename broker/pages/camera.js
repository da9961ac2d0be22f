// @ts-check
// Where a volume is looked at from: an eye that goes around what it looks at.

/**
 * @typedef {[number, number, number]} Vector
 * @typedef {{eye: Vector, target: Vector, up: Vector, fov_degrees: number}} ViewCamera
 * @typedef {{size: Vector, spacing: Vector}} Extent
 */

/** The eye never looks along `up`. */
const STEEPEST = 89;
const RADIANS = Math.PI / 180;
const FOV_DEGREES = 30;
/** How near and how far the eye may be, in radii of the volume. */
const NEAREST = 0.01;
const FARTHEST = 50;

/** @param {Vector} one @param {Vector} other @returns {Vector} */
const minus = (one, other) => [one[0] - other[0], one[1] - other[1], one[2] - other[2]];
/** @param {Vector} one @param {Vector} other @param {number} times @returns {Vector} */
const plus = (one, other, times = 1) =>
  [one[0] + times * other[0], one[1] + times * other[1], one[2] + times * other[2]];
/** @param {Vector} one @param {Vector} other */
const dot = (one, other) => one[0] * other[0] + one[1] * other[1] + one[2] * other[2];
/** @param {Vector} one @param {Vector} other @returns {Vector} */
const cross = (one, other) => [
  one[1] * other[2] - one[2] * other[1],
  one[2] * other[0] - one[0] * other[2],
  one[0] * other[1] - one[1] * other[0],
];
/** @param {Vector} of */
const length = (of) => Math.hypot(...of);
/** @param {Vector} of @returns {Vector} */
const unit = (of) => plus([0, 0, 0], of, 1 / length(of));

/**
 * Two directions across `up`, and across each other.
 * @param {Vector} up
 * @returns {[Vector, Vector]}
 */
function around(up) {
  // Of the axes the one that is least along it, and of equal ones the last: z, where y is upwards.
  const along = up.map(Math.abs);
  let axis = 2;
  for (const other of [1, 0]) if (along[other] < along[axis] - 1e-9) axis = other;
  const axes = /** @type {Vector[]} */ ([[1, 0, 0], [0, 1, 0], [0, 0, 1]]);
  const front = unit(plus(axes[axis], up, -dot(axes[axis], up)));
  return [front, cross(up, front)];
}

/**
 * The middle of a volume whose first voxel is at the origin, and how far its corners are from there.
 * @param {Extent} extent
 */
export function ball({ size, spacing }) {
  const sides = /** @type {Vector} */ (size.map((voxels, axis) => Math.max(voxels - 1, 1) * spacing[axis]));
  return { middle: /** @type {Vector} */ (sides.map((side) => side / 2)), radius: length(sides) / 2, longest: Math.max(...sides) };
}

/** A camera on a turntable: degrees about `up`, degrees over the horizon, and how far away. */
export class Camera {
  /** @param {Extent} extent */
  constructor(extent) {
    this.extent = extent;
    this.ball = ball(extent);
    /** @type {Vector} */
    this.up = [0, 1, 0];
    this.fovDegrees = FOV_DEGREES;
    /** Width of the picture, in its heights. */
    this.aspect = 4 / 3;
    this.target = this.ball.middle;
    /** Degrees about `up`. */
    this.azimuth = 0;
    /** Degrees over the horizon. */
    this.elevation = 0;
    this.distance = this.ball.radius;
    this.reset();
  }

  /** All of the volume is seen, a little from the right and from above. */
  reset() {
    this.target = this.ball.middle;
    this.azimuth = 35;
    this.elevation = 25;
    const narrowest = Math.atan(Math.tan((FOV_DEGREES / 2) * RADIANS) * Math.min(1, this.aspect));
    this.distance = this.ball.radius / Math.sin(narrowest);
    this.fovDegrees = FOV_DEGREES;
  }

  /**
   * The eye goes to the right and upwards.
   * @param {number} right
   * @param {number} upwards
   */
  turn(right, upwards) {
    this.azimuth += right;
    this.elevation = Math.min(STEEPEST, Math.max(-STEEPEST, this.elevation + upwards));
  }

  /** @param {number} times */
  zoom(times) {
    const { radius } = this.ball;
    this.distance = Math.min(FARTHEST * radius, Math.max(NEAREST * radius, this.distance * times));
  }

  /**
   * What is looked at moves across the picture, by shares of its height.
   * @param {number} right
   * @param {number} upwards
   */
  pan(right, upwards) {
    const seen = 2 * this.distance * Math.tan((this.fovDegrees / 2) * RADIANS);
    const sight = unit(minus(this.target, this.eye()));
    const aside = unit(cross(sight, this.up));
    this.target = plus(plus(this.target, aside, -right * seen), cross(aside, sight), -upwards * seen);
  }

  /**
   * Another axis is upwards; what is seen stays as near as it can.
   * @param {Vector} up
   */
  setUp(up) {
    this.take({ ...this.told(), up });
  }

  /**
   * Looks along an axis.
   * @param {number} axis
   */
  along(axis) {
    const eye = [...this.target];
    eye[axis] += this.distance;
    const up = /** @type {Vector} */ ([0, 0, 0]);
    up[axis === 1 ? 2 : 1] = 1;
    this.take({ ...this.told(), eye: /** @type {Vector} */ (eye), up: Math.abs(this.up[axis]) > 0.5 ? up : this.up });
  }

  /** @returns {Vector} */
  eye() {
    const [front, side] = around(this.up);
    const [azimuth, elevation] = [this.azimuth * RADIANS, this.elevation * RADIANS];
    const flat = plus(plus([0, 0, 0], front, Math.cos(azimuth)), side, Math.sin(azimuth));
    const arm = plus(plus([0, 0, 0], flat, Math.cos(elevation)), this.up, Math.sin(elevation));
    return plus(this.target, arm, this.distance);
  }

  /** As the broker is told. @returns {ViewCamera} */
  told() {
    return { eye: this.eye(), target: this.target, up: this.up, fov_degrees: this.fovDegrees };
  }

  /**
   * As it was told.
   * @param {ViewCamera} told
   */
  take({ eye, target, up, fov_degrees: fovDegrees }) {
    this.up = unit(up);
    this.target = target;
    this.fovDegrees = fovDegrees;
    const arm = minus(eye, target);
    this.distance = length(arm);
    const [front, side] = around(this.up);
    const sine = Math.min(1, Math.max(-1, dot(arm, this.up) / this.distance));
    this.elevation = Math.min(STEEPEST, Math.max(-STEEPEST, Math.asin(sine) / RADIANS));
    const flat = [dot(arm, front), dot(arm, side)];
    // Straight from above there is no direction: the one from before is kept.
    if (Math.hypot(...flat) > 1e-9 * this.distance) this.azimuth = Math.atan2(flat[1], flat[0]) / RADIANS;
  }

  /**
   * The same look at another volume: as many of its radii away from its middle.
   * @param {Extent} extent
   * @returns {ViewCamera}
   */
  toldFor(extent) {
    const other = ball(extent);
    const times = other.radius / this.ball.radius;
    const moved = (/** @type {Vector} */ at) => plus(other.middle, minus(at, this.ball.middle), times);
    const { eye, target, up, fov_degrees } = this.told();
    return { eye: moved(eye), target: moved(target), up, fov_degrees };
  }

  /** In words. */
  words() {
    const round = (/** @type {number} */ of) => String(Math.round(of));
    const azimuth = ((this.azimuth % 360) + 360) % 360;
    return `${round(azimuth)} degrees around, ${round(this.elevation)} degrees up, ${(this.distance / this.ball.radius).toFixed(1)} radii away`;
  }
}
