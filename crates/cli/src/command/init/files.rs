//! The files of a new federation: all of them, or none.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// A directory beside the one that is wanted, which takes its name when everything is in it.
pub(super) struct Draft {
    wanted: PathBuf,
    draft: PathBuf,
}

impl Draft {
    /// Begins in an empty directory. Refuses if the one that is wanted has anything in it.
    pub(super) fn begin(wanted: &Path) -> anyhow::Result<Self> {
        let taken = std::fs::read_dir(wanted).is_ok_and(|mut entries| entries.next().is_some());
        if taken || wanted.is_file() {
            bail!("{} is there already: choose another directory, or move it away", wanted.display());
        }
        let mut draft = wanted.as_os_str().to_owned();
        draft.push(".draft");
        let draft = PathBuf::from(draft);
        // What an attempt that was interrupted has left.
        let _ = std::fs::remove_dir_all(&draft);
        if let Some(parent) = draft.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            std::fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
        }
        let made = Self { wanted: wanted.into(), draft };
        made.directory("")?;
        Ok(made)
    }

    /// Where a file is until the draft is finished.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.draft.join(name)
    }

    /// Writes a file that only its owner may read.
    pub(super) fn private(&self, name: &str, text: &str) -> anyhow::Result<()> {
        self.write(name, text, 0o600)
    }

    /// Writes a file that every user who can enter the directory may read.
    pub(super) fn public(&self, name: &str, text: &str) -> anyhow::Result<()> {
        self.write(name, text, 0o644)
    }

    fn write(&self, name: &str, text: &str, mode: u32) -> anyhow::Result<()> {
        if let Some((directory, _)) = name.rsplit_once('/') {
            self.directory(directory)?;
        }
        let path = self.path(name);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&path)
            .with_context(|| format!("cannot make {}", path.display()))?;
        file.write_all(text.as_bytes())
            .and_then(|()| file.sync_all())
            .with_context(|| format!("cannot write {}", path.display()))
    }

    fn directory(&self, name: &str) -> anyhow::Result<()> {
        let path = self.path(name);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.with_context(|| format!("cannot make {}", path.display()))
    }

    /// Gives the directory its name.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        // An empty directory of this name is replaced.
        std::fs::rename(&self.draft, &self.wanted)
            .with_context(|| format!("cannot make {}", self.wanted.display()))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After `finish` there is nothing of this name.
        let _ = std::fs::remove_dir_all(&self.draft);
    }
}

/// A systemd unit for the coordinator of the federation in `directory`, run by the user who made it.
pub(super) fn unit(directory: &Path) -> anyhow::Result<String> {
    let home = std::path::absolute(directory)?;
    let program = std::env::current_exe().context("cannot find the program itself")?;
    let parent = home.parent().unwrap_or(Path::new("/"));
    let user = std::fs::metadata(parent).with_context(|| format!("{}", parent.display()))?.uid();
    let (home, program) = (home.display(), program.display());
    Ok(format!(
        "# A coordinator under systemd: `systemctl link {home}/posse.service`, then `systemctl enable --now posse`.\n\
         [Unit]\n\
         Description=posse coordinator in {home}\n\
         After=network-online.target\n\
         Wants=network-online.target\n\n\
         [Service]\n\
         ExecStart=\"{program}\" serve --config \"{home}/federation.toml\" --log-format json\n\
         ExecReload=/bin/kill -HUP $MAINPID\n\
         User={user}\n\
         Restart=always\n\
         RestartSec=1\n\
         KillSignal=SIGTERM\n\
         TimeoutStopSec=30\n\
         LimitNOFILE=65536\n\
         NoNewPrivileges=yes\n\
         ProtectSystem=strict\n\
         ReadWritePaths={home}/data\n\
         PrivateTmp=yes\n\
         MemoryDenyWriteExecute=yes\n\
         RestrictAddressFamilies=AF_INET AF_INET6\n\n\
         [Install]\n\
         WantedBy=multi-user.target\n"
    ))
}
