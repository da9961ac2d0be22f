mod bricks;
mod messages;

use std::sync::Arc;

use super::{CompositeError, Message, Method, Participant, PieceError, Schedule};
use crate::image::{Image, under};

/// Numbers that look random.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }

    fn share(&mut self) -> f32 {
        self.roll(1000) as f32 / 1000.0
    }
}

/// A picture with something in a box, clear around it; sometimes all clear.
fn picture(width: usize, height: usize, dice: &mut Dice) -> Image {
    let mut image = Image::transparent(width, height);
    let (left, right) = (dice.roll(width), dice.roll(width + 1));
    let (top, bottom) = (dice.roll(height), dice.roll(height + 1));
    for y in top..bottom {
        for x in left..right {
            let opacity = dice.share();
            let colour = [0, 1, 2].map(|_| opacity * dice.share());
            image.pixels_mut()[y * width + x] = [colour[0], colour[1], colour[2], opacity];
        }
    }
    image
}

fn single_pass(images: &[Image]) -> Image {
    let mut together = Image::transparent(images[0].width(), images[0].height());
    for image in images {
        let pairs = together.pixels_mut().iter_mut().zip(image.pixels());
        pairs.for_each(|(front, back)| under(front, back));
    }
    together
}

/// Carries messages, each as short as it has to be, in any order, some twice, until there are none.
/// Returns the picture and the pixels that were sent.
fn put_together(schedule: &Arc<Schedule>, images: &[Image], dice: &mut Dice) -> (Image, usize) {
    let mut under_way = Vec::new();
    let mut participants = Vec::new();
    for (part, image) in images.iter().enumerate() {
        let (participant, messages) =
            Participant::begin(schedule.clone(), part, image).expect("a part");
        participants.push(participant);
        under_way.extend(messages);
    }
    let mut sent = 0;
    while !under_way.is_empty() {
        let message: Message = under_way.swap_remove(dice.roll(under_way.len()));
        sent += message.piece.len();
        let bytes = postcard::to_stdvec(&message).expect("a message");
        assert!(bytes.len() <= Message::BYTES_MAX, "{} bytes", bytes.len());
        let message: Message = postcard::from_bytes(&bytes).expect("a message");
        if dice.roll(4) == 0 {
            let again = participants[message.to].handle(message.clone()).expect("expected");
            under_way.extend(again);
        }
        under_way.extend(participants[message.to].handle(message).expect("expected"));
    }
    assert!(participants.iter().all(Participant::is_done));
    let pictures: Vec<Image> = participants.iter().filter_map(Participant::picture).collect();
    let [picture] = &pictures[..] else { panic!("{} pictures", pictures.len()) };
    (picture.clone(), sent)
}

#[test]
fn all_methods_give_the_picture_of_a_single_pass() {
    let mut dice = Dice(7);
    for parts in (1_usize..=20).chain([27, 31, 32, 33]) {
        for (width, height) in [(16, 9), (3, 2), (37, 1)] {
            let images: Vec<Image> =
                (0..parts).map(|_| picture(width, height, &mut dice)).collect();
            let expected = single_pass(&images);
            for method in [Method::DirectSend, Method::BinarySwap, Method::TwoThreeSwap] {
                if method == Method::BinarySwap && !parts.is_power_of_two() {
                    continue;
                }
                let root = dice.roll(parts);
                let schedule = Schedule::new(method, parts, [width, height], root);
                let schedule = Arc::new(schedule.expect("a schedule"));
                let (found, _) = put_together(&schedule, &images, &mut dice);
                let difference = found.difference(&expected).expect("one size");
                assert!(difference < 1e-5, "{method:?} of {parts}: {difference}");
            }
        }
    }
}

#[test]
fn what_is_clear_is_not_sent() {
    let mut dice = Dice(3);
    let images: Vec<Image> = (0..8)
        .map(|part| {
            let mut image = Image::transparent(64, 64);
            for y in 10..20 {
                for x in 5 * part..5 * part + 5 {
                    image.pixels_mut()[64 * y + x] = [0.1, 0.1, 0.1, 0.5];
                }
            }
            image
        })
        .collect();
    let schedule = Arc::new(Schedule::new(Method::TwoThreeSwap, 8, [64; 2], 0).expect("one"));
    let (found, sent) = put_together(&schedule, &images, &mut dice);
    assert_eq!(found.difference(&single_pass(&images)), Some(0.0));
    // Each part has 50 pixels, is in three rounds and a gathering; without boxes it is 32,000.
    assert!(sent <= 4 * 8 * 50, "{sent}");
}

#[test]
fn a_message_that_is_not_what_the_schedule_says_changes_nothing() {
    let image = picture(8, 8, &mut Dice(5));
    let schedule = Arc::new(Schedule::new(Method::BinarySwap, 2, [8; 2], 0).expect("a schedule"));
    let begin = |part| Participant::begin(schedule.clone(), part, &image).expect("a part");
    let ((mut first, _), (_, messages)) = (begin(0), begin(1));
    let [message] = &messages[..] else { panic!("one half") };
    let wrong = [(5, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 0), (0, 7, 0, 0), (0, 1, 0, 1)];
    for (round, from, to, index) in wrong {
        let wrong = Message { round, from, to, index, ..message.clone() };
        let expected = CompositeError::Unexpected { to, from, round, index };
        assert_eq!(first.handle(wrong), Err(expected));
    }
    let bytes = postcard::to_stdvec(&message.piece).expect("a piece");
    for (at, byte) in [(1, 200), (3, 200)] {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        // Shorter or longer numbers shift all after them, which need not be a piece any more.
        if let Ok(piece) = postcard::from_bytes(&bytes) {
            let told = first.handle(Message { piece, ..message.clone() });
            assert!(matches!(told, Err(CompositeError::Piece { .. })), "{told:?}");
        }
    }
    for none in [f32::NAN, f32::INFINITY, 1.5, -0.5, 1e30] {
        let mut image = Image::transparent(8, 8);
        image.pixels_mut().fill([0.5, 0.5, none, 0.5]);
        let (_, messages) = Participant::begin(schedule.clone(), 1, &image).expect("a part");
        let told = first.handle(messages[0].clone());
        let source = PieceError::Colour;
        assert_eq!(told, Err(CompositeError::Piece { from: 1, round: 0, index: 0, source }));
    }
    assert!(!first.is_done());
    assert!(first.handle(message.clone()).is_ok());
    // As many pixels in rows of another length are another picture.
    for found in [[4, 4], [16, 4]] {
        let image = Image::transparent(found[0], found[1]);
        let told = Participant::begin(schedule.clone(), 0, &image).err();
        assert_eq!(told, Some(CompositeError::Size { part: 0, found, expected: [8, 8] }));
    }
    let third = Participant::begin(schedule.clone(), 2, &image).err();
    assert_eq!(third, Some(CompositeError::Part { part: 2, parts: 2 }));
}
