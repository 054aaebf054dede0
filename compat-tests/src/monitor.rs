//! Every command that a server executes, as its `MONITOR` reports it.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::server::Server;

/// A command that the server executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The server's time, in microseconds since the epoch.
    pub at_us: u64,
    /// True if a script ran it.
    pub by_script: bool,
    /// Its name and arguments.
    pub words: Vec<Vec<u8>>,
}

impl Command {
    /// True if this is the command `name`, in upper or lower case.
    pub fn is(&self, name: &str) -> bool {
        self.words.first().is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes()))
    }

    /// True if a word contains `text`.
    pub fn mentions(&self, text: &str) -> bool {
        let text = text.as_bytes();
        self.words.iter().any(|word| word.windows(text.len()).any(|part| part == text))
    }
}

/// Records commands from its start until it is dropped.
///
/// It slows a busy server down, so it is not for saturated limiters.
#[derive(Debug)]
pub struct Monitor {
    server: redis::aio::MultiplexedConnection,
    seen: Arc<Mutex<Vec<Command>>>,
    lines: watch::Receiver<Vec<u8>>,
    reader: JoinHandle<()>,
}

impl Monitor {
    /// Starts to record on `server`. Once this has returned, no command is
    /// missed.
    pub async fn start(server: &Server) -> Monitor {
        let stream = TcpStream::connect(("127.0.0.1", server.port()))
            .await
            .expect("the server takes connections");
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        for command in [server.password().map(|p| format!("AUTH {p}")), Some("MONITOR".into())]
            .into_iter()
            .flatten()
        {
            let request = format!("{command}\r\n");
            stream.write_all(request.as_bytes()).await.expect("a write");
            line.clear();
            stream.read_line(&mut line).await.expect("a reply");
            assert_eq!(line, "+OK\r\n", "{command}");
        }
        let escapes = server.monitor_escapes().await;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (latest, lines) = watch::channel(Vec::new());
        let reader = tokio::spawn({
            let seen = seen.clone();
            async move {
                let mut line = Vec::new();
                while matches!(stream.read_until(b'\n', &mut line).await, Ok(1..)) {
                    if let Some(command) = decode(&line, escapes) {
                        if command.is("ECHO") {
                            latest.send_replace(command.words[1].clone());
                        } else {
                            seen.lock().expect("the record").push(command);
                        }
                    }
                    line.clear();
                }
            }
        });
        Monitor { server: server.connect().await, seen, lines, reader }
    }

    /// The commands executed since the start, or since the last call, including
    /// those of the test's own connections.
    pub async fn take(&mut self) -> Vec<Command> {
        let mark = format!("{:?}", std::time::SystemTime::now());
        let () = redis::cmd("ECHO")
            .arg(&mark)
            .query_async(&mut self.server)
            .await
            .expect("the server answers");
        self.lines.wait_for(|line| *line == mark.as_bytes()).await.expect("MONITOR continues");
        std::mem::take(&mut *self.seen.lock().expect("the record"))
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// Reads a line such as `+1700000000.123456 [0 lua] "zadd" "k" "1" "\x10a"`.
fn decode(line: &[u8], escapes: bool) -> Option<Command> {
    let line = std::str::from_utf8(line).ok()?.strip_prefix('+')?;
    let (time, rest) = line.split_once(" [")?;
    let (seconds, micros) = time.split_once('.')?;
    let (origin, words) = rest.split_once("] ")?;
    Some(Command {
        at_us: seconds.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?,
        by_script: origin.ends_with(" lua"),
        words: unquote(words.trim_end(), escapes)?,
    })
}

/// Splits `"a" "b\x00\n"` into its words. The text is ASCII: the server escapes every other byte. If it does
/// not escape quotes and backslashes, a quote ends a word if a space or nothing follows, and a backslash is
/// itself unless an escape follows. That is wrong for one in some hundred ids.
fn unquote(text: &str, escapes: bool) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = text.as_bytes();
    loop {
        rest = match rest {
            [] => return Some(words),
            [b' ', rest @ ..] => rest,
            [b'"', rest @ ..] => {
                let (word, rest) = unquote_word(rest, escapes)?;
                words.push(word);
                rest
            }
            _ => return None,
        };
    }
}

/// A word, behind its first quote, and what follows it.
fn unquote_word(mut rest: &[u8], escapes: bool) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    loop {
        let (byte, after) = match rest {
            [b'"', after @ ..] if escapes || matches!(after, [] | [b' ', ..]) => {
                return Some((word, after));
            }
            [b'\\', b'n', after @ ..] => (b'\n', after),
            [b'\\', b'r', after @ ..] => (b'\r', after),
            [b'\\', b't', after @ ..] => (b'\t', after),
            [b'\\', b'a', after @ ..] => (0x07, after),
            [b'\\', b'b', after @ ..] => (0x08, after),
            [b'\\', b'x', digits @ ..] if hex_byte(digits).is_some() => hex_byte(digits)?,
            [b'\\', byte, after @ ..] if escapes => (*byte, after),
            [byte, after @ ..] => (*byte, after),
            [] => return None,
        };
        word.push(byte);
        rest = after;
    }
}

/// The byte that two digits stand for, and what follows them.
fn hex_byte(text: &[u8]) -> Option<(u8, &[u8])> {
    let (digits, after) = text.split_at_checked(2)?;
    let digits = std::str::from_utf8(digits).ok()?;
    Some((u8::from_str_radix(digits, 16).ok()?, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_bytes_are_read_back() {
        let line = br#"+1700000000.000123 [0 lua] "zadd" "a \"b\"" "\x10\x00\n\r\t\a\b\\\xff""#;
        let command = decode(&[line, &b"\r\n"[..]].concat(), true).unwrap();
        assert_eq!(command.at_us, 1_700_000_000_000_123);
        assert!(command.by_script && command.is("ZADD"));
        assert_eq!(command.words[1], b"a \"b\"");
        assert_eq!(command.words[2], b"\x10\x00\n\r\t\x07\x08\\\xff");
    }

    #[test]
    fn other_lines_are_ignored() {
        for line in ["+OK", "-ERR x", "+1.1 [0 x:1] \"open", "+1.1 [0 x:1] bare"] {
            assert_eq!(decode(line.as_bytes(), true), None, "{line}");
        }
    }

    /// As Valkey 8.1 writes it.
    #[test]
    fn quotes_and_backslashes_that_are_not_escaped_are_read_back() {
        let line = br#"+1700000000.000123 [0 lua] "zadd" "a"b" "\xb3\\xfa"z\" "c""#;
        let command = decode(&[line, &b"\r\n"[..]].concat(), false).unwrap();
        let words: [&[u8]; 4] = [b"zadd", b"a\"b", b"\xb3\\\xfa\"z\\", b"c"];
        assert_eq!(command.words, words);
    }

    #[tokio::test]
    async fn all_bytes_survive_the_server() {
        let server = Server::start().await;
        let mut monitor = Monitor::start(&server).await;
        let every: Vec<u8> = (0..=255).collect();
        let script = "return redis.call('zadd', 'log', ARGV[1], ARGV[2])";
        let eval = redis::cmd("EVAL").arg(script).arg(0).arg(7).arg(&every).take();
        let () = server.run(eval).await;
        let seen = monitor.take().await;
        let added: Vec<_> = seen.iter().filter(|c| c.is("zadd")).collect();
        assert_eq!(added.len(), 1);
        assert!(added[0].by_script);
        assert_eq!(added[0].words[3], every);
        assert!(monitor.take().await.is_empty());
    }
}
