//! Files of pages, as they were built in.
//!
//! Anybody may read them: they hold nobody's data. A page asks for that by itself, with what the
//! browser was let in with.

use gleaner_protocol::Digest;
use warp::filters::BoxedFilter;
use warp::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY,
};
use warp::http::{HeaderMap, HeaderValue, Method, StatusCode};
use warp::path::FullPath;
use warp::reply::Response;
use warp::{Filter, Reply};

/// What a page may load and do: what came with it, and pictures that it made of outputs itself. The one
/// policy of trusted types names the one script of its workers, `frames.js`.
const POLICY: &str = "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; \
                      img-src 'self' blob: data:; connect-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types frames";

/// A file of pages.
#[derive(Debug, Clone, Copy)]
pub struct PageFile {
    /// Where a browser finds it.
    pub path: &'static str,
    /// What it is.
    pub kind: &'static str,
    /// What is in it.
    pub content: &'static [u8],
}

impl PageFile {
    /// A page.
    pub const HTML: &'static str = "text/html; charset=utf-8";
    /// A style sheet.
    pub const STYLE: &'static str = "text/css; charset=utf-8";
    /// A module.
    pub const SCRIPT: &'static str = "text/javascript; charset=utf-8";
    /// A drawing.
    pub const PICTURE: &'static str = "image/svg+xml";
}

/// All files of a server's pages.
#[derive(Debug)]
pub struct Pages {
    files: &'static [PageFile],
    /// What a browser keeps each by: other content has another one.
    tags: Vec<HeaderValue>,
}

impl Pages {
    /// Of these files.
    #[must_use]
    pub fn new(files: &'static [PageFile]) -> Self {
        let tag = |file: &PageFile| {
            let digest = Digest::of(file.content).to_string();
            let tag = format!("\"{}\"", digest.chars().take(32).collect::<String>());
            HeaderValue::try_from(tag).expect("hex is plain")
        };
        Self { files, tags: files.iter().map(tag).collect() }
    }

    /// The guard lets nothing but GET come here.
    #[must_use]
    pub fn routes(&'static self) -> BoxedFilter<(Response,)> {
        warp::path::full()
            .and(warp::method())
            .and(warp::header::headers_cloned())
            .and_then(move |path: FullPath, method: Method, headers: HeaderMap| async move {
                let at = self.files.iter().position(|file| file.path == path.as_str());
                let at = at.filter(|_| method == Method::GET);
                at.map(|at| self.send(at, &headers)).ok_or_else(warp::reject::not_found)
            })
            .boxed()
    }

    fn send(&self, at: usize, headers: &HeaderMap) -> Response {
        let (file, tag) = (&self.files[at], &self.tags[at]);
        let known = headers.get(IF_NONE_MATCH).and_then(|known| known.to_str().ok());
        let is_known =
            known.is_some_and(|known| known.split(',').any(|known| known.trim() == *tag));
        let mut answer = match is_known {
            true => StatusCode::NOT_MODIFIED.into_response(),
            false => file.content.into_response(),
        };
        let told = answer.headers_mut();
        for (name, value) in [
            (ETAG, tag.clone()),
            (CONTENT_TYPE, HeaderValue::from_static(file.kind)),
            // It is asked for each time, so that a newer program's pages are seen at once.
            (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
            (CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
            (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        ] {
            told.insert(name, value);
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static FILES: [PageFile; 2] = [
        PageFile { path: "/", kind: PageFile::HTML, content: b"<h1>a page</h1>" },
        PageFile { path: "/pages/a.js", kind: PageFile::SCRIPT, content: b"export {};" },
    ];

    #[test]
    fn files_are_sent_whole_once_and_then_only_when_they_change() {
        let pages = Pages::new(&FILES);
        let fresh = pages.send(0, &HeaderMap::new());
        assert_eq!(fresh.status(), StatusCode::OK);
        let policy = fresh.headers()[CONTENT_SECURITY_POLICY].to_str().expect("text");
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(fresh.headers()[CONTENT_TYPE], PageFile::HTML);
        let mut headers = HeaderMap::new();
        headers.insert(IF_NONE_MATCH, fresh.headers()[ETAG].clone());
        let known = pages.send(0, &headers);
        assert_eq!(known.status(), StatusCode::NOT_MODIFIED);
        assert_eq!(known.headers()[ETAG], fresh.headers()[ETAG]);
        assert_eq!(pages.send(1, &headers).status(), StatusCode::OK, "another file");
    }
}
