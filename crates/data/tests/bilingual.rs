//! Tests that files in the formats of translation tools, and compressed files, give the same pairs
//! as in other programs. These programs wrote the files (`scripts/golden/bilingual.py`).

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use common::mentions;
use taper_data::{Corpora, Corpus, DataConfig, read_pairs};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/bilingual")
}

fn read(corpus: Corpus) -> Result<Vec<[String; 2]>, String> {
    let config = DataConfig { dir: golden(), ..DataConfig::default() };
    let pairs = read_pairs(&config, Corpora::from(&corpus)).map_err(|error| error.to_string())?;
    Ok(pairs.into_iter().map(|pair| [pair.source, pair.target]).collect())
}

fn file(path: PathBuf) -> Corpus {
    Corpus { file: path.into(), ..Corpus::default() }
}

fn expected() -> BTreeMap<String, Vec<[String; 2]>> {
    serde_json::from_slice(&std::fs::read(golden().join("expected.json")).unwrap()).unwrap()
}

#[test]
fn files_of_other_programs_give_their_pairs() {
    let expected = expected();
    let lines = &expected["lines"];
    for archive in ["stored.zip", "deflated.zip", "bzip2.zip"] {
        assert_eq!(&read(file(golden().join(archive))).unwrap(), lines, "{archive}");
    }
    let packed = Corpus::of_stem("packed");
    assert_eq!(&read(packed).unwrap(), lines);
    for name in ["table.tsv.zip", "memory.tmx", "exchange.xlf", "catalog.po"] {
        assert_eq!(&read(file(golden().join(name))).unwrap(), &expected[name], "{name}");
    }
    assert_eq!(read(file(golden().join("wide.tmx"))).unwrap(), expected["memory.tmx"]);
}

#[test]
fn a_memory_is_read_from_a_compressed_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory.tmx.zst");
    let text = std::fs::read(golden().join("memory.tmx")).unwrap();
    std::fs::write(&path, zstd::encode_all(&text[..], 1).unwrap()).unwrap();
    assert_eq!(read(file(path)).unwrap(), expected()["memory.tmx"]);
}

#[test]
fn faults_name_the_file_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let said = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let error = read(file(path)).unwrap_err();
        mentions(&error, &[name]);
        error
    };
    let of = |name: &str| std::fs::read(golden().join(name)).unwrap();
    mentions(said("a.tmx", b"<tmx>\n<body>\n</tmx>"), &["a.tmx, line 3: not well-formed XML"]);
    let error = said("b.tmx", b"<!DOCTYPE tmx [<!ENTITY a 'aa'>]>\n<tmx>\n&a;</tmx>");
    mentions(&error, &["line 3: the entity &a;"]);
    mentions(said("c.po", b"msgid \"a\"\nmsgstr \"\"\n"), &["without a finished translation"]);
    mentions(said("d.zip", &of("table.tsv.zip")), &["no text whose name ends in .en"]);
    mentions(said("e.tsv.zip", &of("stored.zip")), &["the files Books.de-en.de"]);
    mentions(said("f.zip", &of("stored.zip")[..200]), &["not a readable ZIP archive"]);
    // Changes a byte of a text that is stored without compression.
    let mut damaged = of("stored.zip");
    let at = damaged.windows(4).position(|bytes| bytes == b"Open").unwrap();
    damaged[at] = b'o';
    assert!(said("g.zip", &damaged).contains("its checksum is another"));
    let mut xz = of("packed.en.xz");
    let middle = xz.len() / 2;
    xz[middle] ^= 0x40;
    let path = folder.path().join("h.tsv.xz");
    std::fs::write(&path, xz).unwrap();
    assert!(read(file(path)).unwrap_err().contains("h.tsv.xz"));
}

#[test]
fn a_file_that_grows_without_end_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bomb.tsv.zst");
    let row = format!("a\t{}\n", "b".repeat(1 << 20));
    let mut encoder = zstd::Encoder::new(std::fs::File::create(&path).unwrap(), 1).unwrap();
    for _ in 0..260 {
        std::io::Write::write_all(&mut encoder, row.as_bytes()).unwrap();
    }
    encoder.finish().unwrap();
    let config = DataConfig::default();
    let corpus = file(path);
    let pairs = taper_data::PairReader::open(&config, Corpora::from(&corpus)).unwrap();
    let said = pairs.filter_map(Result::err).next().expect("refused").to_string();
    mentions(&said, &["bomb.tsv.zst", "1000 times"]);
}
