//! Flipped bits and missing pieces in the files of a data folder: the broker notices, or nothing
//! that it acknowledged was touched.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::JoinSet;

use crate::content::{Content, Found, draw_bit};
use crate::draw::Draw;

const FLIPS: usize = 120;

/// Brokers that are looked at at once.
const AT_ONCE: usize = 2;

/// Something that happens to one file.
#[derive(Debug, Clone)]
enum Harm {
    Flip { bit: usize },
    Cut { bytes: usize },
    Remove,
}

#[derive(Debug, Default)]
struct Tally {
    refused: usize,
    intact: usize,
    withheld: usize,
}

#[test]
fn a_flipped_bit_is_noticed_or_harmless() {
    run(|content| {
        let mut draw = Draw::new(7, 7);
        let files = content.files();
        let store = PathBuf::from("sled/db");
        (0..FLIPS)
            .map(|number| {
                let which = draw.from(0..files.len() as u64) as usize;
                let file = if number % 2 == 0 { store.clone() } else { files[which].clone() };
                let bit = draw_bit(&mut draw, &content.bytes(&file));
                (file, Harm::Flip { bit })
            })
            .collect()
    });
}

#[test]
fn a_file_that_is_cut_off_or_gone_is_noticed_or_harmless() {
    run(|content| {
        let mut draw = Draw::new(8, 8);
        let mut harms = Vec::new();
        for file in content.files() {
            let length = content.bytes(&file).len();
            let within = (0..3).map(|_| draw.from(0..length as u64) as usize);
            let cuts = within.chain([0, length / 2, length - 1]);
            harms.extend(cuts.map(|bytes| (file.clone(), Harm::Cut { bytes })));
            harms.push((file, Harm::Remove));
        }
        harms
    });
}

fn run(harms: impl FnOnce(&Content) -> Vec<(PathBuf, Harm)>) {
    // One after the other: each keeps all cores busy, and work of others grows while it waits for one.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let content = Arc::new(Content::make(5).await);
        let mut looks = JoinSet::new();
        let mut tally = Tally::default();
        for (file, harm) in harms(&content) {
            if looks.len() == AT_ONCE {
                tally.add(looks.join_next().await.expect("some").expect("no fault"));
            }
            looks.spawn(look(Arc::clone(&content), file, harm));
        }
        while let Some(found) = looks.join_next().await {
            tally.add(found.expect("no fault"));
        }
        println!("{tally:?}");
        assert!(tally.refused > 0 && tally.intact > 0, "{tally:?}");
    });
}

/// Harms a copy and starts a broker on it; another one where the first found something, which it
/// must not have hidden from the second. That one may find all of it: the engine mends its files as it
/// opens them, and what is whole is whole by the ledger.
async fn look(content: Arc<Content>, file: PathBuf, harm: Harm) -> Found {
    let copy = content.copy();
    let path = copy.data.join(&file);
    let mut bytes = content.bytes(&file);
    let what = format!("{harm:?} of {} bytes in {}", bytes.len(), file.display());
    match harm {
        Harm::Flip { bit } => {
            bytes[bit / 8] ^= 1 << (bit % 8);
            fs::write(path, bytes).expect("written");
        }
        Harm::Cut { bytes: length } => fs::write(path, &bytes[..length]).expect("written"),
        Harm::Remove => fs::remove_file(path).expect("removed"),
    }
    let first = copy.look(&content.ledger, &what).await;
    match &first {
        Found::Refused(error) => assert!(error.contains("is damaged"), "{what}: {error}"),
        Found::Withheld(code) => assert_eq!(code, "damaged", "{what}"),
        Found::Intact => {}
    }
    if !matches!(first, Found::Intact) {
        let second = copy.look(&content.ledger, &format!("{what}, the second time")).await;
        let is_hidden = matches!((&first, &second), (Found::Refused(_), Found::Withheld(_)));
        assert!(!is_hidden, "{what}: {first:?}, then {second:?}");
    }
    if std::env::var_os("GLEANER_TEST_VERBOSE").is_some() {
        println!("{what}: {first:?}");
    }
    first
}

impl Tally {
    fn add(&mut self, found: Found) {
        match found {
            Found::Refused(_) => self.refused += 1,
            Found::Intact => self.intact += 1,
            Found::Withheld(_) => self.withheld += 1,
        }
    }
}
