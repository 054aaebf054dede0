//! Numbers as the scripts of policies pack them: little-endian, in a fixed number of bytes each. In process a field is
//! a text in which each character stands for the byte of that number.

use super::bucket::Bucket;
use super::calendar::Calendar;
use super::frame::LONGEST_US;
use super::frame::{is_permits, is_span};
use super::interval::Interval;
use super::pace::Pace;
use super::queue::Queue;
use super::rolling::Rolling;
use super::sliding::Sliding;
use super::window::{Anchored, Even, Window};
use super::{Kind, Policy};

/// The bytes of permits, of times in milliseconds, and of all other numbers.
pub(super) const PERMITS: usize = 4;
pub(super) const MS: usize = 6;
pub(super) const WIDE: usize = 7;

pub(crate) fn packed(numbers: &[(u64, usize)]) -> String {
    let bytes =
        numbers.iter().flat_map(|(number, size)| number.to_le_bytes().into_iter().take(*size));
    bytes.map(char::from).collect()
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

impl Policy {
    /// The parameters as a limiter's hash has them: a letter, a version, numbers.
    pub(crate) fn text(&self) -> String {
        use PERMITS as P;
        use WIDE as W;
        match &self.0 {
            Kind::Bucket(it) => it.text(),
            Kind::Rgcra(it) => it.bucket.text(),
            Kind::Fixed(Window { limit, grid: Even { width, offset } }) => {
                "f1".to_owned() + &packed(&[(*limit, P), (*width, W), (*offset, W)])
            }
            Kind::Anchored(Window { limit, grid: Anchored { width } }) => {
                "a1".to_owned() + &packed(&[(*limit, P), (*width, W)])
            }
            Kind::Calendar(Window { limit, grid }) => {
                format!("d1{}{}", packed(&[(*limit, P)]), grid.text())
            }
            Kind::Sliding(it) => "s1".to_owned() + &packed(&[(it.limit, P), (it.width, W)]),
            Kind::Rolling(it) => {
                "r1".to_owned() + &packed(&[(it.limit, P), (it.width, W), (it.buckets, P)])
            }
            Kind::Interval(it) => {
                let aligned = it.aligned.map_or(0, |aligned| aligned + 1);
                let numbers = [
                    (it.capacity, P),
                    (it.refill, P),
                    (it.period, W),
                    (it.initial, P),
                    (aligned, W),
                ];
                "i1".to_owned() + &packed(&numbers)
            }
            Kind::Queue(it) => {
                let Pace { permits, every } = it.pace;
                let numbers =
                    [(it.limit, P), (permits, W), (every, W), (it.max_delay, W), (it.slack, P)];
                "q1".to_owned() + &packed(&numbers)
            }
            Kind::Foreign(it) => it.text(),
        }
    }

    /// Parses the [`text`](Self::text) of a policy; `None` if it is not valid.
    pub(crate) fn parse(text: &str) -> Option<Policy> {
        use PERMITS as P;
        use WIDE as W;
        let (version, rest) = text.split_at_checked(2)?;
        let sizes: &[usize] = match version {
            "b1" if rest.chars().count() == P + P + W => &[P, P, W],
            "b1" => &[P, P, W, P],
            "f1" => &[P, W, W],
            "a1" | "s1" => &[P, W],
            "d1" => {
                let zone = rest.char_indices().nth(P)?.0;
                let [limit] = unpacked(&rest[..zone], [P])?[..] else { return None };
                let grid = Calendar::parse(&rest[zone..])?;
                return is_permits(limit).then_some(Policy(Kind::Calendar(Window { limit, grid })));
            }
            "r1" => &[P, W, P],
            "i1" => &[P, P, W, P, W],
            "q1" => &[P, W, W, W, P],
            _ => return None,
        };
        let numbers = unpacked(rest, sizes.iter().copied())?;
        let (kind, is_valid) = match (version, &numbers[..]) {
            ("b1", &[capacity, permits, every, ref initial @ ..]) => {
                let initial = initial.first().copied().unwrap_or(capacity);
                let pace = Pace { permits, every };
                let is_valid = pace.allows(capacity) && initial <= capacity;
                (Kind::Bucket(Bucket { capacity, pace, initial }), is_valid)
            }
            ("f1", &[limit, width, offset]) => {
                let grid = Even { width, offset };
                (Kind::Fixed(Window { limit, grid }), is_span(width) && offset < width)
            }
            ("a1", &[limit, width]) => {
                (Kind::Anchored(Window { limit, grid: Anchored { width } }), is_span(width))
            }
            ("s1", &[limit, width]) => {
                let rules = Sliding { limit, width };
                (Kind::Sliding(rules), is_span(width) && width.is_multiple_of(rules.tick()))
            }
            ("r1", &[limit, width, buckets]) => {
                let rules = Rolling { limit, width, buckets };
                (Kind::Rolling(rules), rules.is_valid())
            }
            ("i1", &[capacity, refill, period, initial, aligned]) => {
                let aligned = aligned.checked_sub(1);
                let rules = Interval { capacity, refill, period, initial, aligned };
                (Kind::Interval(rules), rules.is_valid())
            }
            (_, &[limit, permits, every, max_delay, slack]) => {
                let rules = Queue { pace: Pace { permits, every }, max_delay, slack, limit };
                let is_valid =
                    max_delay <= LONGEST_US && slack <= limit && rules.pace.allows(limit);
                (Kind::Queue(rules), is_valid)
            }
            _ => return None,
        };
        (is_valid && is_permits(numbers[0])).then_some(Policy(kind))
    }
}
