//! Connects the processes of one run. Each checks that the others run the same spec from the same step before any data flows.

use crate::error::Ending;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a process waits for the others.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a connected process may take to say who it is.
const GREETING_TIME: Duration = Duration::from_secs(10);
/// First bytes of a greeting; the last digit is the version of the protocol.
const MAGIC: &[u8; 8] = b"COSPLAY1";
/// Length of a greeting: magic, index, number of processes, workers, first step, hash of the spec in hexadecimal.
const GREETING: usize = 8 + 4 * 8 + 64;

/// One process among several.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Addresses of all processes, in order.
    pub addresses: Vec<String>,
    /// Index of this one.
    pub process: usize,
}

/// What all processes of a run must agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// Hash of the resolved spec, 64 hexadecimal digits.
    pub spec_hash: String,
    /// Worker threads a process.
    pub workers: u64,
    /// Step that the session begins with.
    pub first_step: u64,
}

/// Reads a hosts file: one `HOST:PORT` a line; blank lines and lines that begin with `#` do not count.
pub fn read_hosts(path: &Path) -> Result<Vec<String>, Ending> {
    let text = cosplay_datasets::files::read(path).map_err(Ending::wrong)?;
    let text = String::from_utf8(text).map_err(|_| Ending::wrong(format!("{}: not a text file", path.display())))?;
    let mut addresses = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let port = line.rsplit_once(':').and_then(|(host, port)| (!host.is_empty()).then_some(port)?.parse::<u16>().ok());
        if port.is_none() {
            return Err(Ending::wrong(format!("{}:{}: expected HOST:PORT, found `{line}`", path.display(), number + 1)));
        }
        if let Some(earlier) = addresses.iter().position(|address| address == line) {
            return Err(Ending::wrong(format!(
                "{}:{}: `{line}` is process {earlier} already; each process needs an address of its own",
                path.display(),
                number + 1
            )));
        }
        addresses.push(line.to_owned());
    }
    if addresses.is_empty() {
        return Err(Ending::wrong(format!("{}: no process is listed; expected one HOST:PORT a line", path.display())));
    }
    Ok(addresses)
}

/// Connects to all other processes: to those before this one, and waits for those after it. The result has `None` at its own index.
///
/// # Errors
/// If a process does not come in time or does not fit, or if `interrupted` becomes true.
pub fn connect(cluster: &Cluster, agreement: &Agreement, interrupted: &AtomicBool) -> Result<Vec<Option<TcpStream>>, Ending> {
    let deadline = Instant::now() + PATIENCE;
    let mut sockets: Vec<Option<TcpStream>> = cluster.addresses.iter().map(|_| None).collect();
    let address = &cluster.addresses[cluster.process];
    let listener = TcpListener::bind(address).map_err(|error| {
        Ending::failed(format!("process {} cannot listen on {address}: {error}", cluster.process))
            .hint("another program may use the port; change it in the hosts file")
    })?;
    for (index, address) in cluster.addresses.iter().enumerate().take(cluster.process) {
        let mut socket = dial(address, index, deadline, interrupted)?;
        greet(&mut socket, cluster, agreement, Some(index)).map_err(Greeting::into_ending)?;
        sockets[index] = Some(socket);
    }
    listener.set_nonblocking(true).map_err(network)?;
    while let Some(missing) = (cluster.process + 1..sockets.len()).find(|&index| sockets[index].is_none()) {
        match listener.accept() {
            Ok((mut socket, _)) => {
                socket.set_nonblocking(false).map_err(network)?;
                match greet(&mut socket, cluster, agreement, None) {
                    Ok(index) => sockets[index] = Some(socket),
                    Err(Greeting::Refused(ending)) => return Err(ending),
                    // Port scanners, health checks and processes that were just killed are no reason to end the run.
                    Err(Greeting::Stranger(_)) => {}
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                if Instant::now() > deadline {
                    return Err(absent(missing, &cluster.addresses[missing], "did not connect"));
                }
                unless(interrupted)?;
                sleep(Duration::from_millis(20));
            }
            Err(error) => return Err(network(error)),
        }
    }
    Ok(sockets)
}

fn network(error: std::io::Error) -> Ending {
    Ending::failed(format!("network: {error}"))
}

/// Ends the wait after Ctrl-C.
fn unless(interrupted: &AtomicBool) -> Result<(), Ending> {
    if !interrupted.load(Ordering::Relaxed) {
        return Ok(());
    }
    let message = "interrupted while waiting for the other processes".to_owned();
    Err(Ending { code: crate::error::INTERRUPTED, message, hint: None })
}

fn absent(index: usize, address: &str, what: &str) -> Ending {
    Ending::failed(format!("process {index} ({address}) {what} within {} s", PATIENCE.as_secs()))
        .hint("start every process of the hosts file with the same spec, each with its own --process")
}

fn dial(address: &str, index: usize, deadline: Instant, interrupted: &AtomicBool) -> Result<TcpStream, Ending> {
    loop {
        let resolved = address.to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
        if let Some(Ok(socket)) = resolved.map(|address| TcpStream::connect_timeout(&address, Duration::from_secs(5))) {
            return Ok(socket);
        }
        if Instant::now() > deadline {
            return Err(absent(index, address, "could not be reached"));
        }
        unless(interrupted)?;
        sleep(Duration::from_millis(50));
    }
}

/// Why a connection is not that of a process of this run.
enum Greeting {
    /// A process of cosplay that does not fit.
    Refused(Ending),
    /// Something else, or a process that hung up.
    Stranger(Ending),
}

impl Greeting {
    fn into_ending(self) -> Ending {
        match self {
            Self::Refused(ending) | Self::Stranger(ending) => ending,
        }
    }
}

/// Exchanges greetings; returns the other's index.
fn greet(socket: &mut TcpStream, cluster: &Cluster, agreement: &Agreement, expected: Option<usize>) -> Result<usize, Greeting> {
    let lost = |error: std::io::Error| Greeting::Stranger(Ending::failed(format!("a process hung up while it was greeted: {error}")));
    socket.set_nodelay(true).map_err(lost)?;
    socket.set_read_timeout(Some(GREETING_TIME)).map_err(lost)?;
    let mut mine = Vec::with_capacity(GREETING);
    mine.extend_from_slice(MAGIC);
    for number in [cluster.process as u64, cluster.addresses.len() as u64, agreement.workers, agreement.first_step] {
        mine.extend_from_slice(&number.to_le_bytes());
    }
    mine.extend_from_slice(agreement.spec_hash.as_bytes());
    mine.resize(GREETING, 0);
    socket.write_all(&mine).map_err(lost)?;
    let mut theirs = vec![0u8; GREETING];
    socket.read_exact(&mut theirs).map_err(lost)?;
    socket.set_read_timeout(None).map_err(lost)?;
    if theirs[..8] != MAGIC[..] {
        let ending = Ending::failed("something that is not this version of cosplay answered").hint("check the ports in the hosts file");
        return Err(Greeting::Stranger(ending));
    }
    let number = |index: usize| {
        let at = 8 + 8 * index;
        theirs[at..at + 8].iter().rev().fold(0u64, |value, &byte| value << 8 | u64::from(byte))
    };
    let other = number(0) as usize;
    let wrong = |what: &str| {
        let message = format!("processes {} and {other} do not fit together: {what}", cluster.process);
        Err(Greeting::Refused(Ending::wrong(message)))
    };
    if number(1) != cluster.addresses.len() as u64 {
        return wrong("their hosts files list different numbers of processes");
    }
    if other >= cluster.addresses.len() || other == cluster.process || expected.is_some_and(|expected| expected != other) {
        return wrong("a --process number is given twice, or the hosts files differ in order");
    }
    if theirs[40..] != mine[40..] {
        return wrong("their resolved specs differ");
    }
    if number(2) != agreement.workers {
        return wrong("--workers differs");
    }
    if number(3) != agreement.first_step {
        return wrong("one resumes a run where the other does not; give --resume and the same --out to all");
    }
    Ok(other)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn pair(hashes: [&str; 2]) -> [Result<usize, String>; 2] {
        let ports: Vec<TcpListener> = (0..2).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let addresses: Vec<String> = ports.iter().map(|port| port.local_addr().unwrap().to_string()).collect();
        drop(ports);
        let run = |process: usize, hash: &str| {
            let cluster = Cluster { addresses: addresses.clone(), process };
            let agreement = Agreement { spec_hash: hash.repeat(64), workers: 1, first_step: 0 };
            move || {
                let sockets = connect(&cluster, &agreement, &AtomicBool::new(false)).map_err(|ending| ending.message)?;
                Ok(sockets.iter().flatten().count())
            }
        };
        let other = std::thread::spawn(run(1, hashes[1]));
        let first = run(0, hashes[0])();
        [first, other.join().unwrap()]
    }

    #[test]
    fn processes_of_one_spec_connect() {
        assert_eq!(pair(["a", "a"]), [Ok(1), Ok(1)]);
    }

    /// A connection that says nothing of ours (a port scanner, a health check) is dropped and the wait goes on.
    #[test]
    fn a_stray_connection_does_not_end_the_wait() {
        let ports: Vec<TcpListener> = (0..2).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let addresses: Vec<String> = ports.iter().map(|port| port.local_addr().unwrap().to_string()).collect();
        drop(ports);
        let run = |process: usize| {
            let cluster = Cluster { addresses: addresses.clone(), process };
            let agreement = Agreement { spec_hash: "a".repeat(64), workers: 1, first_step: 0 };
            move || connect(&cluster, &agreement, &AtomicBool::new(false)).map_err(|ending| ending.message).map(|_| ())
        };
        let waiting = std::thread::spawn(run(0));
        let stray = |bytes: &[u8]| {
            let mut socket = (0..100)
                .find_map(|_| {
                    sleep(Duration::from_millis(20));
                    TcpStream::connect(&addresses[0]).ok()
                })
                .unwrap();
            socket.write_all(bytes).unwrap();
        };
        stray(b"");
        stray(&[b'x'; 200]);
        assert_eq!(run(1)(), Ok(()));
        assert_eq!(waiting.join().unwrap(), Ok(()));
    }

    #[test]
    fn an_address_that_is_listed_twice_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "# two\n127.0.0.1:4001\n127.0.0.1:4002\n127.0.0.1:4001\n").unwrap();
        let ending = read_hosts(file.path()).unwrap_err();
        assert_eq!(ending.code, 2);
        assert!(
            ending.message.ends_with(":4: `127.0.0.1:4001` is process 0 already; each process needs an address of its own"),
            "{ending}"
        );
    }

    #[test]
    fn processes_of_different_specs_refuse_each_other() {
        for result in pair(["a", "b"]) {
            let message = result.unwrap_err();
            assert!(message.contains("resolved specs differ"), "{message}");
        }
    }
}
