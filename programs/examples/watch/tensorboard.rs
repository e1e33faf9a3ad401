//! Writes TensorBoard files.
//!
//! Other crates depend on an old `protobuf` with a known defect and an image library (`tensorboard-rs`), or need
//! `protoc` (`tboard`). Scalars need two small messages, which this file encodes.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use gradchain::watch::Readings;

pub(crate) struct TensorBoard {
    to: File,
}

impl TensorBoard {
    /// Creates a file in a folder; each run should have its own.
    pub(crate) fn create(folder: impl AsRef<Path>) -> io::Result<TensorBoard> {
        let folder = folder.as_ref();
        fs::create_dir_all(folder)?;
        let name = format!("events.out.tfevents.{}.gradchain", now().as_secs());
        let mut board = TensorBoard { to: File::create(folder.join(name))? };
        let mut event = Message::default();
        event.double(1, now().as_secs_f64());
        event.bytes(3, b"brain.Event:2");
        board.record(&event.0)?;
        Ok(board)
    }

    /// Writes a step's numbers as `f32`, the format's only type. Levels of paths become folders.
    pub(crate) fn write(&mut self, step: u64, readings: &Readings) -> io::Result<()> {
        let mut summary = Message::default();
        for reading in readings {
            let mut value = Message::default();
            value.bytes(1, reading.to_string().replace('.', "/").as_bytes());
            value.float(2, reading.value() as f32);
            summary.bytes(1, &value.0);
        }
        let mut event = Message::default();
        event.double(1, now().as_secs_f64());
        event.integer(2, step);
        event.bytes(5, &summary.0);
        self.record(&event.0)
    }

    /// Writes length and bytes, each with a check sum.
    fn record(&mut self, bytes: &[u8]) -> io::Result<()> {
        let length = (bytes.len() as u64).to_le_bytes();
        let mut record = Vec::with_capacity(bytes.len() + 16);
        for part in [&length[..], bytes] {
            record.extend(part);
            record.extend(check_sum(part).to_le_bytes());
        }
        self.to.write_all(&record)
    }
}

fn now() -> std::time::Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns the masked CRC-32C: rotated, plus a constant, so that data which contains check sums is no special case.
fn check_sum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn integer(&mut self, field: u64, number: u64) {
        self.varint(field << 3);
        self.varint(number);
    }

    fn double(&mut self, field: u64, number: f64) {
        self.varint(field << 3 | 1);
        self.0.extend(number.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn float(&mut self, field: u64, number: f32) {
        self.varint(field << 3 | 5);
        self.0.extend(number.to_le_bytes());
    }
}
