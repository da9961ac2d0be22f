//! Stories of comparers, which are started out of this very executable, so its `main` is its own:
//! what a file does to one, and that whoever asked lives on and knows.
//! `cargo test -p gleaner-comparison --test comparers [PART OF A NAME]` runs some.

use std::convert::Infallible;
use std::io::{Cursor, Write};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;
use std::{fs, io, panic, thread};

use bytes::Bytes;
use exr::prelude::{SpecificChannels, WritableImage};
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::{FutureExt, stream};
use gleaner_comparison::{
    COMPARED_BYTES_MAX, COMPARISONS_AT_ONCE_MAX, Comparer, Kind, run_as_comparer_if_asked,
};

/// Looks at a comparer, a millisecond apart, until it has to be ready.
const LOOKS_MAX: u32 = 60_000;

/// A story and its name.
type Story = (&'static str, fn());

const STORIES: [Story; 7] = [
    ("files_that_are_near_are_alike", files_that_are_near_are_alike),
    ("a_file_that_cannot_be_read_to_its_end_is_like_nothing", broken_off_or_too_large),
    ("a_picture_of_any_size_it_likes_to_have_is_like_nothing", pictures_of_any_size),
    ("a_file_that_unpacks_to_more_than_there_is_is_like_nothing", bombs),
    ("a_picture_that_is_damaged_anywhere_hurts_nobody", damaged_anywhere),
    ("places_are_few_and_come_back", places_are_few_and_come_back),
    ("a_comparer_is_bounded_before_it_reads", a_comparer_is_bounded_before_it_reads),
];

fn main() -> ExitCode {
    run_as_comparer_if_asked();
    let filters: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let is_wanted = |name: &str| filters.is_empty() || filters.iter().any(|f| name.contains(f));
    let mut failed = 0;
    for (name, story) in STORIES.into_iter().filter(|(name, _)| is_wanted(name)) {
        let is_well = panic::catch_unwind(story).is_ok();
        println!("story {name} ... {}", if is_well { "ok" } else { "FAILED" });
        failed += usize::from(!is_well);
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

/// As a store gives it.
fn pieces(file: &[u8]) -> (u64, impl futures_util::Stream<Item = Result<Bytes, Infallible>>) {
    let pieces: Vec<_> = file.chunks(64 << 10).map(|p| Ok(Bytes::copy_from_slice(p))).collect();
    (file.len() as u64, stream::iter(pieces))
}

fn are_alike(name: &str, one: &[u8], other: &[u8]) -> bool {
    let kind = Kind::of(name).expect("a kind");
    wait(async {
        Comparer::default()
            .place()
            .await
            .are_alike(kind, pieces(one), pieces(other))
            .await
            .expect("a comparer runs")
    })
}

/// That a comparer finds a file like itself, and another one like nothing.
fn hurts_nobody(name: &str, good: &[u8], hostile: &[u8]) {
    assert!(!are_alike(name, good, hostile), "{name}");
    assert!(!are_alike(name, hostile, good), "{name}");
    assert!(are_alike(name, good, good), "{name}");
}

fn exr(red: f32) -> Vec<u8> {
    let pixels = SpecificChannels::rgba(|_: exr::math::Vec2<usize>| (red, 0.5, 0.25, 1.0));
    let mut file = Cursor::new(Vec::new());
    let picture = exr::image::Image::from_channels((16, 16), pixels);
    picture.write().non_parallel().to_buffered(&mut file).expect("memory");
    file.into_inner()
}

fn png(red: u8) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, 16, 16);
    encoder.set_color(png::ColorType::Rgba);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().expect("memory");
    writer.write_image_data(&[red, 0, 0, 255].repeat(256)).expect("memory");
    writer.finish().expect("memory");
    file
}

/// A volume in single precision.
fn volume(numbers: &[f32]) -> Vec<u8> {
    let mut file = vec![0; 352];
    file[..4].copy_from_slice(&348_i32.to_le_bytes());
    file[70..72].copy_from_slice(&16_i16.to_le_bytes());
    file[108..112].copy_from_slice(&352.0_f32.to_le_bytes());
    file.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    file
}

fn packed(file: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(file).expect("memory");
    encoder.finish().expect("memory")
}

fn files_that_are_near_are_alike() {
    let large = |score: &str| format!("score\n{}", format!("{score}\n").repeat(200_000));
    let cases = [
        ("a.csv", b"x\n1.0\n".to_vec(), b"x\n1.0000001\n".to_vec(), b"x\n1.1\n".to_vec()),
        ("b.csv", large("1.0").into(), large("1.0000001").into(), large("1.1").into()),
        ("a.png", png(10), png(11), png(12)),
        ("a.exr", exr(0.5), exr(0.501), exr(0.6)),
        ("a.nii", volume(&[1.0; 9]), volume(&[1.000_000_1; 9]), volume(&[1.1; 9])),
        (
            "a.nii.gz",
            packed(&volume(&[1.0; 9])),
            packed(&volume(&[1.000_000_1; 9])),
            packed(&volume(&[1.1; 9])),
        ),
    ];
    for (name, one, near, far) in cases {
        assert!(are_alike(name, &one, &near), "{name}");
        assert!(!are_alike(name, &one, &far), "{name}");
    }
}

fn broken_off_or_too_large() {
    let table = b"x\n1.0\n";
    let asked = |bytes, pieces: Vec<io::Result<Bytes>>| {
        wait(async {
            let other = (bytes, stream::iter(pieces));
            let one = (table.len() as u64, stream::iter([Ok(Bytes::from_static(table))]));
            Comparer::default().place().await.are_alike(Kind::Table, one, other).await
        })
        .expect("a comparer runs")
    };
    let whole = || vec![Ok(Bytes::from_static(table))];
    assert!(asked(6, whole()));
    assert!(!asked(7, whole()), "its end is missing");
    assert!(!asked(6, vec![Ok(Bytes::from_static(b"x\n")), Err(io::ErrorKind::Other.into())]));
    assert!(!asked(COMPARED_BYTES_MAX + 1, whole()), "longer than is compared");
}

fn pictures_of_any_size() {
    let good = exr(0.5);
    let place = |name: &str| {
        let at = good.windows(name.len()).position(|at| at == name.as_bytes());
        at.expect("it has one") + name.len()
    };
    // Behind name and kind stand the length, then the least and the largest corner.
    let corner = place("dataWindow\0box2i\0") + 4 + 8;
    for (width, height) in
        [(0x3fff_0000, 0x3fff_0000), (i32::MAX, 0), (0, i32::MAX), (0, 1 << 23), (-1, -1)]
    {
        let mut huge = good.clone();
        huge[corner..][..4].copy_from_slice(&i32::to_le_bytes(width));
        huge[corner + 4..][..4].copy_from_slice(&i32::to_le_bytes(height));
        hurts_nobody("a.exr", &good, &huge);
        // Of equal headers it is the pixels that are read.
        let mut other = huge.clone();
        *other.last_mut().expect("pixels") ^= 1;
        assert!(!are_alike("a.exr", &huge, &other), "{width} x {height}");
    }
    // An attribute of any length.
    let mut long = good.clone();
    long[place("channels\0chlist\0")..][..4].copy_from_slice(&i32::MAX.to_le_bytes());
    hurts_nobody("a.exr", &good, &long);
    let good = png(10);
    for side in [1_u32 << 14, 0x7fff_ffff, u32::MAX, 0] {
        let mut huge = good.clone();
        huge[16..20].copy_from_slice(&side.to_be_bytes());
        huge[20..24].copy_from_slice(&side.to_be_bytes());
        hurts_nobody("a.png", &good, &huge);
    }
    for (name, good) in [("a.png", png(10)), ("a.exr", exr(0.5)), ("a.nii", volume(&[1.0; 9]))] {
        hurts_nobody(name, &good, &good[..good.len() - 7]);
        hurts_nobody(name, &good, b"");
    }
}

fn bombs() {
    let good = packed(&volume(&[1.0; 9]));
    // More than is unpacked.
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let noughts = vec![0; 1 << 20];
    for _ in 0..256 {
        encoder.write_all(&noughts).expect("memory");
    }
    let bomb = encoder.finish().expect("memory");
    hurts_nobody("a.nii.gz", &good, &bomb);
    let mut other = bomb.clone();
    other.extend(packed(b"1"));
    assert!(!are_alike("a.nii.gz", &bomb, &other));
    hurts_nobody("a.nii.gz", &good, &good[..good.len() - 7]);
}

fn damaged_anywhere() {
    for (name, good, near) in [("a.exr", exr(0.5), exr(0.501)), ("a.png", png(10), png(11))] {
        for at in (0..good.len()).step_by(good.len() / 32) {
            let damaged = |file: &[u8]| {
                let mut damaged = file.to_vec();
                damaged[at] ^= 0xff;
                damaged
            };
            // Whatever they are, it is found out.
            are_alike(name, &damaged(&good), &damaged(&near));
        }
        assert!(are_alike(name, &good, &near), "{name}");
    }
}

fn places_are_few_and_come_back() {
    wait(async {
        let comparer = Comparer::default();
        let mut places = Vec::new();
        for _ in 0..COMPARISONS_AT_ONCE_MAX {
            places.push(comparer.place().await);
        }
        assert!(comparer.place().now_or_never().is_none(), "there are no more");
        let table = b"1";
        let place = places.pop().expect("there are some");
        assert!(place.are_alike(Kind::Table, pieces(table), pieces(table)).await.expect("it runs"));
        comparer.place().await;
    });
}

fn a_comparer_is_bounded_before_it_reads() {
    let mut comparer = Command::new("/proc/self/exe")
        .args(["__comparer", ".csv"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("a process");
    let id = comparer.id();
    let look = |file: &str| fs::read_to_string(format!("/proc/{id}/{file}")).expect("it waits");
    let is_bounded = || {
        thread::sleep(Duration::from_millis(1));
        look("comm") == "gleaner-compare\n"
    };
    if !(0..LOOKS_MAX).any(|_| is_bounded()) {
        let _ = comparer.kill();
        panic!("it never bounded itself: {}", look("limits"));
    }
    let (limits, status) = (look("limits"), look("status"));
    for (limit, most) in [
        ("Max address space", "1342177280"),
        ("Max cpu time", "20"),
        ("Max core file size", "0"),
        ("Max open files", "3"),
        ("Max processes", "0"),
        ("Max file size", "0"),
    ] {
        let line = limits.lines().find_map(|line| line.strip_prefix(limit));
        let found: Vec<&str> = line.expect("a limit").split_whitespace().take(2).collect();
        assert_eq!(found, [most, most], "{limit}");
    }
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    drop(comparer.stdin.take());
    let ended = comparer.wait().expect("it ends");
    assert_eq!(ended.code(), Some(72), "nothing is like nothing");
}
