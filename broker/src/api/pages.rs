//! `/` and `/pages/`: the files of the pages, as they were built in.
//!
//! Anybody may read them: they hold nobody's data. A page asks for that by itself, with what the
//! browser was let in with.

use std::sync::LazyLock;

use gleaner_protocol::Digest;
use gleaner_serve::Problem;
use warp::filters::BoxedFilter;
use warp::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY,
};
use warp::http::{HeaderMap, HeaderValue, Method, StatusCode};
use warp::path::FullPath;
use warp::reply::Response;
use warp::{Filter, Reply};

use super::Api;

/// What a page may load and do: what came with it, and pictures that it made of outputs itself. The one
/// policy of trusted types names the one script of its workers, `frames.js`.
const POLICY: &str = "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; \
                      img-src 'self' blob: data:; connect-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types frames";

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const PICTURE: &str = "image/svg+xml";

/// A file of the pages.
struct File {
    path: &'static str,
    kind: &'static str,
    content: &'static [u8],
}

/// A file of `broker/pages`, at the path of its name.
macro_rules! file {
    ($name:literal, $kind:expr) => {
        File {
            path: concat!("/pages/", $name),
            kind: $kind,
            content: include_bytes!(concat!("../../pages/", $name)),
        }
    };
}

static FILES: [File; 35] = [
    File { path: "/", kind: HTML, content: include_bytes!("../../pages/index.html") },
    file!("style.css", STYLE),
    file!("icon.svg", PICTURE),
    file!("app.js", SCRIPT),
    file!("ask.js", SCRIPT),
    file!("camera.js", SCRIPT),
    file!("chart.js", SCRIPT),
    file!("cuts.js", SCRIPT),
    file!("dialog.js", SCRIPT),
    file!("dom.js", SCRIPT),
    file!("drawn.js", SCRIPT),
    file!("editor.js", SCRIPT),
    file!("exr.js", SCRIPT),
    file!("farm.js", SCRIPT),
    file!("figures.js", SCRIPT),
    file!("flight.js", SCRIPT),
    file!("frames.js", SCRIPT),
    file!("history.js", SCRIPT),
    file!("hosts.js", SCRIPT),
    file!("job.js", SCRIPT),
    file!("jobs.js", SCRIPT),
    file!("live.js", SCRIPT),
    file!("login.js", SCRIPT),
    file!("nifti.js", SCRIPT),
    file!("painter.js", SCRIPT),
    file!("people.js", SCRIPT),
    file!("pointer.js", SCRIPT),
    file!("results.js", SCRIPT),
    file!("rows.js", SCRIPT),
    file!("saved.js", SCRIPT),
    file!("screen.js", SCRIPT),
    file!("times.js", SCRIPT),
    file!("transfer.js", SCRIPT),
    file!("viewer.js", SCRIPT),
    file!("views.js", SCRIPT),
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

/// What a browser keeps files by: other content has another one.
static TAGS: LazyLock<[String; FILES.len()]> = LazyLock::new(|| {
    let tag = |content| Digest::of(content).to_string().chars().take(32).collect::<String>();
    std::array::from_fn(|at| format!("\"{}\"", tag(FILES[at].content)))
});

impl Api {
    /// The guard lets nothing but GET come here.
    pub(super) fn page_routes() -> BoxedFilter<(Response,)> {
        warp::path::full()
            .and(warp::method())
            .and(warp::header::headers_cloned())
            .and_then(|path: FullPath, method: Method, headers: HeaderMap| async move {
                let at = PAGES.iter().position(|page| *page == path.as_str());
                let at =
                    at.filter(|_| method == Method::GET).ok_or_else(warp::reject::not_found)?;
                Ok::<_, warp::Rejection>(send(at, &headers).unwrap_or_else(Reply::into_response))
            })
            .boxed()
    }
}

fn send(at: usize, headers: &HeaderMap) -> Result<Response, Problem> {
    let (file, tag) = (&FILES[at], &TAGS[at]);
    let known = headers.get(IF_NONE_MATCH).and_then(|known| known.to_str().ok());
    let is_known = known.is_some_and(|known| known.split(',').any(|known| known.trim() == tag));
    let mut answer = match is_known {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => file.content.into_response(),
    };
    let told = answer.headers_mut();
    let tag = HeaderValue::from_str(tag).map_err(|_| Problem::internal())?;
    for (name, value) in [
        (ETAG, tag),
        (CONTENT_TYPE, HeaderValue::from_static(file.kind)),
        // It is asked for each time, so that a newer broker's pages are seen at once.
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    ] {
        told.insert(name, value);
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_sent_whole_once_and_then_only_when_they_change() {
        let fresh = send(0, &HeaderMap::new()).expect("sent");
        assert_eq!(fresh.status(), StatusCode::OK);
        let policy = fresh.headers()[CONTENT_SECURITY_POLICY].to_str().expect("text");
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(fresh.headers()[CONTENT_TYPE], HTML);
        let mut headers = HeaderMap::new();
        headers.insert(IF_NONE_MATCH, fresh.headers()[ETAG].clone());
        let known = send(0, &headers).expect("sent");
        assert_eq!(known.status(), StatusCode::NOT_MODIFIED);
        assert_eq!(known.headers()[ETAG], fresh.headers()[ETAG]);
        assert_eq!(send(1, &headers).expect("sent").status(), StatusCode::OK, "another file");
    }

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
        assert_eq!(files.count(), FILES.len(), "a file of the pages is not sent");
    }

    #[test]
    fn no_page_makes_markup_of_text() {
        for file in FILES.iter().filter(|file| file.kind == SCRIPT) {
            let text = std::str::from_utf8(file.content).expect("text");
            for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("]
            {
                assert!(!text.contains(word), "{}: {word}", file.path);
            }
        }
    }
}
