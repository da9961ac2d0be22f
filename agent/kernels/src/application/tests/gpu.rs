//! What is computed on a GPU that is only software.

use super::*;
use crate::gpu::tests::{open, software, with_room};

/// A task on a sample, which lies in the folder.
fn task(application: Application) -> (tempfile::TempDir, Task) {
    let folder = folder(application);
    let text = application.example().replace("[1, 2, 4, 8]", "[2, 5]");
    let text = text.replace("splits = 50", "splits = 5");
    let task = Task::parse(application, &text, folder.path()).expect("a task");
    (folder, task)
}

/// The numbers of a file, those that are compared with the largest of them in each row.
fn numbers(folder: &Path, product: &Product) -> Vec<Vec<f64>> {
    let path = folder.join(&product.name);
    fs::write(&path, &product.bytes).expect("written");
    if product.name.ends_with(".csv") {
        let table = super::numbers(&path);
        let column = |column: usize| (0..table.rows()).map(|row| table.row(row)[column]).collect();
        (0..table.columns()).map(column).collect()
    } else {
        vec![read_series(&path).expect("volumes").data().numbers().to_vec()]
    }
}

#[test]
fn what_a_gpu_finds_is_one_vote_with_what_the_processor_finds() {
    let gpu = software();
    for (application, says) in
        [(Application::Pca, "found by"), (Application::Npairs, "scans multiplied by")]
    {
        let (folder, task) = task(application);
        let ours = run_task(&task, &Preempt::new()).expect("an output");
        let theirs = run_on(Device::Gpu(gpu.clone()), &task, &Preempt::new()).expect("an output");
        assert_eq!(theirs.summary, [vec![format!("{says} {}", gpu.name())], ours.summary].concat());
        assert_eq!((ours.by, theirs.by), (Computer::Core, Computer::Gpu));
        assert_eq!(ours.products.len(), 3);
        for (ours, theirs) in ours.products.iter().zip(&theirs.products) {
            assert_eq!(ours.name, theirs.name);
            let read = [ours, theirs].map(|product| numbers(folder.path(), product));
            assert_eq!(read[0].len(), read[1].len());
            for (ours, theirs) in read[0].iter().zip(&read[1]) {
                assert!(ours.len() == theirs.len() && !ours.is_empty());
                let largest = ours.iter().fold(0.0_f64, |most, number| most.max(number.abs()));
                let mut pairs = ours.iter().zip(theirs);
                // A millionth, which is what votes tolerate.
                assert!(pairs.all(|(a, b)| (a - b).abs() <= 1e-6 * largest));
            }
        }
    }
}

#[test]
fn a_gpu_cuts_the_surface_of_the_processor_to_the_bit() {
    let gpu = software();
    let (folder, task) = task(Application::Isosurface);
    let glb = Application::Isosurface.example().replace("isosurface.ply", "a.glb");
    let glb = Task::parse(Application::Isosurface, &glb, folder.path()).expect("a task");
    for task in [task, glb] {
        let ours = run_task(&task, &Preempt::new()).expect("an output");
        let theirs = run_on(Device::Gpu(gpu.clone()), &task, &Preempt::new()).expect("an output");
        assert!(theirs.products == ours.products, "it is another mesh");
        let summary = [vec![format!("cut by {}", gpu.name())], ours.summary].concat();
        assert_eq!((theirs.summary, theirs.size), (summary, ours.size));
    }
}

#[test]
fn what_a_gpu_has_no_room_for_is_cut_by_the_processor_which_says_why() {
    let gpu = Arc::new(with_room(2 * 64 * 64));
    let (_folder, task) = task(Application::Isosurface);
    let ours = run_task(&task, &Preempt::new()).expect("an output");
    let theirs = run_on(Device::Gpu(gpu), &task, &Preempt::new()).expect("an output");
    assert!(theirs.products == ours.products, "it is another mesh");
    let said = &theirs.summary[0];
    assert!(said.starts_with("cut by the processor, for llvmpipe"), "{said}");
    assert_eq!(theirs.by, Computer::Core);
}

#[test]
fn a_gpu_that_is_lost_is_told_from_work_that_cannot_be_done() {
    let gpu = open();
    gpu.device().destroy();
    for application in Application::ALL {
        let (_folder, task) = task(application);
        let error = run_on(Device::Gpu(gpu.clone()), &task, &Preempt::new()).expect_err("lost");
        let is_lost = matches!(error.of_device(), Some(GpuError::Lost { .. }));
        assert!(is_lost, "{application:?}: {error:?}");
    }
}

/// The bytes of a picture in a PNG file.
fn shown(product: &Product) -> Vec<u8> {
    let decoder = png::Decoder::new(std::io::Cursor::new(&product.bytes));
    let mut reader = decoder.read_info().expect("a picture");
    let mut bytes = vec![0; reader.output_buffer_size().expect("a size")];
    reader.next_frame(&mut bytes).expect("a picture");
    bytes
}

#[test]
fn a_picture_that_is_said_to_be_alike_on_gpus_is() {
    let gpu = software();
    let folder = folder(Application::Volume);
    let mut alike = 0;
    for to in ["60.5", "62.0", "64.0", "68.0", "90.0"] {
        for step in ["step = 0.5", "# none", "step = 3.0"] {
            let text =
                Application::Volume.example().replace("value = 90.0", &format!("value = {to}"));
            let text = text.replace("opacity = 0.4", "opacity = 0.8").replace("# step = 0.5", step);
            let task = Task::parse(Application::Volume, &text, folder.path()).expect("a task");
            if !task.is_alike_on_gpus() {
                continue;
            }
            alike += 1;
            let ours = run_task(&task, &Preempt::new()).expect("an output");
            let theirs =
                run_on(Device::Gpu(gpu.clone()), &task, &Preempt::new()).expect("an output");
            let (ours, theirs) = (shown(&ours.products[0]), shown(&theirs.products[0]));
            let most = ours.iter().zip(&theirs).map(|(a, b)| a.abs_diff(*b)).max();
            assert!(
                ours.len() == theirs.len() && most.is_some_and(|most| most <= 1),
                "{to} {step}"
            );
        }
    }
    assert!((8..15).contains(&alike), "{alike} of 15");
}
