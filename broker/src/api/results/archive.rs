//! `/v1/jobs/{job}/archive`: all results of a job as one tar file, made while it is read.
//!
//! # Invariants
//! - No more of it is in memory than a few pieces.
//! - A file that ends as tar files do has all that was decided when it got there; what cannot be read
//!   breaks it off before.
//! - No member is outside of the job's folder, on any system that it is unpacked on.

use std::collections::BTreeSet;
use std::io;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use gleaner_protocol::{Content, JobId, error_chain};
use gleaner_serve::Problem;
use tokio::sync::mpsc;
use warp::Reply;
use warp::http::HeaderValue;
use warp::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use warp::reply::Response;

use super::{Asker, Ended, ended_from, manifest, on_disk};
use crate::api::blobs::Shared;
use crate::api::jobs::{check_sees, parse_id};
use crate::api::{Api, no_such};
use crate::limits::{ARCHIVE_PAGE, ARCHIVE_PIECES_MAX};
use crate::wall_clock::utc_ms;

/// Characters that some system takes for more than a part of a name.
const SIGNS: &str = "/\\<>:\"|?*";

pub(super) async fn send(api: Api, (job, who): (String, Asker)) -> Result<Response, Problem> {
    let id: JobId = parse_id(&job)?;
    check_sees(&api, &who, id).await?;
    let open = api.streams.open(who.identity().as_ref())?;
    let (pieces, taken) = mpsc::channel(ARCHIVE_PIECES_MAX);
    tokio::spawn(async move {
        let _open = open;
        match write(&api, &who, id, &pieces).await {
            // Whoever read it has gone.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            Err(error) => {
                tracing::error!("the archive of {id} breaks off: {}", error_chain(&error));
                let _ = pieces.send(Err(error)).await;
            }
            Ok(()) => {}
        }
    });
    let pieces = stream::unfold(taken, |mut taken| async {
        let piece: io::Result<Bytes> = taken.recv().await?;
        Some((piece, taken))
    });
    let mut answer = warp::reply::stream(Shared::of(pieces.boxed())).into_response();
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-tar"));
    let name = HeaderValue::from_str(&format!("attachment; filename=\"{id}.tar\""));
    headers.insert(CONTENT_DISPOSITION, name.map_err(|_| Problem::internal())?);
    Ok(answer)
}

type Pieces = mpsc::Sender<io::Result<Bytes>>;

async fn put(pieces: &Pieces, piece: impl Into<Bytes>) -> io::Result<()> {
    let piece = piece.into();
    if piece.is_empty() {
        return Ok(());
    }
    pieces.send(Ok(piece)).await.map_err(|_| io::ErrorKind::BrokenPipe.into())
}

/// A page of workunits after the other, so that nobody waits for the whole.
async fn write(api: &Api, who: &Asker, id: JobId, pieces: &Pieces) -> io::Result<()> {
    let at_s = utc_ms() / 1_000;
    let mut from = Some(0);
    while let Some(begin) = from {
        let who = who.clone();
        let read = api
            .read(move |core| Some(ended_from(who.find(core, id)?, begin, ARCHIVE_PAGE)))
            .await
            .and_then(|found| found.ok_or_else(|| no_such(id)));
        let page = read.map_err(|problem| io::Error::other(problem.error().to_owned()))?;
        from = page.last().and_then(|(index, _)| index.checked_add(1));
        for (index, ended) in page {
            let Ended::Decided(digest) = ended else { continue };
            let small_blobs = api.small_blobs.clone();
            let read = on_disk(move || manifest(&small_blobs, digest)).await;
            let read = read.map_err(|_| io::Error::other("a bug in reading an output"))?;
            let files = read.map_err(io::Error::other)?;
            let mut names = BTreeSet::new();
            for file in files.files() {
                let path = format!("{id}/{index}/{}", safe(&file.name, &mut names));
                let bytes = file.content.len();
                put(pieces, head(&path, bytes, at_s)?).await?;
                match &file.content {
                    Content::Inline(content) => put(pieces, content.clone()).await?,
                    Content::Stored { digest, .. } => {
                        let content = api.blobs.open(*digest).await.map_err(io::Error::other)?;
                        let gone =
                            || io::Error::other(format!("blob {digest} is not in the store"));
                        let mut content = content.ok_or_else(gone)?.stream;
                        while let Some(piece) = content.next().await {
                            put(pieces, piece.map_err(io::Error::other)?).await?;
                        }
                    }
                }
                put(pieces, padding(bytes)).await?;
            }
        }
    }
    put(pieces, &END[..]).await
}

/// Members begin at multiples of this.
const BLOCK: usize = 512;
/// What ends a file.
const END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];

/// What stands before the content of a member.
fn head(path: &str, bytes: u64, at_s: u64) -> io::Result<Vec<u8>> {
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes);
    header.set_mode(0o644);
    header.set_mtime(at_s);
    let mut archive = tar::Builder::new(Vec::new());
    // The content follows as it is read.
    archive.append_data(&mut header, path, io::empty())?;
    Ok(archive.get_ref().clone())
}

/// What stands behind a content of this length.
fn padding(bytes: u64) -> &'static [u8] {
    const NOTHING: [u8; BLOCK] = [0; BLOCK];
    let over = (bytes % BLOCK as u64) as usize;
    &NOTHING[..(BLOCK - over) % BLOCK]
}

/// Whether a name is that of a device on some systems, whatever stands behind a dot.
fn is_device(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or_default().trim_end().to_ascii_uppercase();
    let numbered = ["COM", "LPT"].iter().find_map(|of| stem.strip_prefix(of));
    matches!(&*stem, "CON" | "PRN" | "AUX" | "NUL")
        || numbered.is_some_and(|of| of.chars().count() == 1 && of.chars().all(char::is_numeric))
}

/// The name of a file as one that means a file in its folder on any system, and none that is there.
fn safe(name: &str, others: &mut BTreeSet<String>) -> String {
    let sign = |sign: char| match sign {
        // Marks that turn text around, or cannot be seen.
        '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' => {
            '_'
        }
        '\u{feff}' => '_',
        sign if sign.is_control() || SIGNS.contains(sign) => '_',
        sign => sign,
    };
    let plain: String = name.chars().map(sign).collect();
    let plain = match plain.trim_end_matches(['.', ' ']) {
        "" => "_".to_owned(),
        plain if plain.starts_with('.') || is_device(plain) => format!("_{plain}"),
        plain => plain.to_owned(),
    };
    // Names that differ by case alone are one on some systems.
    let mut free = plain.clone();
    let mut count = 1;
    while !others.insert(free.to_lowercase()) {
        count += 1;
        free = format!("{count}-{plain}");
    }
    free
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn members_are_read_as_they_were_written() {
        let members = ["job-1/0/stdout".to_owned(), "x".repeat(150), "ü".repeat(60)]
            .map(|path| (path, b"content".repeat(100)));
        let mut file = Vec::new();
        for (path, content) in &members {
            file.extend(head(path, content.len() as u64, 1).expect("a plain path"));
            assert_eq!(file.len() % BLOCK, 0);
            file.extend_from_slice(content);
            file.extend_from_slice(padding(content.len() as u64));
        }
        file.extend(END);
        let mut read = Vec::new();
        for entry in tar::Archive::new(&file[..]).entries().expect("an archive") {
            let mut entry = entry.expect("a member");
            let path = String::from_utf8(entry.path_bytes().into_owned()).expect("UTF-8");
            let mut content = Vec::new();
            entry.read_to_end(&mut content).expect("it is there");
            read.push((path, content));
        }
        assert_eq!(read, members);
        assert_eq!((padding(0).len(), padding(1).len(), padding(512).len()), (0, 511, 0));
    }

    #[test]
    fn no_name_leads_out_of_its_folder_or_hides() {
        let one = |name: &str| safe(name, &mut BTreeSet::new());
        assert_eq!(one("picture 1.png"), "picture 1.png");
        assert_eq!(one("größe.csv"), "größe.csv");
        for bad in ["..", "../../etc/passwd", "/etc/passwd", "a\\b", "C:x", ".", ". .", "a\nb"] {
            let name = one(bad);
            let is_plain = !name.contains(['/', '\\', ':', '\n']) && !name.starts_with('.');
            assert!(is_plain && !name.is_empty(), "{bad:?} is {name:?}");
        }
        assert_eq!(["nul", "Con.txt", "com1.png"].map(one), ["_nul", "_Con.txt", "_com1.png"]);
        assert_eq!(["console", "com12", "lpt.csv"].map(one), ["console", "com12", "lpt.csv"]);
        assert_eq!(one("gpj\u{202e}.exe"), "gpj_.exe");
        let mut names = BTreeSet::new();
        let all: Vec<String> =
            ["a?", "a*", "A_"].iter().map(|name| safe(name, &mut names)).collect();
        assert_eq!(all, ["a_", "2-a_", "3-A_"]);
    }
}
