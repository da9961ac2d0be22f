//! What a workunit's honest output is, and how it looks when a host lies.

use gleaner_protocol::limits::INLINE_BYTES_MAX;
use gleaner_protocol::{Content, Digest, HostName, Manifest, OutputFile, WorkunitId};

use crate::draw::mix;

/// An output as an agent holds it: its files, of which the large ones are uploaded first.
pub(crate) struct Output {
    pub(crate) manifest: Manifest,
    /// Content of the file that is a blob of its own.
    pub(crate) blob: Option<(Digest, Vec<u8>)>,
}

impl Output {
    /// The output that every honest host gets.
    pub(crate) fn honest(workunit: WorkunitId, item: Option<&str>) -> Self {
        let item = Digest::of(item.unwrap_or_default().as_bytes());
        Self::of(workunit, &format!("{workunit} of {item:?}"))
    }

    /// The output that this host gets in its stead.
    pub(crate) fn lie(workunit: WorkunitId, host: &HostName) -> Self {
        Self::of(workunit, &format!("{workunit} as {host} has it"))
    }

    fn of(workunit: WorkunitId, text: &str) -> Self {
        let is_large = spread(workunit).is_multiple_of(64);
        let bytes = if is_large {
            text.bytes().cycle().take(INLINE_BYTES_MAX + 1_000).collect()
        } else {
            text.as_bytes().to_vec()
        };
        let (content, blob) = if bytes.len() > INLINE_BYTES_MAX {
            let digest = Digest::of(&bytes);
            (Content::Stored { digest, bytes: bytes.len() as u64 }, Some((digest, bytes)))
        } else {
            (Content::Inline(bytes), None)
        };
        let file = OutputFile { name: "result".into(), content };
        Self { manifest: Manifest::new(vec![file]).expect("one plain file"), blob }
    }

    /// The whole content of its file.
    pub(crate) fn bytes(&self) -> &[u8] {
        match (&self.blob, &self.manifest.files()[0].content) {
            (Some((_, bytes)), _) | (None, Content::Inline(bytes)) => bytes,
            (None, Content::Stored { .. }) => unreachable!("a stored file has its blob"),
        }
    }
}

/// A number that depends on the workunit alone.
pub(crate) fn spread(workunit: WorkunitId) -> u64 {
    mix(workunit.job.get() << 32 | u64::from(workunit.index))
}
