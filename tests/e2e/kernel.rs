//! `gleaner kernel`: built-in kernels without a broker.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use gleaner_calm::Turn;
use gleaner_protocol::limits::SPEC_BYTES_MAX;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::program::{Said, gleaner, run};

const KERNELS: [&str; 4] = ["volume", "isosurface", "pca", "npairs"];

fn kernel(folder: &Path, arguments: &[&str]) -> Said {
    let mut command = gleaner(["kernel"].into_iter().chain(arguments.iter().copied()));
    run(command.current_dir(folder))
}

#[test]
fn the_examples_of_the_help_work_as_they_stand() {
    let _turn = Turn::shared();
    let folder = tempfile::tempdir().expect("a folder");
    let help = kernel(folder.path(), &["run", "--help"]).ok();
    let examples: Vec<&str> =
        help.lines().filter(|line| line.starts_with("  gleaner kernel sample")).collect();
    assert_eq!(examples.len(), KERNELS.len());
    let mut counts = Vec::new();
    for example in examples {
        for command in example.trim().split(" && ") {
            let words: Vec<&str> = command.split(' ').skip(2).collect();
            let said = kernel(folder.path(), &words).ok();
            let files: Vec<&str> =
                said.lines().filter(|line| line.contains('/') && !line.contains(' ')).collect();
            for file in &files {
                assert!(fs::metadata(folder.path().join(file)).is_ok_and(|file| file.len() > 0));
            }
            counts.push((format!("{} {}", words[0], words[1]), files.len()));
        }
    }
    // The specification with its data, then what is made of these.
    let expected = [
        ("sample volume", 2),
        ("run volume", 1),
        ("sample isosurface", 2),
        ("run isosurface", 1),
        ("sample pca", 2),
        ("run pca", 3),
        ("sample npairs", 4),
        ("run npairs", 5),
    ];
    assert_eq!(counts, expected.map(|(command, files)| (command.to_owned(), files)));
    let figures = fs::read_to_string(folder.path().join("samples/npairs.csv")).expect("figures");
    let prediction = |line: usize| -> f64 {
        let line = figures.lines().nth(line).expect("a line");
        line.split(',').nth(1).expect("a field").parse().expect("a number")
    };
    assert!(prediction(1) < 0.6 && prediction(2) > 0.9, "{figures}");
}

#[test]
fn files_are_the_same_from_any_number_of_threads() {
    let _turn = Turn::shared();
    let folder = tempfile::tempdir().expect("a folder");
    kernel(folder.path(), &["sample", "volume"]).ok();
    let picture = |threads: &str| {
        kernel(folder.path(), &["run", "volume", "volume.toml", "--threads", threads]).ok();
        fs::read(folder.path().join("volume.png")).expect("a picture")
    };
    assert!(picture("1") == picture("3"));
    let run = ["run", "volume", "volume.toml"];
    let profile = ["profile", "volume", "volume.toml", "--kind", "fat"];
    for command in [&run[..], &profile] {
        for (count, words) in [("0", "--threads"), ("100000", "100000 threads: give 1 to 1024")] {
            kernel(folder.path(), &[command, &["--threads", count]].concat()).refused(2, &[words]);
        }
    }
}

#[test]
fn an_animation_is_written_frame_by_frame() {
    let _turn = Turn::shared();
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    kernel(folder.path(), &["sample", "volume"]).ok();
    let spec = fs::read_to_string(path("volume.toml")).expect("a specification");
    let spec = spec.replace("size = [320, 240]", "size = [40, 30]");
    let with = |more: &str| {
        fs::write(path("volume.toml"), format!("{spec}\n[animation]\n{more}")).expect("written");
        kernel(folder.path(), &["run", "volume", "volume.toml"])
    };
    with("frames = 0\npath = []\n").refused(2, &["volume.toml: [animation]: frames = 0: give"]);
    let said = with("frames = 3\npath = [{ at = 0 }, { at = 1, azimuth = 90 }]\n").ok();
    let names = [0, 1, 2].map(|frame| format!("./volume-000{frame}.png"));
    assert_eq!(said.lines().skip(1).collect::<Vec<_>>(), names, "{said}");
    assert!(said.starts_with("3 of 3 pictures show something"), "{said}");
    assert!(names.iter().all(|name| path(name).is_file()) && !path("volume.png").exists());

    // What cannot be written ends it, and leaves the frames before it.
    names.iter().for_each(|name| fs::remove_file(path(name)).expect("ours"));
    fs::create_dir(path("elsewhere")).expect("made");
    symlink("elsewhere", path("volume-0001.png")).expect("a link");
    let said = kernel(folder.path(), &["run", "volume", "volume.toml"]);
    said.refused(2, &["volume-0001.png would be written, but is a folder"]);
    assert!(!path("volume-0000.png").exists());
}

#[test]
fn what_is_wrong_is_refused_before_anything_is_written() {
    let _turn = Turn::shared();
    let folder = tempfile::tempdir().expect("a folder");
    kernel(folder.path(), &["sample", "pca"]).ok();
    let spec = fs::read_to_string(folder.path().join("pca.toml")).expect("a specification");
    let write = |from: &str, to: &str| {
        fs::write(folder.path().join("wrong.toml"), spec.replacen(from, to, 1)).expect("written");
    };
    let said = |arguments: &[&str]| kernel(folder.path(), arguments);
    write("components =", "componets =");
    said(&["run", "pca", "wrong.toml"]).refused(2, &["wrong.toml", "did you mean \"components\"?"]);
    write("table.csv", "none.csv");
    said(&["run", "pca", "wrong.toml"]).refused(2, &["none.csv", "No such file"]);
    write("components = 3", "components = 9");
    said(&["run", "pca", "wrong.toml"]).refused(2, &["9 components", "from 1 to 6"]);
    said(&["run", "pca", "none.toml"]).refused(2, &["cannot read none.toml"]);
    said(&["run", "pac", "pca.toml"]).refused(2, &["pac", "isosurface, pca, npairs"]);
    let words = ["table.csv: it is no folder: name another"];
    said(&["run", "pca", "pca.toml", "--output", "table.csv"]).refused(2, &words);
    let words = ["cannot make the folder table.csv/below: name another", "Not a directory"];
    said(&["run", "pca", "pca.toml", "--output", "table.csv/below"]).refused(1, &words);
    write("components =", "componets =");
    said(&["run", "pca", "wrong.toml", "--output", "made"]).refused(2, &["did you mean"]);
    assert!(!folder.path().join("made").exists());
    fs::write(folder.path().join("table.csv"), "1,2\n").expect("written");
    said(&["sample", "pca"]).refused(1, &["table.csv is there already", "--dir"]);
    assert!(!folder.path().join("scores.csv").exists());
}

#[test]
fn nothing_that_is_read_is_written_over() {
    let _turn = Turn::shared();
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    kernel(folder.path(), &["sample", "pca"]).ok();
    let spec = fs::read_to_string(path("pca.toml")).expect("a specification");
    let table = fs::read(path("table.csv")).expect("a table");
    fs::create_dir(path("elsewhere")).expect("a folder");
    fs::create_dir(path("folder.csv")).expect("a folder");
    symlink("table.csv", path("link.csv")).expect("a link");
    let run = |spec: &str, more: &[&str]| {
        fs::write(path("own.toml"), spec).expect("written");
        kernel(folder.path(), &[&["run", "pca", "own.toml"], more].concat())
    };
    let own = spec.replace("scores.csv", "table.csv");
    let words = ["table.csv would be written over table.csv", "another name"];
    run(&own, &[]).refused(2, &words);
    run(&own, &["--output", "elsewhere/.."]).refused(2, &["table.csv would be written over"]);
    run(&own.replace("data = \"table.csv", "data = \"link.csv"), &[])
        .refused(2, &["over link.csv"]);
    run(&spec.replace("scores.csv", "folder.csv"), &[]).refused(2, &["folder.csv", "is a folder"]);
    run(&spec.replace("scores.csv", "variances.csv"), &[])
        .refused(2, &["\"variances.csv\" is the name of two files"]);
    assert_eq!(fs::read(path("table.csv")).expect("a table"), table);
    assert!(!path("variances.csv").exists());
    run(&own, &["--output", "elsewhere"]).ok();
    // A folder that is made, as are those around it, may lead back.
    run(&own, &["--output", "made/below"]).ok();
    assert!(path("made/below/table.csv").is_file());
    run(&own, &["--output", "new/.."]).refused(2, &["table.csv would be written over"]);
    // A specification by a name that is one of a table.
    fs::write(path("scores.csv"), &spec).expect("written");
    kernel(folder.path(), &["run", "pca", "scores.csv"])
        .refused(2, &["scores.csv would be written over scores.csv"]);
}

#[test]
fn data_without_what_is_asked_of_it_is_the_users_to_change() {
    let _turn = Turn::shared();
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    kernel(folder.path(), &["sample", "pca"]).ok();
    let said = || kernel(folder.path(), &["run", "pca", "pca.toml"]);
    // The mean of three times 0.1 is another number.
    fs::write(path("table.csv"), "0.1,7,0.1\n".repeat(3)).expect("written");
    let spec = fs::read_to_string(path("pca.toml")).expect("a specification");
    let two = spec.replace("components = 3", "components = 2");
    fs::write(path("pca.toml"), two).expect("written");
    said().refused(2, &["table.csv: its 3 observations do not vary"]);
    fs::write(path("table.csv"), "1,2,1\n2,4,1\n4,8,1\n").expect("written");
    said().refused(2, &["table.csv: 2 components", "vary in 1 directions only"]);
    fs::write(path("table.csv"), "1e300,2,3\n2,1e300,1\n4,8,1\n").expect("written");
    said().refused(2, &["table.csv: columns vary by", "scale the data"]);
    assert!(!path("scores.csv").exists());

    kernel(folder.path(), &["sample", "npairs"]).ok();
    let flat = "class,group\n1,1\n2,1\n".to_owned() + &"1,2\n2,2\n".repeat(59);
    fs::write(path("design.csv"), flat).expect("written");
    kernel(folder.path(), &["run", "npairs", "npairs.toml"]).refused(2, &["scans.nii: no split"]);
}

#[test]
fn a_pipe_is_not_waited_for_and_a_specification_has_an_end() {
    let _turn = Turn::shared();
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    for (name, data) in [("pca", "table.csv"), ("npairs", "scans.nii"), ("volume", "ripples.nrrd")]
    {
        kernel(folder.path(), &["sample", name]).ok();
        fs::remove_file(path(data)).expect("removed");
        mknodat(CWD, path(data), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
        kernel(folder.path(), &["run", name, &format!("{name}.toml")])
            .refused(2, &[data, "not a plain file"]);
    }
    let zeros = ["run", "pca", "/dev/zero"];
    kernel(folder.path(), &zeros).refused(2, &["/dev/zero", "not a plain file"]);
    let long = fs::File::create(path("long.toml")).expect("a file");
    long.set_len(SPEC_BYTES_MAX + 1).expect("it is sparse");
    kernel(folder.path(), &["run", "pca", "long.toml"]).refused(2, &["long.toml", "larger than"]);
}

#[test]
fn a_device_that_there_is_none_of_is_refused() {
    let _turn = Turn::shared();
    let folder = tempfile::tempdir().expect("a folder");
    kernel(folder.path(), &["sample", "pca"]).ok();
    let said = |arguments: &[&str]| kernel(folder.path(), arguments);
    let words = ["--adapter names a GPU", "--device gpu"];
    said(&["run", "pca", "pca.toml", "--adapter", "nvidia"]).refused(2, &words);
    if !cfg!(feature = "gpu") {
        let words = ["built without GPUs", "--features gpu"];
        for name in KERNELS {
            said(&["run", name, "pca.toml", "--device", "gpu"]).refused(2, &words);
        }
    }
    assert!(!folder.path().join("scores.csv").exists());
}

/// Kernels on a GPU; `tests/run` installs one that is only software, llvmpipe.
#[cfg(feature = "gpu")]
mod gpu {
    use std::fs::File;
    use std::io::BufReader;

    use super::*;

    /// What `run` says of a kernel's sample on a GPU where only these drivers are there.
    fn on_gpu(folder: &Path, kernel: &str, drivers: &Path, more: &[&str]) -> Said {
        let spec = format!("{kernel}.toml");
        let arguments = ["kernel", "run", kernel, &spec, "--device", "gpu"];
        let mut command = gleaner(arguments.into_iter().chain(more.iter().copied()));
        run(command.current_dir(folder).env("VK_ICD_FILENAMES", drivers))
    }

    /// The description of llvmpipe's driver.
    fn software() -> std::path::PathBuf {
        let folder =
            fs::read_dir("/usr/share/vulkan/icd.d").expect("Vulkan drivers: see tests/run");
        let mut files = folder.map(|file| file.expect("listed").path());
        let is_software = |file: &std::path::PathBuf| file.to_string_lossy().contains("/lvp_icd");
        files.find(is_software).expect("mesa-vulkan-drivers, which tests/run installs")
    }

    /// Colours times opacity, and opacity.
    fn pixels(path: &Path) -> Vec<[f32; 4]> {
        let file = BufReader::new(File::open(path).expect("a picture"));
        let mut reader = png::Decoder::new(file).read_info().expect("a header");
        let mut bytes = vec![0; reader.output_buffer_size().expect("a size")];
        reader.next_frame(&mut bytes).expect("pixels");
        let pixel = |pixel: &[u8; 4]| {
            let opacity = f32::from(pixel[3]);
            let channel = |at: usize| f32::from(pixel[at]) * opacity / 255.0;
            [channel(0), channel(1), channel(2), opacity]
        };
        bytes.as_chunks().0.iter().map(pixel).collect()
    }

    #[test]
    fn a_gpu_takes_the_picture_that_the_processor_takes() {
        let _turn = Turn::shared();
        let folder = tempfile::tempdir().expect("a folder");
        kernel(folder.path(), &["sample", "volume"]).ok();
        kernel(folder.path(), &["run", "volume", "volume.toml"]).ok();
        let ours = pixels(&folder.path().join("volume.png"));
        fs::remove_file(folder.path().join("volume.png")).expect("removed");
        let said = on_gpu(folder.path(), "volume", &software(), &["--adapter", "LLVMpipe"]).ok();
        assert!(said.contains("taken by llvmpipe"), "{said}");
        let theirs = pixels(&folder.path().join("volume.png"));
        assert_eq!(ours.len(), 320 * 240);
        assert_eq!(ours.len(), theirs.len());
        let pairs = ours.iter().flatten().zip(theirs.iter().flatten());
        // One before rounding, and half of one for each opacity and each colour.
        let difference = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(difference <= 3.0, "{difference}");
    }

    #[test]
    fn a_gpu_cuts_the_surface_that_the_processor_cuts() {
        let _turn = Turn::shared();
        let folder = tempfile::tempdir().expect("a folder");
        let mesh = folder.path().join("isosurface.ply");
        kernel(folder.path(), &["sample", "isosurface"]).ok();
        kernel(folder.path(), &["run", "isosurface", "isosurface.toml"]).ok();
        let ours = fs::read(&mesh).expect("a mesh");
        fs::remove_file(&mesh).expect("removed");
        let named = ["--adapter", "llvmpipe"];
        let said = on_gpu(folder.path(), "isosurface", &software(), &named).ok();
        assert!(said.contains("cut by llvmpipe"), "{said}");
        assert!(fs::read(&mesh).expect("a mesh") == ours, "it is another mesh");
        let profile = ["profile", "isosurface", "isosurface.toml", "--kind", "gpu"];
        let profile = profile.into_iter().chain(["--device", "gpu"]).chain(named);
        let mut command = gleaner(["kernel"].into_iter().chain(profile));
        command.current_dir(folder.path()).env("VK_ICD_FILENAMES", software());
        let said = run(&mut command).ok();
        assert!(said.contains("isosurface,,64x64x64,gpu,"), "{said}");
    }

    /// The numbers of a table, line by line.
    fn numbers(path: &Path) -> Vec<Vec<f64>> {
        let text = fs::read_to_string(path).expect("a table");
        let line = |line: &str| line.split(',').map(|field| field.parse().expect("one")).collect();
        text.lines().skip(1).map(line).collect()
    }

    #[test]
    fn a_gpu_finds_what_the_processor_finds() {
        let _turn = Turn::shared();
        let pca = &["variances.csv", "scores.csv", "components.csv"][..];
        for (name, files, says) in [
            ("pca", pca, "found by llvmpipe"),
            ("npairs", &["npairs.csv"], "multiplied by llvmpipe"),
        ] {
            let folder = tempfile::tempdir().expect("a folder");
            kernel(folder.path(), &["sample", name]).ok();
            let spec = format!("{name}.toml");
            let text = fs::read_to_string(folder.path().join(&spec)).expect("a specification");
            let fewer = text.replace("[1, 2, 4, 8]", "[2, 5]").replace("splits = 50", "splits = 5");
            fs::write(folder.path().join(&spec), fewer).expect("written");
            let read =
                || files.iter().map(|file| numbers(&folder.path().join(file))).collect::<Vec<_>>();
            kernel(folder.path(), &["run", name, &spec]).ok();
            let ours = read();
            let remove = |file: &&str| fs::remove_file(folder.path().join(file)).expect("removed");
            files.iter().for_each(remove);
            let said = on_gpu(folder.path(), name, &software(), &["--adapter", "llvmpipe"]).ok();
            assert!(said.contains(says), "{said}");
            for (ours, theirs) in ours.iter().zip(&read()) {
                assert_near(ours, theirs);
            }
        }
    }

    /// Asserts what votes over tables tolerate.
    fn assert_near(ours: &[Vec<f64>], theirs: &[Vec<f64>]) {
        assert!(ours.len() == theirs.len() && !ours.is_empty());
        for column in 0..ours[0].len() {
            let largest = ours.iter().fold(0.0_f64, |most, line| most.max(line[column].abs()));
            for (ours, theirs) in ours.iter().zip(theirs) {
                let apart = (ours[column] - theirs[column]).abs();
                assert!(apart <= 1e-6 * largest, "{ours:?} {theirs:?}");
            }
        }
    }

    #[test]
    fn without_a_gpu_it_is_said_what_to_do() {
        let _turn = Turn::shared();
        let folder = tempfile::tempdir().expect("a folder");
        kernel(folder.path(), &["sample", "volume"]).ok();
        let none = folder.path().join("no-driver.json");
        let words = ["no GPU with a Vulkan driver", "install the driver", "on the processor"];
        on_gpu(folder.path(), "volume", &none, &[]).refused(1, &words);
        let words = ["only software, which has to be named (llvmpipe"];
        on_gpu(folder.path(), "volume", &software(), &[]).refused(1, &words);
        let words = ["no GPU has \"nvidia\" in its name", "llvmpipe"];
        on_gpu(folder.path(), "volume", &software(), &["--adapter", "nvidia"]).refused(1, &words);
        assert!(!folder.path().join("volume.png").exists());
        kernel(folder.path(), &["sample", "pca"]).ok();
        let words = ["no GPU with a Vulkan driver", "on the processor"];
        on_gpu(folder.path(), "pca", &none, &[]).refused(1, &words);
        assert!(!folder.path().join("scores.csv").exists());
    }
}
