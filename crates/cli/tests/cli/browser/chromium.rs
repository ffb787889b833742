//! Opening a page in headless Chromium.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Where Chromium is: in `CHROMIUM`, or under one of its names on the path.
pub(super) fn find() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("CHROMIUM") {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
    std::env::split_paths(&path)
        .flat_map(|directory| names.map(|name| directory.join(name)))
        .find(|candidate| candidate.is_file())
}

/// What the probe sees on `page` in a window of this width.
pub(super) fn probe(chromium: &Path, directory: &Path, page: &str, width: u32) -> Value {
    let before = format!("<head><script>{}</script>", include_str!("before.js"));
    let after = format!("<script>{}</script></body>", include_str!("probe.js"));
    let watched = page.replacen("<head>", &before, 1);
    let (rest, end) = watched.rsplit_once("</body>").unwrap();
    let file = directory.join("watched.html");
    std::fs::write(&file, format!("{rest}{after}{end}")).unwrap();
    // Windows have a least width; a frame has not.
    let frame = directory.join("frame.html");
    let html = format!(
        "<!doctype html><iframe id=\"f\" src=\"watched.html\" style=\"width:{width}px;height:900px;border:0\"></iframe>\
         <script>f.onload=()=>{{document.body.append(f.contentDocument.getElementById('probe')||'no probe')}}</script>"
    );
    std::fs::write(&frame, html).unwrap();
    let dom = dump(chromium, &frame);
    let text = dom.split_once("<pre id=\"probe\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let (text, _) = text.unwrap_or_else(|| panic!("{dom}"));
    serde_json::from_str(text).unwrap()
}

/// The document that a page has become once its scripts have run, for ten seconds of the page's own time.
pub(super) fn dump(chromium: &Path, page: &Path) -> String {
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new(chromium)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--disable-dev-shm-usage", "--allow-file-access-from-files", "--window-size=1400,1000"])
        .args(["--virtual-time-budget=10000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!dom.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    dom
}
