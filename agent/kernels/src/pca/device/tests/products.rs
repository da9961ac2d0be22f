//! Components that are found by products on the device.

use super::*;

/// One that has so many products to find eigenvectors on the device.
pub(super) fn solving(products: usize) -> Budget {
    Budget { solved_side: 0, solved_products: products, ..Budget::of(&software()) }
}

/// Runs a plan to where eigenvectors are looked for no more on the device; whether they were found.
fn is_solved_there(plan: &mut DevicePcaPlan) -> (bool, u64) {
    let mut unit = 0;
    while unit < plan.units() && plan.stretch(unit).kind != SOLVED {
        let end = plan.stretch(unit).end.min(unit + 1000).min(plan.units());
        plan.run(&Slice::new(unit..end)).expect("the device goes on");
        unit = end;
    }
    (plan.solution.as_ref().is_some_and(DeviceSolution::is_found), unit)
}

#[test]
fn eigenvectors_by_products_on_a_device_are_those_of_the_processor() {
    // Sums in one strip of vectors and in two, of columns and of rows, and in several slabs. The
    // faster roots fall, the fewer products it takes.
    let few = Budget { slab_bytes: 1 << 18, ..solving(60) };
    for (rows, columns, count, budget, root) in [
        (200, 130, 6, solving(60), 0.985_f64),
        (130, 200, 6, solving(60), 0.9),
        (361, 360, 45, solving(60), 0.95),
        (300, 200, 20, few, 0.9),
    ] {
        let numbers = data(rows, columns, 0.0);
        let fall = |at: usize| 100.0 + numbers.numbers()[at] * root.powi((at % columns) as i32);
        let data = Matrix::new(rows, columns, (0..rows * columns).map(fall).collect());
        let data = data.expect("finite");
        let ours = pca(data.clone(), count).expect("components");
        let plan = || DevicePcaPlan::within(software(), data.clone(), count, &budget);
        let mut plan = plan().expect("a plan");
        let (is_solved, unit) = is_solved_there(&mut plan);
        assert!(is_solved, "{rows} x {columns}");
        plan.run(&Slice::new(unit..plan.units())).expect("the device goes on");
        let theirs = plan.finish().expect("components");
        assert_alike(&ours, &theirs, TOLERANCE / 10.0);
        assert_principal(&data, &theirs);
    }
}

#[test]
fn small_roots_beside_many_others_are_found_by_products() {
    let (rows, columns, count) = (120, 90, 6);
    let first = [1.0, 1e-2, 5e-4, 1.2e-4, 1.1e-4, 1e-4];
    let others = (0..70).map(|i| 9e-5 * 0.97_f64.powi(i));
    let roots: Vec<f64> = first.into_iter().chain(others).collect();
    let number = |at: usize| {
        let (row, column) = (at / columns, at % columns);
        let of_root =
            |(k, root): (usize, &f64)| root * wave(rows, k + 3, row) * wave(columns, k + 1, column);
        roots.iter().enumerate().map(of_root).sum()
    };
    let data = Matrix::new(rows, columns, (0..rows * columns).map(number).collect());
    let data = data.expect("finite");
    let mut plan =
        DevicePcaPlan::within(software(), data.clone(), count, &solving(80)).expect("a plan");
    let (is_solved, unit) = is_solved_there(&mut plan);
    assert!(is_solved);
    plan.run(&Slice::new(unit..plan.units())).expect("the device goes on");
    let theirs = plan.finish().expect("components");
    assert_alike(&pca(data, count).expect("components"), &theirs, TOLERANCE);
    for (k, root) in first.iter().enumerate() {
        assert!((theirs.eigenvalues[k] / root / root - 1.0).abs() < 1e-7, "{k}");
        let sign = if theirs.components.row(k)[0] < 0.0 { -1.0 } else { 1.0 };
        for (column, part) in theirs.components.row(k).iter().enumerate() {
            assert!((sign * part - wave(columns, k + 1, column)).abs() < 1e-7, "{k} {column}");
        }
    }
}

#[test]
fn what_products_do_not_find_is_left_to_the_processor() {
    let data = data(200, 80, 1.0);
    let ours = pca(data.clone(), 5).expect("components");
    let mut plan = DevicePcaPlan::within(software(), data, 5, &solving(2)).expect("a plan");
    let (is_solved, unit) = is_solved_there(&mut plan);
    assert!(!is_solved && plan.solution.is_some());
    plan.run(&Slice::new(unit..plan.units())).expect("the device goes on");
    assert_alike(&ours, &plan.finish().expect("components"), TOLERANCE / 10.0);
}

#[test]
fn few_rows_and_most_components_are_left_to_the_processor() {
    let plan = |count, budget| {
        let plan = DevicePcaPlan::within(software(), data(100, 64, 0.0), count, &budget);
        plan.expect("a plan").solution.is_some()
    };
    assert!(plan(8, solving(9)) && !plan(9, solving(9)));
    assert!(!plan(8, Budget::of(&software())));
    // No room beside the matrix.
    assert!(!plan(8, Budget { matrix_bytes: 100 * 64 * 8 + 64 * 64 * 8 - 1, ..solving(9) }));
}
