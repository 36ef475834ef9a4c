//! Tests of the rendezvous of processes by real sockets, when other programs (strangers) connect to
//! the port as well and send arbitrary data.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sha2::{Digest, Sha256};
use taper_trainer::{Exchange, ExchangeError, Rendezvous, Sockets};

/// First bytes of a greeting; the next constants are the version of the protocol, and the lengths
/// of the messages.
const MAGIC: &[u8] = b"TAPERNET";
const VERSION: u32 = 3;
const HELLO: usize = 54;
const CHALLENGE: usize = 48;
const PROOF: usize = 32;
/// Time limit of a rendezvous. It would be too short if process 0 waited for silent callers one
/// after the other.
const PATIENCE: Duration = Duration::from_secs(60);

fn meeting(rank: usize, size: usize, port: u16, key: &str) -> Rendezvous {
    let (host, key, patience) = ("127.0.0.1".to_owned(), key.to_owned(), PATIENCE);
    Rendezvous { rank, size, host, port, key, patience }
}

fn meet(meeting: &Rendezvous, listener: Option<TcpListener>) -> Result<Sockets, ExchangeError> {
    Sockets::meet(meeting, listener, &mut || Ok(()), Box::new(|_, _| {}))
}

fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// Connects `size` processes, and checks that each receives a message from all others.
fn meet_all(listener: TcpListener, size: usize, key: &str) {
    let port = listener.local_addr().unwrap().port();
    let hear_all = |rank: usize, listener: Option<TcpListener>| {
        let mut sockets = meet(&meeting(rank, size, port, key), listener).unwrap();
        let said = sockets.gather(vec![rank as u8]).unwrap();
        assert_eq!(said, (0..size).map(|rank| vec![rank as u8]).collect::<Vec<_>>());
    };
    std::thread::scope(|scope| {
        for rank in 1..size {
            scope.spawn(move || hear_all(rank, None));
        }
        hear_all(0, Some(listener));
    });
}

/// Greeting of earlier versions of the protocol, which contained the hash of the key.
fn former_greeting(rank: u32, size: u32, key: &str) -> Vec<u8> {
    let numbers = [2_u32, rank, size].map(u32::to_le_bytes).concat();
    [MAGIC, &numbers, &7_u16.to_le_bytes(), &Sha256::digest(key.as_bytes())].concat()
}

fn hello(rank: u32, size: u32) -> Vec<u8> {
    let numbers = [VERSION, rank, size].map(u32::to_le_bytes).concat();
    [MAGIC, &numbers, &7_u16.to_le_bytes(), &[9; 32]].concat()
}

fn call(port: u16, words: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(words).unwrap();
    stream
}

#[test]
fn strangers_neither_delay_a_meeting_nor_take_part() {
    let (listener, port) = listener();
    // Callers that send nothing, other data, or only the beginning of a greeting.
    let mut strangers: Vec<TcpStream> = (0..60).map(|_| call(port, b"")).collect();
    strangers.push(call(port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"));
    strangers.push(call(port, &[0xA5; 4096]));
    strangers.push(call(port, MAGIC));
    strangers.push(call(port, &hello(1, 3)[..HELLO - 1]));
    drop(call(port, &hello(1, 3)));
    call(port, b"").shutdown(Shutdown::Both).unwrap();
    // Callers that greet without a valid proof: some use an earlier version of the protocol, some
    // claim another number of processes, and some claim one of various ranks.
    for key in ["", "secret", "other"] {
        strangers.push(call(port, &former_greeting(1, 3, key)));
        strangers.push(call(port, &former_greeting(1, 7, key)));
    }
    for (rank, size) in [(1, 3), (0, 3), (2, 7), (u32::MAX, 3)] {
        strangers.push(call(port, &hello(rank, size)));
        strangers.push(call(port, &[hello(rank, size), vec![0; PROOF + 1000]].concat()));
    }
    // One caller sends a byte every 200 ms, without end. It connects before the rendezvous begins,
    // because the rendezvous could be over before the caller's thread starts.
    let (done, mut slow) = (AtomicBool::new(false), call(port, b""));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for byte in hello(1, 3).iter().cycle() {
                if done.load(Ordering::Relaxed) || slow.write_all(&[*byte]).is_err() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        meet_all(listener, 3, "secret");
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn more_strangers_than_are_heard_at_a_time_give_way() {
    let (listener, port) = listener();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut strangers = Vec::new();
            while !done.load(Ordering::Relaxed) && strangers.len() < 300 {
                strangers.extend(TcpStream::connect(("127.0.0.1", port)));
            }
        });
        meet_all(listener, 2, "secret");
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn without_a_key_processes_meet_on_one_machine_alone() {
    meet_all(listener().0, 2, "");
    for host in ["0.0.0.0", "node1", "192.0.2.7", "::"] {
        for rank in [0, 1] {
            let meeting = Rendezvous { host: host.to_owned(), ..meeting(rank, 2, 29_500, "") };
            let Err(error) = meet(&meeting, None) else { panic!("{host}: met") };
            let error = error.to_string();
            assert!(error.contains("TAPER_KEY") && error.contains(host), "{error}");
        }
    }
    // With a key, processes can meet at any address.
    let (free, port) = listener();
    drop(free);
    let meet_at = |rank: usize| {
        let meeting = Rendezvous { host: "0.0.0.0".to_owned(), ..meeting(rank, 2, port, "secret") };
        let mut sockets = meet(&meeting, None).unwrap();
        assert_eq!(sockets.gather(vec![7]).unwrap(), [[7], [7]]);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| meet_at(1));
        meet_at(0);
    });
}

#[test]
fn a_process_with_another_key_is_told_so_and_the_others_meet() {
    let (listener, port) = listener();
    std::thread::scope(|scope| {
        let wrong = scope.spawn(move || {
            let error = meet(&meeting(1, 2, port, "other"), None).err().expect("refused");
            assert!(error.to_string().contains("TAPER_KEY"), "{error}");
        });
        scope.spawn(move || {
            wrong.join().unwrap();
            meet(&meeting(1, 2, port, "secret"), None).unwrap().gather(vec![1]).unwrap();
        });
        meet(&meeting(0, 2, port, "secret"), Some(listener)).unwrap().gather(vec![0]).unwrap();
    });
}

#[test]
fn processes_of_another_number_are_told_once() {
    let (listener, port) = listener();
    std::thread::scope(|scope| {
        let other = scope.spawn(move || meet(&meeting(1, 3, port, "secret"), None).err());
        let error = meet(&meeting(0, 2, port, "secret"), Some(listener)).err().expect("refused");
        assert!(error.to_string().contains("one of 3"), "{error}");
        let other = other.join().unwrap().expect("refused");
        assert!(matches!(other, ExchangeError::Failed { rank: 0 }), "{other}");
    });
}

/// Lets a process connect to a listener that pretends to be process 0 but does not know the key.
/// The listener answers the process's proof with the result of `answer`. Returns all bytes that the
/// process has sent, and the process's error.
fn deceived(answer: impl Fn(&[u8]) -> Vec<u8>) -> (Vec<u8>, ExchangeError) {
    let (listener, port) = listener();
    std::thread::scope(|scope| {
        let process = scope.spawn(move || meet(&meeting(1, 2, port, "secret"), None).err());
        let (mut stream, _) = listener.accept().unwrap();
        let mut said = vec![0; HELLO];
        stream.read_exact(&mut said).unwrap();
        let mut challenge = [&said[..12], &0_u32.to_le_bytes()].concat();
        challenge.resize(CHALLENGE, 3);
        stream.write_all(&challenge).unwrap();
        let mut proof = [0; PROOF];
        stream.read_exact(&mut proof).unwrap();
        stream.write_all(&answer(&proof)).unwrap();
        said.extend(proof);
        (said, process.join().unwrap().expect("deceived"))
    })
}

#[test]
fn a_key_is_proved_and_never_sent_and_a_proof_serves_once() {
    let (said, error) = deceived(|_| [vec![1], vec![0; PROOF]].concat());
    assert!(error.to_string().contains("another key"), "{error}");
    let is_said = |part: &[u8]| said.windows(part.len()).any(|window| window == part);
    assert!(!is_said(b"secret") && !is_said(&Sha256::digest(b"secret")));
    // A process does not accept its own proof as an answer.
    let (_, error) = deceived(|proof| [&[1], proof].concat());
    assert!(error.to_string().contains("another key"), "{error}");
    // A recorded proof is not accepted by a process that knows the key, either.
    let (listener, port) = listener();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut thief = call(port, &said);
            let mut heard = Vec::new();
            // The caller is turned away, and the connection is closed.
            thief.read_to_end(&mut heard).unwrap();
            assert_eq!(heard[CHALLENGE..], [0; 1 + PROOF]);
            meet(&meeting(1, 2, port, "secret"), None).unwrap().gather(vec![1]).unwrap();
        });
        meet(&meeting(0, 2, port, "secret"), Some(listener)).unwrap().gather(vec![0]).unwrap();
    });
}
