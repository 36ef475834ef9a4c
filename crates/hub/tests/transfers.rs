//! Tests of transfers to and from a server on this machine with the hub's API.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use common::{LARGE, Server, State};
use taper_hub::{Hub, HubError, HubEvent, PushSettings, pull, push};

/// Files of every kind: small files, large files, files that are uploaded in parts, empty files,
/// files in folders, and files with unusual names.
fn contents() -> BTreeMap<String, Vec<u8>> {
    let bytes =
        |count: usize, seed: usize| (0..count).map(|at| (at * at / 7 + seed) as u8).collect();
    [
        ("README.md", bytes(300, 1)),
        ("config.json", b"{}\n".to_vec()),
        ("empty.txt", Vec::new()),
        ("model.safetensors", bytes(5 * LARGE + 17, 2)),
        ("onnx/encoder model.onnx", bytes(LARGE, 3)),
        ("onnx/größe+50%.json", bytes(40, 4)),
    ]
    .map(|(path, bytes)| (path.to_owned(), bytes))
    .into()
}

fn write(folder: &Path, contents: &BTreeMap<String, Vec<u8>>) {
    for (path, bytes) in contents {
        fs::create_dir_all(folder.join(path).parent().unwrap()).unwrap();
        fs::write(folder.join(path), bytes).unwrap();
    }
}

fn settings() -> PushSettings {
    PushSettings { revision: "main".to_owned(), private: true, message: "A model".to_owned() }
}

fn hub(server: &Server, token: Option<&str>) -> Hub {
    Hub::new(&server.endpoint, token.map(str::to_owned)).unwrap()
}

#[test]
fn a_folder_comes_back_with_every_byte() {
    let server = Server::start();
    server.state.lock().unwrap().token = Some("hf_secret".to_owned());
    let (hub, folder) = (hub(&server, Some("hf_secret\n")), tempfile::tempdir().unwrap());
    let source = folder.path().join("source");
    write(&source, &contents());
    fs::write(source.join(".hidden"), "not for others").unwrap();
    let pushed = push(&hub, &source, "me/model", &settings(), &mut |_| {}).unwrap();
    assert_eq!(server.files("me/model", "main"), contents());
    // Requests that verify a large file have the headers that the hub named.
    let state = server.state.lock().unwrap();
    let requests = state.requests.iter().zip(&state.headers);
    let verified: Vec<_> = requests.filter(|(request, _)| request.ends_with("/verify")).collect();
    assert_eq!(verified.len(), 2);
    for (request, headers) in verified {
        assert!(request.contains(headers["x-verify"].as_str()), "{request}: {headers:?}");
    }
    drop(state);
    let bytes: usize = contents().values().map(Vec::len).sum();
    assert_eq!((pushed.files, pushed.bytes), (contents().len(), bytes as u64));
    let target = folder.path().join("target");
    let pulled = pull(&hub, "me/model", &target, "main", &mut |_| {}).unwrap();
    assert_eq!(
        (&pulled.commit, pulled.files, pulled.bytes),
        (&pushed.commit, pushed.files, pushed.bytes)
    );
    for (path, bytes) in contents() {
        assert_eq!(fs::read(target.join(&path)).unwrap(), bytes, "{path}");
    }
    // A large file that the hub already has is not sent again. Also tests that a push can create a
    // branch, and that a pull can name a commit.
    let mut changed = contents();
    changed.insert("config.json".to_owned(), b"{\"a\": 1}".to_vec());
    write(&source, &changed);
    let other = PushSettings { revision: "other/branch".to_owned(), ..settings() };
    let mut sent = Vec::new();
    let observer = &mut |event: HubEvent<'_>| {
        if let HubEvent::Transfers { path, .. } = event {
            sent.push(path.to_owned());
        }
    };
    let again = push(&hub, &source, "me/model", &other, observer).unwrap();
    assert!(!sent.iter().any(|path| path.ends_with(".safetensors")), "{sent:?}");
    assert_eq!(server.files("me/model", "main"), contents());
    let at_commit = folder.path().join("at-commit");
    pull(&hub, "me/model", &at_commit, &again.commit, &mut |_| {}).unwrap();
    assert_eq!(fs::read(at_commit.join("config.json")).unwrap(), b"{\"a\": 1}");
}

#[test]
fn a_download_goes_on_where_it_broke() {
    let server = Server::start();
    let (hub, folder) = (hub(&server, None), tempfile::tempdir().unwrap());
    let [source, target] = ["source", "target"].map(|name| folder.path().join(name));
    write(&source, &contents());
    push(&hub, &source, "me/model", &settings(), &mut |_| {}).unwrap();
    server.state.lock().unwrap().breaks_after = Some(LARGE + 1);
    let error = pull(&hub, "me/model", &target, "main", &mut |_| {}).unwrap_err();
    assert!(matches!(error, HubError::Network { .. }), "{error}");
    assert!(!target.join("model.safetensors").exists());
    let mut seen = Vec::new();
    let observer = &mut |event: HubEvent<'_>| match event {
        HubEvent::Transfers { path, from, .. } => seen.push((path.to_owned(), from)),
        HubEvent::IsThere { path } => seen.push((path.to_owned(), u64::MAX)),
        _ => {}
    };
    pull(&hub, "me/model", &target, "main", observer).unwrap();
    assert!(seen.contains(&("model.safetensors".to_owned(), LARGE as u64 + 1)), "{seen:?}");
    assert!(seen.contains(&("README.md".to_owned(), u64::MAX)), "{seen:?}");
    assert_eq!(server.state.lock().unwrap().ranges, [format!("bytes={}-", LARGE + 1)]);
    for (path, bytes) in contents() {
        assert_eq!(fs::read(target.join(&path)).unwrap(), bytes, "{path}");
    }
    let names = fs::read_dir(&target).unwrap().map(|file| file.unwrap().file_name());
    assert!(names.into_iter().all(|name| !name.to_string_lossy().starts_with('.')));
}

#[test]
fn damaged_and_other_files_are_refused() {
    let server = Server::start();
    let (hub, folder) = (hub(&server, None), tempfile::tempdir().unwrap());
    let [source, target] = ["source", "target"].map(|name| folder.path().join(name));
    write(&source, &contents());
    push(&hub, &source, "me/model", &settings(), &mut |_| {}).unwrap();
    server.state.lock().unwrap().damages = true;
    for _ in 0..2 {
        let error = pull(&hub, "me/model", &target, "main", &mut |_| {}).unwrap_err();
        assert!(matches!(&error, HubError::Damaged { path } if path == "README.md"), "{error}");
    }
    server.state.lock().unwrap().damages = false;
    fs::write(target.join("config.json"), "mine").unwrap();
    let error = pull(&hub, "me/model", &target, "main", &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("config.json") && error.contains("another content"), "{error}");
    assert_eq!(fs::read(target.join("config.json")).unwrap(), b"mine");
    // Paths that lead out of the folder are refused.
    for path in ["../out", "/etc/out", "a/../../out", "a\\out"] {
        let mut state = server.state.lock().unwrap();
        let key = ("me/model".to_owned(), "main".to_owned());
        let files = state.repositories.get_mut(&key).unwrap();
        files.clear();
        files.insert(path.to_owned(), (b"x".to_vec(), false));
        drop(state);
        let other = folder.path().join("other");
        let error = pull(&hub, "me/model", &other, "main", &mut |_| {}).unwrap_err().to_string();
        assert!(error.contains("leads out of the folder"), "{error}");
        assert!(!folder.path().join("out").exists());
    }
}

#[test]
fn a_body_is_read_up_to_the_size_of_its_file() {
    let server = Server::start();
    let (hub, folder) = (hub(&server, None), tempfile::tempdir().unwrap());
    let [source, target] = ["source", "target"].map(|name| folder.path().join(name));
    write(&source, &contents());
    push(&hub, &source, "me/model", &settings(), &mut |_| {}).unwrap();
    server.state.lock().unwrap().lengthens = 1 << 20;
    pull(&hub, "me/model", &target, "main", &mut |_| {}).unwrap();
    for (path, bytes) in contents() {
        assert_eq!(fs::read(target.join(&path)).unwrap(), bytes, "{path}");
    }
}

#[test]
fn a_file_can_have_the_longest_name() {
    let server = Server::start();
    let (hub, folder) = (hub(&server, None), tempfile::tempdir().unwrap());
    let [source, target] = ["source", "target"].map(|name| folder.path().join(name));
    let names = [format!("{}a", "ö".repeat(127)), format!("{}b", "ö".repeat(127))];
    write(&source, &names.clone().map(|name| (name, b"same".to_vec())).into());
    push(&hub, &source, "me/model", &settings(), &mut |_| {}).unwrap();
    pull(&hub, "me/model", &target, "main", &mut |_| {}).unwrap();
    for name in names {
        assert_eq!(fs::read(target.join(name)).unwrap(), b"same");
    }
}

#[cfg(unix)]
#[test]
fn links_in_a_circle_are_refused_and_other_links_are_followed() {
    use std::os::unix::fs::symlink;
    let server = Server::start();
    let (hub, folder) = (hub(&server, None), tempfile::tempdir().unwrap());
    let [source, other] = ["source", "other"].map(|name| folder.path().join(name));
    write(&source, &contents());
    write(&other, &[("deep/notes.txt".to_owned(), b"notes".to_vec())].into());
    symlink(&other, source.join("linked")).unwrap();
    symlink(source.join("config.json"), source.join("copy.json")).unwrap();
    push(&hub, &source, "me/model", &settings(), &mut |_| {}).unwrap();
    let files = server.files("me/model", "main");
    assert_eq!(files["linked/deep/notes.txt"], b"notes");
    assert_eq!(files["copy.json"], files["config.json"]);
    symlink(&source, other.join("deep/back")).unwrap();
    let error = push(&hub, &source, "me/model", &settings(), &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("linked/deep/back: this link leads to a folder around it"), "{error}");
}

#[test]
fn no_other_server_gets_the_token() {
    let (server, other) = (Server::start(), Server::start());
    server.state.lock().unwrap().token = Some("hf_secret".to_owned());
    let (hub, folder) = (hub(&server, Some("hf_secret")), tempfile::tempdir().unwrap());
    let source = folder.path().join("source");
    write(&source, &contents());
    // Both addresses lead to the other server. In the first one, the hub's address comes before the
    // `@`, where a user name stands.
    let authority = other.endpoint.strip_prefix("http://").unwrap();
    for verifier in [format!("{}@{authority}", server.endpoint), other.endpoint.clone()] {
        server.state.lock().unwrap().verifies_at = Some(verifier);
        let error = push(&hub, &source, "me/model", &settings(), &mut |_| {}).unwrap_err();
        assert!(matches!(error, HubError::Missing { .. }), "{error}");
    }
    server.state.lock().unwrap().verifies_at = None;
    push(&hub, &source, "me/model", &settings(), &mut |_| {}).unwrap();
    server.state.lock().unwrap().redirects_to = Some(other.endpoint.clone());
    let target = folder.path().join("target");
    let error = pull(&hub, "me/model", &target, "main", &mut |_| {}).unwrap_err();
    assert!(matches!(error, HubError::Missing { .. }), "{error}");
    let state = other.state.lock().unwrap();
    let is_asked = |verb: &str| state.requests.iter().filter(|asked| asked.contains(verb)).count();
    assert_eq!((is_asked("/verify"), is_asked("/resolve/")), (2, 1), "{:?}", state.requests);
    for headers in &state.headers {
        let token = headers.values().find(|value| value.contains("hf_secret"));
        assert_eq!((token, headers.get("referer")), (None, None), "{headers:?}");
    }
}

#[test]
fn each_refusal_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    write(&source, &contents());
    type Change = fn(&mut State);
    let cases: [(Change, Option<&str>, &str); 8] = [
        (|state| state.token = Some("right".to_owned()), None, "set HF_TOKEN"),
        (
            |state| state.token = Some("right".to_owned()),
            Some("wrong"),
            "does not accept the token",
        ),
        (|state| state.refuses = Some(("/create", 403)), Some("read"), "right to write"),
        (|state| state.refuses = Some(("/preupload", 404)), None, "--revision"),
        (|state| state.refuses = Some(("/commit", 409)), None, "run the same command again"),
        (|state| state.refuses = Some(("/commit", 412)), None, "run the same command again"),
        (|state| state.refuses = Some(("/batch", 503)), None, "try again later"),
        (
            |state| state.refuses = Some(("/stored", 400)),
            None,
            "the hub answers 400, \"the reason\"",
        ),
    ];
    for (change, token, said) in cases {
        let server = Server::start();
        change(&mut server.state.lock().unwrap());
        let hub = hub(&server, token);
        let error = push(&hub, &source, "me/model", &settings(), &mut |_| {}).unwrap_err();
        let error = error.to_string();
        assert!(error.contains(said) && !error.contains('\n'), "{said}: {error}");
        assert!(token.is_none_or(|token| !error.contains(token) || token == "read"), "{error}");
    }
    let server = Server::start();
    let missing = pull(&hub(&server, None), "me/none", folder.path(), "main", &mut |_| {});
    let missing = missing.unwrap_err().to_string();
    assert!(missing.contains("me/none at main") && missing.contains("404"), "{missing}");
    for name in ["model", "a/b/c", "/x", "me/", "me/.git", "me/größe", "../x"] {
        let error = push(&hub(&server, None), &source, name, &settings(), &mut |_| {}).unwrap_err();
        assert!(matches!(error, HubError::Repository(_)), "{error}");
    }
    // Nothing listens at this port, because the listener is closed again at once.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let hub = Hub::new(&format!("http://{free}"), None).unwrap();
    let error = pull(&hub, "me/model", folder.path(), "main", &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("check the network and HF_ENDPOINT"), "{error}");
}
