//! That a store was found to be damaged, which holds until a person has seen to it.
//!
//! The engine changes its files as it opens them, damaged ones too: what it refuses once it may
//! take the next time, and nobody could say what is missing. So the first finding is written down
//! beside the store, and stands for all later ones.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::error::StoreError;

/// Refuses a store that was found to be damaged before.
pub(crate) fn stands(folder: &Path) -> Result<(), StoreError> {
    let place = place(folder);
    match fs::read_to_string(&place) {
        Ok(what) => {
            let kept = Some(folder.join("sled.kept")).filter(|kept| kept.exists());
            let what = format!(
                "{}, as was found before (who knows better removes {})",
                what.trim_end(),
                place.display()
            );
            Err(StoreError::Damaged { folder: folder.to_owned(), what, kept })
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(StoreError::file("read", &place)(error)),
    }
}

/// Writes down what was found, if that is damage.
pub(crate) fn note(folder: &Path, error: StoreError) -> StoreError {
    if let StoreError::Damaged { what, .. } = &error
        && let Err(trouble) = fs::write(place(folder), format!("{what}\n"))
    {
        tracing::warn!("it is not written down that the store is damaged: {trouble}");
    }
    error
}

fn place(folder: &Path) -> PathBuf {
    folder.join("sled.damaged")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_found_once_and_for_all_until_somebody_knows_better() {
        let base = tempfile::tempdir().expect("a folder");
        let folder = base.path();
        stands(folder).expect("nothing was found");
        let full = StoreError::Full { folder: folder.to_owned(), free_bytes: 1, needed_bytes: 2 };
        note(folder, full);
        stands(folder).expect("that is no damage");
        let what = "record 7 is cut off".to_owned();
        note(folder, StoreError::Damaged { folder: folder.to_owned(), what, kept: None });
        let said = stands(folder).expect_err("it was found").to_string();
        assert!(said.contains("damaged: record 7 is cut off, as was found before"), "{said}");
        fs::remove_file(place(folder)).expect("there");
        stands(folder).expect("somebody knows better");
    }
}
