//! What a process holds, so that a leak is noticed.

use std::collections::HashSet;
use std::fs;

/// What a process holds at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Its TCP connections to one port, half-closed ones included.
    pub connections: usize,
    /// Its memory, in KiB.
    pub memory_kb: u64,
}

impl Footprint {
    /// Looks at the process `id`, and its connections to this port.
    pub fn of(id: u32, port: u16) -> Footprint {
        let status = fs::read_to_string(format!("/proc/{id}/status")).expect("a running process");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let memory = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        Footprint { connections: connections(id, port), memory_kb: memory.expect("its memory") }
    }
}

fn connections(id: u32, port: u16) -> usize {
    let files = fs::read_dir(format!("/proc/{id}/fd")).expect("the files of a process");
    let sockets: HashSet<String> = files
        .filter_map(|file| fs::read_link(file.ok()?.path()).ok())
        .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.into()))
        .collect();
    // A line is: number, local address, remote address, state, …; the inode is the tenth word. A
    // table that changes while it is read may list a connection several times: inodes are counted.
    let port = format!(":{port:04X}");
    let mut found = HashSet::new();
    for table in ["tcp", "tcp6"] {
        let lines = fs::read_to_string(format!("/proc/{id}/net/{table}")).unwrap_or_default();
        for words in lines.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()) {
            if words.len() > 9 && words[2].ends_with(&port) && sockets.contains(words[9]) {
                found.insert(words[9].to_owned());
            }
        }
    }
    found.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn connections_to_one_port_are_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let own = || Footprint::of(std::process::id(), address.port());
        assert_eq!(own().connections, 0);
        let open: Vec<_> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
        assert_eq!(own().connections, 3);
        drop(open);
        assert_eq!(own().connections, 0);
        assert!(own().memory_kb > 1_000);
    }
}
