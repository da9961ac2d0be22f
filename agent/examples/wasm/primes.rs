//! Counts the primes of one range, and saves what it has counted now and then: the same as
//! `primes.c`.
//!
//! ```sh
//! rustc --edition 2021 --target wasm32-wasip1 -O -C strip=symbols primes.rs    # or wasm32-wasi
//! gleaner submit wasm primes.wasm --count 100 -- {index} 1000000
//! ```

use std::process::exit;

// What a module finds beside WASI; `gleaner.h` describes each.
#[link(wasm_import_module = "gleaner")]
extern "C" {
    fn checkpoint_save(bytes: *const u8, length: usize) -> u32;
    fn checkpoint_size() -> i32;
    fn checkpoint_load(bytes: *mut u8, length: usize) -> u32;
    fn progress(permille: u32);
}

/// Next number and count.
const STATE_BYTES: usize = 16;

fn saved() -> Option<(u64, u64)> {
    let mut bytes = [0; STATE_BYTES];
    // SAFETY: the pointer is to as many bytes as the call is told.
    let found = unsafe {
        checkpoint_size() == STATE_BYTES as i32
            && checkpoint_load(bytes.as_mut_ptr(), STATE_BYTES) == 0
    };
    let (next, count) = bytes.split_at(8);
    let number = |part: &[u8]| u64::from_le_bytes(part.try_into().expect("eight bytes"));
    found.then(|| (number(next), number(count)))
}

fn save(next: u64, count: u64) {
    let bytes: Vec<u8> = [next.to_le_bytes(), count.to_le_bytes()].concat();
    // SAFETY: the pointer is to as many bytes as the call is told.
    unsafe { checkpoint_save(bytes.as_ptr(), bytes.len()) };
}

fn is_prime(number: u64) -> bool {
    let divisors = (2..).take_while(|divisor| divisor * divisor <= number);
    number >= 2 && divisors.into_iter().all(|divisor| number % divisor != 0)
}

fn main() {
    let numbers: Option<Vec<u64>> =
        std::env::args().skip(1).map(|argument| argument.parse().ok()).collect();
    let (range, length) = match numbers.as_deref() {
        Some([range, length]) => (range, length),
        _ => {
            eprintln!("usage: primes RANGE LENGTH");
            exit(2);
        }
    };
    let from = range * length;
    let (mut next, mut count) = saved().unwrap_or((from, 0));
    while next < from + length {
        if next % 4096 == 0 {
            save(next, count);
            // SAFETY: it takes a number alone.
            unsafe { progress(((next - from) * 1000 / length) as u32) };
        }
        count += u64::from(is_prime(next));
        next += 1;
    }
    println!("{count}");
}
