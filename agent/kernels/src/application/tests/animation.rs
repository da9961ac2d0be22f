//! Animations: pictures of one volume along the path of a camera.

use gleaner_protocol::Span;

use super::*;

/// Small pictures.
fn example() -> String {
    Application::Volume.example().replace("size = [320, 240]", "size = [24, 18]")
}

/// With an animation of these keys.
fn along(frames: usize, path: &str) -> String {
    format!("{}\n[animation]\nframes = {frames}\npath = [{path}]\n", example())
}

/// The example with what is commented out of its animation.
fn commented_out() -> String {
    let example = example();
    let (before, animation) = example.split_once("# [animation]").expect("an animation");
    let lines = animation.lines().map(|line| line.trim_start_matches("# "));
    format!("{before}[animation]{}\n", lines.collect::<Vec<_>>().join("\n"))
}

fn pictures(text: &str) -> Vec<Product> {
    finished(Application::Volume, text).expect("pictures").products
}

fn told(text: &str) -> String {
    let error = Task::parse(Application::Volume, text, Path::new("")).expect_err("refused");
    assert!(error.is_usage(), "{error}");
    error.to_string()
}

#[test]
fn the_one_of_the_example_works_with_its_sample() {
    let text = commented_out();
    assert!(Task::parse(Application::Volume, &text, Path::new("")).is_ok(), "{text}");
    let done = finished(Application::Volume, &text.replace("frames = 120", "frames = 3"));
    let done = done.expect("pictures");
    let names: Vec<&str> = done.products.iter().map(|product| product.name.as_str()).collect();
    assert_eq!(names, ["volume-0000.png", "volume-0001.png", "volume-0002.png"]);
    assert_eq!(done.summary, ["3 of 3 pictures show something"]);
    assert!(done.products[0].bytes != done.products[2].bytes, "the camera moves");
    let parallel = text.replace("fov_degrees = 25.0", "height = 64.0");
    let parallel = parallel.replace(", fov_degrees = 15.0", "");
    let line = parallel.lines().find(|line| line.starts_with("  # {")).expect("commented out");
    let last = parallel.replace(", distance = 2.0", "").replace("at = 1.0, azi", "at = 0.9, azi");
    let all = last.replace(line, &line.replace("# {", "{"));
    let all = all.replace("frames = 120", "frames = 2");
    assert_eq!(pictures(&all).len(), 2);
}

#[test]
fn a_frame_is_the_single_picture_of_its_camera_to_the_byte() {
    // Not at the middle of the sample, which looks the same from all sides.
    let aside =
        |text: &str| text.replace("\ntarget = [31.5, 31.5, 31.5]", "\ntarget = [20.0, 31.5, 40.0]");
    let text = aside(&example());
    let with = |camera: &str| text.replace("eye = [140.0, 110.0, 190.0]", camera);
    let single = |text: &str| pictures(text).remove(0).bytes;
    let here = single(&text);
    let right = single(&with("eye = [170.0, 110.0, -80.0]"));
    let far = single(&with("eye = [260.0, 188.5, 340.0]"));
    let other = single(&with("eye = [100.0, 50.0, 90.0]"));
    let narrow = single(&text.replace("fov_degrees = 25.0", "fov_degrees = 12.5"));
    // Frames at the times of keys, which say nothing, or what leads to the cameras above.
    let path = "{ at = 0 }, { at = 0.25, azimuth = 90 }, { at = 0.5, distance = 2, azimuth = 360 },
        { at = 0.75, eye = [100.0, 50.0, 90.0] }, { at = 1, fov_degrees = 12.5, azimuth = -720 }";
    let frames = pictures(&aside(&along(5, path)));
    let expected = [&here, &right, &far, &other, &narrow];
    for (frame, expected) in frames.iter().zip(expected) {
        assert!(frame.bytes == *expected, "{}", frame.name);
    }
    assert_eq!(frames.len(), 5);
    assert!(here != right && right != far && far != other && other != narrow);
    // One key, or one frame, is one camera.
    let still = pictures(&aside(&along(2, "{ at = 0.5, azimuth = 90 }")));
    assert!(still.len() == 2 && still.iter().all(|frame| frame.bytes == right));
    let first = pictures(&aside(&along(1, "{ at = 0, azimuth = 90 }, { at = 1 }")));
    assert!(first.len() == 1 && first[0].bytes == right && first[0].name == "volume-0000.png");
}

#[cfg(feature = "gpu")]
#[test]
fn a_frame_on_a_gpu_is_the_single_picture_there() {
    let folder = folder(Application::Volume);
    let gpu = crate::gpu::tests::software();
    let taken = |text: &str| {
        let task = Task::parse(Application::Volume, text, folder.path()).expect("a task");
        run_on(Device::Gpu(gpu.clone()), &task, &Preempt::new()).expect("pictures")
    };
    let flight = taken(&along(3, "{ at = 0, azimuth = 360 }, { at = 1, fov_degrees = 12.5 }"));
    assert!(flight.summary[0].contains("taken by llvmpipe"), "{:?}", flight.summary);
    assert_eq!((flight.products.len(), flight.summary.len()), (3, 2));
    let first = taken(&example());
    let last = taken(&example().replace("fov_degrees = 25.0", "fov_degrees = 12.5"));
    assert!(flight.products[0].bytes == first.products[0].bytes);
    assert!(flight.products[2].bytes == last.products[0].bytes);
    assert!(first.products[0].bytes != last.products[0].bytes);
}

#[test]
fn a_part_is_the_frame_of_its_number() {
    let folder = folder(Application::Volume);
    let text = along(4, "{ at = 0 }, { at = 0.7, elevation = 80 }, { at = 1, distance = 0.5 }");
    let text = text.replace("volume.png", "fly.by.EXR");
    let parcel = Parcel::pack(Application::Volume, &text, folder.path()).expect("a parcel");
    let parts = parcel.parts.clone().expect("frames");
    assert_eq!(parts, ["0000", "0001", "0002", "0003"]);
    let whole = pictures(&text);
    for (part, expected) in parts.iter().zip(&whole) {
        let unpacked =
            |part: &str| unpack(Application::Volume, &parcel.spec, folder.path(), Some(part));
        let made = run_task(&unpacked(part).expect("a task"), &Preempt::new()).expect("a frame");
        assert_eq!(made.products.len(), 1);
        assert_eq!(expected.name, format!("fly.by-{part}.EXR"));
        assert!(made.products[0] == *expected, "{part}");
        for none in ["0004", "1", "", "00000"] {
            let error = unpacked(none).expect_err("no frame").to_string();
            assert!(error.contains("there is no part"), "{error}");
        }
    }
    let long = text.replace("fly.by", &"x".repeat(120));
    let error = Parcel::pack(Application::Volume, &long, folder.path()).expect_err("refused");
    assert!(error.to_string().contains("no plain file name"), "{error}");
}

#[test]
fn one_that_goes_too_far_away_is_refused_before_its_first_frame() {
    let folder = folder(Application::Volume);
    let text = along(2, "{ at = 0 }, { at = 1, distance = 1e14 }");
    let task = Task::parse(Application::Volume, &text, folder.path()).expect("a task");
    let error = run_task(&task, &Preempt::new()).expect_err("too far").to_string();
    assert!(error.contains("camera: from where its rays begin"), "{error}");
}

#[test]
fn a_wrong_one_is_told_with_what_would_be_right() {
    for (frames, path, words) in [
        (0, "{ at = 0 }", "[animation]: frames = 0: give 1 to 10000"),
        (10_001, "{ at = 0 }", "frames = 10001: give 1 to 10000"),
        (2, "", "[animation]: path has 0 keys: give 1 to 1000"),
        (2, &"{ at = 0 },".repeat(1001), "path has 1001 keys"),
        (2, "{ azimuth = 0 }", "missing field `at`"),
        (2, "{ at = -0.1 }", "path, at = -0.1: a time is from 0"),
        (2, "{ at = 1.1 }", "path, at = 1.1: a time is from 0"),
        (2, "{ at = nan }", "a time is from 0"),
        (2, "{ at = 0.5 }, { at = 0.2 }", "at = 0.2 follows at = 0.5: sort keys"),
        (2, "{ at = 0.5 }, { at = 0.5 }", "at = 0.5 follows at = 0.5"),
        (2, "{ at = 0, azimut = 3 }", "\"azimut\" in [path]; did you mean \"azimuth\"?"),
        (2, "{ at = 0, azimuth = inf }", "path, at = 0: a number is not finite"),
        (2, "{ at = 0, eye = [nan, 0, 0] }", "path, at = 0: a number is not finite"),
        (2, "{ at = 0, eye = [0, 0] }", "length 3"),
        (2, "{ at = 0, distance = 0 }", "path, at = 0: distance = 0: give one above 0"),
        (2, "{ at = 0, height = 9 }", "path, at = 0: height needs one in [camera]"),
        (2, "{ at = 0, fov_degrees = 180 }", "frame 0000 (from 0 to 1): camera: 180: a field"),
        (2, "{ at = 0 }, { at = 1, up = [0, 0, 0] }", "frame 0001 (from 0 to 1): camera: `up`"),
        (
            3,
            "{ at = 0, eye = [0, 9, 0] }, { at = 1, eye = [63, 54, 63] }",
            "frame 0001 (from 0 to 2): camera: eye and target are one point",
        ),
    ] {
        let told = told(&along(frames, path));
        assert!(told.contains(words), "{path}: {told}");
    }
    let one = "{ at = 0 }";
    let unknown = along(2, one).replace("frames = 2", "frame = 2");
    assert!(told(&unknown).contains("\"frame\" in [animation]; did you mean \"frames\"?"));
    let parallel = along(2, "{ at = 0, fov_degrees = 9 }");
    let parallel = parallel.replace("fov_degrees = 25.0", "height = 64.0");
    assert!(told(&parallel).contains("fov_degrees needs one in [camera]"));
    // A surface has no camera.
    let surface = format!("{}\n[animation]\nframes = 2\n", Application::Isosurface.example());
    let error = Task::parse(Application::Isosurface, &surface, Path::new("")).expect_err("refused");
    assert!(error.to_string().contains("unknown key \"animation\""), "{error}");
}

#[test]
fn frames_are_kept_one_by_one_and_a_stop_leaves_those_that_are_whole() {
    let folder = folder(Application::Volume);
    let text = along(4, "{ at = 0 }, { at = 1, azimuth = 40 }");
    let task = Task::parse(Application::Volume, &text, folder.path()).expect("a task");
    let run = |at: usize, full: bool| {
        let (preempt, mut kept) = (Preempt::new(), Vec::new());
        let mut told: Vec<(String, u16)> = Vec::new();
        // Every slice takes half as long as it may, so that the next one is larger.
        let clock = Cell::new(Time::ZERO);
        let tick = || clock.replace(clock.get() + Span::from_micros(1500));
        let done = task.run(&mut Control {
            device: Device::Processor,
            preempt: &preempt,
            clock: &tick,
            free_bytes: &|| u64::MAX,
            progress: &mut |stage, permille| told.push((stage.to_owned(), permille)),
            keep: &mut |product| {
                kept.push(product.name);
                match kept.len() == at {
                    true if full => return Err("the disk is full".to_owned()),
                    true => preempt.ask(),
                    false => {}
                }
                Ok(())
            },
        });
        (done, kept, told)
    };
    let (done, kept, told) = run(5, false);
    assert_eq!((done.expect("pictures").summary.len(), kept.len()), (1, 4));
    let pictures: Vec<u16> =
        told.iter().filter(|(stage, _)| stage != "scene").map(|(_, of_all)| *of_all).collect();
    assert!(pictures.is_sorted() && pictures[0] == 0 && pictures.contains(&500), "{pictures:?}");
    assert_eq!(pictures.last(), Some(&1000));
    // Slices of the second one begin with half of what those of the first one had become; they would be
    // as many if it began anew.
    let slices = |stage: &str| told.iter().filter(|(told, _)| told == stage).count();
    let (first, second) = (slices("picture 1 of 4"), slices("picture 2 of 4"));
    assert!(second < first, "{first} {second}");
    let mut stages: Vec<&str> = told.iter().map(|(stage, _)| stage.as_str()).collect();
    stages.dedup();
    let names = ["scene", "picture 1 of 4", "picture 2 of 4", "picture 3 of 4", "picture 4 of 4"];
    assert_eq!(stages, names);

    let (done, kept, _) = run(2, false);
    let error = done.expect_err("stopped").to_string();
    assert!(error.starts_with("stopped: picture 3 of 4, after 0 of"), "{error}");
    assert_eq!(kept, ["volume-0000.png", "volume-0001.png"]);
    let (done, kept, _) = run(1, true);
    let error = done.expect_err("the disk is full");
    assert!(!error.is_usage() && error.to_string() == "the disk is full" && kept.len() == 1);
}

#[test]
fn frames_are_not_written_over_what_is_read() {
    let folder = folder(Application::Volume);
    let path = |name: &str| folder.path().join(name);
    let header = "file = \"fly-0001.png\"\nsize = [2, 2, 2]\ntype = \"u8\"\n";
    fs::write(path("data.toml"), header).expect("written");
    fs::write(path("fly-0001.png"), [0; 8]).expect("written");
    fs::write(path("fly-0000.png"), "an older frame").expect("written");
    let text = along(2, "{ at = 0 }").replace("volume.png", "fly.png");
    let check = |text: &str| {
        let task = Task::parse(Application::Volume, text, folder.path()).expect("a task");
        task.check_outputs(&path("fly.toml"), folder.path())
    };
    check(&text).expect("older frames may be replaced");
    let error = check(&text.replace("ripples.nrrd", "data.toml")).expect_err("refused").to_string();
    assert!(error.contains("fly-0001.png would be written over"), "{error}");
    fs::create_dir(path("by-0000.png")).expect("made");
    let error = check(&text.replace("fly.png", "by.png")).expect_err("refused").to_string();
    assert!(error.contains("by-0000.png would be written, but is a folder"), "{error}");
}
