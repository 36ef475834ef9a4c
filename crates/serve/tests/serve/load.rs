//! Many clients at the same time: each must get the answer to its own request.

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::common::{Reply, Running, frozen, lines, singly};

/// Number of clients that send requests at the same time.
const CLIENTS: usize = 64;
/// Number of requests that each client sends.
const REQUESTS: usize = 6;

#[test]
fn sixty_four_clients_get_what_each_would_get_alone() {
    let server = Running::start(vec![frozen()]);
    let lines = lines();
    let expected = singly(&lines);
    let answered = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (server, lines, expected, answered) = (&server, &lines, &expected, &answered);
            scope.spawn(move || {
                for request in 0..REQUESTS {
                    let first = (client * 7 + request * 3) % lines.len();
                    let count = 1 + (client + request) % 3;
                    let own: Vec<usize> =
                        (first..first + count).map(|line| line % lines.len()).collect();
                    let text: Vec<&String> = own.iter().map(|&line| &lines[line]).collect();
                    let body = json!({ "text": text, "alternatives": 1 + client % 2 }).to_string();
                    let kind = "Content-Type: application/json\r\n";
                    let bytes = server.bytes("POST", "/api/translate", kind, body.as_bytes());
                    let mut stream = server.connect();
                    match (client + request) % 8 {
                        // The client leaves before the answer.
                        0 => {
                            stream.write_all(&bytes).expect("sent");
                            continue;
                        }
                        // The client sends bytes that are not a request.
                        1 => {
                            let _ = stream.write_all(&bytes[bytes.len() / 2..]);
                            continue;
                        }
                        // The client sends and reads slowly.
                        2 => {
                            for part in bytes.chunks(bytes.len() / 4) {
                                stream.write_all(part).expect("sent");
                                std::thread::sleep(Duration::from_millis(10));
                            }
                            std::thread::sleep(Duration::from_millis(50));
                        }
                        _ => stream.write_all(&bytes).expect("sent"),
                    }
                    let found = Reply::read(&mut stream).expect(200);
                    for (place, &line) in own.iter().enumerate() {
                        let best = &found["translations"][place]["translations"][0]["text"];
                        assert_eq!(best, &expected[line], "client {client}, request {request}");
                    }
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    // In a quarter of the requests, the client left or sent garbage, so no answer was counted.
    assert_eq!(answered.into_inner(), CLIENTS * REQUESTS * 6 / 8);
    let batches = server.counter("taper_batch_lines_count");
    let computed = server.counter("taper_lines_total");
    assert!(computed >= 2.0 * batches, "{computed} lines in {batches} batches");
    assert_eq!(server.counter("taper_panics_total"), 0.0);
}
