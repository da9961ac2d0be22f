use super::*;

/// Positions and published counts from `perftsuite.epd` of vinc/littlewing (MIT).
const PUBLISHED: [(&str, &[u64]); 9] = [
    ("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1", &[20, 400, 8_902, 197_281]),
    // Castling, en passant and promotions together.
    ("r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1", &[48, 2_039, 97_862]),
    ("r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1", &[26, 568, 13_744, 314_346]),
    ("4k3/8/8/8/8/8/8/4K2R w K - 0 1", &[15, 66, 1_197, 7_059, 133_987]),
    ("4k2r/8/8/8/8/8/8/4K3 w k - 0 1", &[5, 75, 459, 8_290, 47_635]),
    ("3k4/3pp3/8/8/8/8/3PP3/3K4 b - - 0 1", &[7, 49, 378, 2_902, 24_122]),
    ("8/Pk6/8/8/8/8/6Kp/8 w - - 0 1", &[11, 97, 887, 8_048, 90_606]),
    ("n1n5/1Pk5/8/8/8/8/5Kp1/5N1N w - - 0 1", &[24, 421, 7_421, 124_608]),
    ("n1n5/PPPk4/8/8/8/8/4Kppp/5N1N b - - 0 1", &[24, 496, 9_483, 182_838]),
];

fn count(item: &str) -> u64 {
    item.parse::<GameTreeItem>().expect(item).count(&mut |_| {})
}

#[test]
fn counts_are_the_published_ones() {
    for (fen, counts) in PUBLISHED {
        for (depth, &expected) in (1..).zip(counts) {
            assert_eq!(count(&format!("{fen};depth={depth}")), expected, "{fen} at {depth}");
        }
        assert_eq!(count(&format!("{fen};depth=0")), 1);
    }
}

#[test]
fn the_items_of_a_split_add_up() {
    for (fen, counts) in PUBLISHED {
        for plies in 0..=2 {
            let items = split(fen, 3, plies).expect("a position");
            let sum: u64 = items.iter().map(|item| count(item)).sum();
            assert_eq!(sum, counts[2], "{fen} over {plies} plies");
        }
        assert_eq!(split(fen, 3, 1).expect("a position").len() as u64, counts[0]);
        assert_eq!(split(fen, 3, 2).expect("a position").len() as u64, counts[1]);
        assert_eq!(split(fen, 1, 2).expect("a position").len(), 1, "less deep than the split");
    }
}

#[test]
fn paths_that_end_early_have_no_item_and_no_leaves() {
    let mated = "rnb1kbnr/pppp1ppp/8/4p3/6Pq/5P2/PPPPP2P/RNBQKBNR w KQkq - 1 3";
    assert_eq!(split(mated, 4, 1), Ok(Vec::new()));
    assert_eq!(count(&format!("{mated};depth=4")), 0);
}

#[test]
fn castling_is_written_as_uci_does_and_read_in_either_form() {
    let fen = "r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1";
    let items = split(fen, 2, 1).expect("a position");
    for (castling, own_form) in [("e1g1", "e1h1"), ("e1c1", "e1a1")] {
        assert!(items.contains(&format!("{fen};depth=2;move={castling}")), "{items:?}");
        let as_uci = count(&format!("{fen};depth=2;move={castling}"));
        assert_eq!(as_uci, count(&format!("{fen};depth=2;move={own_form}")));
    }
}

#[test]
fn items_read_back_as_they_are_written() {
    for (fen, _) in PUBLISHED {
        for item in split(fen, 3, 2).expect("a position") {
            assert_eq!(item.parse::<GameTreeItem>().expect(&item).to_string(), item);
        }
    }
}

#[test]
fn bad_items_say_what_is_wrong() {
    let start = PUBLISHED[0].0;
    for (item, says) in [
        (String::new(), "0 of its 6 fields"),
        ("hello".into(), "1 of its 6 fields"),
        ("8/8/8 w - - 0 1;depth=1".into(), "3 ranks"),
        ("8/8/8/8/8/8/8/8 w - - 0 1;depth=1".into(), "board is invalid"),
        (format!("{};depth=1", start.replace("KQkq", "KQxx")), "castling rights"),
        (format!("{};depth=1", start.replace(" w ", " x ")), "side to move"),
        (format!("{};depth=1", start.replace("rnbq", "rnbz")), "board is invalid"),
        (start.to_owned(), "no depth"),
        (format!("{start};depth=13"), "from 0 to 12"),
        (format!("{start};depth=-1"), "from 0 to 12"),
        (format!("{start};depth=2;move=e2e5"), "no legal move"),
        (format!("{start};depth=2;move=e2e4x"), "no legal move"),
        (format!("{start};depth=1;move=e2e4 e7e5"), "more moves than its depth"),
        (format!("{start};depth=1;deep=2"), "unknown field"),
        (format!("{start};depth=1;depth=2"), "comes twice"),
    ] {
        let error = check(&item).expect_err(&item).to_string();
        assert!(error.contains(says), "{item:?}: {error}");
    }
}

#[test]
fn progress_rises_to_the_end() {
    let item = GameTreeItem::new(PUBLISHED[0].0, 3).expect("a position");
    let mut told = Vec::new();
    assert_eq!(item.count(&mut |permille| told.push(permille)), 8_902);
    assert_eq!((told.len(), told.last()), (20, Some(&1000)));
    assert!(told.is_sorted());
}

proptest::proptest! {
    #[test]
    fn any_text_is_checked_without_panic(
        text in "[rnbqkpRNBQKP1-9/]{0,40} [wbx] [KQkqA-Ha-h-]{0,4} [a-h1-9-]{0,2} [0-9]{0,4} [0-9]{0,6}(;depth=[0-9]{0,2})?(;move=[a-h1-8 qé]{0,9})?",
        noise in ".{0,60}",
    ) {
        let _ = check(&text);
        let _ = check(&noise);
    }
}
