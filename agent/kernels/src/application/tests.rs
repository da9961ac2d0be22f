mod animation;
#[cfg(feature = "gpu")]
mod gpu;

use std::cell::Cell;

use super::*;
use crate::pca::Matrix;
use crate::volume::{Series, Volume, Voxels, read_nifti, read_series};

fn folder(application: Application) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for Product { name, bytes } in sample(application, 1).expect("data") {
        fs::write(folder.path().join(name), bytes).expect("written");
    }
    folder
}

/// What a task has said and made.
#[derive(Debug)]
pub(super) struct Ran {
    products: Vec<Product>,
    size: String,
    by: Computer,
    pub(super) summary: Vec<String>,
}

pub(super) fn run_in(
    folder: &Path,
    application: Application,
    text: &str,
    preempt: &Preempt,
) -> Result<Ran, ApplicationError> {
    run_task(&Task::parse(application, text, folder)?, preempt)
}

fn run_task(task: &Task, preempt: &Preempt) -> Result<Ran, ApplicationError> {
    run_on(Device::Processor, task, preempt)
}

fn run_on(device: Device, task: &Task, preempt: &Preempt) -> Result<Ran, ApplicationError> {
    run_with(&|| u64::MAX, device, task, preempt)
}

fn run_with(
    free_bytes: &dyn Fn() -> u64,
    device: Device,
    task: &Task,
    preempt: &Preempt,
) -> Result<Ran, ApplicationError> {
    let (clock, mut progress) = (|| Time::ZERO, |_: &str, _: u16| ());
    let mut products = Vec::new();
    let mut keep = |product| {
        products.push(product);
        Ok(())
    };
    let (clock, progress) = (&clock, &mut progress);
    let keep = &mut keep;
    let done = task.run(&mut Control { device, preempt, clock, free_bytes, progress, keep })?;
    let Finished { size, by, summary } = done;
    Ok(Ran { products, size, by, summary })
}

fn finished(application: Application, text: &str) -> Result<Ran, String> {
    let folder = folder(application);
    run_in(folder.path(), application, text, &Preempt::new()).map_err(|error| error.to_string())
}

/// The numbers of a table in a file.
fn numbers(path: &Path) -> Matrix {
    table::read(path, &|| u64::MAX).expect("a table").numbers
}

#[test]
fn what_has_no_room_in_memory_is_told_before_it_is_asked_for() {
    for (application, looks_before, what) in [
        (Application::Volume, 0, "a volume of 64x64x64 voxels takes at least 1 MiB"),
        (Application::Volume, 1, "a picture of 320 x 240 pixels takes at least 2 MiB"),
        (Application::Isosurface, 0, "a volume of 64x64x64 voxels takes"),
        (Application::Isosurface, 1, "the surface in a volume of 64x64x64 voxels takes"),
        (Application::Isosurface, 2, "the file of "),
        (Application::Pca, 0, "a table of 1200 numbers takes at least 1 MiB"),
        (Application::Pca, 1, "finding 3 components of 200 x 6 numbers takes"),
        (Application::Npairs, 0, "a table of 240 numbers takes at least 1 MiB"),
        (Application::Npairs, 1, "a series of 120 volumes of 13440 voxels takes at least "),
        (Application::Npairs, 2, "the analysis of 120 scans of 13440 voxels takes at least 13 MiB"),
    ] {
        let folder = folder(application);
        let task = Task::parse(application, application.example(), folder.path());
        let looks = Cell::new(0);
        let free_bytes = || {
            looks.set(looks.get() + 1);
            if looks.get() > looks_before { 1000 } else { u64::MAX }
        };
        let (task, preempt) = (task.expect("a task"), Preempt::new());
        let error = run_with(&free_bytes, Device::Processor, &task, &preempt);
        let error = error.expect_err("there is too little");
        let told = error.to_string();
        assert!(told.starts_with(what) && told.ends_with(", and 0 MiB are free"), "{told}");
        assert!(!error.is_usage());
    }
}

#[test]
fn every_example_works_with_its_sample() {
    for application in Application::ALL {
        let done = finished(application, application.example()).expect("an output");
        assert!(!done.summary.is_empty());
        let size = match application {
            Application::Volume => "64x64x64@320x240",
            Application::Isosurface => "64x64x64",
            Application::Pca => "200x6",
            Application::Npairs => "120x13440",
        };
        assert_eq!((done.size.as_str(), done.by), (size, Computer::Core));
        assert!(done.products.iter().all(|product| !product.bytes.is_empty()));
        // And with every key that is commented out, but the one of two that exclude each other.
        let all = application.example().replace("# step = ", "step = ");
        finished(application, &all).expect("an output");
    }
}

#[test]
fn each_application_makes_what_its_name_says() {
    let products = |application: Application| {
        finished(application, application.example()).expect("an output").products
    };
    let [picture] = &products(Application::Volume)[..] else { panic!("one file") };
    assert!(picture.name == "volume.png" && picture.bytes.starts_with(b"\x89PNG"));
    let [mesh] = &products(Application::Isosurface)[..] else { panic!("one file") };
    assert!(mesh.bytes.starts_with(b"ply\n"));
    let exr = Application::Volume.example().replace("volume.png", "volume.EXR");
    let exr = &finished(Application::Volume, &exr).expect("an output").products[0];
    assert!(exr.bytes.starts_with(&[0x76, 0x2f, 0x31, 0x01]));
    let glb = Application::Isosurface.example().replace("isosurface.ply", "a.glb");
    let glb = &finished(Application::Isosurface, &glb).expect("an output").products[0];
    assert!(glb.bytes.starts_with(b"glTF"));
}

#[test]
fn components_of_the_sample_are_those_it_was_made_of() {
    let done = finished(Application::Pca, Application::Pca.example()).expect("an output");
    let folder = tempfile::tempdir().expect("a folder");
    let read = |at: usize| {
        let path = folder.path().join("a.csv");
        fs::write(&path, &done.products[at].bytes).expect("written");
        numbers(&path)
    };
    let (variances, scores, loadings) = (read(0), read(1), read(2));
    // Three columns with a deviation of 3, two with one of 2, and one with one of 1.
    for (found, expected) in variances.numbers().iter().zip([27.0, 8.0, 1.0]) {
        assert!((found / expected - 1.0).abs() < 0.25, "{found} {expected}");
    }
    assert_eq!((scores.rows(), scores.columns()), (200, 3));
    let third = 1.0 / 3_f64.sqrt();
    for (found, expected) in loadings.row(0).iter().zip([third, third, third, 0.0, 0.0, 0.0]) {
        assert!((found - expected).abs() < 0.1, "{:?}", loadings.row(0));
    }
}

#[test]
fn scans_of_the_sample_are_told_with_two_components_and_not_with_one() {
    let folder = folder(Application::Npairs);
    let example = Application::Npairs.example().replace("{components}.nii", "{components}.nii.gz");
    let done = run_in(folder.path(), Application::Npairs, &example, &Preempt::new());
    let done = done.expect("an output");
    let names: Vec<&str> = done.products.iter().map(|product| product.name.as_str()).collect();
    let maps = ["map-1.nii.gz", "map-2.nii.gz", "map-4.nii.gz", "map-8.nii.gz"];
    assert_eq!(names, [&["npairs.csv"], &maps[..]].concat());
    let path = folder.path().join("figures.csv");
    fs::write(&path, &done.products[0].bytes).expect("written");
    let figures = numbers(&path);
    assert_eq!((figures.rows(), figures.columns()), (4, 6));
    assert!(figures.row(0)[1] < 0.6 && figures.row(1)[1] > 0.9, "{figures:?}");
    let scans = read_series(&folder.path().join("scans.nii")).expect("scans");
    let maps = [1, 2].map(|at| read_nifti(&done.products[at].bytes[..]).expect("a map"));
    assert!(maps.iter().all(|map| map.size() == scans.size()));
    // As its page says, and by what it says.
    let truth = fs::read(folder.path().join("truth.nii")).expect("written");
    let truth = read_nifti(&truth[..]).expect("a volume");
    let alike = maps.map(|map| correlation_in_brain(&truth, &map));
    assert!(alike[0].abs() < 0.1 && alike[1] > 0.5, "{alike:?}");
}

/// How alike two volumes are where the second one is not zero.
fn correlation_in_brain(truth: &Volume, map: &Volume) -> f64 {
    let numbers = |volume: &Volume| match volume.voxels() {
        Voxels::F32(numbers) => numbers.clone(),
        _ => panic!("maps are in single precision"),
    };
    let (truth, map) = (numbers(truth), numbers(map));
    let pairs = truth.iter().zip(&map).filter(|(_, found)| **found != 0.0);
    let pairs: Vec<[f64; 2]> =
        pairs.map(|(truth, found)| [f64::from(*truth), f64::from(*found)]).collect();
    let means =
        [0, 1].map(|of| pairs.iter().map(|pair| pair[of]).sum::<f64>() / pairs.len() as f64);
    let sum = |a: usize, b: usize| -> f64 {
        pairs.iter().map(|pair| (pair[a] - means[a]) * (pair[b] - means[b])).sum()
    };
    sum(0, 1) / (sum(0, 0) * sum(1, 1)).sqrt()
}

#[test]
fn components_of_scans_are_volumes() {
    let folder = folder(Application::Npairs);
    let text = Application::Pca.example().replace("table.csv", "scans.nii");
    let text = text.replace("\"components.csv\"", "\"components.nii\"");
    let done = run_in(folder.path(), Application::Pca, &text, &Preempt::new()).expect("an output");
    fs::write(folder.path().join("components.nii"), &done.products[2].bytes).expect("written");
    let components = read_series(&folder.path().join("components.nii")).expect("volumes");
    assert_eq!(components.data().rows(), 3);
}

/// Scans of the sample that are said to be somewhere: where their header says it, and what.
fn placed(folder: &Path) -> [u8; 76] {
    let scans = folder.join("scans.nii");
    let mut file = fs::read(&scans).expect("written");
    let place = std::array::from_fn(|at| u8::try_from(at % 7).expect("small"));
    file[252..328].copy_from_slice(&place);
    file[76..80].copy_from_slice(&(-1_f32).to_le_bytes());
    fs::write(scans, file).expect("written");
    place
}

#[test]
fn maps_and_components_are_where_the_scans_are() {
    let folder = folder(Application::Npairs);
    let place = placed(folder.path());
    let text = Application::Npairs.example().replace("[1, 2, 4, 8]", "[2]");
    let npairs = text.replace("splits = 50", "splits = 1");
    let text = Application::Pca.example().replace("table.csv", "scans.nii");
    let pca = text.replace("\"components.csv\"", "\"components.nii\"");
    for (application, text, name) in
        [(Application::Npairs, npairs, "map-2.nii"), (Application::Pca, pca, "components.nii")]
    {
        let done = run_in(folder.path(), application, &text, &Preempt::new()).expect("an output");
        let file = done.products.iter().find(|product| product.name == name).expect("a file");
        assert_eq!(file.bytes[252..328], place, "{name}");
        assert_eq!(file.bytes[76..80], (-1_f32).to_le_bytes(), "{name}");
    }
}

#[test]
fn how_many_voxels_are_missing_is_told() {
    let folder = folder(Application::Isosurface);
    let series = |numbers: [f64; 8]| {
        let data = Matrix::new(1, 8, numbers.to_vec()).expect("finite");
        let series = Series::new([2, 2, 2], [1.0; 3], data).expect("a series");
        files::series_file("a.nii", &series).expect("a file").bytes
    };
    let mut file = series([0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0]);
    let text = Application::Isosurface.example().replace("ripples.nrrd", "a.nii");
    let text = text.replace("value = 100.5", "value = 0.5");
    let summary = |file: &[u8]| {
        fs::write(folder.path().join("a.nii"), file).expect("written");
        run_in(folder.path(), Application::Isosurface, &text, &Preempt::new())
            .map(|ran| ran.summary)
    };
    assert_eq!(summary(&file).expect("a surface").len(), 1);
    file[352..356].copy_from_slice(&f32::NAN.to_le_bytes());
    let told = summary(&file).expect("a surface");
    assert!(told[1].ends_with("a.nii: 1 voxels are missing and count as 0"), "{told:?}");
    file[356..360].copy_from_slice(&f32::INFINITY.to_le_bytes());
    let told = summary(&file).expect_err("refused").to_string();
    assert!(told.contains("a.nii: 1 voxels are infinite"), "{told}");
}

#[test]
fn voxels_that_are_missing_in_all_scans_are_told() {
    let folder = folder(Application::Npairs);
    let scans = folder.path().join("scans.nii");
    let mut file = fs::read(&scans).expect("written");
    let voxels = (file.len() - 352) / 4 / 120;
    for scan in 0..120 {
        let at = 352 + 4 * (scan * voxels + 5);
        file[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    }
    fs::write(&scans, file).expect("written");
    let text = Application::Npairs.example().replace("[1, 2, 4, 8]", "[2]");
    let text = text.replace("splits = 50", "splits = 1");
    let done = run_in(folder.path(), Application::Npairs, &text, &Preempt::new());
    let summary = done.expect("an output").summary;
    let is_told = |line: &String| line.ends_with("scans.nii: 1 voxels are missing and count as 0");
    assert!(summary.iter().any(is_told), "{summary:?}");
}

#[test]
fn what_is_wrong_is_told_with_what_would_be_right() {
    use Application::{Isosurface, Npairs, Pca, Volume};
    let folders = Application::ALL.map(|application| (application, folder(application)));
    for (application, from, to, words) in [
        (Pca, "components = 3", "component = 3", "did you mean \"components\"?"),
        (Volume, "eye =", "eyes =", "in [camera]; did you mean \"eye\"?"),
        (Volume, "value = 60.0", "valu = 60.0", "in [transfer]; did you mean \"value\"?"),
        (Pca, "components = 3", "components = \"many\"", "expected usize"),
        (Pca, "components = 3", "", "missing field `components`"),
        (Pca, "components = 3", "components = ", "TOML"),
        (Pca, "components = 3", "components = 7", "has from 1 to 6"),
        (Pca, "table.csv", "none.csv", "none.csv: read: No such file"),
        (Pca, "scores.csv", "../scores.csv", "plain name that ends in .csv"),
        (Volume, "volume.png", "volume.jpg", "ends in .png or .exr"),
        (Volume, "fov_degrees = 25.0", "", "either fov_degrees or height"),
        (Volume, "fov_degrees = 25.0", "fov_degrees = 200.0", "below 180"),
        (Volume, "size = [320, 240]", "size = [0, 240]", "0 x 240 pixels"),
        (Volume, "opacity_unit = 1.0", "opacity_unit = 0.0", "opacity unit 0"),
        (Volume, "value = 90.0", "value = 9.0", "sort them by value"),
        (Isosurface, "value = 100.5", "value = nan", "value = NaN: give a finite value"),
        (Isosurface, "value = 100.5", "value = -inf", "value = -inf: give a finite value"),
        (Isosurface, "value = 100.5", "value = 1e300", "value = 1e300: it is more than single"),
        (Isosurface, "ripples.nrrd", "isosurface.toml", "header"),
        (Npairs, "[1, 2, 4, 8]", "[]", "0 numbers"),
        (Npairs, "[1, 2, 4, 8]", "[90]", "has from 1 to 58"),
        (Npairs, "[1, 2, 4, 8]", "[1, 4, 4]", "names 4 twice"),
        (Pca, "scores.csv", "components.csv", "the name of two files"),
        (Npairs, "splits = 50", "splits = 0", "splits = 0: give 1 to"),
        (Npairs, "map-{components}", "map", "put {components} into it"),
        (Npairs, "design.csv", "npairs.toml", "npairs.toml: line 2"),
    ] {
        let (_, folder) =
            folders.iter().find(|(of, _)| *of == application).expect("a folder for each");
        let example = application.example();
        assert!(example.contains(from), "{from}");
        let text = example.replacen(from, to, 1);
        let told = run_in(folder.path(), application, &text, &Preempt::new());
        let told = told.expect_err("refused").to_string();
        assert!(told.contains(words), "{from} -> {to}: {told}");
    }
}

#[test]
fn a_surface_of_nothing_says_why_it_is() {
    let folder = folder(Application::Isosurface);
    let said = |volume: &str, value: &str| {
        let text = Application::Isosurface.example().replace("value = 100.5", value);
        let text = text.replace("ripples.nrrd", volume);
        let done = run_in(folder.path(), Application::Isosurface, &text, &Preempt::new());
        done.expect("an output").summary
    };
    let none = "0 triangles between 0 vertices";
    let ripples = |value: &str| said("ripples.nrrd", value);
    let words = "all voxels are below 1000: their values are from 0 to 251";
    assert_eq!(ripples("value = 1000.0"), [none, words]);
    let words = "no voxel is below 0: their values are from 0 to 251";
    assert_eq!(ripples("value = 0"), [none, words]);
    assert_eq!(ripples("value = 100.5").len(), 1);
    fs::write(folder.path().join("sheet.raw"), [1, 2, 3, 4]).expect("written");
    let sheet = "file = \"sheet.raw\"\ntype = \"u8\"\n";
    for (size, axes) in [("[2, 2, 1]", "z"), ("[1, 4, 1]", "x and z"), ("[4, 1, 1]", "y and z")] {
        let header = format!("{sheet}size = {size}\n");
        fs::write(folder.path().join("sheet.toml"), header).expect("written");
        let words = format!("the volume has one layer along {axes}, which has no cells");
        assert_eq!(said("sheet.toml", "value = 2.5"), [none.to_owned(), words]);
    }
}

#[test]
fn labels_that_are_none_are_told_with_their_scan() {
    let told = |rows, columns, numbers: &[f64]| {
        let labels = Matrix { rows, columns, numbers: numbers.to_vec() };
        let table = table::Table { names: None, numbers: labels, remarks: Vec::new() };
        scans::design(&table).expect_err("refused")
    };
    assert!(told(1, 3, &[1.0; 3]).contains("3 numbers in a line"));
    assert_eq!(told(2, 1, &[1.0, 0.5]), "scan 2: 0.5 is not a whole number");
    assert!(told(4, 1, &[1.0; 4]).starts_with("1 classes"));
    let many = told(40_000, 1, &[1.0; 40_000]);
    assert_eq!(many, "40000 scans: a series has 32767 at most");
}

#[test]
fn components_carry_the_names_of_columns_and_an_index_is_none() {
    let folder = folder(Application::Pca);
    let path = folder.path().join("table.csv");
    let plain = fs::read_to_string(&path).expect("a table");
    let rows = || plain.lines().skip(1);
    let made = |table: &str| {
        fs::write(&path, table).expect("written");
        let example = Application::Pca.example();
        let ran = run_in(folder.path(), Application::Pca, example, &Preempt::new());
        let ran = ran.expect("an output");
        let texts = ran.products.iter().map(|product| product.bytes.clone());
        (texts.collect::<Vec<_>>(), ran.summary)
    };
    let head = |loadings: &[u8]| {
        let text = str::from_utf8(loadings).expect("text");
        text.lines().next().expect("a line").to_owned()
    };
    let (expected, _) = made(&plain);
    let named: String = rows().map(|row| format!("{row}\n")).collect();
    let (named, summary) = made(&format!("alpha,\"x, y\",c,d,e,1990s\n{named}"));
    assert_eq!(head(&named[2]), "alpha,\"x, y\",c,d,e,1990s");
    assert_eq!(named[..2], expected[..2]);
    assert!(
        summary[1].ends_with("table.csv: 6 columns: alpha, x, y, c, d, e, 1990s"),
        "{summary:?}"
    );
    let indexed: String = rows().enumerate().map(|(at, row)| format!("{at},{row}\n")).collect();
    let (indexed, summary) = made(&format!(",a,b,c,d,e,f\n{indexed}"));
    assert_eq!(head(&indexed[2]), "a,b,c,d,e,f");
    assert_eq!(indexed[..2], expected[..2]);
    assert!(summary[2].contains("taken for an index and left out"), "{summary:?}");
    let bare: String = rows().map(|row| format!("{row}\n")).collect();
    let (bare, summary) = made(&bare);
    assert_eq!(head(&bare[2]), "column1,column2,column3,column4,column5,column6");
    assert!(summary[1].ends_with("table.csv: 6 columns without names"), "{summary:?}");
}

#[test]
fn words_in_a_design_are_told_to_be_numbers() {
    let folder = folder(Application::Npairs);
    fs::write(folder.path().join("design.csv"), "class,group\nrest,0\nface,0\n").expect("written");
    let example = Application::Npairs.example();
    let told = run_in(folder.path(), Application::Npairs, example, &Preempt::new());
    let told = told.expect_err("refused").to_string();
    let words = "design.csv: line 2, column 1 (class): \"rest\" is not a number: classes and groups are \
                 whole numbers";
    assert!(told.contains(words), "{told}");
    let packed = Parcel::pack(Application::Npairs, example, folder.path()).expect_err("refused");
    assert_eq!(packed.to_string(), told);
}

#[test]
fn columns_of_a_design_are_told_by_their_names() {
    let folder = folder(Application::Npairs);
    let path = folder.path().join("design.csv");
    let by_class = fs::read_to_string(&path).expect("a design");
    let by_class: Vec<&str> = by_class.lines().skip(1).collect();
    let turned = |line: &&str| {
        let (class, group) = line.split_once(',').expect("two");
        format!("{group},{class}")
    };
    let by_group: Vec<String> = by_class.iter().map(turned).collect();
    let (by_class, by_group) = (by_class.join("\n"), by_group.join("\n"));
    let design = |text: &str| {
        fs::write(&path, text).expect("written");
        scans::design(&table::read(&path, &|| u64::MAX).expect("a table"))
    };
    let expected = design(&format!("class,group\n{by_class}")).expect("a design");
    for (names, lines) in [
        ("", &by_class),
        ("group,class\n", &by_group),
        ("\u{feff}\"Group\" , \"Class\"\r\n", &by_group),
    ] {
        assert_eq!(design(&format!("{names}{lines}")), Ok(expected.clone()), "{names:?}");
    }
    for (text, called) in [
        (format!("class,sex\n{by_class}"), "\"class\" and \"sex\""),
        (format!("class,class\n{by_class}"), "\"class\" and \"class\""),
        ("group\n1\n2\n".to_owned(), "\"group\""),
    ] {
        let told = design(&text).expect_err("refused");
        let expected =
            format!("its columns are called {called}: call them class and group, or class");
        assert!(told.starts_with(&expected), "{told}");
    }
}

#[test]
fn a_wish_to_stop_ends_a_task_and_says_where() {
    let folder = folder(Application::Isosurface);
    let preempt = Preempt::new();
    preempt.ask();
    let example = Application::Isosurface.example();
    let error = run_in(folder.path(), Application::Isosurface, example, &preempt);
    let error = error.expect_err("stopped");
    assert!(matches!(&error, ApplicationError::Stopped { done: 0, units, .. } if *units > 0));
    assert!(!error.is_usage());
}

/// How npairs refuses a specification, and the stages before.
fn refused(folder: &Path, text: &str) -> (ApplicationError, Vec<String>) {
    let task = Task::parse(Application::Npairs, text, folder).expect("a task");
    let (preempt, clock, mut stages) = (Preempt::new(), || Time::ZERO, Vec::new());
    let mut progress = |stage: &str, _: u16| {
        if stages.last().is_none_or(|last| last != stage) {
            stages.push(stage.to_owned());
        }
    };
    let mut control = Control {
        device: Device::Processor,
        preempt: &preempt,
        clock: &clock,
        free_bytes: &|| u64::MAX,
        progress: &mut progress,
        keep: &mut |product| panic!("{} was made", product.name),
    };
    let error = task.run(&mut control).expect_err("refused");
    (error, stages)
}

#[test]
fn a_number_of_components_that_cannot_be_is_told_before_the_others_are_tried() {
    let folder = folder(Application::Npairs);
    let example = Application::Npairs.example();
    for counts in ["[1, 90]", "[2, 0]"] {
        let (error, stages) = refused(folder.path(), &example.replace("[1, 2, 4, 8]", counts));
        assert!(error.to_string().contains("from 1 to 58") && error.is_usage(), "{error}");
        assert_eq!(stages, Vec::<String>::new());
    }
    // Three voxels have three components, which is known when one was tried.
    let mut numbers: Vec<f64> = (0_u32..360).map(|n| f64::from(n * n % 97)).collect();
    let write = |numbers: &[f64]| {
        let data = Matrix::new(120, 3, numbers.to_vec()).expect("finite");
        let series = Series::new([3, 1, 1], [1.0; 3], data).expect("a series");
        let file = files::series_file("scans.nii", &series).expect("a file");
        fs::write(folder.path().join(file.name), file.bytes).expect("written");
    };
    write(&numbers);
    let (error, stages) = refused(folder.path(), &example.replace("[1, 2, 4, 8]", "[1, 4]"));
    let told = error.to_string();
    assert!(told.contains("scans.nii: 4 components") && told.contains("3 directions"), "{told}");
    assert!(error.is_usage());
    assert_eq!(stages, ["4 components (1 of 2)"]);
    numbers.fill(0.1);
    write(&numbers);
    let (error, _) = refused(folder.path(), example);
    assert!(error.to_string().contains("none of 3 voxels varies") && error.is_usage(), "{error}");
}

#[test]
fn figures_are_in_the_order_of_the_specification() {
    let folder = folder(Application::Npairs);
    let text = Application::Npairs.example().replace("[1, 2, 4, 8]", "[2, 8, 1]");
    let text = text.replace("splits = 50", "splits = 2");
    let done = run_in(folder.path(), Application::Npairs, &text, &Preempt::new());
    let done = done.expect("an output");
    let names: Vec<&str> = done.products.iter().map(|product| product.name.as_str()).collect();
    assert_eq!(names, ["npairs.csv", "map-2.nii", "map-8.nii", "map-1.nii"]);
    let figures = str::from_utf8(&done.products[0].bytes).expect("text");
    let counts: Vec<&str> = figures.lines().filter_map(|line| line.split(',').next()).collect();
    assert_eq!(counts, ["components", "2", "8", "1"]);
}

#[test]
fn what_jumps_from_one_value_to_the_next_is_not_alike_on_gpus() {
    let is_alike = |application: Application, text: &str| {
        let folder = folder(application);
        Task::parse(application, text, folder.path()).expect("a task").is_alike_on_gpus()
    };
    for application in Application::ALL {
        assert!(is_alike(application, application.example()), "{application:?}");
    }
    let volume = Application::Volume.example();
    for (value, alike) in [("60.0", false), ("60.1", false), ("62.0", true)] {
        let text = volume.replace("value = 90.0", &format!("value = {value}"));
        assert_eq!(is_alike(Application::Volume, &text), alike, "{value}");
    }
    // Of a volume that is not there nobody knows.
    let gone = volume.replace("ripples.nrrd", "gone.nrrd");
    assert!(!is_alike(Application::Volume, &gone));
    // From one value to the same look at it there is nothing to jump.
    let twice = volume.replace("value = 90.0", "value = 60.0");
    let twice = twice.replace(
        "colour = [0.9, 0.6, 0.3]\nopacity = 0.4",
        "colour = [0.2, 0.5, 1.0]\nopacity = 0.0",
    );
    assert!(is_alike(Application::Volume, &twice));
}

#[test]
fn a_surface_of_a_small_file_is_no_sooner_on_a_gpu() {
    for application in Application::ALL {
        let folder = folder(application);
        let task = Task::parse(application, application.example(), folder.path()).expect("a task");
        let is_surface = application == Application::Isosurface;
        assert!(task.is_sooner_on_gpus(1000));
        assert_eq!(task.is_sooner_on_gpus(1 << 20), !is_surface);
        // The data of a header count, and the header does not.
        fs::write(folder.path().join("voxels.raw"), vec![0; 2 << 20]).expect("written");
        let header = "file = \"voxels.raw\"\nsize = [128, 128, 128]\ntype = \"u8\"\n";
        fs::write(folder.path().join("header.toml"), header).expect("written");
        let text = application.example().replace("ripples.nrrd", "header.toml");
        let task = Task::parse(application, &text, folder.path()).expect("a task");
        assert!(task.is_sooner_on_gpus(1 << 20));
        let gone = application.example().replace("ripples.nrrd", "gone.nrrd");
        let task = Task::parse(application, &gone, folder.path()).expect("a task");
        assert_eq!(task.is_sooner_on_gpus(1), !is_surface);
    }
}
