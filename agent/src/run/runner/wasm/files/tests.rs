use super::*;
use std::fs;

fn tree(bytes_max: u64) -> (tempfile::TempDir, Files) {
    let folder = tempfile::tempdir().expect("a folder");
    let files = Files::new(folder.path().to_owned(), bytes_max);
    (folder, files)
}

fn errno<T>(result: Result<T, Trouble>) -> Errno {
    match result {
        Err(Trouble::Errno(errno)) => errno,
        Err(Trouble::Halt(halt)) => panic!("{halt}"),
        Ok(_) => panic!("it went well"),
    }
}

impl Files {
    fn at(&self, path: &str) -> Place {
        self.resolve(Self::ROOT, path).expect(path)
    }

    fn make(&mut self, path: &str) -> NodeIx {
        let place = self.at(path);
        self.create(&place).expect(path)
    }

    fn make_folder(&mut self, path: &str) {
        let place = self.at(path);
        self.create_folder(&place).expect(path);
    }

    fn move_to(&mut self, from: &str, to: &str) -> Result<(), Trouble> {
        let (from, to) = (self.resolve(Self::ROOT, from)?, self.resolve(Self::ROOT, to)?);
        self.rename(&from, &to)
    }
}

#[test]
fn paths_stay_inside() {
    let (_folder, mut files) = tree(1 << 20);
    files.make_folder("a");
    files.make_folder("a/b");
    files.make("a/b/file");
    for path in ["..", "../x", "/", "/a", "a/../..", "a/b/../../../a", "./../a"] {
        assert_eq!(errno(files.resolve(Files::ROOT, path)), Errno::NotCapable, "{path}");
    }
    let b = files.look(&files.at("a/b")).expect("there");
    assert_eq!(errno(files.resolve(b, "..")), Errno::NotCapable, "above what was opened");
    for path in ["a/b/file", "./a//b/./file", "a/../a/b/file", "a/b/../b/file"] {
        assert!(files.look(&files.at(path)).is_ok(), "{path}");
    }
    for (path, expected) in [
        ("", Errno::NoEnt),
        ("x/y", Errno::NoEnt),
        ("x/../a", Errno::NoEnt),
        ("a/b/file/x", Errno::NotDir),
        ("a/b/file/..", Errno::NotDir),
    ] {
        assert_eq!(errno(files.resolve(Files::ROOT, path)), expected, "{path}");
    }
    assert_eq!(errno(files.look(&files.at("a/b/file/"))), Errno::NotDir);
    assert_eq!(errno(files.resolve(Files::ROOT, &"x".repeat(256))), Errno::NameTooLong);
}

#[test]
fn large_files_go_to_the_disk_and_come_back_the_same() {
    let (folder, mut files) = tree(1 << 20);
    let node = files.make("file");
    files.open(node);
    let content: Vec<u8> = (0..200_000_u32).map(|number| number as u8).collect();
    files.write(node, 100, b"begins in memory").expect("room");
    assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 0);
    files.write(node, 0, &content).expect("room");
    assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 1);
    files.write(node, 250_000, b"end").expect("room");
    let mut read = vec![1; 300_000];
    assert_eq!(files.read(node, 0, &mut read).expect("readable"), 250_003);
    assert_eq!(&read[..200_000], &content[..]);
    assert_eq!(&read[200_000..250_000], &[0; 50_000]);
    assert_eq!(&read[250_000..250_003], b"end");
    files.set_len(node, 5).expect("shorter");
    assert_eq!(files.read(node, 3, &mut read).expect("readable"), 2);
    let place = files.at("file");
    files.unlink(&place).expect("there");
    assert_eq!(files.read(node, 0, &mut read).expect("still open"), 5);
    files.close(node);
    assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 0);
}

#[test]
fn what_is_removed_makes_room_when_it_is_closed() {
    let (_folder, mut files) = tree(10);
    let (one, other) = (files.make("one"), files.make("other"));
    files.open(one);
    files.write(one, 0, b"12345678").expect("room");
    assert_eq!(errno(files.write(other, 0, b"123")), Errno::NoSpc);
    let place = files.at("one");
    files.unlink(&place).expect("there");
    assert_eq!(errno(files.write(other, 0, b"123")), Errno::NoSpc, "it is still open");
    files.close(one);
    files.write(other, 0, b"123").expect("room");
    assert_eq!(errno(files.set_len(other, 11)), Errno::NoSpc);
    assert_eq!(errno(files.write(other, u64::MAX, b"1")), Errno::FBig);
    assert_eq!(errno(files.write(other, BLOB_BYTES_MAX, b"1")), Errno::FBig);
    files.write(other, BLOB_BYTES_MAX, b"").expect("nothing is written");
    assert_eq!(files.stat(other).expect("there").bytes, 3);
}

#[test]
fn inputs_are_not_changed_but_may_be_removed() {
    let (folder, mut files) = tree(10);
    let path = folder.path().join("source");
    fs::write(&path, "input").expect("written");
    files.add_input("input", File::open(&path).expect("there"), 5).expect("room");
    let node = files.look(&files.at("input")).expect("there");
    assert_eq!(errno(files.write(node, 0, b"x")), Errno::Perm);
    assert_eq!(errno(files.set_len(node, 0)), Errno::Perm);
    files.move_to("input", "renamed").expect("its name is not it");
    let place = files.at("renamed");
    files.unlink(&place).expect("there");
    files.make("input");
    assert_eq!(fs::read(path).expect("there"), b"input");
}

#[test]
fn folders_are_moved_whole_and_never_into_themselves() {
    let (_folder, mut files) = tree(1 << 20);
    files.make_folder("a");
    files.make_folder("a/b");
    files.make_folder("c");
    files.make("a/b/file");
    files.make("plain");
    assert_eq!(errno(files.move_to("a", "a/b/a")), Errno::Inval);
    assert_eq!(errno(files.move_to("a", "a/a")), Errno::Inval);
    assert_eq!(errno(files.move_to("plain", "c")), Errno::IsDir);
    assert_eq!(errno(files.move_to("c", "plain")), Errno::NotDir);
    assert_eq!(errno(files.move_to("c", "a")), Errno::NotEmpty);
    files.move_to("a/b", "c").expect("in place of an empty one");
    assert!(files.look(&files.at("c/file")).is_ok());
    let c = files.look(&files.at("c")).expect("there");
    let names: Vec<String> =
        files.list(c).expect("a folder").into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, [".", "..", "file"]);
    let place = files.at("c");
    assert_eq!(errno(files.remove_folder(&place)), Errno::NotEmpty);
    files.move_to("plain", "c/file").expect("in place of another");
    assert_eq!(errno(files.look(&files.at("plain"))), Errno::NoEnt);
}

#[test]
fn nothing_is_made_in_a_folder_that_is_gone() {
    let (_folder, mut files) = tree(1 << 20);
    files.make_folder("a");
    let node = files.look(&files.at("a")).expect("there");
    files.open(node);
    let place = files.at("a");
    files.remove_folder(&place).expect("empty");
    let inside = files.resolve(node, "file").expect("inside");
    assert_eq!(errno(files.create(&inside)), Errno::NoEnt);
    files.close(node);
}
