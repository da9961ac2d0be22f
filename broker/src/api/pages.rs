//! `/` and `/pages/`: the files of the pages, as they were built in.

use std::sync::LazyLock;

use gleaner_serve::{PageFile, Pages};
use warp::filters::BoxedFilter;
use warp::reply::Response;

use super::Api;

/// A file of `broker/pages`, at the path of its name.
macro_rules! file {
    ($name:literal, $kind:expr) => {
        PageFile {
            path: concat!("/pages/", $name),
            kind: $kind,
            content: include_bytes!(concat!("../../pages/", $name)),
        }
    };
}

/// Files of the page of one host, which `gleaner agent page` serves.
#[cfg(test)]
const OF_ONE_HOST: [&str; 2] = ["agent.html", "agent.js"];

static FILES: [PageFile; 39] = [
    PageFile { path: "/", kind: PageFile::HTML, content: include_bytes!("../../pages/index.html") },
    file!("style.css", PageFile::STYLE),
    file!("icon.svg", PageFile::PICTURE),
    file!("app.js", PageFile::SCRIPT),
    file!("ask.js", PageFile::SCRIPT),
    file!("camera.js", PageFile::SCRIPT),
    file!("chart.js", PageFile::SCRIPT),
    file!("cost.js", PageFile::SCRIPT),
    file!("cuts.js", PageFile::SCRIPT),
    file!("dialog.js", PageFile::SCRIPT),
    file!("dom.js", PageFile::SCRIPT),
    file!("drawn.js", PageFile::SCRIPT),
    file!("editor.js", PageFile::SCRIPT),
    file!("exr.js", PageFile::SCRIPT),
    file!("farm.js", PageFile::SCRIPT),
    file!("figures.js", PageFile::SCRIPT),
    file!("flight.js", PageFile::SCRIPT),
    file!("frames.js", PageFile::SCRIPT),
    file!("history.js", PageFile::SCRIPT),
    file!("hosts.js", PageFile::SCRIPT),
    file!("job.js", PageFile::SCRIPT),
    file!("jobs.js", PageFile::SCRIPT),
    file!("live.js", PageFile::SCRIPT),
    file!("log.js", PageFile::SCRIPT),
    file!("login.js", PageFile::SCRIPT),
    file!("nifti.js", PageFile::SCRIPT),
    file!("painter.js", PageFile::SCRIPT),
    file!("people.js", PageFile::SCRIPT),
    file!("pointer.js", PageFile::SCRIPT),
    file!("polls.js", PageFile::SCRIPT),
    file!("results.js", PageFile::SCRIPT),
    file!("rows.js", PageFile::SCRIPT),
    file!("saved.js", PageFile::SCRIPT),
    file!("screen.js", PageFile::SCRIPT),
    file!("stop.js", PageFile::SCRIPT),
    file!("times.js", PageFile::SCRIPT),
    file!("transfer.js", PageFile::SCRIPT),
    file!("viewer.js", PageFile::SCRIPT),
    file!("views.js", PageFile::SCRIPT),
];

/// The paths of the files of the pages.
pub(crate) static PAGES: [&str; FILES.len()] = {
    let mut paths = [""; FILES.len()];
    let mut at = 0;
    while at < paths.len() {
        paths[at] = FILES[at].path;
        at += 1;
    }
    paths
};

static SERVED: LazyLock<Pages> = LazyLock::new(|| Pages::new(&FILES));

impl Api {
    /// The guard lets nothing but GET come here.
    pub(super) fn page_routes() -> BoxedFilter<(Response,)> {
        SERVED.routes()
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    #[test]
    fn every_file_is_named_once_and_all_are_small() {
        let mut names = PAGES.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FILES.len());
        let bytes: usize = FILES.iter().map(|file| file.content.len()).sum();
        assert!(bytes < 200 << 10, "{bytes} bytes");
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("pages");
        let files = std::fs::read_dir(folder).expect("the folder of the pages");
        let files = files.map(|entry| entry.expect("an entry").file_name());
        // What the page about the pages has is not theirs.
        let files =
            files.filter(|name| name != "README.md" && name != "farm.png" && name != "view.png");
        let is_shown = |name: &OsString| !OF_ONE_HOST.iter().any(|of| name == of);
        let files = files.filter(is_shown);
        assert_eq!(files.count(), FILES.len(), "a file of the pages is not sent");
    }

    #[test]
    fn no_page_makes_markup_of_text() {
        for file in FILES.iter().filter(|file| file.kind == PageFile::SCRIPT) {
            let text = std::str::from_utf8(file.content).expect("text");
            for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("]
            {
                assert!(!text.contains(word), "{}: {word}", file.path);
            }
        }
    }
}
