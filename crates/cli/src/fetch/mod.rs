//! Getting a data set from its publisher, a mirror or a directory: terms accepted, files unpacked, hashes checked.

mod client;
mod record;

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use posse_data::archive::{Archive, decompress};
use posse_data::catalogue::{KnownFile, KnownSet};

use client::Client;
use record::Record;

/// What is to be fetched, and how.
pub(crate) struct Request<'a> {
    /// The data set to fetch.
    pub(crate) set: &'a KnownSet,
    /// The directory to which its files go.
    pub(crate) directory: PathBuf,
    /// A directory, or the address of a mirror or archive, instead of the publisher's address.
    pub(crate) from: Option<&'a str>,
    /// The terms were accepted on the command line.
    pub(crate) accepted: bool,
    /// How long one attempt may take.
    pub(crate) timeout: Duration,
    /// Certificate authorities instead of the usual ones.
    pub(crate) authorities: Option<&'a Path>,
    /// Nothing is said about progress.
    pub(crate) quiet: bool,
}

/// Where raw files of a data set go unless the caller says otherwise.
pub(crate) fn default_directory(set: &str) -> PathBuf {
    Path::new("downloads").join(set)
}

impl Request<'_> {
    /// Fetches what is missing. Afterwards every file of the set is in the directory, with a hash that is known.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let set = self.set;
        std::fs::create_dir_all(&self.directory)
            .with_context(|| format!("cannot make {}", self.directory.display()))?;
        let mut record = Record::read(&self.directory, set)?;
        let mut missing = Vec::new();
        for file in set.files {
            if !record.holds(file, &self.directory)? {
                missing.push(file);
            }
        }
        if missing.is_empty() {
            self.say(&format!("{}: all files are in {} already", set.name, self.directory.display()));
            return Ok(());
        }
        self.accept(&mut record)?;
        record.write(&self.directory)?;
        let admitted = match self.from {
            Some(from) if !from.contains("://") => self.copy(Path::new(from), &missing, &mut record),
            Some(from) if !from.starts_with("https://") => {
                bail!("{from}: only https:// addresses are fetched from")
            }
            Some(from) if is_archive(from) => self.fetch_archive(from, &missing, &mut record),
            Some(from) => self.fetch_files(from, &missing, &mut record),
            None => match set.download {
                Some(address) => self.fetch_archive(address, &missing, &mut record),
                None => bail!("{} has no address to download from: {}", set.name, self.by_hand()),
            },
        };
        record.write(&self.directory)?;
        admitted.with_context(|| self.by_hand())
    }

    /// Shows the terms and waits for an answer, unless they were accepted before.
    fn accept(&self, record: &mut Record) -> anyhow::Result<()> {
        let set = self.set;
        let terms = format!("{}\n  licence  {}\n  from     {}\n", set.title, set.licence, set.address);
        if record.licence == set.licence {
            return Ok(());
        }
        let _ = write!(std::io::stderr(), "{terms}");
        if !self.accepted {
            if !std::io::stdin().is_terminal() {
                bail!(
                    "the terms of {} must be accepted: read them above, then add --accept-licence",
                    set.name
                );
            }
            let _ = write!(std::io::stderr(), "Do you accept these terms? [y/N] ");
            let mut answer = String::new();
            std::io::stdin().read_line(&mut answer)?;
            if !["y", "yes"].contains(&answer.trim().to_lowercase().as_str()) {
                bail!("the terms of {} were not accepted: nothing was fetched", set.name);
            }
        }
        record.licence = set.licence.into();
        Ok(())
    }

    /// What to do without a network.
    fn by_hand(&self) -> String {
        let files: Vec<&str> = self.set.files.iter().map(|file| file.name).collect();
        format!(
            "get {} from {}, put {} into a directory DIR, and run `posse data fetch {} --from DIR`",
            self.set.name,
            self.set.address,
            files.join(", "),
            self.set.name
        )
    }

    /// Takes files from a directory, where they may also be packed.
    fn copy(&self, from: &Path, missing: &[&KnownFile], record: &mut Record) -> anyhow::Result<()> {
        let archives = std::fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))?;
        let mut archives: Vec<PathBuf> = archives
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("zip")))
            .collect();
        archives.sort();
        for file in missing {
            let plain = from.join(file.name);
            let compressed = from.join(format!("{}.Z", file.name));
            let target = self.draft(file);
            if plain.exists() {
                std::fs::copy(&plain, &target).with_context(|| format!("cannot copy {}", plain.display()))?;
            } else if compressed.exists() {
                decompress(File::open(&compressed)?, File::create(&target)?)
                    .with_context(|| format!("cannot unpack {}", compressed.display()))?;
            } else if !unpack_any(&archives, file, &target)? {
                bail!("{} is not in {}", file.name, from.display());
            }
            self.keep(file, record, &from.display().to_string())?;
        }
        Ok(())
    }

    /// Downloads an archive and takes the missing files out of it.
    fn fetch_archive(
        &self,
        address: &str,
        missing: &[&KnownFile],
        record: &mut Record,
    ) -> anyhow::Result<()> {
        let name = address.rsplit('/').next().unwrap_or("archive.zip");
        let path = self.directory.join(name);
        if !path.exists() {
            self.download(address, &path)?;
        }
        for file in missing {
            if !unpack_any(std::slice::from_ref(&path), file, &self.draft(file))? {
                let _ = std::fs::remove_file(&path);
                bail!("{} is not in the archive {address}, which was not kept", file.name);
            }
            if let Err(error) = self.keep(file, record, address) {
                // A wrong archive would be taken for the right one next time.
                let _ = std::fs::remove_file(&path);
                return Err(error);
            }
        }
        std::fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))
    }

    /// Downloads the missing files one by one from a mirror that has them by name.
    fn fetch_files(&self, base: &str, missing: &[&KnownFile], record: &mut Record) -> anyhow::Result<()> {
        for file in missing {
            let address = format!("{}/{}", base.trim_end_matches('/'), file.name);
            self.download(&address, &self.draft(file))?;
            self.keep(file, record, &address)?;
        }
        Ok(())
    }

    fn download(&self, address: &str, to: &Path) -> anyhow::Result<()> {
        let client = Client::new(self.timeout, self.authorities)?;
        let bar = if self.quiet { ProgressBar::hidden() } else { ProgressBar::new(0) };
        let style = "{msg}  {bytes} of {total_bytes}  {bytes_per_sec}  {wide_bar}  {eta}";
        bar.set_style(ProgressStyle::with_template(style).expect("the template is valid"));
        bar.set_message(address.rsplit('/').next().unwrap_or(address).to_owned());
        let done = client.download(address, to, &bar);
        bar.finish_and_clear();
        done
    }

    /// Where a file is until its hash is known to be right.
    fn draft(&self, file: &KnownFile) -> PathBuf {
        self.directory.join(format!("{}.new", file.name))
    }

    /// Keeps a file if its hash is right, and removes it otherwise.
    fn keep(&self, file: &KnownFile, record: &mut Record, from: &str) -> anyhow::Result<()> {
        let (draft, path) = (self.draft(file), self.directory.join(file.name));
        if let Err(error) = record.admit(file, &draft, from) {
            let _ = std::fs::remove_file(&draft);
            return Err(error);
        }
        std::fs::rename(&draft, &path).with_context(|| format!("cannot write {}", path.display()))?;
        let how = if file.sha256.is_some() { "as known" } else { "recorded" };
        self.say(&format!("{}  sha256 {} ({how})", file.name, record.files[file.name].sha256));
        Ok(())
    }

    fn say(&self, line: &str) {
        if !self.quiet {
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }
}

/// Whether an address is that of an archive, and not of a directory with files.
fn is_archive(address: &str) -> bool {
    Path::new(address).extension().is_some_and(|ending| ending.eq_ignore_ascii_case("zip"))
}

/// Takes a file out of the first archive that has it, also if it is compressed in there; says whether any has.
fn unpack_any(archives: &[PathBuf], file: &KnownFile, to: &Path) -> anyhow::Result<bool> {
    for path in archives {
        let read = || format!("cannot unpack {}", path.display());
        let mut archive = Archive::open(path).with_context(read)?;
        if let Some(member) = archive.find(file.name).cloned() {
            archive.unpack(&member, File::create(to)?).with_context(read)?;
            return Ok(true);
        }
        if let Some(member) = archive.find(&format!("{}.Z", file.name)).cloned() {
            let mut packed = Vec::new();
            archive.unpack(&member, &mut packed).with_context(read)?;
            decompress(packed.as_slice(), File::create(to)?).with_context(read)?;
            return Ok(true);
        }
    }
    Ok(false)
}
