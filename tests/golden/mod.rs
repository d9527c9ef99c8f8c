//! Bytes as the golden vectors write them.
#![allow(dead_code, reason = "each test file uses a part")]

use weft::frame::{Frame, Pool};

/// What the chunk of a new frame holds.
const STALE: u8 = 0xee;

/// The bytes of hexadecimal text; white space only groups them.
pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16).expect("a hex digit") as u8).collect();
    assert!(digits.len().is_multiple_of(2), "half a byte in {text:?}");
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// `bytes` as text, four a word and sixteen a line with their offset, so that a failed comparison shows
/// where they differ.
pub fn dump(bytes: &[u8]) -> String {
    let line = |(i, line): (usize, &[u8])| {
        let words: Vec<String> = line.chunks(4).map(|word| word.iter().map(|b| format!("{b:02x}")).collect()).collect();
        format!("{:4}: {}", i * 16, words.join(" "))
    };
    bytes.chunks(16).enumerate().map(line).collect::<Vec<_>>().join("\n")
}

/// What `make` writes into a frame of `capacity` bytes that held other bytes before; `None` if it
/// declines, having checked that the frame is as it was.
pub fn written(capacity: usize, make: impl FnOnce(&mut Frame) -> bool) -> Option<Vec<u8>> {
    let mut pool = Pool::heap(1, capacity);
    let mut out = pool.alloc().expect("a free frame");
    out.set_len(capacity);
    out.iter_mut().for_each(|byte| *byte = STALE);
    out.set_len(40);
    let made = make(&mut out);
    let bytes = out.to_vec();
    if !made {
        assert_eq!(bytes, [STALE; 40], "declined, but the frame has changed");
    }
    pool.free(out);
    made.then_some(bytes)
}
