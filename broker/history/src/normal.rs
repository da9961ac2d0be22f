//! The normal distribution.

/// The part of it below `z`.
pub(crate) fn below(z: f64) -> f64 {
    0.5 * libm::erfc(-z / std::f64::consts::SQRT_2)
}

/// Its density at `z`.
pub(crate) fn density(z: f64) -> f64 {
    libm::exp(-0.5 * z * z) / (2.0 * std::f64::consts::PI).sqrt()
}

/// Where `p` of it is below.
///
/// Source: P. J. Acklam, "An algorithm for computing the inverse normal cumulative distribution
/// function", 2003, with one step of Halley's method.
pub(crate) fn quantile(p: f64) -> f64 {
    const A: [f64; 6] = [
        -3.969_683_028_665_376e1,
        2.209_460_984_245_205e2,
        -2.759_285_104_469_687e2,
        1.383_577_518_672_69e2,
        -3.066_479_806_614_716e1,
        2.506_628_277_459_239,
    ];
    const B: [f64; 6] = [
        -5.447_609_879_822_406e1,
        1.615_858_368_580_409e2,
        -1.556_989_798_598_866e2,
        6.680_131_188_771_972e1,
        -1.328_068_155_288_572e1,
        1.0,
    ];
    const C: [f64; 6] = [
        -7.784_894_002_430_293e-3,
        -3.223_964_580_411_365e-1,
        -2.400_758_277_161_838,
        -2.549_732_539_343_734,
        4.374_664_141_464_968,
        2.938_163_982_698_783,
    ];
    const D: [f64; 5] = [
        7.784_695_709_041_462e-3,
        3.224_671_290_700_398e-1,
        2.445_134_137_142_996,
        3.754_408_661_907_416,
        1.0,
    ];
    const TAIL: f64 = 0.024_25;
    let p = p.clamp(1e-9, 1.0 - 1e-9);
    let at = |coefficients: &[f64], x: f64| coefficients.iter().fold(0.0, |sum, c| sum * x + c);
    let rough = if p < TAIL {
        let q = (-2.0 * libm::log(p)).sqrt();
        at(&C, q) / at(&D, q)
    } else if p > 1.0 - TAIL {
        let q = (-2.0 * libm::log(1.0 - p)).sqrt();
        -at(&C, q) / at(&D, q)
    } else {
        let q = p - 0.5;
        q * at(&A, q * q) / at(&B, q * q)
    };
    let step = (below(rough) - p) / density(rough);
    rough - step / (1.0 + 0.5 * rough * step)
}

/// The mean of what is above `z`.
pub(crate) fn mean_above(z: f64) -> f64 {
    let above = below(-z);
    if above < 1e-12 { z } else { density(z) / above }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (p, z) in [(0.5, 0.0), (0.9, 1.281_551_565_544_6), (0.001, -3.090_232_306_167_8)] {
            assert!((quantile(p) - z).abs() < 1e-9, "{p}: {}", quantile(p));
            assert!((below(z) - p).abs() < 1e-9, "{p}");
        }
        assert!((mean_above(0.0) - 0.797_884_560_802_9).abs() < 1e-9);
        assert!((mean_above(40.0) - 40.0).abs() < 0.1);
    }
}
