//! A key pair and its file.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use gleaner_protocol::PeerKey;
use gleaner_protocol::people::PrincipalId;
use pasetors::keys::{AsymmetricKeyPair, AsymmetricPublicKey, AsymmetricSecretKey, Generate};
use pasetors::version4::V4;
use thiserror::Error;

/// What a key's file begins with.
const HEAD: &str = "gleaner-key-1 ";
/// What a key begins with that is shown as a token.
const TOKEN_HEAD: &str = "gleaner-token-1.";
/// Longest file of a key, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 10;

/// Why a key cannot be used.
#[derive(Debug, Error)]
pub enum KeyError {
    /// The file cannot be read or made.
    #[error("cannot {what} the key file {path}: {source}", path = path.display())]
    File {
        /// What was to be done.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Others than its owner can read it.
    #[error(
        "the key file {path} can be read by others than its owner: whoever has read it can do what \
         you may; `chmod 600 {path}` if nobody has, else make a new key",
        path = path.display()
    )]
    Readable {
        /// The file.
        path: PathBuf,
    },
    /// It holds something else.
    #[error("{path} is damaged: it holds no key of Gleaner's", path = path.display())]
    Form {
        /// The file.
        path: PathBuf,
    },
    /// The system has no randomness.
    #[error("cannot make a key: the system gives no random bytes")]
    Random,
}

/// A secret key and its public one.
pub struct KeyPair {
    pub(crate) secret: AsymmetricSecretKey<V4>,
    public: PublicKey,
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyPair({}, secret)", self.public.id())
    }
}

impl KeyPair {
    /// A new one.
    ///
    /// # Errors
    /// [`KeyError::Random`].
    pub fn generate() -> Result<Self, KeyError> {
        let pair = AsymmetricKeyPair::<V4>::generate().map_err(|_| KeyError::Random)?;
        Self::of_bytes(pair.secret.as_bytes()).ok_or(KeyError::Random)
    }

    /// Seed and public key.
    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let secret = AsymmetricSecretKey::from(bytes).ok()?;
        let public = PublicKey::of_bytes(bytes.get(32..)?)?;
        Some(Self { secret, public })
    }

    /// Reads a key's file.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let failed = |source| KeyError::File { what: "read", path: path.into(), source };
        let file = File::open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.permissions().mode() & 0o077 != 0 {
            return Err(KeyError::Readable { path: path.into() });
        }
        let mut text = Vec::new();
        file.take(FILE_BYTES_MAX).read_to_end(&mut text).map_err(failed)?;
        let text = String::from_utf8_lossy(&text);
        let bytes = text.trim_end().strip_prefix(HEAD).and_then(bytes_of);
        bytes.and_then(|bytes| Self::of_bytes(&bytes)).ok_or(KeyError::Form { path: path.into() })
    }

    /// The key that somebody shows as a token, who signs nothing: a hook, a program that reads figures. Nothing
    /// where it is none.
    #[must_use]
    pub fn of_token(text: &str) -> Option<Self> {
        Self::of_bytes(&bytes_of(text.strip_prefix(TOKEN_HEAD)?)?)
    }

    /// The key as a token, which is as secret as the key.
    #[must_use]
    pub fn token(&self) -> String {
        format!("{TOKEN_HEAD}{}", text_of(self.secret.as_bytes()))
    }

    /// Writes it to a file that is not there yet.
    ///
    /// # Errors
    /// [`KeyError::File`].
    pub fn write_new(&self, path: &Path) -> Result<(), KeyError> {
        self.write_text(path, &self.text())
    }

    /// Writes the key as a token to a file that is not there yet.
    ///
    /// # Errors
    /// [`KeyError::File`].
    pub fn write_new_token(&self, path: &Path) -> Result<(), KeyError> {
        self.write_text(path, &self.token())
    }

    fn text(&self) -> String {
        format!("{HEAD}{}", text_of(self.secret.as_bytes()))
    }

    fn write_text(&self, path: &Path, text: &str) -> Result<(), KeyError> {
        // Never in the place of another.
        Self::write(path, text, |new| {
            let linked = fs::hard_link(new, path);
            fs::remove_file(new)?;
            linked
        })
    }

    /// Writes it in the place of the file that is there.
    ///
    /// # Errors
    /// [`KeyError::File`].
    pub fn replace(&self, path: &Path) -> Result<(), KeyError> {
        Self::write(path, &self.text(), |new| fs::rename(new, path))
    }

    /// Writes it to a file that gets its name when all of it is in it.
    fn write(
        path: &Path,
        text: &str,
        name: impl FnOnce(&Path) -> io::Result<()>,
    ) -> Result<(), KeyError> {
        let new = path.with_extension("new");
        let written = || {
            let mut options = OpenOptions::new();
            let mut file =
                options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            writeln!(file, "{text}")?;
            file.sync_all()?;
            name(&new)?;
            File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
        };
        written().map_err(|source| KeyError::File { what: "make", path: path.into(), source })
    }

    /// Reads the file, or makes one with a new key where there is none.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub fn read_or_make(path: &Path) -> Result<Self, KeyError> {
        match Self::read(path) {
            Err(KeyError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                let pair = Self::generate()?;
                pair.write_new(path)?;
                Ok(pair)
            }
            read => read,
        }
    }

    /// The public one, as other agents know it.
    #[must_use]
    pub fn peer_key(&self) -> PeerKey {
        PeerKey::from_bytes(self.public.0)
    }

    /// The first half of the secret one, which the rest follows from.
    pub(crate) fn seed(&self) -> &[u8] {
        &self.secret.as_bytes()[..32]
    }

    /// The public one.
    #[must_use]
    pub fn public(&self) -> &PublicKey {
        &self.public
    }
}

/// A public key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey([u8; 32]);

/// What is no public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a public key is 64 lower-case hexadecimal digits")]
pub struct PublicKeyError;

impl PublicKey {
    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The name of whoever has it.
    #[must_use]
    pub fn id(&self) -> PrincipalId {
        PrincipalId::of_key(&self.0)
    }

    pub(crate) fn key(&self) -> Option<AsymmetricPublicKey<V4>> {
        AsymmetricPublicKey::from(&self.0).ok()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text_of(&self.0))
    }
}

impl FromStr for PublicKey {
    type Err = PublicKeyError;

    fn from_str(text: &str) -> Result<Self, PublicKeyError> {
        bytes_of(text).and_then(|bytes| Self::of_bytes(&bytes)).ok_or(PublicKeyError)
    }
}

fn text_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    if rest.is_empty() { bytes.collect() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_was_written_and_by_its_owner_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        let pair = KeyPair::read_or_make(&path).expect("made");
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(KeyPair::read_or_make(&path).expect("read").public(), pair.public());
        assert!(matches!(pair.write_new(&path), Err(KeyError::File { .. })), "it is there");
        assert!(!format!("{pair:?}").contains(&text_of(&pair.secret.as_bytes()[..4])));
        fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).expect("ours");
        let error = KeyPair::read(&path).expect_err("others can read it").to_string();
        assert!(error.contains("chmod 600"), "{error}");
        assert_eq!(pair.public().to_string().parse().as_ref(), Ok(pair.public()));
    }

    #[test]
    fn a_key_that_is_shown_as_a_token_is_that_key() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        let pair = KeyPair::generate().expect("made");
        pair.write_new_token(&path).expect("written");
        let shown = fs::read_to_string(&path).expect("there");
        assert!(shown.trim_end().bytes().all(|byte| byte.is_ascii_graphic()), "a header bears it");
        let read = KeyPair::of_token(shown.trim_end()).expect("a key");
        assert_eq!(read.public(), pair.public());
        for bad in ["", TOKEN_HEAD, &shown.trim_end()[1..], "gleaner-token-1.00"] {
            assert!(KeyPair::of_token(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn what_is_no_key_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        let key = text_of(KeyPair::generate().expect("made").secret.as_bytes());
        let mut other = key.clone();
        other.replace_range(..2, if key.starts_with("00") { "01" } else { "00" });
        for text in ["", HEAD, &key, &format!("{HEAD}{}", &key[2..]), &format!("{HEAD}{other}")] {
            fs::write(&path, text).expect("written");
            fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("ours");
            assert!(matches!(KeyPair::read(&path), Err(KeyError::Form { .. })), "{text:?}");
        }
        for bad in ["", "0", "0g", &"é".repeat(32)] {
            assert_eq!(bad.parse::<PublicKey>(), Err(PublicKeyError), "{bad:?}");
        }
    }
}
