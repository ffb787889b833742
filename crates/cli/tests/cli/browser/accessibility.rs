//! The pages that posse writes, judged by axe-core: by day in a wide window, by night on a phone.

use std::path::{Path, PathBuf};

use posse_testing::skip;
use serde_json::Value;

use super::{EXPERIMENT, chromium};
use crate::command::{directory_with, posse};

/// axe-core: in `AXE`, or where `cargo xtask test` puts it.
fn axe() -> Option<String> {
    let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/xtask/axe/package/axe.min.js");
    let script = std::env::var_os("AXE").map_or_else(usual, PathBuf::from);
    std::fs::read_to_string(script).ok()
}

/// The page as a reader of the dark theme has it: what the style sheet says of the night holds always.
fn by_night(page: &str) -> String {
    let night = page.replace("@media (prefers-color-scheme:dark)", "@media all");
    assert_ne!(night, page, "the page has colours for the night");
    night
}

/// What axe-core has against each of some pages, which are shown side by side in frames of these widths.
fn judge(chromium: &Path, axe: &str, directory: &Path, pages: &[(String, u32)]) -> Vec<Value> {
    const RUN: &str = "addEventListener('load', async () => {
        for (const part of document.querySelectorAll('details')) part.open = true;
        const found = await axe.run(document, { resultTypes: ['violations'] });
        const list = found.violations.map(({ id, help, nodes }) =>
            ({ id, help, nodes: nodes.slice(0, 3).map((node) => node.html + ': ' + node.failureSummary) }));
        parent.postMessage(JSON.stringify([+location.hash.slice(1), found.passes.length, list]), '*');
    });";
    let mut frames = String::new();
    for (place, (page, width)) in pages.iter().enumerate() {
        let judged = page.replacen("</body>", &format!("<script>{axe}\n{RUN}</script></body>"), 1);
        std::fs::write(directory.join(format!("judged-{place}.html")), judged).unwrap();
        frames.push_str(&format!(
            "<iframe src=\"judged-{place}.html#{place}\" style=\"width:{width}px;height:900px;border:0\"></iframe>"
        ));
    }
    let all = directory.join("all.html");
    let listen = "addEventListener('message', (event) => {
        const line = document.createElement('pre');
        line.textContent = 'judged ' + event.data.replace(/[<>&]/g, (sign) => '\\\\u00' + sign.charCodeAt(0).toString(16)) + ' end';
        document.body.append(line);
    });";
    std::fs::write(&all, format!("<!doctype html><body><script>{listen}</script>{frames}</body>")).unwrap();
    let dom = chromium::dump(chromium, &all);
    let lines = dom.split("<pre>judged ").skip(1).map(|part| part.split(" end</pre>").next().unwrap());
    let mut found: Vec<Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    found.sort_by_key(|judged| judged[0].as_u64());
    assert_eq!(found.len(), pages.len(), "every page was judged: {dom}");
    found
}

#[test]
fn pages_have_no_accessibility_errors_by_day_or_by_night() {
    let (Some(chromium), Some(axe)) = (chromium::find(), axe()) else {
        skip("the accessibility of pages was not tested: it needs Chromium, and axe.min.js in AXE");
        return;
    };
    let directory = directory_with(EXPERIMENT);
    let home = directory.path();
    let table: String = (0..40).map(|row| format!("{row},{},{}\n", row % 7, ["a", "b"][row % 2])).collect();
    std::fs::write(home.join("t.csv"), format!("x,y,class\n{table}")).unwrap();
    let commands: [&[&str]; 5] = [
        &["run", "x.toml", "--out", "r", "-q"],
        &["report", "r", "-q"],
        &["demo", "--seconds", "0.5", "--interactions", "800", "--agents", "6", "--out", "d"],
        &["data", "prepare", "table", "--raw", "t.csv", "--out", "t", "--label", "class"],
        &["data", "health", "t", "--html", "health.html"],
    ];
    for command in commands {
        let ran = posse(home, command);
        assert_eq!(ran.code, 0, "{command:?}: {}", ran.stderr);
    }
    let mut pages: Vec<(String, u32)> = Vec::new();
    for file in ["r/report.html", "d/index.html", "health.html"] {
        let page = std::fs::read_to_string(home.join(file)).unwrap();
        pages.push((by_night(&page), 390));
        pages.push((page, 1200));
    }
    // A page with an error that is planted: the judge sees it.
    pages.push((pages[1].0.replacen("<main>", "<main><img src=\"data:,\">", 1), 1200));
    let mut found = judge(&chromium, &axe, home, &pages);
    let planted = found.pop().unwrap();
    assert!(planted[2].as_array().unwrap().iter().any(|error| error["id"] == "image-alt"), "{planted:#}");
    for judged in found {
        assert!(judged[1].as_u64().unwrap() > 10, "rules were tried: {judged:#}");
        assert_eq!(judged[2], Value::Array(Vec::new()), "{judged:#}");
    }
}
