//! `posse new algorithm`: a crate with an algorithm that works, to change.
//!
//! Its sources are those of `examples/shared-greedy` under another name, so that the workspace's tests are tests of what
//! is written here. `crates/cli/algorithm` is a link to them: the published package has the files too.

use std::path::{Component, Path, PathBuf};

use anyhow::{Context, bail};

/// Paths in the new crate, with their texts.
const FILES: [(&str, &str); 8] = [
    ("Cargo.toml", include_str!("algorithm/Cargo.toml.txt")),
    ("README.md", include_str!("algorithm/README.md.txt")),
    ("src/lib.rs", include_str!("../../../algorithm/lib.rs")),
    ("src/agent.rs", include_str!("../../../algorithm/agent.rs")),
    ("src/coordinator.rs", include_str!("../../../algorithm/coordinator.rs")),
    ("src/message.rs", include_str!("../../../algorithm/message.rs")),
    ("tests/promises.rs", include_str!("algorithm/promises.rs.txt")),
    ("examples/regret.rs", include_str!("algorithm/regret.rs.txt")),
];

/// Writes the crate `name` to `directory`, which must not exist. `posse` is a clone of posse's repository; without it
/// the clone is looked for above the current directory.
pub(super) fn write(name: &str, directory: &Path, posse: Option<&Path>) -> anyhow::Result<()> {
    if !name.starts_with(|letter: char| letter.is_ascii_lowercase()) || name != name.to_ascii_lowercase() {
        bail!("{name}: a crate's name begins with a letter and has small letters only");
    }
    let here = std::env::current_dir().context("the current directory cannot be read")?;
    let clone = match posse {
        Some(path) if is_clone(path) => path.canonicalize()?,
        Some(path) => {
            bail!("{}: this is no clone of posse; it has no crates/core/Cargo.toml", path.display())
        }
        None => here.ancestors().find(|above| is_clone(above)).map(Path::to_path_buf).context(
            "the new crate needs the source of posse, which is not on crates.io yet: clone it, and say where it is \
             with --posse DIR",
        )?,
    };
    let from = here.canonicalize()?.join(directory);
    let texts = Texts { name, posse: relative(&from, &clone) };
    for (file, text) in FILES {
        let path = directory.join(file);
        let parent = path.parent().unwrap_or(directory);
        let write = || std::fs::create_dir_all(parent).and_then(|()| std::fs::write(&path, texts.of(text)));
        write().with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn is_clone(directory: &Path) -> bool {
    directory.join("crates/core/Cargo.toml").is_file() && directory.join("crates/conformance").is_dir()
}

/// What takes the place of the example's names.
struct Texts<'t> {
    name: &'t str,
    posse: String,
}

impl Texts<'_> {
    fn of(&self, text: &str) -> String {
        let snake = self.name.replace('-', "_");
        let camel: String = snake
            .split('_')
            .map(|word| {
                let mut letters = word.chars();
                letters.next().map_or_else(String::new, |first| {
                    first.to_ascii_uppercase().to_string() + letters.as_str()
                })
            })
            .collect();
        // A name that ends in `agent` or `sums` would meet the example's types.
        text.replace("GreedyAgent", "OwnAgent")
            .replace("shared-greedy", self.name)
            .replace("shared_greedy", &snake)
            .replace("SharedGreedy", &camel)
            .replace("{name_snake}", &snake)
            .replace("{name}", self.name)
            .replace("{Name}", &camel)
            .replace("{posse}", &self.posse)
    }
}

/// The way from one absolute directory to another, with `/` as TOML wants it; the other itself where there is none.
fn relative(from: &Path, to: &Path) -> String {
    let plain = |path: &Path| -> Vec<String> {
        let mut parts: Vec<String> = Vec::new();
        for part in path.components() {
            match part {
                Component::CurDir => {}
                Component::ParentDir => {
                    parts.pop();
                }
                other => parts.push(other.as_os_str().to_string_lossy().into_owned()),
            }
        }
        parts
    };
    let (from, to) = (plain(from), plain(to));
    let common = from.iter().zip(&to).take_while(|(one, other)| one == other).count();
    if common == 0 {
        return to.iter().collect::<PathBuf>().display().to_string().replace('\\', "/");
    }
    let up = std::iter::repeat_n("..", from.len() - common);
    up.chain(to[common..].iter().map(String::as_str)).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_the_clone_is_relative() {
        assert_eq!(relative(Path::new("/home/a/mine"), Path::new("/home/a/posse")), "../posse");
        assert_eq!(relative(Path::new("/home/a/posse/x/./mine"), Path::new("/home/a/posse")), "../..");
        assert_eq!(relative(Path::new("/home/b/../a/mine"), Path::new("/home/a/posse")), "../posse");
    }

    #[test]
    fn nothing_of_the_example_is_left_in_the_new_crate() {
        let texts = Texts { name: "my-rule", posse: "../posse".into() };
        for (file, text) in FILES {
            let written = texts.of(text);
            for left in ["shared-greedy", "shared_greedy", "sharedgreedy"] {
                assert!(!written.to_lowercase().contains(left), "{left} in {file}");
            }
            // In small letters only: the example imports a constant, `{NAME, …}`.
            for left in ["{name", "{posse"] {
                assert!(!written.contains(left), "{left} in {file}");
            }
        }
    }
}
