//! PostgreSQL servers for tests: a primary and its standbys, as processes, over sockets in the file system.
//!
//! Servers are those of the system's package. PostgreSQL refuses to run as root, so root starts them as the user
//! `postgres`, whom the package makes. Everything is removed when the cluster is dropped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::skip;

/// The name by which tests connect.
const USER: &str = "posse";
/// The first port where no server listens on a port, but only on a file that is named after it.
const FIRST_PORT: u16 = 5001;
/// Bytes that the directory of the sockets may have: with the name of a socket in it, a path of 107 is the longest.
const LONGEST_HOME: usize = 90;

/// Servers of one database: the first is made the primary, the others follow it.
#[derive(Debug)]
pub struct Cluster {
    programs: PathBuf,
    home: TempDir,
    count: usize,
    /// Socket files are named after ports, so that servers share a directory.
    first_port: u16,
    /// Every server has a disk of its own, which a test can fill.
    disks: bool,
}

/// How large the disks of servers are: a server that does little needs half of it.
const DISK: &str = "400m";
/// The file that fills a disk, in the directory of its server.
const BALLAST: &str = "ballast";

impl Cluster {
    /// Starts a primary with `standbys` standbys, one of which must have a commit before it is confirmed. Calls
    /// [`skip`] and returns `None` where PostgreSQL is not installed.
    ///
    /// # Panics
    /// If PostgreSQL is installed and cannot be started.
    #[must_use]
    pub fn start(standbys: usize) -> Option<Self> {
        let mut cluster = Self::prepare(FIRST_PORT, false)?;
        cluster.attach_standbys(standbys);
        Some(cluster)
    }

    /// The same with a disk of its own for every server, in memory, so that tests can [fill](Self::fill_disk) it. Only an
    /// administrator may mount disks: where that fails, servers share the disk of the directory for temporary files, and
    /// [`has_disks`](Self::has_disks) says so.
    ///
    /// # Panics
    /// If PostgreSQL is installed and cannot be started.
    #[must_use]
    pub fn start_on_disks(standbys: usize) -> Option<Self> {
        let mut cluster = Self::prepare(FIRST_PORT, true)?;
        cluster.attach_standbys(standbys);
        Some(cluster)
    }

    fn attach_standbys(&mut self, standbys: usize) {
        self.resume(0);
        for _ in 0..standbys {
            self.count += 1;
            if self.disks {
                self.disks = self.mount(self.count - 1);
            }
            self.follow(self.count - 1, 0);
        }
        if standbys > 0 {
            self.require_standbys(0);
        }
    }

    /// Starts one server that listens on a free port of loopback, with TLS by the given certificate and key, in PEM form. Calls
    /// [`skip`] and returns `None` where PostgreSQL is not installed.
    ///
    /// # Panics
    /// If PostgreSQL is installed and cannot be started.
    #[must_use]
    pub fn start_encrypted(certificate: &str, key: &str) -> Option<Self> {
        let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let cluster = Self::prepare(free.expect("loopback has free ports").port(), false)?;
        let data = PathBuf::from(cluster.data(0));
        let settings = data.join("postgresql.conf");
        let text = fs::read_to_string(&settings).expect("it was just written");
        let text = text.replace("listen_addresses = ''", "listen_addresses = '127.0.0.1'\nssl = on");
        for (name, text) in
            [("postgresql.conf", text.as_str()), ("server.crt", certificate), ("server.key", key)]
        {
            fs::write(data.join(name), text).expect("the directory of a server");
        }
        // It refuses keys that others may read, or that are another user's.
        let owner = fs::metadata(&data).expect("it was just made");
        let owner =
            (std::os::unix::fs::MetadataExt::uid(&owner), std::os::unix::fs::MetadataExt::gid(&owner));
        let key = data.join("server.key");
        fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("it is ours");
        for file in [key, data.join("server.crt")] {
            std::os::unix::fs::chown(file, Some(owner.0), Some(owner.1)).expect("it is ours to give away");
        }
        cluster.resume(0);
        Some(cluster)
    }

    /// The port of the first server.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.first_port
    }

    /// A directory with a server that was not started yet.
    fn prepare(first_port: u16, disks: bool) -> Option<Self> {
        let Some(programs) = programs() else {
            skip(
                "there is no PostgreSQL: install the package, or name its directory of programs in POSTGRES",
            );
            return None;
        };
        let home = tempfile::Builder::new().prefix("pg").tempdir().expect("a directory for servers");
        assert!(
            home.path().as_os_str().len() <= LONGEST_HOME,
            "{home:?} is too long for sockets: set TMPDIR"
        );
        if is_root() {
            let given = Command::new("chown").arg("postgres").arg(home.path()).output();
            checked(given, "chown");
        }
        let mut cluster = Self { programs, home, count: 1, first_port, disks: false };
        cluster.disks = disks && cluster.mount(0);
        let primary = cluster.data(0);
        cluster.run("initdb", &["--auth=trust", "-U", USER, "-D", &primary, "--no-sync"]);
        cluster.configure(0);
        Some(cluster)
    }

    /// Gives a server a disk of its own in memory. Returns `false` if this user may not.
    fn mount(&self, server: usize) -> bool {
        let data = self.data(server);
        fs::create_dir_all(&data).expect("the directory of the cluster");
        let owner = fs::metadata(self.home.path()).expect("it was just made");
        let owner = std::os::unix::fs::MetadataExt::uid(&owner);
        let options = format!("size={DISK},mode=0700,uid={owner}");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs", &data]).output();
        mounted.is_ok_and(|output| output.status.success())
    }

    /// Whether every server has a disk of its own.
    #[must_use]
    pub const fn has_disks(&self) -> bool {
        self.disks
    }

    /// Fills the disk of a server to the last byte.
    ///
    /// # Panics
    /// If the server has no disk of its own.
    pub fn fill_disk(&self, server: usize) {
        use std::io::Write;
        assert!(self.disks, "it would fill the disk of everybody");
        let mut ballast = fs::File::create(self.ballast(server)).expect("the directory of a server");
        let mut piece = vec![0; 1 << 20];
        while !piece.is_empty() {
            if ballast.write_all(&piece).is_err() {
                // The last page may take a smaller piece.
                piece.truncate(piece.len() / 2);
            }
        }
    }

    /// Frees the disk of a server again.
    ///
    /// # Panics
    /// If it was not filled.
    pub fn free_disk(&self, server: usize) {
        fs::remove_file(self.ballast(server)).expect("it was filled");
    }

    fn ballast(&self, server: usize) -> PathBuf {
        PathBuf::from(self.data(server)).join(BALLAST)
    }

    /// Makes a server write to its log of changes until there is no room for more, which it does not survive.
    ///
    /// # Panics
    /// If it goes on and on.
    pub fn use_up_wal(&self, server: usize) {
        let grow = "SELECT pg_logical_emit_message(false, 'test', 'x'), pg_switch_wal()";
        let survived = (0..500).all(|_| self.psql(server, "postgres", grow).status.success());
        assert!(!survived, "there is always room for more");
    }

    /// How often a server has written these words to its log of messages.
    #[must_use]
    pub fn times_said(&self, server: usize, words: &str) -> usize {
        let text = fs::read(format!("{}.log", self.data(server))).unwrap_or_default();
        String::from_utf8_lossy(&text).matches(words).count()
    }

    /// How clients reach all servers, for the given database.
    #[must_use]
    pub fn connection(&self, database: &str) -> String {
        let hosts = vec![self.home.path().to_string_lossy(); self.count].join(",");
        let ports: Vec<String> = (0..self.count).map(|server| self.port_of(server).to_string()).collect();
        format!("host={hosts} port={} user={USER} dbname={database}", ports.join(","))
    }

    /// Lets a server confirm a commit only when one of the others has it.
    pub fn require_standbys(&self, server: usize) {
        let names: Vec<String> = (0..3).map(|server| format!("s{server}")).collect();
        self.ask(
            server,
            "postgres",
            &format!("ALTER SYSTEM SET synchronous_standby_names TO 'ANY 1 ({})'", names.join(", ")),
        );
        self.ask(server, "postgres", "SELECT pg_reload_conf()");
        self.await_sql(server, "SELECT current_setting('synchronous_standby_names') <> ''");
    }

    /// Makes a server a standby of another, with a new copy of all that the other has. Whatever it had is gone.
    pub fn follow(&self, server: usize, primary: usize) {
        let data = self.data(server);
        let _ = fs::remove_dir_all(&data);
        let from = format!("{} application_name=s{server}", self.single(primary));
        self.run(
            "pg_basebackup",
            &["-D", &data, "-d", &from, "-R", "-c", "fast", "-X", "stream", "--no-sync"],
        );
        self.configure(server);
        self.resume(server);
        let streams = format!(
            "SELECT count(*) = 1 FROM pg_stat_replication WHERE application_name = 's{server}' AND state = 'streaming'"
        );
        self.await_sql(primary, &streams);
    }

    /// Makes a running standby follow another primary. What it has that the primary has not must be nothing.
    pub fn follow_instead(&self, server: usize, primary: usize) {
        let from = format!("{} application_name=s{server}", self.single(primary));
        self.ask(server, "postgres", &format!("ALTER SYSTEM SET primary_conninfo TO '{from}'"));
        self.ask(server, "postgres", "SELECT pg_reload_conf()");
    }

    /// Makes a running standby follow its primary by the sockets in another directory, and waits until it does.
    pub fn follow_through(&self, server: usize, primary: usize, directory: &Path) {
        let real = self.single(primary);
        let from = real.replace(&*self.home.path().to_string_lossy(), &directory.to_string_lossy());
        // By another name for a moment, so that the old connection is not taken for the new one.
        let name = format!("through{server}");
        for name in [&name, &format!("s{server}")] {
            let set = format!("ALTER SYSTEM SET primary_conninfo TO '{from} application_name={name}'");
            self.ask(server, "postgres", &set);
            self.ask(server, "postgres", "SELECT pg_reload_conf()");
            let streams = format!(
                "SELECT count(*) = 1 FROM pg_stat_replication WHERE application_name = '{name}' AND state = 'streaming'"
            );
            self.await_sql(primary, &streams);
        }
    }

    /// Takes a running standby off its primary, and returns how far it has got. Afterwards it confirms nothing.
    #[must_use]
    pub fn detach(&self, server: usize) -> u64 {
        self.ask(server, "postgres", "ALTER SYSTEM SET primary_conninfo TO ''");
        self.ask(server, "postgres", "SELECT pg_reload_conf()");
        self.await_sql(server, "SELECT count(*) = 0 FROM pg_stat_wal_receiver");
        // As a number, so that two servers can be compared.
        let position = "SELECT pg_last_wal_receive_lsn() - '0/0'::pg_lsn";
        self.ask(server, "postgres", position).parse().expect("a number of bytes")
    }

    /// Makes a standby a primary.
    pub fn promote(&self, server: usize) {
        self.ask(server, "postgres", "SELECT pg_promote()");
        self.await_sql(server, "SELECT NOT pg_is_in_recovery()");
    }

    /// Starts a server that was killed.
    pub fn resume(&self, server: usize) {
        let (data, log) = (self.data(server), format!("{}.log", self.data(server)));
        // The number of a process that was killed may still be listed, and would be taken for one that runs.
        let socket = self.home.path().join(format!(".s.PGSQL.{}.lock", self.port_of(server)));
        for lock in [PathBuf::from(&data).join("postmaster.pid"), socket] {
            let _ = fs::remove_file(lock);
        }
        self.run("pg_ctl", &["-D", &data, "-w", "-t", "120", "-l", &log, "start"]);
    }

    /// Sends a signal to every process of a server: `KILL` is a crash, `STOP` and `CONT` a pause.
    pub fn signal(&self, server: usize, signal: &str) {
        let Some(main) = self.main_process(server) else { return };
        let send = |signal: &str, to: &[&str]| {
            let _ = Command::new("kill").arg(format!("-{signal}")).args(to).stderr(Stdio::null()).status();
        };
        // Paused first: it would start others, or answer their end.
        send("STOP", &[&main]);
        let children = fs::read_to_string(format!("/proc/{main}/task/{main}/children")).unwrap_or_default();
        let all: Vec<&str> = std::iter::once(main.as_str()).chain(children.split_whitespace()).collect();
        send(signal, &all);
        // A server is started again only when nothing of it is left.
        while signal == "KILL" && all.iter().any(|process| is_alive(process)) {
            std::thread::yield_now();
        }
    }

    /// Runs SQL on one server and returns what it prints, without decoration.
    ///
    /// # Panics
    /// If the server refuses it.
    pub fn ask(&self, server: usize, database: &str, sql: &str) -> String {
        let output = self.psql(server, database, sql);
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Makes an empty database.
    pub fn make_database(&self, database: &str) {
        self.ask(0, "postgres", &format!("CREATE DATABASE {database}"));
    }

    /// Waits until a query says `t`. The count only ends a test that would never end.
    ///
    /// # Panics
    /// If that does not come true.
    pub fn await_sql(&self, server: usize, question: &str) {
        for _ in 0..3000 {
            let output = self.psql(server, "postgres", question);
            if output.stdout.trim_ascii() == b"t" {
                return;
            }
            drop(self.psql(server, "postgres", "SELECT pg_sleep(0.02)"));
        }
        panic!("it never came true on server {server}: {question}");
    }

    fn psql(&self, server: usize, database: &str, sql: &str) -> Output {
        let (home, port) = (self.home.path().to_string_lossy(), self.port_of(server).to_string());
        let mut command = Command::new(self.programs.join("psql"));
        command
            .args(["-h", &home, "-p", &port, "-U", USER, "-d", database, "-X", "-A", "-t", "-q", "-c", sql]);
        command.output().expect("psql belongs to PostgreSQL")
    }

    const fn port_of(&self, server: usize) -> u16 {
        self.first_port + server as u16
    }

    fn data(&self, server: usize) -> String {
        self.home.path().join(format!("s{server}")).to_string_lossy().into_owned()
    }

    fn single(&self, server: usize) -> String {
        format!(
            "host={} port={} user={USER} dbname=postgres",
            self.home.path().display(),
            self.port_of(server)
        )
    }

    fn main_process(&self, server: usize) -> Option<String> {
        let text = fs::read_to_string(format!("{}/postmaster.pid", self.data(server))).ok()?;
        text.lines().next().map(str::to_owned)
    }

    /// Small, and quick to notice what others do.
    fn configure(&self, server: usize) {
        let text = format!(
            "listen_addresses = ''\nunix_socket_directories = '{}'\nport = {}\nshared_buffers = 16MB\n\
             max_connections = 60\nwal_retrieve_retry_interval = 100ms\nwal_receiver_status_interval = 1s\n\
             wal_keep_size = 64MB\nmin_wal_size = 32MB\nmax_wal_size = 96MB\nautovacuum = off\n",
            self.home.path().display(),
            self.port_of(server)
        );
        let path = format!("{}/postgresql.conf", self.data(server));
        fs::write(path, text).expect("the directory of a server");
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let program = self.programs.join(program);
        let mut command = as_postgres(&program.to_string_lossy());
        // A server keeps what its starter has open: a pipe would never end.
        command.args(arguments).current_dir("/").stdin(Stdio::null()).stdout(Stdio::null());
        let errors = self.home.path().join("errors");
        let file = fs::File::create(&errors).expect("the directory of the cluster");
        let status = command.stderr(file).status();
        let done = status.as_ref().is_ok_and(std::process::ExitStatus::success);
        let said = || {
            let logs = (0..self.count).filter_map(|server| {
                let text = fs::read_to_string(format!("{}.log", self.data(server))).ok()?;
                let last: Vec<&str> = text.lines().rev().take(8).collect();
                Some(format!("s{server}, last line first:\n{}", last.join("\n")))
            });
            let errors = fs::read_to_string(&errors).ok();
            errors.into_iter().chain(logs).collect::<Vec<_>>().join("\n")
        };
        assert!(done, "{}: {status:?}: {}", program.display(), said());
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for server in 0..self.count {
            self.signal(server, "KILL");
            self.signal(server, "CONT");
            if self.disks {
                drop(Command::new("umount").args(["-l", &self.data(server)]).output());
            }
        }
    }
}

/// Whether a process runs. One that has ended may be listed until its parent has asked how.
fn is_alive(process: &str) -> bool {
    let Ok(text) = fs::read_to_string(format!("/proc/{process}/stat")) else { return false };
    let state = text.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    !matches!(state, Some('Z' | 'X') | None)
}

/// The directory of PostgreSQL's programs: the one that `POSTGRES` names, or that of the newest package.
#[must_use]
pub fn programs() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("POSTGRES") {
        return Some(named.into());
    }
    let version = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
    let packages = fs::read_dir("/usr/lib/postgresql").ok()?.flatten().map(|entry| entry.path());
    let newest = packages.filter(|path| path.join("bin/initdb").exists()).max_by_key(version)?;
    Some(newest.join("bin"))
}

/// A command that runs as a user whom PostgreSQL accepts.
fn as_postgres(program: &str) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("runuser");
    command.args(["-u", "postgres", "--", program]);
    command
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

fn checked(output: std::io::Result<Output>, what: &str) -> Output {
    let output = output.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    output
}
