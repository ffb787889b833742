//! `posse data fetch` against a publisher on this machine.

mod server;

use std::path::Path;

use super::command::{Ran, posse};
use server::{Manner, Server};

/// MAGIC in small: the format of the file, with few rows. Its hash is not the known one.
fn rows() -> Vec<u8> {
    let row = |i: u32| {
        let numbers: Vec<String> = (0..10).map(|j| format!("{}.5", (i * 7 + j * 3) % 41)).collect();
        format!("{},{}\n", numbers.join(","), if i.is_multiple_of(3) { "h" } else { "g" })
    };
    (0..400).map(row).collect::<String>().into_bytes()
}

/// Files of MovieLens 100k, whose hashes nobody has pinned.
const FILES: [&str; 3] = ["u.data", "u.item", "u.genre"];

/// A directory for a test, with the server's certificate in it.
struct Place {
    directory: tempfile::TempDir,
    server: Server,
}

impl Place {
    fn new(files: impl IntoIterator<Item = (&'static str, Vec<Manner>)>) -> Self {
        let (directory, server) = (tempfile::tempdir().unwrap(), Server::new(files));
        std::fs::write(directory.path().join("ca.pem"), &server.authority).unwrap();
        Self { directory, server }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn fetch(&self, name: &str, from: &str, more: &[&str]) -> Ran {
        let from = format!("{}{from}", self.server.address);
        let usual = ["data", "fetch", name, "--ca", "ca.pem", "--accept-licence", "--quiet", "--from", &from];
        posse(self.path(), &[&usual, more].concat())
    }

    fn text(&self, file: &str) -> Vec<u8> {
        std::fs::read(self.path().join(file)).unwrap()
    }
}

fn served(bytes: &[u8]) -> Vec<Manner> {
    vec![Manner::Whole(bytes.to_vec())]
}

#[test]
fn files_of_a_mirror_are_recorded_once_and_checked_ever_after() {
    let place = Place::new(FILES.map(|file| (leak(format!("/ml/{file}")), served(file.as_bytes()))));
    let first = place.fetch("ml-100k", "/ml/", &[]);
    assert_eq!(first.code, 0, "{}", first.stderr);
    for file in FILES {
        assert_eq!(place.text(&format!("downloads/ml-100k/{file}")), file.as_bytes());
    }
    assert_eq!(place.server.asked().len(), 3);
    // All there: nothing is asked for again.
    assert_eq!(place.fetch("ml-100k", "/ml/", &[]).code, 0);
    assert_eq!(place.server.asked().len(), 3);
    // A file that was damaged here is fetched again, and one that changed there is refused.
    std::fs::write(place.path().join("downloads/ml-100k/u.data"), "damaged").unwrap();
    assert_eq!(place.fetch("ml-100k", "/ml/", &[]).code, 0);
    assert_eq!(place.text("downloads/ml-100k/u.data"), b"u.data");
    let changed = Place::new(FILES.map(|file| (leak(format!("/ml/{file}")), served(b"other"))));
    std::fs::write(place.path().join("downloads/ml-100k/u.data"), "damaged").unwrap();
    std::fs::write(place.path().join("ca.pem"), &changed.server.authority).unwrap();
    let from = format!("{}/ml", changed.server.address);
    let arguments = ["data", "fetch", "ml-100k", "--ca", "ca.pem", "--from", &from];
    let refused = posse(place.path(), &arguments);
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("recorded at first use"), "{}", refused.stderr);
    assert_eq!(
        place.text("downloads/ml-100k/u.data"),
        b"damaged",
        "what was here is not replaced by something wrong"
    );
}

/// A path that lives as long as the test's process.
fn leak(path: String) -> &'static str {
    Box::leak(path.into_boxed_str())
}

#[test]
fn a_file_with_another_hash_than_the_known_one_is_refused() {
    let place = Place::new([("/magic04.data", served(&rows()))]);
    let ran = place.fetch("magic", "", &[]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("another file than the one we know"), "{}", ran.stderr);
    assert!(ran.stderr.contains("e9314b7ebd4b4b59"), "{}", ran.stderr);
    assert!(!place.path().join("downloads/magic/magic04.data").exists());
}

#[test]
fn a_cut_download_goes_on_where_it_stopped() {
    let (long, others) = (vec![b'x'; 300_000], served(b"1"));
    let cuts = vec![
        Manner::Cut(long.clone(), 100_000),
        Manner::Status(503),
        Manner::Cut(long.clone(), 50_000),
        Manner::Whole(long.clone()),
    ];
    let place = Place::new([("/u.data", cuts), ("/u.item", others.clone()), ("/u.genre", others)]);
    let ran = place.fetch("ml-100k", "", &[]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(place.text("downloads/ml-100k/u.data") == long);
    let asked = place.server.asked();
    assert_eq!(asked[..2], ["/u.data", "/u.data from 100000"]);
    assert_eq!(asked[2], "/u.data from 100000", "a busy server is asked again");
    assert_eq!(asked[3], "/u.data from 150000");
}

#[test]
fn a_server_without_ranges_begins_anew() {
    let (long, others) = (vec![b'y'; 200_000], served(b"1"));
    let cuts = vec![Manner::Cut(long.clone(), 70_000), Manner::WithoutRanges(long.clone())];
    let place = Place::new([("/u.data", cuts), ("/u.item", others.clone()), ("/u.genre", others)]);
    let ran = place.fetch("ml-100k", "", &[]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(place.text("downloads/ml-100k/u.data") == long);
}

#[test]
fn what_never_gets_on_is_given_up_and_goes_on_next_time() {
    let long = vec![b'z'; 100_000];
    let cuts = vec![Manner::Cut(long.clone(), 60_000), Manner::Status(500)];
    let others = || served(b"1");
    let place = Place::new([("/u.data", cuts), ("/u.item", others()), ("/u.genre", others())]);
    let ran = place.fetch("ml-100k", "", &[]);
    assert_eq!(ran.code, 2);
    assert!(
        ran.stderr.contains("status 500") && ran.stderr.contains("60000 bytes are kept"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("posse data fetch ml-100k --from DIR"), "{}", ran.stderr);
    assert!(!place.path().join("downloads/ml-100k/u.data").exists(), "a part is not the file");
    // Another day, another server.
    let later = Server::new([("/u.data", served(&long)), ("/u.item", others()), ("/u.genre", others())]);
    std::fs::write(place.path().join("ca.pem"), &later.authority).unwrap();
    let arguments = ["data", "fetch", "ml-100k", "--ca", "ca.pem", "--quiet", "--from", &later.address];
    let again = posse(place.path(), &arguments);
    assert_eq!(again.code, 0, "terms once accepted need no second answer: {}", again.stderr);
    assert_eq!(later.asked()[0], "/u.data from 60000");
    assert!(place.text("downloads/ml-100k/u.data") == long);
}

#[test]
fn redirects_are_followed_but_not_away_from_https() {
    let others = || served(b"1");
    let place = Place::new([
        ("/u.data", vec![Manner::Redirect("/moved/u.data".into())]),
        ("/moved/u.data", served(b"moved")),
        ("/u.item", others()),
        ("/u.genre", others()),
    ]);
    let ran = place.fetch("ml-100k", "", &[]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(place.text("downloads/ml-100k/u.data"), b"moved");
    for target in ["http://localhost:1/u.data", "/u.data"] {
        let place = Place::new([("/u.data", vec![Manner::Redirect(target.into())])]);
        let ran = place.fetch("ml-100k", "", &[]);
        assert_eq!(ran.code, 2, "to {target}: {}", ran.stderr);
    }
    let plain =
        posse(place.path(), &["data", "fetch", "ml-1m", "--accept-licence", "--from", "http://localhost:1"]);
    assert_eq!(plain.code, 2);
    assert!(plain.stderr.contains("only https://"), "{}", plain.stderr);
}

#[test]
fn silence_is_given_up_after_the_time_that_is_allowed() {
    let place = Place::new([("/u.data", vec![Manner::Silence])]);
    let ran = place.fetch("ml-100k", "", &["--timeout", "1"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("timeout"), "{}", ran.stderr);
    assert_eq!(place.server.asked().len(), 3, "tried three times");
}

#[test]
fn a_certificate_that_nobody_vouches_for_is_refused() {
    let place = Place::new([("/u.data", served(b"1"))]);
    let from = place.server.address.clone();
    let ran = posse(place.path(), &["data", "fetch", "ml-100k", "--accept-licence", "--from", &from]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("certificate"), "{}", ran.stderr);
    assert!(place.server.asked().is_empty());
}

#[test]
fn terms_have_to_be_accepted() {
    let place = Place::new([("/u.data", served(b"1"))]);
    let arguments = ["data", "fetch", "ml-100k", "--ca", "ca.pem", "--from", &place.server.address];
    let ran = posse(place.path(), &arguments);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("research use") && ran.stderr.contains("--accept-licence"), "{}", ran.stderr);
    assert!(place.server.asked().is_empty(), "nothing is fetched before");
}

#[test]
fn an_archive_is_unpacked_and_prepared() {
    let archive = zip(&[
        ("ml-100k/u.data", &ratings()),
        ("ml-100k/u.item", &items()),
        ("ml-100k/u.genre", b"unknown|0\nAction|1\n"),
    ]);
    let place = Place::new([("/ml-100k.zip", served(&archive))]);
    let more = ["--out", "data/ml", "--", "--groups", "2"];
    let ran = place.fetch("ml-100k", "/ml-100k.zip", &more);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains("data = \"data/ml\""), "{}", ran.stdout);
    assert!(place.path().join("data/ml/manifest.json").exists());
    assert!(!place.path().join("downloads/ml-100k/ml-100k.zip").exists(), "the archive has done its work");
    // And its users can be drawn: eight of them with 30 ratings each.
    let drawn = posse(place.path(), &["data", "users", "data/ml", "--svg", "users.svg"]);
    assert_eq!(drawn.code, 0, "{}", drawn.stderr);
    let picture = String::from_utf8(place.text("users.svg")).unwrap();
    assert_eq!(picture.matches("r=\"3\"").count(), 8, "{}", drawn.stdout);
    assert!(drawn.stdout.contains("21 to 30      8     240"), "{}", drawn.stdout);
}

#[test]
fn an_archive_without_the_file_is_refused() {
    let place = Place::new([("/x.zip", served(&zip(&[("readme.txt", b"nothing here")])))]);
    let ran = place.fetch("ml-100k", "/x.zip", &[]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("u.data is not in the archive"), "{}", ran.stderr);
    let broken = Place::new([("/x.zip", served(b"this is not an archive at all"))]);
    let ran = broken.fetch("ml-100k", "/x.zip", &[]);
    assert!(ran.stderr.contains("zip archive"), "{}", ran.stderr);
}

#[test]
fn a_directory_can_be_the_mirror() {
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(place.path().join("mine")).unwrap();
    let archive = zip(&[("u.data", b"1"), ("u.item", b"2"), ("u.genre", b"3")]);
    std::fs::write(place.path().join("mine/anything.zip"), archive).unwrap();
    let arguments = ["data", "fetch", "ml-100k", "--accept-licence", "--from", "mine", "--to", "raw"];
    let ran = posse(place.path(), &arguments);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains("posse data prepare ml-100k --raw raw"), "{}", ran.stdout);
    assert_eq!(std::fs::read(place.path().join("raw/u.item")).unwrap(), b"2");
    let ran = posse(place.path(), &["data", "fetch", "magic", "--accept-licence", "--from", "mine"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("magic04.data is not in mine"), "{}", ran.stderr);
    assert!(ran.stderr.contains("archive.ics.uci.edu"), "says where it comes from: {}", ran.stderr);
}

fn ratings() -> Vec<u8> {
    let line = |i: u32| format!("{}\t{}\t{}\t{}\n", i % 8 + 1, i * 5 % 30 + 1, i % 5 + 1, 1000 + i);
    (0..240).map(line).collect::<String>().into_bytes()
}

fn items() -> Vec<u8> {
    let line = |i: u32| format!("{i}|Film {i} (1990)|01-Jan-1990|||{}|{}\n", i % 2, (i + 1) % 2);
    (1..=30).map(line).collect::<String>().into_bytes()
}

/// A zip archive of stored files.
fn zip(files: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, bytes) in files {
        let mut crc = flate2::Crc::new();
        crc.update(bytes);
        let mut common = vec![20, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        for number in [crc.sum(), bytes.len() as u32, bytes.len() as u32] {
            common.extend(number.to_le_bytes());
        }
        common.extend((name.len() as u32).to_le_bytes());
        directory.extend(b"PK\x01\x02\x14\x00");
        directory.extend(&common);
        directory.extend([0; 10]);
        directory.extend((out.len() as u32).to_le_bytes());
        directory.extend(name.as_bytes());
        out.extend(b"PK\x03\x04");
        out.extend(&common);
        out.extend(name.as_bytes());
        out.extend(*bytes);
    }
    let (start, size, count) = (out.len() as u32, directory.len() as u32, files.len() as u16);
    out.extend(directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend(count.to_le_bytes());
    out.extend(count.to_le_bytes());
    out.extend(size.to_le_bytes());
    out.extend(start.to_le_bytes());
    out.extend([0, 0]);
    out
}
