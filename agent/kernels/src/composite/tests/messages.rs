//! Messages as a link carries them, and those that nobody should have sent.

use super::*;
use crate::composite::Piece;
use crate::image::Rgba;

const FULL_HD: [usize; 2] = [1920, 1080];

/// A picture without a clear pixel; nothing shines through one of `opacity` 1.
fn full(size: [usize; 2], opacity: f32, dice: &mut Dice) -> Image {
    let mut image = Image::transparent(size[0], size[1]);
    for pixel in image.pixels_mut() {
        let colour = [0, 1, 2].map(|_| opacity * dice.share());
        *pixel = [colour[0], colour[1], colour[2], opacity];
    }
    image
}

/// A piece of anything, as whoever sends it may make it up.
fn piece(columns: [u32; 2], rows: [u32; 2], colours: &[Rgba]) -> Piece {
    let bytes = postcard::to_stdvec(&(columns, rows, colours)).expect("a piece");
    postcard::from_bytes(&bytes).expect("a piece")
}

#[test]
fn a_large_picture_goes_in_messages_that_a_link_carries() {
    let mut dice = Dice(11);
    let images = [0.5, 0.25, 1.0, 0.5].map(|opacity| full(FULL_HD, opacity, &mut dice)).to_vec();
    for (method, parts) in [
        (Method::DirectSend, 2),
        (Method::BinarySwap, 2),
        (Method::BinarySwap, 4),
        (Method::TwoThreeSwap, 3),
    ] {
        let images = &images[..parts];
        let schedule = Arc::new(Schedule::new(method, parts, FULL_HD, 1).expect("a schedule"));
        let (_, messages) = Participant::begin(schedule.clone(), 0, &images[0]).expect("a part");
        let sizes =
            messages.iter().map(|message| postcard::to_stdvec(message).expect("a message").len());
        let longest = sizes.max().expect("it sends some");
        assert!((Message::BYTES_MAX / 2..=Message::BYTES_MAX).contains(&longest), "{longest}");
        // This looks at the length of each, and brings them in any order, some twice.
        let (found, sent) = put_together(&schedule, images, &mut dice);
        assert_eq!(found.difference(&single_pass(images)), Some(0.0), "{method:?} of {parts}");
        assert!(sent >= FULL_HD[0] * FULL_HD[1] * (parts - 1) / parts, "{sent}");
    }
}

#[test]
fn a_message_is_within_its_limit_with_the_largest_numbers_too() {
    let pixels = crate::limits::PART_MESSAGE_PIXELS_MAX;
    let message = Message {
        round: usize::MAX,
        from: usize::MAX,
        to: usize::MAX,
        index: usize::MAX,
        piece: piece([u32::MAX; 2], [u32::MAX; 2], &vec![[1.0; 4]; pixels]),
    };
    let bytes = postcard::to_stdvec(&message).expect("a message").len();
    assert!(bytes <= Message::BYTES_MAX && bytes + 90 > Message::BYTES_MAX, "{bytes}");
}

#[test]
fn no_message_brings_other_pixels_than_those_that_it_stands_for() {
    let mut dice = Dice(13);
    let size = [300, 500];
    let images = [full(size, 0.5, &mut dice), full(size, 0.5, &mut dice)];
    let schedule = Arc::new(Schedule::new(Method::BinarySwap, 2, size, 0).expect("a schedule"));
    let begin =
        |part: usize| Participant::begin(schedule.clone(), part, &images[part]).expect("a part");
    let ((mut first, _), (mut second, messages)) = (begin(0), begin(1));
    assert!(messages.len() > 3, "{} messages", messages.len());
    let grey = |count| vec![[0.5; 4]; count];
    let mut refused = |message: Message| first.handle(message).expect_err("it is not waited for");
    let [one, two] = [&messages[0], &messages[1]];
    let source = |told: CompositeError| match told {
        CompositeError::Piece { source, .. } => source,
        told => panic!("{told}"),
    };
    // The pixels of another message, which would be there twice.
    for (message, other) in [(one, two), (two, one)] {
        let wrong = Message { piece: other.piece.clone(), ..message.clone() };
        let told = source(refused(wrong));
        assert!(matches!(told, PieceError::Count { .. } | PieceError::Box), "{told}");
    }
    // One too many or too few, and all that go from there.
    let run = one.piece.len();
    let rows = u32::try_from(run / 300).expect("a few");
    for count in [run + 1, run - 1, 0, size[0] * size[1] / 2] {
        let wrong = piece([0, 300], [0, rows], &grey(count));
        let told = source(refused(Message { piece: wrong, ..one.clone() }));
        assert_eq!(told, PieceError::Count { expected: run, found: count });
    }
    for (columns, rows) in [
        ([0, 301], [0, 1]),
        ([0, u32::MAX], [0, u32::MAX]),
        ([0, 300], [0, rows + 1]),
        ([9, 3], [0, 1]),
        ([0, 300], [7, 2]),
    ] {
        let told = source(refused(Message { piece: piece(columns, rows, &[]), ..one.clone() }));
        assert_eq!(told, PieceError::Box, "{columns:?} {rows:?}");
    }
    // One more message than there are.
    let beyond = Message { index: messages.len(), ..one.clone() };
    assert!(matches!(refused(beyond), CompositeError::Unexpected { index, .. }
        if index == messages.len()));

    // Of one that comes again with something else, the first counts, and all are waited for.
    let again = Message { piece: piece([0, 300], [0, rows], &grey(run)), ..one.clone() };
    let last = messages.len() - 1;
    let mut to_second = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        assert!(!first.is_done());
        to_second.extend(first.handle(message.clone()).expect("it is waited for"));
        if at != last {
            assert_eq!(first.handle(again.clone()), Ok(Vec::new()), "the round goes on");
        }
    }
    assert!(to_second.is_empty(), "the root keeps its own");
    let (_, from_first) = begin(0);
    let sent = from_first.into_iter().flat_map(|message| second.handle(message).expect("waited"));
    let gathered: Vec<Message> = sent.collect();
    // One that comes when its round is over changes nothing.
    assert_eq!(first.handle(again), Ok(Vec::new()));
    for message in gathered {
        first.handle(message).expect("it is waited for");
    }
    let picture = first.picture().expect("it is done");
    assert_eq!(picture.difference(&single_pass(&images)), Some(0.0));
}
