use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::super::{Missing, Voxels};
use super::*;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

/// A folder with files.
fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, bytes) in files {
        fs::write(folder.path().join(name), bytes).expect("written");
    }
    folder
}

fn told(files: &[(&str, &[u8])], name: &str) -> String {
    let folder = folder(files);
    read_volume(&folder.path().join(name)).expect_err("it is refused").to_string()
}

const TOML: &str = "file = \"a.raw\"\nsize = [2, 1, 2]\ntype = \"u16\"\n";

#[test]
fn a_raw_file_is_read_by_its_header() {
    let data: &[u8] = &[1, 0, 2, 0, 3, 0, 0, 1];
    let folder = folder(&[
        ("a.toml", TOML.as_bytes()),
        ("b.json", br#"{"file":"a.raw","size":[2,1,2],"type":"u16","endian":"big"}"#),
        ("a.raw", &gzip(data)),
    ]);
    let volume = read_volume(&folder.path().join("a.toml")).expect("a volume");
    assert_eq!(volume.voxels(), &Voxels::U16(vec![1, 2, 3, 256]));
    let volume = read_volume(&folder.path().join("b.json")).expect("a volume");
    assert_eq!(volume.voxels(), &Voxels::U16(vec![256, 512, 768, 1]));
}

#[test]
fn a_file_that_is_not_as_long_as_its_header_says_is_refused() {
    let toml = ("a.toml", TOML.as_bytes());
    let short = told(&[toml, ("a.raw", &[0; 7])], "a.toml");
    assert!(short.contains("after 7 of the 8 bytes"), "{short}");
    let long = told(&[toml, ("a.raw", &[0; 9])], "a.toml");
    assert!(long.contains("goes on after the 8 bytes"), "{long}");
}

#[test]
fn a_packed_file_that_expands_without_end_is_read_no_further_than_promised() {
    // 64 MiB in 64 KiB; a reader that unpacks it all would hold it all.
    let bomb = gzip(&vec![0; 64 << 20]);
    assert!(bomb.len() < 1 << 20);
    let long = told(&[("a.toml", TOML.as_bytes()), ("a.raw", &bomb)], "a.toml");
    assert!(long.contains("goes on after the 8 bytes"), "{long}");
    let toml = format!("{TOML}skip = 1000000000000\n");
    let far = told(&[("a.toml", toml.as_bytes()), ("a.raw", &bomb)], "a.toml");
    assert!(far.contains("passes over 1000000000000 bytes"), "{far}");
    let nrrd = "NRRD0004\ntype: uint8\ndimension: 3\nsizes: 1 1 1\nencoding: gzip\n\
                byte skip: 1000000000000\n\n";
    let nrrd = [nrrd.as_bytes(), &bomb].concat();
    let far = told(&[("a.nrrd", &nrrd)], "a.nrrd");
    assert!(far.contains("passes over 1000000000000 bytes"), "{far}");
}

#[test]
fn a_header_that_promises_too_much_is_refused_before_anything_is_read() {
    let toml = "file = \"a.raw\"\nsize = [100000, 100000, 100000]\ntype = \"u8\"\n";
    let large = told(&[("a.toml", toml.as_bytes()), ("a.raw", &[0; 7])], "a.toml");
    assert!(large.contains("crop it"), "{large}");
    let toml = "file = \"a.raw\"\nsize = [1, 0, 1]\ntype = \"u8\"\n";
    let empty = told(&[("a.toml", toml.as_bytes()), ("a.raw", &[])], "a.toml");
    assert!(empty.contains("is empty"), "{empty}");
}

#[test]
fn a_header_may_name_a_file_in_a_folder_below_it() {
    let folder = folder(&[("v.raw", &[1]), ("w.raw", &[2])]);
    fs::create_dir_all(folder.path().join("sub/deep")).expect("made");
    fs::write(folder.path().join("sub/v.raw"), [3]).expect("written");
    fs::write(folder.path().join("sub/deep/v.raw"), [4]).expect("written");
    for (name, voxel) in [
        ("v.raw", 1),
        ("./v.raw", 1),
        ("././/v.raw", 1),
        ("sub/v.raw", 3),
        ("./sub/./deep/v.raw", 4),
        // All in one folder, as where a job runs.
        ("gone/w.raw", 2),
        ("gone/deep/w.raw", 2),
    ] {
        let nrrd = format!(
            "NRRD0005\ntype: uint8\ndimension: 3\nsizes: 1 1 1\nencoding: raw\ndata file: {name}\n"
        );
        let toml = format!("file = {name:?}\nsize = [1, 1, 1]\ntype = \"u8\"\n");
        for (header, text) in [("h.nhdr", nrrd), ("h.toml", toml)] {
            let header = folder.path().join(header);
            fs::write(&header, text).expect("written");
            assert!(check_volume(&header).is_ok(), "{name}");
            let volume = read_volume(&header).expect("a volume");
            assert_eq!(volume.voxels(), &Voxels::U8(vec![voxel]), "{name}");
        }
    }
}

#[test]
fn one_of_a_pair_of_files_is_told_to_be_made_one() {
    for name in ["v.img", "v.hdr", "V.IMG", "v.img.gz", "v.hdr.gz"] {
        let folder = folder(&[(name, &[0; 348])]);
        let path = folder.path().join(name);
        let told = [
            read_volume(&path).map(|_| ()),
            read_series(&path).map(|_| ()),
            check_volume(&path),
            check_series(&path),
        ];
        for told in told {
            let told = told.expect_err("refused").to_string();
            assert!(told.contains("a pair of files") && told.contains("one .nii"), "{told}");
        }
    }
}

#[test]
fn what_is_wrong_with_a_header_or_a_length_is_told_before_the_data_is_read() {
    let nrrd = |lines: &str, data: usize| {
        let header = "NRRD0005\ntype: uint8\ndimension: 3\nencoding: raw\n";
        [header.as_bytes(), lines.as_bytes(), b"\n\n", &vec![0; data]].concat()
    };
    let nifti = |kind: i16, bits: i16, data: usize| {
        super::super::nifti_file::tests::file(kind, bits, [3, 2, 1, 2, 1], 0.0, &vec![0; data])
    };
    let far = nifti(2, 8, 4).into_iter().enumerate();
    let far = far.map(|(at, byte)| if (80..84).contains(&at) { 0xff } else { byte }).collect();
    let toml = TOML.replace("u16", "u8").into_bytes();
    for (name, file) in [
        ("a.nrrd", nrrd("sizes: 2 1 2\nkinds: RGB-color domain domain", 4)),
        ("b.nrrd", nrrd("sizes: 2 1 2", 3)),
        ("c.nrrd", nrrd("sizes: 2 1 2", 5)),
        ("d.nrrd", nrrd("sizes: 2 1 2\nbyte skip: 9", 3)),
        ("e.nrrd", nrrd("sizes: 2 1 2\nbyte skip: -1", 3)),
        ("f.nrrd", nrrd("sizes: 2 1 2\nspacings: 0 1 1", 4)),
        ("g.nhdr", nrrd("sizes: 2 1 2", 0)),
        ("h.nhdr", nrrd("sizes: 2 1 2\ndata file: gone.raw", 0)),
        ("i.nhdr", nrrd("sizes: 2 1 2\ndata file: five.raw", 0)),
        ("j.toml", toml),
        ("k.toml", b"file = \"five.raw\"".to_vec()),
        ("l.nii", nifti(128, 24, 12)),
        ("m.nii", nifti(2, 8, 5)),
        ("n.nii", nifti(2, 8, 3)),
        ("o.nii.gz", gzip(&nifti(1792, 128, 64))),
        ("p.nii", far),
        ("q.nrrd", Vec::new()),
    ] {
        let folder = folder(&[(name, &file), ("five.raw", &[0; 5]), ("a.raw", &[0; 5])]);
        let path = folder.path().join(name);
        let read = read_volume(&path).expect_err("refused").to_string();
        let checked = check_volume(&path).expect_err("refused").to_string();
        assert_eq!(checked, read, "{name}");
    }
    for (name, file) in [
        ("a.nrrd", nrrd("sizes: 2 1 2\nbyte skip: -1", 5)),
        ("b.nii", nifti(2, 8, 4)),
        ("c.nii.gz", gzip(&nifti(2, 8, 4))),
    ] {
        let folder = folder(&[(name, &file)]);
        let path = folder.path().join(name);
        assert!(read_volume(&path).is_ok() && check_volume(&path).is_ok(), "{name}");
    }
    let folder = folder(&[("s.nii", &nifti(128, 24, 12)), ("t.nii", &nifti(2, 8, 4))]);
    let [bad, good] = ["s.nii", "t.nii"].map(|name| folder.path().join(name));
    let read = read_series(&bad).expect_err("refused").to_string();
    assert_eq!(check_series(&bad).expect_err("refused").to_string(), read);
    assert!(check_series(&good).is_ok());
}

#[test]
fn a_header_reaches_no_other_folder() {
    for file in ["../a.raw", "sub/../../a.raw", "./", "sub/", "/etc/passwd", "..", ""] {
        let toml = format!("file = {file:?}\nsize = [1, 1, 1]\ntype = \"u8\"\n");
        let refused = told(&[("a.toml", toml.as_bytes())], "a.toml");
        assert!(refused.contains("plain file beside"), "{refused}");
    }
}

#[test]
fn damage_and_unknown_names_are_told() {
    let mut torn = gzip(&[1, 0, 2, 0, 3, 0, 0, 1]);
    torn.truncate(torn.len() - 6);
    assert!(told(&[("a.toml", TOML.as_bytes()), ("a.raw", &torn)], "a.toml").contains("read"));
    assert!(told(&[("a.vtk", b"")], "a.vtk").contains("not a volume by its name"));
    let unknown = TOML.replace("type", "typ");
    let unknown = told(&[("a.toml", unknown.as_bytes())], "a.toml");
    assert!(unknown.contains("header"), "{unknown}");
}

#[test]
fn voxels_that_are_no_numbers_get_the_value_that_the_header_names() {
    let data: Vec<u8> = [1.0, f32::NAN, f32::INFINITY, -2.0].map(f32::to_le_bytes).concat();
    let toml = "file = \"a.raw\"\nsize = [4, 1, 1]\ntype = \"f32\"\n";
    let refused = told(&[("a.toml", toml.as_bytes()), ("a.raw", &data)], "a.toml");
    assert!(refused.contains("2 voxels are NaN or infinite"), "{refused}");
    let toml = format!("{toml}missing = 7.5\n");
    let folder = folder(&[("a.toml", toml.as_bytes()), ("a.raw", &data)]);
    let volume = read_volume(&folder.path().join("a.toml")).expect("a volume");
    assert_eq!(volume.voxels(), &Voxels::F32(vec![1.0, 7.5, 7.5, -2.0]));
    assert_eq!(volume.missing(), Some(Missing { count: 2, value: 7.5 }));
    let data: Vec<u8> = [1.0, f64::NAN, -1e39, -2.0].map(f64::to_le_bytes).concat();
    let refused =
        told(&[("a.toml", toml.replace("f32", "f64").as_bytes()), ("a.raw", &data)], "a.toml");
    assert!(refused.contains("1 voxels are beyond single precision"), "{refused}");
    assert!(refused.contains("(2, 0, 0)") && !refused.contains("missing"), "{refused}");
}
