//! The members of the log: Redisson's `struct` format `Bc0I`.
//!
//! A member is one byte *L*, *L* random bytes, and the permits as an unsigned 32-bit little-endian integer.
//! *L* is 16 since Redisson 3.21.0 and was 8 before; we read both and write 16.

use byteorder::{ByteOrder, LittleEndian};

use crate::rt;

/// The length, in bytes, of the ids that this crate writes.
pub(crate) const ID_LEN: usize = 16;

/// The most permits in one entry: the format has 32 bits for them.
pub(crate) const MAX_ENTRY_PERMITS: u64 = u32::MAX as u64;

/// The largest number of parts, or of debts, that can be derived from one id.
pub(crate) const MAX_PARTS: u16 = 0x3fff;

/// The random id of one call: it makes its entry unique, and its later attempts recognisable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EntryId(pub(crate) [u8; ID_LEN]);

/// The first bytes of an id made by this crate: they tell its clients from Redisson's in the log. Redisson's
/// ids are random, so one in 2^24 is mistaken for a client of this crate for as long as its entry lives.
const MARK: [u8; 3] = [0xa7, 0x52, 0xf1];

/// A client of this crate, named in the ids of its entries to tell its permits from others' in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ClientTag(pub(crate) [u8; 4]);

/// The client in the ids that are made of keys: all processes make the same id of a key.
const OF_KEYS: ClientTag = ClientTag(*b"once");

/// The holder of an entry's permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// A client of this crate, counting as this number of parties.
    Client(ClientTag, u8),
    /// Redisson, or anybody else.
    Redisson,
    /// Nobody: a debt.
    Debt,
}

/// The id of a pause: the same for all clients, so that there is only one. No client makes it, as its weight is
/// 0; by its highest bit nobody holds its permits.
pub(crate) const PAUSE: EntryId = EntryId(*b"\xa7\x52\xf1\0\0\0\0\0pause\0\0\x80");

/// Whether this is an entry of a [`PAUSE`].
pub(crate) fn is_pause(member: &[u8]) -> bool {
    member.first() == Some(&(ID_LEN as u8)) && member[1..].starts_with(&PAUSE.0[..ID_LEN - 2])
}

impl EntryId {
    /// A new id of this client, which counts as `weight` parties: the mark (3 bytes), the weight (1), the
    /// client (4), and 62 random bits. The last two bits say whether the entry is a debt or a reservation.
    ///
    /// An id is searched only among entries of its own client, and with part numbers 48 of its random bits
    /// count. Two calls of one client in the same millisecond are mistaken for each other with a probability
    /// of 2^-48.
    pub(crate) fn random(client: ClientTag, weight: u8) -> Self {
        let mut id = [0; ID_LEN];
        id[..3].copy_from_slice(&MARK);
        id[3] = weight.max(1);
        id[4..8].copy_from_slice(&client.0);
        EntryId(id).ending(rt::random().to_le_bytes())
    }

    /// The id of what is acquired for this key, the same for all clients: the mark, a weight of 1, the tag `once`,
    /// and the first 62 bits of the key's SHA-1.
    pub(crate) fn of_key(key: &[u8]) -> Self {
        let digest = sha1_smol::Sha1::from(key).digest().bytes();
        EntryId::random(OF_KEYS, 1).ending(std::array::from_fn(|at| digest[at]))
    }

    /// The id with this end, less the two bits for debts and reservations.
    fn ending(mut self, end: [u8; 8]) -> Self {
        self.0[8..].copy_from_slice(&end);
        self.0[ID_LEN - 1] &= !(DEBT | RESERVED);
        self
    }

    /// Whether it is the id of a key.
    pub(crate) fn is_of_key(self) -> bool {
        self.client() == Some((OF_KEYS, 1))
    }

    /// The client that made this id, and its weight; `None` if it was not made by
    /// [`random`](Self::random).
    pub(crate) fn client(self) -> Option<(ClientTag, u8)> {
        match holder(&self.0) {
            Holder::Client(client, weight) => Some((client, weight)),
            _ => None,
        }
    }

    /// The id of part `part` of an entry whose permits do not fit into one member; part 0 has the id itself.
    /// If two parts with equally many permits had the same id, they would be the same member.
    pub(crate) fn part(self, part: u16) -> EntryId {
        debug_assert!(part <= MAX_PARTS);
        self.with_tail_xor(part)
    }

    /// The id of part `part` of permits reserved for a call with this id: a part like others, but
    /// distinguishable from a grant.
    pub(crate) fn reserved_part(self, part: u16) -> EntryId {
        debug_assert!(part <= MAX_PARTS);
        self.with_tail_xor(0x4000 | part)
    }

    /// The id of debt `number` that a call with this id writes. A debt is not a part: otherwise a
    /// later attempt of the call would take the debt for its own grant.
    pub(crate) fn debt(self, number: u16) -> EntryId {
        debug_assert!(number <= MAX_PARTS);
        self.with_tail_xor(0x8000 | number)
    }

    /// Whether `id` is this id or one of its parts.
    pub(crate) fn owns(self, id: &[u8]) -> bool {
        id.len() == ID_LEN
            && id[..ID_LEN - 2] == self.0[..ID_LEN - 2]
            && (tail(id) ^ tail(&self.0)) & 0x8000 == 0
    }

    /// Which part of this id `id` is; `None` if it is not one.
    pub(crate) fn part_number(self, id: &[u8]) -> Option<u16> {
        self.owns(id).then(|| tail(id) ^ tail(&self.0))
    }

    /// The last two bytes as one little-endian number, combined with `mask`.
    fn with_tail_xor(mut self, mask: u16) -> EntryId {
        let tail = tail(&self.0) ^ mask;
        LittleEndian::write_u16(&mut self.0[ID_LEN - 2..], tail);
        self
    }
}

/// The bit in an id's last byte that only debts have.
const DEBT: u8 = 1 << 7;

/// The bit in an id's last byte that only reservations have.
const RESERVED: u8 = 1 << 6;

/// Whether an entry with this id is a reservation: permits held for a call that has yet to take them.
pub(crate) fn is_reserved(id: &[u8]) -> bool {
    matches!(holder(id), Holder::Client(..)) && id[ID_LEN - 1] & RESERVED != 0
}

/// The holder of the permits of an entry with this id.
pub(crate) fn holder(id: &[u8]) -> Holder {
    if id.len() != ID_LEN || id[..3] != MARK {
        return Holder::Redisson;
    }
    if id[ID_LEN - 1] & DEBT != 0 {
        return Holder::Debt;
    }
    Holder::Client(ClientTag([id[4], id[5], id[6], id[7]]), id[3].max(1))
}

fn tail(id: &[u8]) -> u16 {
    LittleEndian::read_u16(&id[ID_LEN - 2..])
}

/// Packs an entry: 21 bytes.
pub(crate) fn pack(id: EntryId, permits: u32) -> Vec<u8> {
    let mut member = vec![0; 1 + ID_LEN + 4];
    member[0] = ID_LEN as u8;
    member[1..][..ID_LEN].copy_from_slice(&id.0);
    LittleEndian::write_u32(&mut member[1 + ID_LEN..], permits);
    member
}

/// The id and the permits of an entry by Redisson 3.17.0 or later, or by this crate; `None` for another member.
pub(crate) fn unpack(member: &[u8]) -> Option<(&[u8], u64)> {
    let (len, rest) = member.split_first()?;
    let (id, permits) = rest.split_last_chunk::<4>()?;
    let is_entry = matches!(len, 8 | 16) && id.len() == usize::from(*len);
    is_entry.then(|| (id, LittleEndian::read_u32(permits).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: EntryId = EntryId([7; 16]);

    #[test]
    fn an_entry_is_length_id_and_little_endian_permits() {
        let member = pack(ID, 0x0102_0304);
        assert_eq!(member.len(), 21);
        assert_eq!(member[0], 16);
        assert_eq!(member[17..], [4, 3, 2, 1]);
        assert_eq!(unpack(&member), Some((&[7; 16][..], 0x0102_0304)));
    }

    #[test]
    fn eight_byte_ids_are_read() {
        let mut member = vec![8];
        member.extend([1; 8]);
        member.extend(5u32.to_le_bytes());
        assert_eq!(unpack(&member), Some((&[1; 8][..], 5)));
    }

    #[test]
    fn older_and_broken_members_are_no_entries() {
        for member in [&[8; 20][..], &[0; 8], &pack(ID, 1)[..20], b"", b"abc"] {
            assert_eq!(unpack(member), None);
        }
    }

    #[test]
    fn an_id_tells_its_client_and_nobody_holds_a_debt() {
        let client = ClientTag([1, 2, 3, 4]);
        for weight in [1, 7, 255] {
            let id = EntryId::random(client, weight);
            assert_eq!(id.client(), Some((client, weight)));
            for n in [0, 1, MAX_PARTS] {
                assert_eq!(holder(&id.part(n).0), Holder::Client(client, weight));
                assert_eq!(holder(&id.debt(n).0), Holder::Debt);
            }
            assert_ne!(id, EntryId::random(client, weight));
        }
        assert_eq!(EntryId::random(client, 0).client(), Some((client, 1)));
        assert_eq!(holder(&[7; 16]), Holder::Redisson);
        assert_eq!(holder(&EntryId::random(client, 1).0[..8]), Holder::Redisson);
    }

    #[test]
    fn the_id_of_a_key_never_changes() {
        let id = EntryId::of_key(b"order-4711");
        let bytes: String = id.0.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(bytes, "a752f1016f6e63650319ff7aaa06373b");
        assert!(id.is_of_key() && !EntryId::random(ClientTag([1, 2, 3, 4]), 1).is_of_key());
        assert_ne!(id, EntryId::of_key(b"order-4712"));
    }

    #[test]
    fn parts_are_owned_and_debts_are_not() {
        assert_eq!(ID.part(0), ID);
        for n in [0, 1, 255, 256, MAX_PARTS] {
            assert!(ID.owns(&ID.part(n).0));
            assert_eq!(ID.part_number(&ID.part(n).0), Some(n));
            assert_eq!(ID.part_number(&ID.debt(n).0), None);
            assert!(!ID.owns(&ID.debt(n).0));
        }
        assert!(!ID.owns(&[8; 16]));
        assert!(!ID.owns(&[7; 8]));
    }
}
