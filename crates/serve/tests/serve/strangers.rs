//! Pages of other sites, clients with too many connections, and bodies that are not worth reading.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::json;
use taper_serve::ServeSettings;

use crate::common::{Reply, Running, frozen, lines};

const JSON: &str = "Content-Type: application/json\r\n";
const FORM: &str = "Content-Type: application/x-www-form-urlencoded\r\n";
/// Header of a request from a page of another site.
const EVIL: &str = "Origin: https://evil.example\r\n";
/// Header with which a browser says that a request comes from another site.
const CROSS: &str = "Sec-Fetch-Site: cross-site\r\n";

#[test]
fn pages_of_other_sites_may_ask_nothing() {
    let server = Running::start(vec![frozen()]);
    let described = server.get("/openapi.json").expect(200);
    for (path, methods) in described["paths"].as_object().expect("paths") {
        for method in methods.as_object().expect("methods").keys() {
            for headers in [format!("{FORM}{EVIL}{CROSS}"), EVIL.to_owned(), CROSS.to_owned()] {
                let path = path.replace("{model}", "x").replace("{name}", "x");
                let reply = server.send(&method.to_uppercase(), &path, &headers, b"q=a");
                assert_eq!(reply.status, 403, "{method} {path} {headers}");
                assert!(reply.text().contains("another site"), "{}", reply.text());
            }
        }
    }
    // A link may be followed, and the server's own page may send requests.
    let link = format!("{CROSS}Sec-Fetch-Mode: navigate\r\n");
    assert_eq!(server.send("GET", "/", &link, b"").status, 200);
    let own = format!("{JSON}Origin: http://{}\r\nSec-Fetch-Site: same-origin\r\n", server.address);
    let reply = server.send("POST", "/api/translate", &own, br#"{"text": "red cat"}"#);
    assert!(!reply.head.contains("access-control"), "{}", reply.head);
    reply.expect(200);
}

#[test]
fn pages_of_an_origin_that_was_named_may_ask() {
    let mut settings = ServeSettings::new(vec![frozen()]);
    settings.origins = vec!["https://friend.example".to_owned()];
    settings.api_key = Some("open sesame".to_owned());
    let server = Running::with(settings);
    let friend = "Origin: https://friend.example\r\nSec-Fetch-Site: cross-site\r\n";
    let asks = "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: \
                authorization,content-type\r\n";
    let told = server.send("OPTIONS", "/translate", &format!("{friend}{asks}"), b"");
    assert_eq!(told.status, 204);
    for header in [
        "access-control-allow-origin: https://friend.example",
        "access-control-allow-methods: get, post",
        "access-control-allow-headers: authorization, content-type",
        "vary: origin",
    ] {
        assert!(told.head.contains(header), "{header} is not in {}", told.head);
    }
    let body = br#"{"q": "red cat", "source": "aa", "target": "bb", "api_key": "open sesame"}"#;
    for (key, status) in [("", 401), ("Authorization: Bearer open sesame\r\n", 200)] {
        let headers = format!("{JSON}{friend}{key}");
        let reply = server.send("POST", "/api/translate", &headers, br#"{"text": "red cat"}"#);
        assert_eq!(reply.status, status);
        assert!(reply.head.contains("access-control-allow-origin: https://friend.example"));
    }
    server.send("POST", "/translate", &format!("{JSON}{friend}"), body).expect(200);
    server.send("POST", "/translate", &format!("{JSON}{EVIL}"), body).expect(403);
    server.send("OPTIONS", "/translate", &format!("{EVIL}{asks}"), b"").expect(403);
}

/// Connects to the server from the address `from` of the loopback network.
fn connect(server: &Running, from: [u8; 4]) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let stream = runtime.expect("a runtime").block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        let from = SocketAddr::new(IpAddr::V4(Ipv4Addr::from(from)), 0);
        socket.bind(from).expect("an address of the loopback network");
        socket.connect(server.address).await.expect("connected").into_std().expect("a stream")
    });
    stream.set_nonblocking(false).expect("blocking");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    stream
}

#[test]
fn one_address_cannot_take_every_connection() {
    let mut settings = ServeSettings::new(vec![frozen()]);
    settings.limits.client_connections = 3;
    let server = Running::with(settings);
    let request = server.bytes("POST", "/api/translate", JSON, br#"{"text": "red cat"}"#);
    let ask = |mut stream: TcpStream| {
        stream.write_all(&request).expect("sent");
        Reply::read(&mut stream)
    };
    let mut greedy: Vec<TcpStream> = (0..3).map(|_| connect(&server, [127, 0, 0, 2])).collect();
    // Each of these three connections, the most for a client, is accepted and answered.
    let head = format!("GET /health HTTP/1.1\r\nHost: {}\r\n\r\n", server.address);
    for stream in &mut greedy {
        stream.write_all(head.as_bytes()).expect("sent");
        let mut first = [0; 15];
        stream.read_exact(&mut first).expect("an answer");
        assert_eq!(&first, b"HTTP/1.1 200 OK");
    }
    let refused = ask(connect(&server, [127, 0, 0, 2]));
    assert!(refused.head.contains("retry-after"), "{}", refused.head);
    let message = refused.expect(503)["error"].as_str().expect("text").to_owned();
    assert!(message.contains("3 connections"), "{message}");
    ask(connect(&server, [127, 0, 0, 3])).expect(200);
    drop(greedy);
    let begun = Instant::now();
    while ask(connect(&server, [127, 0, 0, 2])).status == 503 {
        assert!(begun.elapsed() < Duration::from_secs(30), "its places are not given back");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_body_that_is_too_long_is_not_asked_for() {
    let mut settings = ServeSettings::new(vec![frozen()]);
    settings.limits.body_bytes = 1000;
    let server = Running::with(settings);
    let send = |headers: &str| {
        let mut stream = server.connect();
        let head = format!(
            "POST /api/translate HTTP/1.1\r\nHost: {}\r\n{JSON}{headers}\r\n",
            server.address
        );
        stream.write_all(head.as_bytes()).expect("sent");
        stream
    };
    // A request whose body would be too long is refused before a byte of the body was sent.
    for expect in ["", "Expect: 100-continue\r\n"] {
        for length in ["1001", "9223372036854775807"] {
            let begun = Instant::now();
            let mut stream = send(&format!("{expect}Content-Length: {length}\r\n"));
            let mut first = [0; 12];
            stream.read_exact(&mut first).expect("an answer");
            assert_eq!(&first, b"HTTP/1.1 413", "{expect}{length}");
            assert!(begun.elapsed() < Duration::from_secs(15));
        }
    }
    // If the body is within the limit, the server asks for it with `100 Continue`.
    let body = json!({ "text": "red cat" }).to_string();
    let length = body.len();
    let mut stream =
        send(&format!("Connection: close\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n"));
    let mut first = [0; 25];
    stream.read_exact(&mut first).expect("an answer");
    assert_eq!(&first, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(body.as_bytes()).expect("sent");
    Reply::read(&mut stream).expect(200);
    // A client that sends its whole body before it reads still gets the reason of the refusal.
    let body = json!({ "text": "a".repeat(3 << 20) }).to_string();
    let reply = server.send("POST", "/api/translate", JSON, body.as_bytes());
    assert!(reply.expect(413)["error"].as_str().expect("text").contains("1000 bytes"));
}

#[test]
fn compressed_bodies_are_refused() {
    let server = Running::start(vec![frozen()]);
    let body = json!({ "text": lines()[0] }).to_string();
    for encoding in ["gzip", "br", "zstd", "identity, gzip", "deflate"] {
        let headers = format!("{JSON}Content-Encoding: {encoding}\r\n");
        let reply = server.send("POST", "/api/translate", &headers, body.as_bytes());
        let message = reply.expect(415)["error"].as_str().expect("text").to_owned();
        assert!(message.contains("Content-Encoding"), "{message}");
    }
    let headers = format!("{FORM}Content-Encoding: gzip\r\n");
    server.send("POST", "/translate", &headers, b"q=a&source=aa&target=bb").expect(415);
    let headers = "Content-Type: image/png\r\nContent-Encoding: gzip\r\n";
    let status = server.send("POST", "/api/classify-image", headers, b"x").status;
    assert!([404, 415].contains(&status), "{status}");
    let headers = format!("{JSON}Content-Encoding: identity\r\n");
    server.send("POST", "/api/translate", &headers, body.as_bytes()).expect(200);
}
