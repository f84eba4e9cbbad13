//! TensorBoard event files.
//!
//! A file is a sequence of records (TFRecord), each one an `Event` message (Protocol Buffers):
//!
//! ```text
//! record     length: u64 · masked crc of the length: u32 · data · masked crc of the data: u32      little endian
//! masked crc = ((crc32c >> 15) | (crc32c << 17)) + 0xa282ead8
//!
//! Event          1 wall_time: double · 2 step: int64 · 3 file_version: string | 5 summary: Summary
//! Summary        1 value: repeated Value
//! Value          1 tag: string · 2 simple_value: float | 5 histo: HistogramProto
//! HistogramProto 1 min · 2 max · 3 num · 4 sum · 5 sum_squares · 6 bucket_limit: packed · 7 bucket: packed   doubles
//! ```
//!
//! Wall times, in seconds since 1970, come from the caller. Every time has the same number of bytes, so the records of a
//! resumed file have the same positions as those of the uninterrupted run, and differ only in the times.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::atomic;
use crate::log::{AppendLog, Position};
use crate::naming;

const PREFIX: &str = "events.out.tfevents.";
// Replaces the host name in TensorFlow's file names: it identifies our files and does not reveal the host.
const SUFFIX: &str = ".bqrl";

/// TensorBoard draws 30 buckets unless told otherwise.
const BUCKETS: usize = 30;

/// Writes one event file, buffered like the [`AppendLog`] below it.
#[derive(Debug)]
pub struct EventWriter {
    log: AppendLog,
}

impl EventWriter {
    /// Starts `events.out.tfevents.<seconds of wall_time>.bqrl` in `directory`.
    ///
    /// Our earlier event files there are removed: TensorBoard would draw both on top of each other.
    pub fn create(directory: &Path, wall_time: f64) -> io::Result<Self> {
        for old in event_files(directory)? {
            atomic::remove(&old)?;
        }
        let path = directory.join(format!("{PREFIX}{:010}{SUFFIX}", wall_time as u64));
        let mut writer = Self { log: AppendLog::create_empty(&path)? };
        writer.record(&Message::default().double(1, wall_time).bytes(3, b"brain.Event:2"))?;
        writer.flush()?;
        Ok(writer)
    }

    /// Continues the event file in `directory` at the position that a checkpoint recorded.
    pub fn resume(directory: &Path, position: Position) -> io::Result<Self> {
        let files = event_files(directory)?;
        match files.as_slice() {
            [path] => Ok(Self { log: AppendLog::resume(path, position)? }),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "resuming {}: want one file {PREFIX}*{SUFFIX}, found {}",
                    directory.display(),
                    files.len()
                ),
            )),
        }
    }

    /// Adds a point to the curve `tag`. TensorBoard keeps it as an `f32`.
    pub fn scalar(&mut self, wall_time: f64, step: u64, tag: &str, value: f64) -> io::Result<()> {
        self.summary(wall_time, step, &Message::default().bytes(1, tag.as_bytes()).float(2, value as f32))
    }

    /// Adds a histogram of `values` to `tag`: 30 buckets of equal width from the smallest to the largest.
    ///
    /// If there are no values, or one is not finite, nothing is written and the error names the tag and the step.
    pub fn histogram(&mut self, wall_time: f64, step: u64, tag: &str, values: &[f64]) -> io::Result<()> {
        let histogram = histogram(values).map_err(|reason| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("histogram {tag:?} at step {step}: {reason}"))
        })?;
        self.summary(wall_time, step, &Message::default().bytes(1, tag.as_bytes()).bytes(5, &histogram.0))
    }

    /// See [`AppendLog::flush`].
    pub fn flush(&mut self) -> io::Result<()> {
        self.log.flush()
    }

    /// See [`AppendLog::sync`].
    pub fn sync(&mut self) -> io::Result<()> {
        self.log.sync()
    }

    /// See [`AppendLog::position`].
    pub fn position(&self) -> Position {
        self.log.position()
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.log.path()
    }

    fn summary(&mut self, wall_time: f64, step: u64, value: &Message) -> io::Result<()> {
        let summary = Message::default().bytes(1, &value.0);
        self.record(&Message::default().double(1, wall_time).integer(2, step).bytes(5, &summary.0))
    }

    fn record(&mut self, event: &Message) -> io::Result<()> {
        let length = (event.0.len() as u64).to_le_bytes();
        let mut record = Vec::with_capacity(event.0.len() + 16);
        record.extend(length);
        record.extend(masked_crc(&length).to_le_bytes());
        record.extend(&event.0);
        record.extend(masked_crc(&event.0).to_le_bytes());
        self.log.append_bytes(&record)
    }
}

/// Our event files in a directory.
fn event_files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(naming("reading", directory))? {
        let path = entry.map_err(naming("reading", directory))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(PREFIX) && name.ends_with(SUFFIX) {
            files.push(path);
        }
    }
    Ok(files)
}

fn histogram(values: &[f64]) -> Result<Message, String> {
    if let Some(value) = values.iter().find(|value| !value.is_finite()) {
        return Err(format!("values must be finite, got {value}"));
    }
    if values.is_empty() {
        return Err("no values".to_string());
    }
    let min = values.iter().copied().fold(f64::INFINITY, f64::min);
    let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);

    // Bucket i holds limit[i−1] ≤ v < limit[i]; the last one holds the maximum as well.
    // If all values are equal, there is no width to divide.
    let n_buckets = if min < max { BUCKETS } else { 1 };
    // Divides before subtracting and uses a fused multiply-add, so that the limits of the widest range are finite.
    let width = max / n_buckets as f64 - min / n_buckets as f64;
    let mut limits: Vec<f64> = (1..n_buckets).map(|i| width.mul_add(i as f64, min)).collect();
    limits.push(max);
    let mut counts = vec![0.0; n_buckets];
    for value in values {
        counts[limits.partition_point(|limit| limit <= value).min(n_buckets - 1)] += 1.0;
    }

    Ok(Message::default()
        .double(1, min)
        .double(2, max)
        .double(3, values.len() as f64)
        .double(4, values.iter().sum())
        .double(5, values.iter().map(|value| value * value).sum())
        .doubles(6, &limits)
        .doubles(7, &counts))
}

fn masked_crc(bytes: &[u8]) -> u32 {
    // Masked because a crc over data that contains crcs is weak.
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// A Protocol Buffers message under construction.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn integer(self, field: u64, value: u64) -> Self {
        self.varint(field << 3).varint(value)
    }

    fn double(self, field: u64, value: f64) -> Self {
        self.varint(field << 3 | 1).raw(&value.to_le_bytes())
    }

    fn bytes(self, field: u64, value: &[u8]) -> Self {
        self.varint(field << 3 | 2).varint(value.len() as u64).raw(value)
    }

    fn doubles(self, field: u64, values: &[f64]) -> Self {
        let packed: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.bytes(field, &packed)
    }

    fn float(self, field: u64, value: f32) -> Self {
        self.varint(field << 3 | 5).raw(&value.to_le_bytes())
    }

    /// Seven bits a byte, the lowest first; the high bit says that more follow.
    fn varint(mut self, mut value: u64) -> Self {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
        self
    }

    fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Bit by bit from the definition (reflected polynomial 0x82f63b78), independent of the crate used above.
    fn crc32c_by_bits(bytes: &[u8]) -> u32 {
        let step = |crc: u32| if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
        !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
    }

    fn masked_by_bits(bytes: &[u8]) -> u32 {
        let crc = u64::from(crc32c_by_bits(bytes));
        ((crc >> 15 | crc << 17 & 0xffff_ffff) + 0xa282_ead8) as u32
    }

    /// The payloads of all records, every checksum compared.
    fn records(mut file: &[u8]) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        while !file.is_empty() {
            let length = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
            assert_eq!(file[8..12], masked_by_bits(&file[..8]).to_le_bytes(), "crc of a length");
            let data = &file[12..12 + length];
            assert_eq!(file[12 + length..16 + length], masked_by_bits(data).to_le_bytes(), "crc of the data");
            found.push(data.to_vec());
            file = &file[16 + length..];
        }
        found
    }

    fn read_varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }

    /// The fields of a message, by number; each occurs once here. Varints are given as eight bytes.
    fn fields(mut message: &[u8]) -> BTreeMap<u64, Vec<u8>> {
        let mut found = BTreeMap::new();
        while !message.is_empty() {
            let key = read_varint(&mut message);
            let length = match key & 7 {
                0 => {
                    let value = read_varint(&mut message);
                    assert!(found.insert(key >> 3, value.to_le_bytes().to_vec()).is_none());
                    continue;
                }
                1 => 8,
                2 => read_varint(&mut message) as usize,
                5 => 4,
                wire => panic!("wire type {wire}"),
            };
            assert!(found.insert(key >> 3, message[..length].to_vec()).is_none());
            message = &message[length..];
        }
        found
    }

    fn doubles(bytes: &[u8]) -> Vec<f64> {
        bytes.chunks_exact(8).map(|chunk| f64::from_le_bytes(chunk.try_into().unwrap())).collect()
    }

    /// The histogram fields 1–7 that `values` are written as.
    fn written_histogram(values: &[f64]) -> Vec<Vec<f64>> {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = EventWriter::create(directory.path(), 0.0).unwrap();
        writer.histogram(0.0, 1, "eval/returns", values).unwrap();
        writer.flush().unwrap();
        let event = fields(&records(&fs::read(writer.path()).unwrap())[1]);
        let histogram = fields(&fields(&fields(&event[&5])[&1])[&5]);
        (1..=7).map(|field| doubles(&histogram[&field])).collect()
    }

    #[test]
    fn checksums_match_published_vectors() {
        // RFC 3720, appendix B.4, and the usual check string.
        for (bytes, crc) in [
            (vec![0; 32], 0x8a91_36aa),
            (vec![0xff; 32], 0x62a8_ab43),
            ((0..32).collect(), 0x46dd_794e),
            (b"123456789".to_vec(), 0xe306_9283),
        ] {
            assert_eq!(crc32c_by_bits(&bytes), crc);
            assert_eq!(crc32c::crc32c(&bytes), crc);
        }
    }

    #[test]
    fn a_file_starts_as_those_of_tensorflow_do() {
        let directory = tempfile::tempdir().unwrap();
        let writer = EventWriter::create(directory.path(), 1767225600.25).unwrap();
        assert_eq!(writer.path(), directory.path().join("events.out.tfevents.1767225600.bqrl"));
        let file = fs::read(writer.path()).unwrap();
        assert_eq!(file[..12], *b"\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22");
        let version = fields(&records(&file)[0]);
        assert_eq!(doubles(&version[&1]), [1767225600.25]);
        assert_eq!(version[&3], b"brain.Event:2");
    }

    #[test]
    fn a_scalar_comes_back_from_an_independent_decoder() {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = EventWriter::create(directory.path(), 100.0).unwrap();
        for (step, value) in [(0, 0.5), (127, -1.0), (128, f64::NAN), (u64::from(u32::MAX) * 8, 0.1)] {
            writer.scalar(101.5, step, "rollout/ep_rew_mean", value).unwrap();
            writer.flush().unwrap();
            let file = fs::read(writer.path()).unwrap();
            assert_eq!(file.len() as u64, writer.position().length);
            let event = fields(records(&file).last().unwrap());
            assert_eq!(doubles(&event[&1]), [101.5]);
            assert_eq!(event[&2], step.to_le_bytes());
            let summary = fields(&fields(&event[&5])[&1]);
            assert_eq!(summary[&1], b"rollout/ep_rew_mean");
            assert_eq!(summary[&2], (value as f32).to_le_bytes());
        }
    }

    #[test]
    fn a_histogram_counts_every_value_once() {
        // Range [0, 30]: buckets of width 1, the last closed. 29.5 and 30 share it.
        let [min, max, num, sum, squares, limits, counts] =
            written_histogram(&[0.0, 0.5, 1.0, 29.5, 30.0]).try_into().unwrap();
        assert_eq!((min, max, num), (vec![0.0], vec![30.0], vec![5.0]));
        assert_eq!((sum, squares), (vec![61.0], vec![0.25 + 1.0 + 870.25 + 900.0]));
        assert_eq!(limits, (1..=30).map(f64::from).collect::<Vec<_>>());
        assert_eq!((counts[0], counts[1], counts[29], counts.iter().sum::<f64>()), (2.0, 1.0, 2.0, 5.0));
    }

    #[test]
    fn a_histogram_of_one_value_has_one_bucket() {
        let fields = written_histogram(&[0.75; 4]);
        assert_eq!((&fields[5], &fields[6]), (&vec![0.75], &vec![4.0]));
    }

    #[test]
    fn the_limits_of_the_widest_range_are_finite() {
        let fields = written_histogram(&[f64::MIN, 0.0, f64::MAX]);
        assert!(fields[5].iter().all(|limit| limit.is_finite()), "{:?}", fields[5]);
        assert!(fields[5].is_sorted());
        assert_eq!(fields[6].iter().sum::<f64>(), 3.0);
    }

    #[test]
    fn a_histogram_that_cannot_be_drawn_is_refused_and_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = EventWriter::create(directory.path(), 0.0).unwrap();
        let before = writer.position();
        let error = writer.histogram(0.0, 7, "eval/returns", &[1.0, f64::NAN]).unwrap_err();
        assert_eq!(error.to_string(), "histogram \"eval/returns\" at step 7: values must be finite, got NaN");
        assert!(writer.histogram(0.0, 7, "eval/returns", &[]).is_err());
        assert_eq!(writer.position(), before);
    }

    #[test]
    fn a_resumed_file_differs_from_the_uninterrupted_one_only_in_times() {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = EventWriter::create(directory.path(), 100.0).unwrap();
        writer.scalar(101.0, 1, "train/loss", 0.5).unwrap();
        writer.sync().unwrap();
        let position = writer.position();
        writer.scalar(102.0, 2, "train/loss", 0.25).unwrap();
        writer.flush().unwrap();
        let uninterrupted = fs::read(writer.path()).unwrap();

        // Killed in the middle of the next record, and resumed at the same clock.
        fs::write(writer.path(), [&uninterrupted[..], b"\x18\0\0"].concat()).unwrap();
        let mut resumed = EventWriter::resume(directory.path(), position).unwrap();
        resumed.scalar(102.0, 2, "train/loss", 0.25).unwrap();
        resumed.flush().unwrap();
        assert_eq!(fs::read(resumed.path()).unwrap(), uninterrupted);

        // At another clock, the records stay where they were.
        let mut resumed = EventWriter::resume(directory.path(), position).unwrap();
        resumed.scalar(9000.0, 2, "train/loss", 0.25).unwrap();
        assert_eq!(resumed.position().length, uninterrupted.len() as u64);
    }

    #[test]
    fn a_new_file_replaces_ours_and_spares_others() {
        let directory = tempfile::tempdir().unwrap();
        let theirs = directory.path().join("events.out.tfevents.0000000001.host");
        fs::write(&theirs, "").unwrap();
        let first = EventWriter::create(directory.path(), 1.0).unwrap().path().to_path_buf();
        let second = EventWriter::create(directory.path(), 2.0).unwrap().path().to_path_buf();
        assert!(theirs.exists() && !first.exists() && second.exists());
    }

    #[test]
    fn resuming_without_an_event_file_names_the_directory() {
        let directory = tempfile::tempdir().unwrap();
        let error = EventWriter::resume(directory.path(), Position::default()).unwrap_err();
        assert!(error.to_string().contains(&directory.path().display().to_string()), "{error}");
    }
}
