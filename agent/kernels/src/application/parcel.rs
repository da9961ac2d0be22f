//! Specifications that are carried out on another machine: what is sent there, and what is made of
//! it.
//!
//! ```text
//! spec.toml ── Parcel::pack ──► Parcel: text, files, parts ──(a network)──► unpack ──► Task
//! ```
//!
//! # Invariants
//! - What comes out reads files of the folder that it was unpacked for, and no others: who packed it
//!   is not trusted.

use std::path::{Path, PathBuf};
use std::{fs, iter};

use gleaner_protocol::check_file_name;
use gleaner_protocol::limits::BLOB_BYTES_MAX;
use toml::{Table, Value};

use super::files::has_end;
use super::{Application, ApplicationError, Spec, Task, not_a_table, scans, table};
use crate::memory::free_bytes;
use crate::volume::{BRICKS, ReadError, check_series, check_series_name, check_volume, data_file};

/// A specification whose files stand beside it under plain names, and where these are now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parcel {
    /// The specification.
    pub spec: String,
    /// Each file's plain name, and the file.
    pub files: Vec<(String, PathBuf)>,
    /// Parts that can be done each by itself; none where it is one piece.
    pub parts: Option<Vec<String>>,
    /// What there is to say of the files: what in them is left out or taken for something else.
    pub remarks: Vec<String>,
}

impl Parcel {
    /// Packs a specification whose relative names of files start at `folder`.
    ///
    /// # Errors
    /// As [`Task::parse`]; or a file that is read is missing, too large or none, has a name that cannot
    /// be sent, or is refused where it runs for what can be seen before.
    pub fn pack(
        application: Application,
        text: &str,
        folder: &Path,
    ) -> Result<Self, ApplicationError> {
        let task = Task::parse(application, text, folder)?;
        let mut table = parsed(text)?;
        let (inputs, outputs) = task.files();
        for name in outputs {
            check_file_name(&name).map_err(ApplicationError::value)?;
        }
        let mut remarks = Vec::new();
        // A design is read before its scans.
        for (key, path) in inputs.iter().rev() {
            let path = folder.join(path);
            check_size(&path, packing(&path, false))?;
            if let Ok(Some(data)) = data_of(key, &path) {
                check_size(&data, packing(&path, true))?;
            }
            look(key, &path, &mut remarks)?;
        }
        let mut files: Vec<(String, PathBuf)> = Vec::new();
        for (key, path) in inputs {
            let path = folder.join(path);
            let data = data_of(key, &path).map_err(|error| ApplicationError::data(&path, error))?;
            table.insert(key.to_owned(), Value::String(plain_name(&path)?));
            for path in iter::once(path).chain(data) {
                let name = plain_name(&path)?;
                match files.iter().find(|(taken, _)| *taken == name) {
                    None => files.push((name, path)),
                    Some((_, other)) if *other == path => {}
                    Some((_, other)) => {
                        let problem =
                            format!("{} has the same name: rename one of them", other.display());
                        return Err(ApplicationError::data(&path, problem));
                    }
                }
            }
        }
        let spec = table.to_string();
        debug_assert!(Task::parse(application, &spec, folder).is_ok(), "as it was: {spec}");
        Ok(Self { spec, files, parts: task.parts(), remarks })
    }
}

impl Parcel {
    /// Packs a specification of pictures whose volume is that of a dataset: its bricks go beside it, under
    /// names of their own.
    ///
    /// # Errors
    /// As [`Task::parse`]; or a name of a picture cannot be sent.
    pub fn of_bricks(text: &str, folder: &Path) -> Result<Self, ApplicationError> {
        let mut table = parsed(text)?;
        table.insert("volume".into(), Value::String(BRICKS.into()));
        let spec = table.to_string();
        let task = Task::parse(Application::Volume, &spec, folder)?;
        for name in task.files().1 {
            check_file_name(&name).map_err(ApplicationError::value)?;
        }
        Ok(Self { spec, files: Vec::new(), parts: task.parts(), remarks: Vec::new() })
    }
}

/// A task that was packed, or one part of it, with its files in `folder`.
///
/// # Errors
/// As [`Task::parse`]; or it would read a file elsewhere, or has no such part.
pub fn unpack(
    application: Application,
    text: &str,
    folder: &Path,
    part: Option<&str>,
) -> Result<Task, ApplicationError> {
    let task = Task::parse(application, text, folder)?;
    for (_, path) in task.files().0 {
        check_file_name(&path.to_string_lossy()).map_err(ApplicationError::value)?;
    }
    match part {
        None => Ok(task),
        Some(part) => task.only(part),
    }
}

impl Task {
    /// Parts that can be done each by itself, in order; none where it is one piece.
    #[must_use]
    pub fn parts(&self) -> Option<Vec<String>> {
        match &self.spec {
            Spec::Volume(spec) => spec.parts(),
            Spec::Npairs(spec) => Some(spec.parts()),
            Spec::Isosurface(_) | Spec::Pca(_) => None,
        }
    }

    /// One part of it.
    ///
    /// # Errors
    /// It has no such part.
    pub fn only(self, part: &str) -> Result<Self, ApplicationError> {
        let none = || {
            let part: String = part.chars().take(80).collect();
            ApplicationError::Value(format!("there is no part {part:?} of it"))
        };
        let spec = match self.spec {
            Spec::Volume(spec) => spec.only(part).map(Spec::Volume),
            Spec::Npairs(spec) => spec.only(part).map(Spec::Npairs),
            Spec::Isosurface(_) | Spec::Pca(_) => None,
        };
        Ok(Self { spec: spec.ok_or_else(none)?, ..self })
    }
}

/// Puts the tables that parts have written into one, a line of names first. Parts may lack the last
/// columns of others. `None` where their columns are not the same.
#[must_use]
pub fn join_tables(parts: &[String]) -> Option<String> {
    let head = |part: &String| part.lines().next().unwrap_or_default().to_owned();
    let names = parts.iter().map(head).max_by_key(String::len)?;
    let columns = names.split(',').count();
    let mut joined = format!("{names}\n");
    for part in parts {
        let rest = names.strip_prefix(&head(part))?;
        if !rest.is_empty() && !rest.starts_with(',') {
            return None;
        }
        for line in part.lines().skip(1) {
            let missing = columns.checked_sub(line.split(',').count())?;
            joined.push_str(line);
            joined.push_str(&",".repeat(missing));
            joined.push('\n');
        }
    }
    Some(joined)
}

/// Looks at the name of the file that this key has, as far as it says what is in it; the file that
/// it names in its turn, if it does.
pub(super) fn data_of(key: &str, path: &Path) -> Result<Option<PathBuf>, ReadError> {
    match key {
        "volume" => data_file(path),
        "scans" => check_series_name(path).map(|()| None),
        "data" if !has_end(&path.to_string_lossy(), ".csv") => {
            check_series_name(path).map(|()| None)
        }
        _ => Ok(None),
    }
}

/// Looks at the file that this key has, as far as that takes little time and memory: what is wrong with it
/// is told as where it runs.
fn look(key: &str, path: &Path, remarks: &mut Vec<String>) -> Result<(), ApplicationError> {
    let is_table = key == "design" || key == "data" && has_end(&path.to_string_lossy(), ".csv");
    if !is_table {
        let looked = if key == "volume" { check_volume(path) } else { check_series(path) };
        return looked.map_err(|error| ApplicationError::data(path, error));
    }
    let of_words = if key == "design" { scans::OF_WORDS } else { "" };
    let said = table::check(path).map_err(|error| not_a_table(path, error, of_words))?;
    if key == "design" {
        let labels = table::read(path, &free_bytes);
        let labels = labels.map_err(|error| not_a_table(path, error, of_words))?;
        scans::design(&labels).map_err(|error| ApplicationError::data(path, error))?;
    }
    remarks.extend(said.into_iter().map(|said| format!("{}: {said}", path.display())));
    Ok(())
}

fn parsed(text: &str) -> Result<Table, ApplicationError> {
    text.parse().map_err(|error: toml::de::Error| {
        ApplicationError::Syntax(error.to_string().trim_end().to_owned())
    })
}

fn plain_name(path: &Path) -> Result<String, ApplicationError> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| ApplicationError::data(path, "it has no name for a file"))?;
    check_file_name(name).map_err(|error| ApplicationError::data(path, error))?;
    Ok(name.to_owned())
}

/// What makes a file that is read smaller, by its name; or the one that it names as its data.
fn packing(path: &Path, is_data: bool) -> &'static str {
    let ends = |end| has_end(&path.to_string_lossy(), end);
    match is_data {
        true if ends(".nhdr") => {
            "pack it with gzip and say so in its header (`encoding: gzip`), or crop it"
        }
        true => "pack it with gzip and name the packed file in its header, or crop it",
        false if ends(".csv") => "leave out rows or columns",
        false if ends(".nrrd") => {
            "pack its data with gzip (`encoding: gzip`); or put its header into a .nhdr file beside \
             them, if they are no more than that alone; or crop it"
        }
        false if ends(".nii") => "pack it with gzip (.nii.gz), or crop it",
        false => "crop it, or leave out volumes of a series",
    }
}

/// Refuses a file that is larger than an input is: `smaller` says what makes it so. What is not there is
/// told by who reads it.
fn check_size(path: &Path, smaller: &str) -> Result<(), ApplicationError> {
    let bytes = fs::metadata(path).map_or(0, |about| about.len());
    if bytes > BLOB_BYTES_MAX {
        let problem =
            format!("its {bytes} bytes are more than the {BLOB_BYTES_MAX} of an input: {smaller}");
        return Err(ApplicationError::data(path, problem));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use gleaner_protocol::Time;

    use super::super::{Control, Device, sample};
    use super::*;
    use crate::preempt::Preempt;

    /// A folder with a kernel's sample in it, and its specification.
    fn folder(application: Application) -> (tempfile::TempDir, String) {
        let folder = tempfile::tempdir().expect("a folder");
        for product in sample(application, 1).expect("a sample") {
            fs::write(folder.path().join(product.name), product.bytes).expect("written");
        }
        (folder, application.example().to_owned())
    }

    fn told(application: Application, spec: &str, folder: &Path) -> String {
        let error = Parcel::pack(application, spec, folder).expect_err("it is refused");
        assert!(error.is_usage(), "{error}");
        error.to_string()
    }

    #[test]
    fn the_sample_of_each_kernel_is_packed_and_unpacked_as_it_was() {
        for application in Application::ALL {
            let (from, spec) = folder(application);
            let parcel = Parcel::pack(application, &spec, from.path()).expect("a parcel");
            let to = tempfile::tempdir().expect("a folder");
            for (name, path) in &parcel.files {
                fs::copy(path, to.path().join(name)).expect("copied");
            }
            let task = unpack(application, &parcel.spec, to.path(), None).expect("a task");
            let before = Task::parse(application, &spec, from.path()).expect("a task");
            assert_eq!(format!("{:?}", task.spec), format!("{:?}", before.spec));
        }
    }

    #[test]
    fn files_of_other_folders_are_packed_under_plain_names_with_what_their_headers_name() {
        let (folder, spec) = folder(Application::Isosurface);
        let data = folder.path().join("data");
        fs::create_dir(&data).expect("made");
        let header = "file = \"a.raw\"\nsize = [2, 2, 2]\ntype = \"u8\"\n";
        fs::write(data.join("a.toml"), header).expect("written");
        fs::write(data.join("a.raw"), [0; 8]).expect("written");
        let spec = spec.replace("ripples.nrrd", "data/a.toml");
        let parcel = Parcel::pack(Application::Isosurface, &spec, folder.path()).expect("a parcel");
        let files = ["a.toml", "a.raw"].map(|name| (name.to_owned(), data.join(name)));
        assert_eq!(parcel.files, files);
        assert!(parcel.spec.contains("volume = \"a.toml\""), "{}", parcel.spec);
        fs::remove_file(data.join("a.raw")).expect("ours");
        let missing = told(Application::Isosurface, &spec, folder.path());
        let words = "a.toml: open a.raw, which its header names: No such file";
        assert!(missing.contains(words), "{missing}");
    }

    #[test]
    fn what_cannot_be_sent_is_told_with_its_name() {
        let (folder, spec) = folder(Application::Pca);
        let with = |data: &str| spec.replace("table.csv", data);
        let told = |spec: &str| told(Application::Pca, spec, folder.path());
        assert!(told(&with("none.csv")).contains("none.csv: read: No such file"));
        fs::create_dir(folder.path().join("folder.csv")).expect("made");
        assert!(told(&with("folder.csv")).contains("folder.csv: read: it is not a plain file"));
        assert!(told(&with("table.txt")).contains("not a series of volumes by its name"));
        fs::write(folder.path().join(".hidden.csv"), "1,2\n").expect("written");
        assert!(told(&with(".hidden.csv")).contains("no leading dot"));
        let huge = File::create(folder.path().join("huge.csv")).expect("made");
        huge.set_len(BLOB_BYTES_MAX + 1).expect("sparse");
        let huge = told(&with("huge.csv"));
        assert!(
            huge.contains("are more than the 1073741824 of an input: leave out rows"),
            "{huge}"
        );
        assert!(
            told(&spec.replace("scores.csv", ".scores.csv"))
                .contains("\".scores.csv\" is no plain file name")
        );
        assert!(told(&spec.replace("components = 3", "componets = 3")).contains("did you mean"));
    }

    #[test]
    fn what_makes_a_file_small_enough_to_be_sent_is_told_by_its_kind() {
        let (folder, spec) = folder(Application::Isosurface);
        let huge = |name: &str| {
            let file = File::create(folder.path().join(name)).expect("made");
            file.set_len(BLOB_BYTES_MAX + 71).expect("sparse");
        };
        let of = |name: &str| {
            let spec = spec.replace("ripples.nrrd", name);
            told(Application::Isosurface, &spec, folder.path())
        };
        huge("a.nrrd");
        let nrrd = of("a.nrrd");
        assert!(nrrd.contains("its 1073741895 bytes are more than the 1073741824"), "{nrrd}");
        assert!(nrrd.contains("`encoding: gzip`") && nrrd.contains(".nhdr"), "{nrrd}");
        huge("a.nii");
        assert!(of("a.nii").contains("pack it with gzip (.nii.gz)"));
        huge("a.nii.gz");
        assert!(of("a.nii.gz").contains("of an input: crop it"));
        huge("a.raw");
        let header = "file = \"a.raw\"\nsize = [1025, 1024, 1024]\ntype = \"u8\"\n";
        fs::write(folder.path().join("a.toml"), header).expect("written");
        let raw = of("a.toml");
        assert!(raw.contains("a.raw: its") && raw.contains("name the packed file in"), "{raw}");
        let header = "NRRD0004\ntype: uint8\ndimension: 3\nsizes: 1025 1024 1024\nencoding: raw\n\
                      data file: a.raw\n";
        fs::write(folder.path().join("a.nhdr"), header).expect("written");
        let raw = of("a.nhdr");
        assert!(raw.contains("a.raw: its") && raw.contains("`encoding: gzip`"), "{raw}");
    }

    #[test]
    fn a_volume_that_is_sent_as_header_and_data_may_be_as_large_as_an_input() {
        let (folder, spec) = folder(Application::Isosurface);
        let data = File::create(folder.path().join("a.raw")).expect("made");
        data.set_len(BLOB_BYTES_MAX).expect("sparse");
        let header = "NRRD0004\ntype: uint8\ndimension: 3\nsizes: 1024 1024 1024\nencoding: raw\n\
                      data file: a.raw\n";
        fs::write(folder.path().join("a.nhdr"), header).expect("written");
        let spec = spec.replace("ripples.nrrd", "a.nhdr");
        let parcel = Parcel::pack(Application::Isosurface, &spec, folder.path()).expect("a parcel");
        assert_eq!(parcel.files.len(), 2);
    }

    #[test]
    fn what_is_no_volume_or_series_by_its_name_is_told_as_where_it_runs() {
        for (application, from, to) in [
            (Application::Volume, "ripples.nrrd", "ripples.vtk"),
            (Application::Isosurface, "ripples.nrrd", "none.toml"),
            (Application::Npairs, "scans.nii", "scans.img"),
            (Application::Pca, "table.csv", ".."),
        ] {
            let (folder, spec) = folder(application);
            let spec = spec.replace(from, to);
            let task = Task::parse(application, &spec, folder.path()).expect("a task");
            let preempt = Preempt::new();
            let mut control = Control {
                device: Device::Processor,
                preempt: &preempt,
                clock: &|| Time::ZERO,
                free_bytes: &|| u64::MAX,
                progress: &mut |_, _| (),
                keep: &mut |product| panic!("{} was made", product.name),
            };
            let run = task.run(&mut control).expect_err("refused").to_string();
            assert_eq!(told(application, &spec, folder.path()), run);
        }
    }

    #[test]
    fn two_files_of_one_name_are_refused() {
        let (folder, spec) = folder(Application::Npairs);
        fs::create_dir(folder.path().join("other")).expect("made");
        let design = folder.path().join("design.csv");
        fs::copy(design, folder.path().join("other/scans.nii")).expect("copied");
        let spec = spec.replace("design.csv", "other/scans.nii");
        let told = told(Application::Npairs, &spec, folder.path());
        assert!(told.contains("other/scans.nii") && told.contains("rename one of them"), "{told}");
    }

    #[test]
    fn what_is_unpacked_reads_no_other_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        for file in ["../table.csv", "/etc/passwd", "a/b.csv", ".."] {
            let spec = Application::Pca.example().replace("table.csv", file);
            let error = unpack(Application::Pca, &spec, folder.path(), None).expect_err(file);
            assert!(error.to_string().contains("no plain file name"), "{error}");
        }
    }

    #[test]
    fn a_part_is_one_number_of_components() {
        let (folder, spec) = folder(Application::Npairs);
        let parcel = Parcel::pack(Application::Npairs, &spec, folder.path()).expect("a parcel");
        assert_eq!(parcel.parts.as_deref(), Some(&["1", "2", "4", "8"].map(str::to_owned)[..]));
        let of = |part| unpack(Application::Npairs, &parcel.spec, folder.path(), Some(part));
        assert_eq!(of("4").expect("a task").parts(), Some(vec!["4".to_owned()]));
        let none = of("3").expect_err("there is none").to_string();
        assert!(none.contains("no part \"3\""), "{none}");
        let (_folder, spec) = self::folder(Application::Volume);
        assert!(unpack(Application::Volume, &spec, Path::new(""), Some("0")).is_err());
    }

    #[test]
    fn tables_of_parts_are_joined_with_all_columns_that_any_has() {
        let of = |parts: &[&str]| {
            join_tables(&parts.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(of(&["a,b\n1,2\n", "a,b,c\n3,4,5\n"]).as_deref(), Some("a,b,c\n1,2,\n3,4,5\n"));
        assert_eq!(of(&["a,b\n1,2\n", "a,c\n3,4\n"]), None);
        assert_eq!(of(&["a,b\n1,2\n", "a,bc\n3,4\n"]), None);
        assert_eq!(of(&["a\n1,2\n"]), None);
        assert_eq!(of(&[]), None);
    }
}
