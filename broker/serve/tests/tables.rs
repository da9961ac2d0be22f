//! The tables of all requests of broker and monitor, against the routes that are written there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A service's files with routes: one file, the folder below it, and in that the table.
struct Service {
    folder: PathBuf,
}

impl Service {
    fn of(folder: &str) -> Self {
        Self { folder: Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder) }
    }

    fn table(&self) -> PathBuf {
        self.folder.join("access.rs")
    }

    /// Every row as its method and path.
    fn rows(&self) -> Vec<(String, String)> {
        let text = read(&self.table());
        let table = text.split_once("ACCESS: [Access; ").expect("the table").1;
        let (rows, table) = table.split_once(']').expect("the number of rows");
        let (table, _) = table.split_once("\n];").expect("the table ends");
        let row = |row: &str| {
            let mut words = row.split(", ");
            let mut word = || words.next().expect("a method and a path").to_owned();
            (word(), word().trim_matches('"').to_owned())
        };
        let read: Vec<(String, String)> = table.split("Access::new(").skip(1).map(row).collect();
        assert_eq!(rows.parse(), Ok(read.len()), "{} is read otherwise", self.folder.display());
        read
    }

    /// The paths that are open to all, beside `/healthz`; each is asked for with POST.
    fn open(&self) -> Vec<String> {
        let routes = self.routes();
        let Some((_, list)) = routes.split_once("OPEN: &[&str] = &[") else { return Vec::new() };
        let (list, _) = list.split_once(']').expect("the list ends");
        list.split(',').map(|path| path.trim().trim_matches('"').to_owned()).collect()
    }

    /// All that is written of routes.
    fn routes(&self) -> String {
        let mut files = vec![self.folder.with_extension("rs")];
        let mut folders = vec![self.folder.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a folder of the routes") {
                let path = entry.expect("an entry").path();
                if path.is_dir() { folders.push(path) } else { files.push(path) }
            }
        }
        files.retain(|path| *path != self.table());
        files.iter().map(|path| read(path)).collect()
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// `"v1" / "jobs" / String` as `/v1/jobs/{}`.
fn path_of(segments: &str) -> String {
    let segment = |segment: &str| match segment.trim().strip_prefix('"') {
        Some(literal) => format!("/{}", literal.trim_end_matches('"')),
        None => "/{}".to_owned(),
    };
    segments.split('/').map(segment).collect()
}

#[test]
fn every_route_has_a_row_and_every_row_a_route() {
    for folder in ["broker/src/api", "resource-monitor/src/routes"] {
        let service = Service::of(folder);
        let (routes, rows) = (service.routes(), service.rows());
        let written = routes.split("warp::path!(").skip(1);
        let mut paths: BTreeSet<String> =
            written.map(|rest| path_of(rest.split_once(')').expect("the macro ends").0)).collect();
        assert!(paths.remove("/healthz"), "{folder}: open to all");
        let open = service.open();
        for path in &open {
            assert!(paths.remove(path), "{folder}: {path} is open to all, and no route");
        }
        let of_rows: BTreeSet<String> = rows.iter().map(|(_, path)| path.clone()).collect();
        assert_eq!(paths, of_rows, "{folder}: a path has no row in ACCESS, or a row no path");
        let requests: BTreeSet<&(String, String)> = rows.iter().collect();
        assert_eq!(requests.len(), rows.len(), "{folder}: a row of ACCESS comes twice");
        // Beside `/healthz`, and a socket is asked for with GET.
        let count = |method: &str| routes.matches(&format!("warp::{method}()")).count();
        let written = [
            ("GET", count("get") + count("ws") - 1),
            ("PUT", count("put")),
            ("POST", count("post") - open.len()),
            ("DELETE", count("delete")),
            ("PATCH", count("patch")),
            ("HEAD", count("head")),
        ];
        for (method, written) in written {
            let of_rows = rows.iter().filter(|(of, _)| of == method).count();
            assert_eq!(written, of_rows, "{folder}: {method} has no row in ACCESS, or a row none");
        }
    }
}
