mod double;

use std::sync::Arc;

use gleaner_protocol::Time;

use super::*;
use crate::dice::Dice;
use crate::gpu::tests::{open, software, with_room};
use crate::gpu::{Gpu, GpuError};
use crate::isosurface::{IsosurfaceError, IsosurfacePlan, Mesh};
use crate::limits::SPACING_MAX;
use crate::volume::{Brick, Volume, Voxels};
use crate::{Outcome, Pace, Plan, Preempt, Slice, run};

fn done<P: Plan>(plan: Box<P>) -> P::Output {
    match run(plan, &Preempt::new(), &mut Pace::new(), || Time::ZERO, &mut |_| ()) {
        Ok(Outcome::Done(output)) => output,
        Ok(Outcome::Stopped { .. }) => panic!("nobody asked"),
        Err(error) => panic!("{error}"),
    }
}

fn plan(gpu: &Arc<Gpu>, volume: &Arc<Volume>, value: f32) -> Box<DeviceIsosurfacePlan> {
    let plan = DeviceIsosurfacePlan::new(gpu.clone(), volume.clone(), value);
    plan.expect("a plan").expect("it is made for it")
}

fn ours(volume: &Arc<Volume>, value: f32) -> Mesh {
    done(IsosurfacePlan::new(Brick::whole(volume.clone()), value).expect("a value"))
}

/// Asserts that a GPU makes the mesh that the processor makes, to the bit; how many triangles it has.
fn assert_same(gpu: &Arc<Gpu>, volume: &Arc<Volume>, value: f32) -> usize {
    let (ours, theirs) = (ours(volume, value), done(plan(gpu, volume, value)));
    assert_eq!(ours.edges, theirs.edges, "{value}");
    assert_eq!(ours.triangles, theirs.triangles, "{value}");
    let bits = |parts: &[[f32; 3]]| -> Vec<[u32; 3]> {
        parts.iter().map(|part| part.map(f32::to_bits)).collect()
    };
    assert_eq!(bits(&ours.positions), bits(&theirs.positions), "{value}");
    assert_eq!(bits(&ours.normals), bits(&theirs.normals), "{value}");
    ours.triangles.len()
}

/// Whole numbers below `end` without any order, so that all cases occur.
fn noise(count: usize, end: u32) -> Vec<u32> {
    let mut dice = Dice::new(5, 0);
    (0..count).map(|_| dice.below(end as usize) as u32).collect()
}

fn volume(size: [usize; 3], spacing: [f64; 3], voxels: Voxels) -> Arc<Volume> {
    Arc::new(Volume::new(size, spacing, voxels).expect("a volume"))
}

fn bytes(size: [usize; 3], end: u32) -> Arc<Volume> {
    let voxels = noise(size.iter().product(), end).into_iter().map(|voxel| voxel as u8);
    volume(size, [1.0; 3], Voxels::U8(voxels.collect()))
}

#[test]
fn a_smooth_surface_is_the_processors_to_the_bit() {
    let gpu = software();
    let rippled = Arc::new(Volume::rippled(48).expect("a volume"));
    // Between the values that voxels have, and at one of these.
    for value in [100.0, 99.5, 20.25] {
        assert!(assert_same(&gpu, &rippled, value) > 1000);
    }
}

#[test]
fn voxels_of_all_types_without_any_order_are_cut_alike() {
    let gpu = software();
    let size = [23, 18, 11];
    let count = size.iter().product();
    let words = noise(count, 4000).into_iter().map(|voxel| voxel as u16).collect();
    let words = volume(size, [3.2, 0.7, 1.5], Voxels::U16(words));
    let numbers = noise(count, 2001).into_iter().map(|voxel| voxel as f32 / 7.0 - 140.0);
    let numbers = volume(size, [0.1, 2.0, 1e-3], Voxels::F32(numbers.collect()));
    for share in [0.1, 0.5, 0.9] {
        assert!(assert_same(&gpu, &bytes(size, 256), 256.0 * share) > 1000);
        assert!(assert_same(&gpu, &words, (4000.0_f32 * share).round()) > 1000);
        assert!(assert_same(&gpu, &numbers, 280.0 * share - 140.0) > 1000);
    }
}

#[test]
fn volumes_of_all_shapes_are_cut_alike() {
    let gpu = software();
    for size in [
        [2, 2, 2],
        [2, 2, 300],
        [2, 40, 3],
        [3, 2, 90],
        [31, 5, 4],
        [32, 5, 4],
        [33, 5, 4],
        [64, 9, 9],
        [65, 3, 7],
        [700, 2, 3],
        [2, 700, 3],
    ] {
        assert!(assert_same(&gpu, &bytes(size, 4), 2.0) > 0, "{size:?}");
        assert_same(&gpu, &bytes(size, 3), 1.5);
    }
}

#[test]
fn values_that_voxels_have_and_slopes_that_cancel_out_are_alike() {
    let gpu = software();
    // One voxel among zeros, whose slope is none, and zeros of both signs.
    let mut voxels = vec![0.0_f32; 125];
    voxels[62] = 7.0;
    voxels.iter_mut().step_by(3).for_each(|voxel| *voxel *= -1.0);
    let one = volume([5; 3], [2.0; 3], Voxels::F32(voxels));
    for value in [7.0, 3.5, 1e-30] {
        assert_eq!(assert_same(&gpu, &one, value), 8);
    }
    assert_same(&gpu, &one, 0.0);
    assert_same(&gpu, &one, -0.0);
    for end in [2, 3] {
        for value in [0.0, 0.5, 1.0, 2.0] {
            assert_same(&gpu, &bytes([17, 16, 15], end), value);
        }
    }
}

#[test]
fn numbers_as_large_and_as_small_as_there_are_give_the_same() {
    let gpu = software();
    let size = [13, 12, 11];
    let of = |numbers: &[f32], spacing| {
        let pick = |at: u32| numbers[at as usize];
        let voxels = noise(size.iter().product(), numbers.len() as u32).into_iter().map(pick);
        volume(size, spacing, Voxels::F32(voxels.collect()))
    };
    let all =
        [f32::MIN, -1e30, -1.0, -1e-38, -1e-45, -0.0, 0.0, 1e-45, 3e-39, 1e-20, 2.0, f32::MAX];
    let far = SPACING_MAX;
    for spacing in [[1.0; 3], [far, 1.0 / far, 3.7], [0.3 * far; 3], [3.0 / far; 3]] {
        for value in [f32::MAX, 1.0, 1e-45, 2e-39, 0.0, -1e-45, -1e-38, -7e29] {
            assert!(assert_same(&gpu, &of(&all, spacing), value) > 100);
        }
        // Nothing but numbers that have fewer digits.
        let small = [0.0, 1e-45, 3e-45, 7e-41, 1e-39];
        assert!(assert_same(&gpu, &of(&small, spacing), 2e-45) > 100);
    }
}

#[test]
fn nothing_comes_of_a_sheet_or_of_a_value_that_is_nowhere() {
    let gpu = software();
    for size in [[9, 9, 1], [9, 1, 9], [1, 9, 9], [1, 1, 1]] {
        assert_eq!(assert_same(&gpu, &bytes(size, 4), 2.0), 0);
    }
    for value in [-1.0, 0.0, 255.5, 300.0, 1e30] {
        assert_eq!(assert_same(&gpu, &bytes([20; 3], 255), value), 0, "{value}");
    }
    let error = DeviceIsosurfacePlan::new(gpu, bytes([9; 3], 4), f32::NAN).expect_err("refused");
    assert!(matches!(error, IsosurfaceError::Value(_)), "{error}");
}

#[test]
fn what_goes_there_in_slabs_is_the_mesh_of_the_whole() {
    let size = [37, 41, 30];
    let words = noise(size.iter().product(), 4000).into_iter().map(|voxel| voxel as u16);
    let words = volume(size, [1.0, 0.3, 2.5], Voxels::U16(words.collect()));
    for (layers, slabs) in [(4, 27), (5, 14), (9, 5), (29, 2)] {
        // Each voxel with two bits more.
        let gpu = Arc::new(with_room((size[0] * size[1] * layers * 10).div_ceil(8)));
        assert_eq!(plan(&gpu, &bytes(size, 200), 100.0).slabs(), slabs);
        assert!(assert_same(&gpu, &bytes(size, 200), 100.0) > 1000);
        let rippled = Arc::new(Volume::rippled(38).expect("a volume"));
        assert!(assert_same(&gpu, &rippled, 50.0) > 1000);
        let gpu = Arc::new(with_room((size[0] * size[1] * layers * 18).div_ceil(8)));
        assert!(assert_same(&gpu, &words, 2000.0) > 1000);
    }
}

#[test]
fn what_a_device_is_not_made_for_is_left_to_the_processor() {
    let is_made_for = |gpu: Gpu| {
        let volume = volume([20, 20, 9], [1.0; 3], Voxels::U8(vec![0; 3600]));
        DeviceIsosurfacePlan::new(Arc::new(gpu), volume, 1.0).expect("no error").is_some()
    };
    assert!(is_made_for(with_room(4 * 400 * 10 / 8)));
    assert!(!is_made_for(with_room(3 * 400 * 10 / 8)));
    // Nor is a sheet, of which it would have to hold all.
    let sheet = volume([20, 20, 1], [1.0; 3], Voxels::U8(vec![0; 400]));
    let plan = DeviceIsosurfacePlan::new(Arc::new(with_room(400)), sheet, 1.0);
    assert!(plan.expect("no error").is_none());
}

#[test]
fn a_surface_stops_between_two_slices() {
    let plan = plan(&software(), &Arc::new(Volume::rippled(64).expect("a volume")), 100.0);
    let (units, preempt) = (plan.units(), Preempt::new());
    let mut slices = 0;
    let outcome = run(plan, &preempt, &mut Pace::new(), || Time::ZERO, &mut |_| {
        slices += 1;
        if slices == 5 {
            preempt.ask();
        }
    });
    let Ok(Outcome::Stopped { done, units: of }) = outcome else { panic!("it went on") };
    assert!(done < units && of == units, "{done} of {units}");
}

#[test]
fn a_device_that_is_lost_in_the_middle_is_an_error() {
    let volume = Arc::new(Volume::rippled(32).expect("a volume"));
    let mut at_once = plan(&software(), &volume, 100.0);
    let units = at_once.units();
    at_once.run(&Slice::new(0..units)).expect("the device goes on");
    assert_eq!(at_once.finish().expect("a mesh"), ours(&volume, 100.0));
    // Before anything is there, while it is counted, and while it comes back.
    for done in [0, units / 2, units - 2] {
        let gpu = open();
        let mut plan = plan(&gpu, &volume, 100.0);
        if done > 0 {
            plan.run(&Slice::new(0..done)).expect("the device goes on");
        }
        gpu.device().destroy();
        let error = plan.run(&Slice::new(done..units)).expect_err("it is lost");
        let IsosurfaceError::Device(GpuError::Lost { .. }) = &error else { panic!("{error:?}") };
        let told = error.to_string();
        assert!(told.contains("llvmpipe") && told.contains("was lost"), "{told}");
    }
}
