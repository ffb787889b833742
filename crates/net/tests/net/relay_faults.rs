//! Relays that lose what they knew, parents that do, and agents that go to another relay: nothing counts twice, what is lost
//! is known to the last count, and everybody is heard again.

use posse_core::Threshold;
use posse_net::agent::Carriage;
use posse_net::coordinator::Running;
use posse_net::log::{backup, restore};
use posse_net::{Agent, AgentConfig};

use crate::faults::{AGENTS, Seat, Victim};
use crate::relay::relayed;
use crate::silence::copy;
use crate::support::{config, coordinator, in_a_minute, interact, look, talkative, unsent};

/// A root, a relay and a relay of that, whose links do nothing wrong.
async fn chain(seed: u64) -> Victim {
    let victim = Victim::with_relays(talkative(), 2, seed).await;
    victim.seats.iter().for_each(|seat| seat.proxy.heal());
    victim
}

/// Interactions in turn, each told to the leaf before the next.
async fn play(victim: &mut Victim, steps: u64) {
    for step in 0..steps {
        let agent = victim.agent((step % AGENTS) as usize).await;
        interact(&agent, victim.made);
        victim.made += 1;
        in_a_minute(agent.settled()).await;
    }
}

/// Waits until a relay says that it cannot go on.
async fn says_that_it_is_lost(seat: &Seat) -> String {
    in_a_minute(async {
        loop {
            match seat.running().federations[0].standing().trouble {
                Some(why) if why.contains("new relay") => return why,
                _ => tokio::task::yield_now().await,
            }
        }
    })
    .await
}

/// How a relay comes to know less than its parent has heard of it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Loss {
    /// The end of its log is gone.
    Cut,
    /// An old copy of its log was put back.
    Restored,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_knows_less_than_its_parent_heard_says_so_and_is_replaced() {
    for (seed, loss) in [(0, Loss::Cut), (1, Loss::Restored)] {
        let mut victim = chain(seed).await;
        play(&mut victim, 60).await;
        let copied = tempfile::tempdir().unwrap();
        let log = victim.leaf().log_directory();
        backup(&log, &copied.path().join("log")).unwrap();
        play(&mut victim, 60).await;
        let agents = victim.heal().await;
        victim.conserves(&agents, 120, "before").await;
        victim.seats[2].kill().await;
        if loss == Loss::Cut {
            victim.leaf().cut_log(6);
        } else {
            std::fs::remove_dir_all(&log).unwrap();
            restore(&copied.path().join("log"), &log).unwrap();
        }
        victim.seats[2].restart().await;
        says_that_it_is_lost(victim.leaf()).await;
        // Its agents go on by themselves; nothing that they learn is taken by a relay that could not pass it on.
        let agent = victim.agent(0).await;
        let held = |agent: &Agent| agent.inspect(|machine| machine.inspect().held());
        let before = held(&agent);
        interact(&agent, 1000);
        in_a_minute(async {
            while !agent.status().trouble.is_some_and(|why| why.contains("new relay")) {
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert_eq!(held(&agent), before + 1, "{loss:?}: a lost relay takes nothing");
        agent.abort().await;
        victim.agents.fill_with(|| None);
        // What the root and the middle have is all that is left of 121 observations.
        let left = victim.root().look().await.observations + victim.seats[1].look().await.unsent;
        assert!(left < 121, "{loss:?}");
        victim.seats[2].kill().await;
        std::fs::remove_dir_all(&victim.seats[2].directory).unwrap();
        victim.seats[2].restart().await;
        for agent in 0..AGENTS as usize {
            let agent = victim.agent(agent).await;
            in_a_minute(async {
                while agent.status().life != 2 {
                    tokio::task::yield_now().await;
                }
            })
            .await;
        }
        play(&mut victim, 30).await;
        let agents = victim.heal().await;
        victim.conserves(&agents, left + 30, &format!("{loss:?}: after it was replaced")).await;
        for agent in &agents {
            assert_eq!(agent.status().life, 2, "{loss:?}: a new life at a new relay");
        }
    }
}

/// A relay that has passed nothing on is the only one who knows what it lost, and goes on as a coordinator would.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_whose_parent_heard_nothing_goes_on_in_a_new_epoch() {
    for seed in 0..4 {
        let mut victim = Victim::with_relays(talkative(), 1, seed).await;
        let silent = |parent: &mut posse_net::federation::ParentConfig| {
            parent.upload_threshold = Some(Threshold::NEVER);
        };
        victim.seats[1].federation.parent.as_mut().map(silent).expect("it is a relay");
        // It was begun with another threshold, and is begun anew.
        victim.seats[1].kill().await;
        std::fs::remove_dir_all(&victim.seats[1].directory).unwrap();
        victim.seats[1].restart().await;
        victim.seats.iter().for_each(|seat| seat.proxy.heal());
        play(&mut victim, 120).await;
        let full = victim.leaf().look().await.observations;
        victim.seats[1].kill().await;
        victim.leaf().cut_log(seed + 3);
        victim.seats[1].restart().await;
        let left = victim.leaf().look().await;
        let lost = full - left.observations;
        assert!(lost > 0 && left.epoch.0 == 1, "{left:?}");
        let agents = victim.heal().await;
        victim.conserves(&agents, 120 - lost, &format!("seed {seed}")).await;
        play(&mut victim, 30).await;
        let agents = victim.heal().await;
        victim.conserves(&agents, 150 - lost, &format!("seed {seed}, later")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_does_not_tell_another_parent_what_the_first_one_may_have() {
    let mut victim = chain(3).await;
    play(&mut victim, 60).await;
    victim.seats[0].kill().await;
    std::fs::remove_dir_all(&victim.seats[0].directory).unwrap();
    victim.seats[0].restart().await;
    let why = says_that_it_is_lost(&victim.seats[1]).await;
    assert!(why.contains("is not the one that this relay has joined"), "{why}");
    assert_eq!(victim.root().look().await.observations, 0, "nothing was said to it");
}

/// An agent by hand, with a state.
async fn by_hand(running: &Running, state: &std::path::Path) -> Agent {
    let by_hand =
        AgentConfig { state: Some(state.into()), carriage: Carriage::ByHand, ..config(running.address, 1) };
    Agent::start(by_hand).await.unwrap()
}

/// The upload was taken by the first relay, and the answer did not arrive. At the second relay it would count again.
#[tokio::test(flavor = "multi_thread")]
async fn an_upload_without_an_answer_does_not_count_again_at_another_relay() {
    let data = tempfile::tempdir().unwrap();
    let place = |name: &str| data.path().join(name);
    let root = coordinator(&place("root"), talkative()).await;
    let one = coordinator(&place("one"), relayed(root.address, 1)).await;
    let two = coordinator(&place("two"), relayed(root.address, 2)).await;
    let agent = by_hand(&one, &place("agent")).await;
    agent.exchange().await.unwrap();
    interact(&agent, 0);
    copy(&place("agent"), &place("copy"));
    agent.exchange().await.unwrap();
    agent.abort().await;
    assert_eq!(look(&one).await.observations, 1);
    let moved = by_hand(&two, &place("copy")).await;
    for _ in 0..6 {
        // It is told that its life is over, and joins in a new one.
        let _ = moved.exchange().await;
    }
    assert_eq!((moved.status().life, moved.status().set_aside), (2, 1));
    interact(&moved, 1);
    while moved.exchange().await.unwrap() {}
    let total = || async {
        let relays = look(&one).await.unsent + look(&two).await.unsent;
        look(&root).await.observations + relays + unsent(&moved)
    };
    in_a_minute(async {
        while total().await != 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(look(&two).await.agents, 1, "it is heard there");
}

/// An agent that is given the addresses of two relays goes to the second when the first is gone.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_of_two_relays_is_heard_by_the_one_that_is_left() {
    let data = tempfile::tempdir().unwrap();
    let place = |name: &str| data.path().join(name);
    let root = coordinator(&place("root"), talkative()).await;
    let one = coordinator(&place("one"), relayed(root.address, 1)).await;
    let two = coordinator(&place("two"), relayed(root.address, 2)).await;
    let coordinator = format!("http://{},http://{}", one.address, two.address);
    let agent = Agent::start(AgentConfig { coordinator, ..config(one.address, 5) }).await.unwrap();
    for step in 0..20 {
        interact(&agent, step);
    }
    in_a_minute(agent.settled()).await;
    in_a_minute(async {
        while look(&root).await.observations == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    one.abort().await;
    in_a_minute(async {
        while agent.status().life != 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // What the first relay and the agent had not passed on is gone with that relay and with that life.
    let left = look(&root).await.observations;
    assert!((1..=20).contains(&left), "{left}");
    for step in 20..40 {
        interact(&agent, step);
    }
    in_a_minute(agent.settled()).await;
    in_a_minute(async {
        while look(&root).await.observations + look(&two).await.unsent + unsent(&agent) != left + 20 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(look(&two).await.version > 0, "it is heard there");
}
