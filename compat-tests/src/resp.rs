//! Where one request ends in a client's stream.

/// The length of the first complete request in `bytes`; `None` while it is
/// incomplete. Clients send arrays of bulk strings; any other line counts as a
/// request of its own.
pub(crate) fn request_length(bytes: &[u8]) -> Option<usize> {
    let (count, mut at) = header(bytes, 0)?;
    let Some(count) = count else { return Some(at) };
    for _ in 0..count {
        let (length, body) = header(bytes, at)?;
        at = match length {
            Some(length) => body + length + 2,
            None => body,
        };
        if at > bytes.len() {
            return None;
        }
    }
    Some(at)
}

/// Reads a line `*n` or `$n` at `at`: the number, if it is one, and where the
/// next line starts.
fn header(bytes: &[u8], at: usize) -> Option<(Option<usize>, usize)> {
    let rest = bytes.get(at..)?;
    let end = rest.windows(2).position(|w| w == b"\r\n")?;
    let number = match rest[..end] {
        [b'*' | b'$', ref digits @ ..] => {
            std::str::from_utf8(digits).ok().and_then(|d| d.parse().ok())
        }
        _ => None,
    };
    Some((number, at + end + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_apart_in_one_chunk() {
        let get = b"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n";
        let both = [&get[..], b"PING\r\n"].concat();
        assert_eq!(request_length(&both), Some(get.len()));
        assert_eq!(request_length(&both[get.len()..]), Some(6));
    }

    #[test]
    fn a_part_of_a_request_is_no_request() {
        let get = b"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n";
        for cut in 0..get.len() {
            assert_eq!(request_length(&get[..cut]), None, "{cut}");
        }
    }
}
