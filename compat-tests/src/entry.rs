//! One entry of a limiter's log, decoded from the wire format.

use std::fmt::{self, Write};

/// A decoded log member.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Entry {
    /// A grant (or a debt): the layout `Bc0I` of Redisson 3.17.0 and later.
    Grant {
        /// The random id: 16 bytes, or 8 before Redisson 3.21.0.
        id: Vec<u8>,
        /// The permits taken.
        permits: u32,
    },
    /// Anything else.
    Foreign(Vec<u8>),
}

impl Entry {
    /// Reads a member.
    pub fn decode(member: &[u8]) -> Entry {
        if let [length, rest @ ..] = member
            && let Some((id, permits)) = rest.split_at_checked(usize::from(*length))
            && let Ok(permits) = permits.try_into()
        {
            return Entry::Grant { id: id.to_vec(), permits: u32::from_le_bytes(permits) };
        }
        Entry::Foreign(member.to_vec())
    }

    /// The member of a grant, as Redisson writes it.
    pub fn encode(id: &[u8], permits: u32) -> Vec<u8> {
        let length = u8::try_from(id.len()).expect("ids are short");
        [&[length], id, &permits.to_le_bytes()].concat()
    }

    /// Whether a client of this crate wrote it.
    pub fn is_of_this_crate(&self) -> bool {
        matches!(self, Entry::Grant { id, .. } if id.starts_with(&MARK))
    }

    /// The permits; 0 if the entry is foreign.
    pub fn permits(&self) -> u64 {
        match self {
            Entry::Grant { permits, .. } => u64::from(*permits),
            Entry::Foreign(_) => 0,
        }
    }
}

/// With these bytes the ids begin that this crate makes.
const MARK: [u8; 3] = [0xa7, 0x52, 0xf1];

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Entry::Grant { id, permits } => {
                write!(f, "{permits} permits, id[{}] {}", id.len(), hex(id))
            }
            Entry::Foreign(bytes) => {
                let guess = match bytes.len() {
                    20 => "Redisson 3.16.4-3.16.8",
                    8 => "Redisson 3.13.3-3.16.3",
                    _ => "unknown",
                };
                write!(f, "FOREIGN ({guess}), {} bytes {}", bytes.len(), hex(bytes))
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_id_lengths_are_read() {
        for id in [&[9u8; 16][..], &[7u8; 8]] {
            let member = Entry::encode(id, 513);
            assert_eq!(member.len(), 1 + id.len() + 4);
            assert_eq!(member[1 + id.len()..], [1, 2, 0, 0]);
            let permits = Entry::decode(&member).permits();
            assert_eq!(permits, 513);
        }
    }

    #[test]
    fn everything_else_is_foreign() {
        let whole = Entry::encode(&[9; 16], 1);
        for member in [&whole[..20], &[1, 0, 0, 0, 1, 0, 0, 0], &[], &[0xff]] {
            assert_eq!(Entry::decode(member), Entry::Foreign(member.to_vec()));
        }
    }
}
