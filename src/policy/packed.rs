//! Numbers as the scripts of policies pack them: little-endian, in a fixed number of bytes each. In process a field is
//! a text in which each character stands for the byte of that number.

use std::time::Duration;

use super::bucket::{Bucket, Pace, Rgcra};
use super::calendar::Calendar;
use super::frame::{LONGEST_US, is_permits};
use super::queue::Queue;
use super::window::{Grid, Window};
use super::{Kind, Policy};

/// The bytes of permits, of times in milliseconds, and of all other numbers.
pub(super) const PERMITS: usize = 4;
pub(super) const MS: usize = 6;
pub(super) const WIDE: usize = 7;

/// These numbers in so many bytes each.
pub(crate) fn packed(numbers: impl IntoIterator<Item = (u64, usize)>) -> String {
    let bytes = |(number, size): (u64, usize)| number.to_le_bytes().into_iter().take(size);
    numbers.into_iter().flat_map(bytes).map(char::from).collect()
}

/// The numbers of these sizes that the text consists of; `None` if it is longer or shorter.
pub(crate) fn unpacked(text: &str, sizes: impl IntoIterator<Item = usize>) -> Option<Vec<u64>> {
    let mut bytes = text.chars().map(|byte| u8::try_from(byte).ok());
    let mut number =
        |size| (0..size).try_fold(0, |sum, at| Some(sum | u64::from(bytes.next()??) << (8 * at)));
    let numbers = sizes.into_iter().map(&mut number).collect::<Option<Vec<u64>>>()?;
    bytes.next().is_none().then_some(numbers)
}

/// The text of a field as bytes.
pub(crate) fn bytes(text: &str) -> Vec<u8> {
    text.chars().map(|byte| byte as u8).collect()
}

/// The text of a field that has these bytes.
pub(crate) fn text(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

/// The sizes of a policy's numbers behind its letter and version.
fn sizes(version: &str) -> Option<&'static [usize]> {
    use PERMITS as P;
    use WIDE as W;
    Some(match version {
        "b1" => &[P, P, W, P],
        "f1" => &[P, W, W],
        "a1" | "s1" => &[P, W],
        "r1" => &[P, W, P],
        "i1" => &[P, P, W, P, W],
        "q1" => &[P, W, W, W, P],
        _ => return None,
    })
}

impl Policy {
    /// The parameters as a limiter's hash has them: a letter, a version, numbers.
    pub(crate) fn text(&self) -> String {
        let (version, numbers): (_, Vec<u64>) = match &self.0 {
            Kind::Bucket(it) | Kind::Rgcra(Rgcra { bucket: it, .. }) => {
                let Pace { permits, every } = it.pace;
                let initial = (it.initial < it.capacity).then_some(it.initial);
                ("b1", [it.capacity, permits, every].into_iter().chain(initial).collect())
            }
            Kind::Window(Window { limit, grid }) => match grid {
                Grid::Even { width, offset } => ("f1", vec![*limit, *width, *offset]),
                Grid::Anchored { width } => ("a1", vec![*limit, *width]),
                Grid::Calendar(calendar) => {
                    return format!("d1{}{}", packed([(*limit, PERMITS)]), calendar.text());
                }
            },
            Kind::Sliding(it) => ("s1", vec![it.limit, it.width]),
            Kind::Rolling(it) => ("r1", vec![it.limit, it.width, it.buckets]),
            Kind::Interval(it) => {
                let aligned = it.aligned.map_or(0, |aligned| aligned + 1);
                ("i1", vec![it.capacity, it.refill, it.period, it.initial, aligned])
            }
            Kind::Queue(it) => {
                let Pace { permits, every } = it.pace;
                ("q1", vec![it.limit, permits, every, it.max_delay, it.slack])
            }
            Kind::Foreign(it) => return it.text(),
        };
        let sizes = sizes(version).into_iter().flatten().copied();
        version.to_owned() + &packed(numbers.into_iter().zip(sizes))
    }

    /// Parses the [`text`](Self::text) of a policy; `None` if it is not valid.
    pub(crate) fn parse(text: &str) -> Option<Policy> {
        let (version, rest) = text.split_at_checked(2)?;
        if version == "d1" {
            let zone = rest.char_indices().nth(PERMITS)?.0;
            let [limit] = unpacked(&rest[..zone], [PERMITS])?[..] else { return None };
            let grid = Grid::Calendar(Calendar::parse(&rest[zone..])?);
            return is_permits(limit).then_some(Policy(Kind::Window(Window { limit, grid })));
        }
        let sizes = sizes(version)?;
        // A bucket that is full at first does not say so.
        let sizes = if version == "b1" && rest.chars().count() == 2 * PERMITS + WIDE {
            &sizes[..3]
        } else {
            sizes
        };
        let numbers = unpacked(rest, sizes.iter().copied())?;
        let us = Duration::from_micros;
        match (version, &numbers[..]) {
            ("b1", &[capacity, permits, every, ref initial @ ..]) => {
                let initial = initial.first().copied().unwrap_or(capacity);
                let pace = Pace { permits, every };
                let is_valid = is_permits(capacity) && pace.allows(capacity) && initial <= capacity;
                is_valid.then_some(Policy(Kind::Bucket(Bucket { capacity, pace, initial })))
            }
            ("f1", &[limit, width, offset]) => {
                Policy::fixed_window(limit, us(width)).ok()?.with_offset(us(offset)).ok()
            }
            ("a1", &[limit, width]) => Policy::anchored_window(limit, us(width)).ok(),
            ("s1", &[limit, width]) => Policy::sliding_counter(limit, us(width)).ok(),
            ("r1", &[limit, width, buckets]) => Policy::rolling(limit, us(width), buckets).ok(),
            ("i1", &[capacity, refill, period, initial, aligned]) if aligned <= period => {
                let bucket = Policy::interval_bucket(capacity, refill, us(period)).ok()?;
                let bucket = bucket.with_initial_tokens(initial).ok()?;
                match aligned {
                    0 => Some(bucket),
                    _ => bucket.aligned_at(us(aligned - 1)).ok(),
                }
            }
            ("q1", &[limit, permits, every, max_delay, slack]) => {
                let pace = Pace { permits, every };
                let is_valid = is_permits(limit)
                    && max_delay <= LONGEST_US
                    && slack <= limit
                    && pace.allows(limit);
                is_valid.then_some(Policy(Kind::Queue(Queue { pace, max_delay, slack, limit })))
            }
            _ => None,
        }
    }
}
