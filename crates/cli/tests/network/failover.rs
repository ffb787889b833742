//! Coordinators and database servers as processes, killed, paused, promoted and cut off from each other: what was acknowledged
//! counts once.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use posse_core::{Arms, Seed, Stream, UserId};
use posse_net::federation::FederationConfig;
use posse_net::log::postgres::{Database, PostgresLog};
use posse_net::log::{FileLog, Log, StorageConfig, StorageKind};
use posse_net::{Agent, AgentConfig};
use posse_testing::gate::{Gate, Way};
use posse_testing::postgres::Cluster;
use serde_json::Value;

use crate::support::{Process, call, free_port, posse};

const AGENTS: u64 = 3;
const DATABASE: &str = "posse";
/// Processes of a server that wait for a standby.
const WAITING: &str = "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

const SETTINGS: &str = r#"
listen = "127.0.0.1:PORT"
admin = "127.0.0.1:ADMIN"
data = "data"
authentication = "none"
[storage]
kind = "postgres"
connection = "CONNECTION"
lease = "1s"
[[federation]]
name = "shop"
dimension = 3
resend_after = "100ms"
keep_history = true
[federation.algorithm]
name = "async-lin-ucb"
threshold = 1.1
"#;

/// A coordinator that may be running.
struct Seat {
    directory: PathBuf,
    admin: String,
    process: Option<Process>,
    /// Between it and all database servers.
    database: Gate,
    /// Between its agents and it, and the port where they come to.
    agents: (Gate, u16),
}

impl Seat {
    fn start(&mut self) {
        let mut serve = posse();
        serve.args(["serve", "--config", "federation.toml"]);
        let process = Process::start(&self.directory, &mut serve);
        assert!(process.url.starts_with("http"), "it does not start");
        self.process = Some(process);
    }

    fn signal(&self, signal: &str) {
        let Some(process) = &self.process else { return };
        let pid = process.child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{signal}"), &pid]).status().unwrap().success());
    }

    /// Whether it leads; `false` if it does not answer.
    fn leads(&self) -> bool {
        self.process.is_some() && matches!(call(&self.admin, "GET", "/ready", &Value::Null), Some((200, _)))
    }
}

struct Federation {
    cluster: Cluster,
    home: tempfile::TempDir,
    /// Between standbys and the primary, while they are told to go that way, with the directory of its sockets.
    replication: (Gate, tempfile::TempDir),
    seats: Vec<Seat>,
    primary: usize,
    agents: Vec<Agent>,
    random: Stream,
    made: u64,
}

impl Federation {
    async fn new(seed: u64, agents: u64) -> Option<Self> {
        let cluster = Cluster::start_on_disks(2)?;
        cluster.make_database(DATABASE);
        let home = tempfile::tempdir().unwrap();
        let seat = |name: &str| {
            let (directory, port, admin) = (home.path().join(name), free_port(), free_port());
            std::fs::create_dir_all(&directory).unwrap();
            let text = SETTINGS.replace("PORT", &port.to_string()).replace("ADMIN", &admin.to_string());
            let (database, before_agents) = (Gate::new(), Gate::new());
            let connection = cluster.connection(DATABASE);
            let sockets = sockets(&connection);
            sockets.iter().for_each(|(name, target)| database.before_socket(&directory.join(name), target));
            let real = sockets[0].1.parent().unwrap().display().to_string();
            let text = text.replace("CONNECTION", &connection.replace(&real, &directory.to_string_lossy()));
            std::fs::write(directory.join("federation.toml"), text).unwrap();
            let gate = before_agents.before_port(port);
            let admin = format!("127.0.0.1:{admin}");
            Seat { directory, admin, process: None, database, agents: (before_agents, gate) }
        };
        let mut seats = vec![seat("one"), seat("two")];
        let migrate = posse().args(["storage", "migrate"]).current_dir(&seats[0].directory).output().unwrap();
        assert!(migrate.status.success(), "{}", String::from_utf8_lossy(&migrate.stderr));
        seats.iter_mut().for_each(Seat::start);
        let urls: Vec<String> =
            seats.iter().map(|seat| format!("http://127.0.0.1:{}", seat.agents.1)).collect();
        let random = Seed(seed).stream("failover", 0, 0);
        let replication = (Gate::new(), tempfile::tempdir().unwrap());
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(replication.1.path(), open).unwrap();
        for (name, target) in sockets(&cluster.connection(DATABASE)) {
            replication.0.before_socket(&replication.1.path().join(name), &target);
        }
        let speakers = Vec::new();
        let mut federation =
            Self { cluster, home, replication, seats, primary: 0, agents: speakers, random, made: 0 };
        for agent in 0..agents {
            let config = AgentConfig {
                coordinator: urls.join(","),
                agent: Some(agent),
                state: Some(federation.home.path().join(format!("agent-{agent}"))),
                first_pause: Duration::from_millis(10),
                longest_pause: Duration::from_millis(500),
                ..AgentConfig::default()
            };
            federation.agents.push(Agent::start(config).await.unwrap());
        }
        Some(federation)
    }

    fn interact(&mut self, times: u64) {
        for _ in 0..times {
            let agent = &self.agents[self.random.below(self.agents.len() as u64) as usize];
            let mut arms = Arms::new(3);
            for _ in 0..3 {
                let features: Vec<f64> = (0..3).map(|_| self.random.uniform() - 0.5).collect();
                arms.push(&features).unwrap();
            }
            let chosen = agent.choose(UserId(0), &arms).unwrap();
            agent.reward(chosen.id, arms.row(chosen.arm).iter().sum::<f64>()).unwrap();
            self.made += 1;
        }
    }

    /// The seat that leads, once exactly one does.
    fn leader(&self) -> usize {
        loop {
            let leads: Vec<usize> = (0..self.seats.len()).filter(|seat| self.seats[*seat].leads()).collect();
            if let [leader] = leads[..] {
                return leader;
            }
        }
    }

    async fn settle(&self) {
        for agent in &self.agents {
            agent.settled().await;
        }
    }

    /// The two servers that are not the primary.
    fn standbys(&self) -> [usize; 2] {
        [(self.primary + 1) % 3, (self.primary + 2) % 3]
    }

    /// What an orchestrator does: no standby confirms anything for the old primary any more, then the one that has got
    /// furthest is promoted.
    fn promote(&mut self) {
        let [one, two] = self.standbys();
        let (ahead, behind) =
            if self.cluster.detach(one) >= self.cluster.detach(two) { (one, two) } else { (two, one) };
        self.cluster.promote(ahead);
        self.cluster.require_standbys(ahead);
        self.cluster.follow_instead(behind, ahead);
        let old = std::mem::replace(&mut self.primary, ahead);
        assert_ne!(old, ahead);
    }

    fn kill_leader(&mut self) {
        let leader = self.leader();
        self.seats[leader].process.take().unwrap().kill();
        self.interact(5);
        self.seats[leader].start();
    }

    /// The leader sleeps beyond its lease, in the middle of whatever it does, and wakes up deposed.
    fn pause_leader(&mut self) {
        let leader = self.leader();
        self.interact(5);
        self.seats[leader].signal("STOP");
        self.interact(5);
        while !self.seats[1 - leader].leads() {}
        self.interact(5);
        self.seats[leader].signal("CONT");
        self.interact(5);
    }

    fn start_both_at_once(&mut self) {
        for seat in &mut self.seats {
            seat.process.take().unwrap().kill();
        }
        self.interact(5);
        std::thread::scope(|scope| {
            for seat in &mut self.seats {
                scope.spawn(|| seat.start());
            }
        });
    }

    fn kill_primary(&mut self) {
        self.interact(5);
        let old = self.primary;
        self.cluster.signal(old, "KILL");
        self.interact(5);
        self.promote();
        self.interact(5);
        self.cluster.follow(old, self.primary);
    }

    /// The old primary lives on, with connections of both coordinators, and confirms nothing.
    fn promote_beside_primary(&mut self) {
        self.interact(5);
        let old = self.primary;
        self.promote();
        self.interact(5);
        self.leader();
        self.interact(5);
        self.cluster.signal(old, "KILL");
        self.cluster.follow(old, self.primary);
    }

    fn pause_primary(&mut self) {
        self.cluster.signal(self.primary, "STOP");
        self.interact(10);
        // Without a database no coordinator leads.
        while self.seats.iter().any(Seat::leads) {}
        self.interact(5);
        self.cluster.signal(self.primary, "CONT");
    }

    fn kill_standby(&mut self) {
        let standby = self.standbys()[self.random.below(2) as usize];
        self.cluster.signal(standby, "KILL");
        self.interact(10);
        self.cluster.resume(standby);
    }

    /// No standby answers, and an administrator cancels commits that wait for one.
    fn cancel_commits(&mut self) {
        let standbys = self.standbys();
        standbys.iter().for_each(|standby| self.cluster.signal(*standby, "STOP"));
        self.interact(20);
        self.cluster.await_sql(self.primary, WAITING);
        let cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        self.cluster.ask(self.primary, DATABASE, cancel);
        self.interact(5);
        standbys.iter().for_each(|standby| self.cluster.signal(*standby, "CONT"));
    }

    /// The leader cannot reach the database, or what it says arrives late, when another one leads.
    fn part_leader_from_database(&mut self, way: Way) {
        let leader = self.leader();
        self.interact(5);
        self.seats[leader].database.set(way);
        self.interact(5);
        while !self.seats[1 - leader].leads() {}
        self.interact(5);
        self.seats[leader].database.set(Way::Open);
        self.interact(5);
    }

    /// What the primary sends its standbys does not arrive, or they cannot reach it at all, so that no commit is confirmed, until
    /// the way is open again.
    fn part_primary_from_standbys(&mut self, way: Way) {
        let standbys = self.standbys();
        let (gate, directory) = &self.replication;
        for standby in standbys {
            self.cluster.follow_through(standby, self.primary, directory.path());
        }
        gate.set(way);
        self.interact(20);
        self.cluster.await_sql(self.primary, WAITING);
        self.interact(5);
        self.replication.0.set(Way::Open);
        standbys.iter().for_each(|standby| self.cluster.follow_instead(*standby, self.primary));
    }

    /// The primary's disk has no room for another row: it refuses appends with an error until there is room again.
    fn fill_disk(&mut self) {
        const FULL: &str = "could not extend file";
        let before = self.cluster.times_said(self.primary, FULL);
        self.cluster.fill_disk(self.primary);
        while self.cluster.times_said(self.primary, FULL) == before {
            // Agents that know much speak seldom, and pages of the table have room for some rows.
            self.interact(40);
            // A server whose disk is full takes no new connections, so another one counts the time.
            self.cluster.ask(self.standbys()[0], "postgres", "SELECT pg_sleep(0.02)");
        }
        self.interact(5);
        self.cluster.free_disk(self.primary);
    }

    /// The primary has no room for its log of changes, and ends in the middle of whatever it does. With room it comes back.
    fn fill_disk_with_changes(&mut self) {
        self.interact(5);
        self.cluster.fill_disk(self.primary);
        self.cluster.use_up_wal(self.primary);
        self.interact(5);
        self.cluster.signal(self.primary, "KILL");
        self.cluster.free_disk(self.primary);
        self.cluster.resume(self.primary);
    }

    /// Agents cannot reach the leader, which does not notice, and ask the other coordinator in vain.
    fn part_agents_from_leader(&mut self, way: Way) {
        let leader = self.leader();
        self.seats[leader].agents.0.set(way);
        self.interact(20);
        assert!(self.seats[leader].leads(), "agents are none of its database's business");
        self.seats[leader].agents.0.set(Way::Open);
    }

    fn suffer(&mut self, fault: u64) {
        self.interact(10);
        match fault {
            0 => self.kill_leader(),
            1 => self.pause_leader(),
            2 => self.start_both_at_once(),
            3 => self.kill_primary(),
            4 => self.promote_beside_primary(),
            5 => self.pause_primary(),
            6 => self.kill_standby(),
            7 => self.cancel_commits(),
            8 => self.part_leader_from_database(Way::Cut),
            9 => self.part_leader_from_database(Way::Held),
            10 => self.part_primary_from_standbys(Way::Held),
            11 => self.part_agents_from_leader(Way::Cut),
            12 => self.part_agents_from_leader(Way::Held),
            13 => self.part_primary_from_standbys(Way::Cut),
            14 => self.fill_disk(),
            _ => self.fill_disk_with_changes(),
        }
        self.interact(10);
    }

    /// Every observation is held by the coordinator or by its agent, and by one of them only.
    async fn check(&self, after: &str) {
        self.settle().await;
        let leader = &self.seats[self.leader()];
        let access = std::fs::read(leader.directory.join("data/admin.json")).unwrap();
        let access: Value = serde_json::from_slice(&access).unwrap();
        let known = agents_of(&leader.admin, access["token"].as_str().unwrap());
        let uploads = |agent: &Agent| {
            let own = known.iter().find(|known| known["agent"] == agent.id().0);
            own.map_or(0, |known| known["uploads"].as_u64().unwrap())
        };
        let mut held = observations(&leader.admin);
        for agent in &self.agents {
            let heard = uploads(agent);
            held += agent.inspect(|machine| {
                let view = machine.inspect();
                let in_flight = view.in_flight.filter(|(number, _)| *number > heard);
                view.unsent + view.withheld + in_flight.map_or(0, |(_, count)| count)
            });
        }
        let lives: Vec<(u64, u64)> =
            self.agents.iter().map(|agent| (agent.status().life, agent.status().set_aside)).collect();
        assert_eq!(
            held, self.made,
            "observations after {after}; lives, and how many were set aside: {lives:?}"
        );
    }

    /// The rows of the database in files lead to the same counts, and every entry is there once.
    fn check_replay(&self) {
        let observations = observations(&self.seats[self.leader()].admin);
        let storage = StorageConfig {
            kind: StorageKind::Postgres,
            connection: Some(self.cluster.connection(DATABASE)),
            ..StorageConfig::default()
        };
        let database = Database::new(&storage, String::new(), false).unwrap();
        let directory = self.home.path().join("reader");
        let (entries, settings) = std::thread::scope(|scope| {
            let read = || {
                let mut log = PostgresLog::open(&database, "shop", &directory).unwrap();
                log.replay().unwrap();
                let settings =
                    self.cluster.ask(self.primary, DATABASE, "SELECT settings FROM posse_federation");
                (log.history().unwrap().expect("everything was kept"), settings)
            };
            scope.spawn(read).join().unwrap()
        });
        let files = self.home.path().join("files");
        let mut file = FileLog::open(&files).unwrap();
        file.append(&entries).unwrap();
        file.sync(0).unwrap();
        drop(file);
        let config = FederationConfig::from_kept(&settings).unwrap();
        let hub = config.replay(&FileLog::open(&files).unwrap().replay().unwrap()).unwrap();
        assert_eq!(hub.coordinator().inspect().observations, observations);
        assert_eq!(hub.epoch().0, 0, "nothing was lost, so no epoch began");
    }
}

/// The sockets of all servers in a connection, by the names that clients look for.
fn sockets(connection: &str) -> Vec<(String, PathBuf)> {
    let of = |key: &str| {
        let value = connection.split(' ').find_map(|part| part.strip_prefix(key)).unwrap();
        value.split(',').map(str::to_owned).collect::<Vec<_>>()
    };
    let named = |(home, port): (String, String)| {
        let name = format!(".s.PGSQL.{port}");
        (name.clone(), PathBuf::from(home).join(name))
    };
    of("host=").into_iter().zip(of("port=")).map(named).collect()
}

fn observations(admin: &str) -> u64 {
    let text = page(admin, "/metrics", "");
    let line = text.lines().find(|line| line.starts_with("posse_observations{")).expect("it is measured");
    line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64
}

fn agents_of(admin: &str, token: &str) -> Vec<Value> {
    let text = page(admin, "/v1/federations/shop/agents", &format!("authorization: Bearer {token}\r\n"));
    serde_json::from_str(&text).unwrap()
}

fn page(admin: &str, path: &str, headers: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(admin).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// Rounds of faults: as many as `POSSE_FAILOVER_ROUNDS` says, or each kind of fault once.
#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::print_stdout, reason = "how long it took is for people who ask with --nocapture")]
async fn what_was_acknowledged_counts_once_whatever_is_killed_paused_or_promoted() {
    let rounds = std::env::var("POSSE_FAILOVER_ROUNDS").ok().map_or(16, |rounds| rounds.parse().unwrap());
    let Some(mut federation) = Federation::new(rounds, AGENTS).await else { return };
    let names = [
        "killing the leader",
        "pausing the leader",
        "starting both at once",
        "killing the primary",
        "promoting beside the primary",
        "pausing the primary",
        "killing a standby",
        "cancelling commits",
        "cutting the leader off the database",
        "holding up what the leader says to the database",
        "holding up replication",
        "cutting agents off the leader",
        "holding up what agents say to the leader",
        "cutting the standbys off the primary",
        "filling the primary's disk",
        "filling the primary's disk with its log of changes",
    ];
    let kinds = if federation.cluster.has_disks() {
        names.len()
    } else {
        posse_testing::skip("full disks of a database: only an administrator may mount disks in memory");
        names.len() - 2
    };
    let mut order: Vec<u64> = Vec::new();
    for round in 0..rounds {
        if order.is_empty() {
            order.extend(0..kinds as u64);
        }
        let fault = order.swap_remove(federation.random.below(order.len() as u64) as usize);
        let began = Instant::now();
        federation.suffer(fault);
        federation.check(names[fault as usize]).await;
        println!("round {round}, {}: {:.1} s", names[fault as usize], began.elapsed().as_secs_f64());
    }
    federation.check_replay();
    assert!(federation.made >= 20 * rounds);
}

/// How long uploads wait when the leader is killed, with as many agents as `POSSE_FAILOVER_AGENTS` says.
#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::print_stdout, reason = "how long it took is for people who ask with --nocapture")]
async fn uploads_are_acknowledged_again_after_the_leader_was_killed() {
    let agents = std::env::var("POSSE_FAILOVER_AGENTS").ok().map_or(20, |agents| agents.parse().unwrap());
    let Some(mut federation) = Federation::new(1, agents).await else { return };
    federation.interact(agents);
    federation.check("the beginning").await;
    let leader = federation.leader();
    federation.seats[leader].process.take().unwrap().kill();
    let killed = Instant::now();
    federation.interact(2 * agents);
    let mut waiting = tokio::task::JoinSet::new();
    for agent in federation.agents.clone() {
        if agent.inspect(|machine| machine.inspect().in_flight.is_some()) {
            waiting.spawn(async move { agent.settled().await });
        }
    }
    assert!(!waiting.is_empty(), "no agent had anything to say");
    let all = waiting.len();
    waiting.join_next().await.unwrap().unwrap();
    let first = killed.elapsed();
    while waiting.join_next().await.is_some() {}
    println!(
        "{agents} agents, {all} with uploads on their way: the first was acknowledged {:.2} s after the kill, the last {:.2} s",
        first.as_secs_f64(),
        killed.elapsed().as_secs_f64()
    );
    federation.check("the leader was killed").await;
}
