//! Archives to hand out: the binary, its completions, manual pages, licences and a bill of materials.

mod sbom;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{cargo_command, output, run, works};

const STATIC: &str = "x86_64-unknown-linux-musl";
/// Shells with the names under which they look for completions.
const SHELLS: [(&str, &str); 3] = [("bash", "posse.bash"), ("zsh", "_posse"), ("fish", "posse.fish")];
const PAGES: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"];

/// `cargo xtask dist [--target TRIPLE]`: builds one archive in `target/dist` and its checksum.
pub(crate) fn command(root: &Path, options: &[&str]) -> Result<(), String> {
    let target = match options {
        [] => STATIC,
        ["--target", target] => target,
        _ => return Err("cargo xtask dist takes --target TRIPLE and nothing else".into()),
    };
    prepare(root, target)?;
    let build = ["build", "--profile=dist", "--locked", "--package=posse-cli", "--target", target];
    let mut cargo = cargo_command(root);
    // ring has C code, which must be compiled for the same C library.
    if target == STATIC && works("musl-gcc", &["--version"]) {
        cargo.env("CC_x86_64_unknown_linux_musl", "musl-gcc");
    }
    run(cargo.args(build))?;
    let version = env!("CARGO_PKG_VERSION");
    let name = format!("posse-{version}-{target}");
    let home = root.join("target/dist");
    let stage = home.join(&name);
    let _ = std::fs::remove_dir_all(&stage);
    make(&stage)?;
    let binary = stage.join("posse");
    copy(&root.join(format!("target/{target}/dist/posse")), &binary)?;
    for page in PAGES {
        copy(&root.join(page), &stage.join(page))?;
    }
    // The binary writes its own completions and pages, so it must run here.
    make(&stage.join("completions"))?;
    for (shell, file) in SHELLS {
        let script = output(Command::new(&binary).args(["completions", shell]))?;
        write(&stage.join("completions").join(file), &script)?;
    }
    run(Command::new(&binary).arg("manual").arg(stage.join("man")))?;
    write(&stage.join("sbom.cdx.json"), &sbom::sbom(root, target)?)?;
    pack(root, &home, &name)
}

/// Makes sure that the target's standard library and C compiler are there.
fn prepare(root: &Path, target: &str) -> Result<(), String> {
    let installed = output(Command::new("rustup").args(["target", "list", "--installed"]).current_dir(root));
    if !installed.is_ok_and(|list| list.lines().any(|line| line == target)) {
        run(Command::new("rustup").args(["target", "add", target]).current_dir(root))
            .map_err(|error| format!("there is no standard library for {target}: {error}"))?;
    }
    let is_compiler_missing = target == STATIC && !works("musl-gcc", &["--version"]);
    if is_compiler_missing && !works("apt-get", &["install", "-y", "-qq", "musl-tools"]) {
        return Err("a static binary needs musl-gcc: install the package musl-tools".into());
    }
    Ok(())
}

/// Packs the directory so that the same content gives the same bytes, and writes its checksum.
fn pack(root: &Path, home: &Path, name: &str) -> Result<(), String> {
    let archive = format!("{name}.tar.gz");
    let time = output(Command::new("git").args(["log", "-1", "--format=@%ct"]).current_dir(root))?;
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=u+w,go-w"]);
    tar.arg(format!("--mtime={}", time.trim())).args([
        "--use-compress-program=gzip -9n",
        "-cf",
        &archive,
        name,
    ]);
    run(tar.current_dir(home))?;
    let sum = output(Command::new("sha256sum").arg(&archive).current_dir(home))?;
    write(&home.join(format!("{archive}.sha256")), &sum)?;
    let length = std::fs::metadata(home.join(&archive)).map_or(0, |file| file.len());
    println!("{} ({:.1} MB)\n{}", home.join(&archive).display(), length as f64 / 1e6, sum.trim());
    Ok(())
}

fn make(path: &Path) -> Result<(), String> {
    std::fs::create_dir_all(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn copy(from: &Path, to: &PathBuf) -> Result<(), String> {
    std::fs::copy(from, to).map(drop).map_err(|error| format!("{}: {error}", from.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
