//! Outputs are the same to the bit, whatever the number of threads.

use std::num::NonZero;
use std::sync::Arc;

use gleaner_kernels::npairs::{Design, Npairs, NpairsPlan, Synthetic};
use gleaner_kernels::pca::{Matrix, Pca, PcaPlan};
use gleaner_kernels::raycast::{
    Camera, ControlPoint, FramePlan, Look, Projection, ScenePlan, Shading, Transfer,
};
use gleaner_kernels::volume::{Brick, Volume};
use gleaner_kernels::{Outcome, Pace, Plan, Preempt, Threads, run};
use gleaner_protocol::Time;

/// Slices grow with a clock that stands still, so that threads have something to share out.
fn done<P: Plan>(plan: Box<P>) -> P::Output {
    let outcome = run(plan, &Preempt::new(), &mut Pace::new(), || Time::ZERO, &mut |_| ());
    match outcome.expect("an output") {
        Outcome::Done(output) => output,
        Outcome::Stopped { .. } => panic!("nobody asked"),
    }
}

/// What `work` brings on one thread, after it brought the same on others.
#[track_caller]
fn same<R: PartialEq + Send>(work: impl Fn() -> R + Send + Sync) -> R {
    let one = work();
    for count in [1, 2, 3, 8] {
        let threads = Threads::new(NonZero::new(count).expect("some")).expect("threads");
        assert!(threads.run(&work) == one, "{count} threads");
    }
    one
}

fn numbers(rows: usize, columns: usize) -> Matrix {
    let mut state = 1_u64;
    let mut dice = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    let numbers = (0..rows * columns).map(|_| 100.0 + dice());
    Matrix::new(rows, columns, numbers.collect()).expect("finite")
}

#[test]
fn pictures_are_the_same_on_any_number_of_threads() {
    let volume = Arc::new(Volume::rippled(40).expect("a volume"));
    let point = |value, opacity| ControlPoint { value, colour: [1.0, 0.5, 0.2], opacity };
    let points = vec![point(40.0, 0.0), point(90.0, 0.5), point(200.0, 0.9)];
    let transfer = Transfer::new(points, 1.0).expect("a function");
    let light = Shading { ambient: 0.3, diffuse: 0.7, specular: 0.2, shininess: 9 };
    let look = Look { transfer, step: None, shading: Some(light) };
    let scene = done(ScenePlan::new(Brick::whole(volume), &look).expect("a scene"));
    // No whole number of tiles.
    let view = Projection::Perspective { fov_degrees: 30.0 };
    let middle = [19.5; 3];
    let eye = [90.0, 60.0, 80.0];
    let camera = Camera::new(eye, middle, [0.0, 1.0, 0.0], view, [157, 101]).expect("a camera");
    let image = same(|| done(FramePlan::new(scene.clone(), camera.clone())).image);
    assert!(image.pixels().iter().filter(|pixel| pixel[3] > 0.0).count() > 1000);
}

#[test]
fn components_are_the_same_on_any_number_of_threads() {
    // Several blocks of sums, in rows, columns and what they are sums of; upright and flat.
    for (rows, columns, count) in [(2500, 150, 10), (150, 2500, 10), (300, 140, 140)] {
        let data = numbers(rows, columns);
        let pca: Pca = same(|| done(PcaPlan::new(data.clone(), count).expect("a plan")));
        assert_eq!(pca.components.rows(), count);
    }
}

#[test]
fn figures_of_scans_are_the_same_on_any_number_of_threads() {
    let synthetic = Synthetic { size: [16, 16, 16], scans: 10, ..Synthetic::default() };
    let data = synthetic.series().expect("scans").into_data();
    let design = Design::new(&synthetic.classes(), Some(&synthetic.groups())).expect("a design");
    let npairs: Npairs =
        same(|| done(NpairsPlan::new(data.clone(), design.clone(), 5, 10, 1).expect("a plan")));
    assert_eq!(npairs.splits.len(), 10);
}
