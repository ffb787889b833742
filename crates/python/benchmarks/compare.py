"""posse beside other packages: choices and observations a second with 25 arms of 25 features, one core, one run.

``cargo xtask python --compare`` builds the wheel, installs it with the other packages and runs this. Time is that of the
processor, so that other work on the machine disturbs little. Every package chooses and learns in a plain loop over the offers
of some days, as programs do; what can be prepared outside of the loop is. Packages without features of arms have 25 arms and
a context of 25 features, a model for each arm.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable

# One core for everybody. Libraries read it when they are loaded.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np  # noqa: E402

ARMS = DIMENSION = 25
OFFERS = 256
# Rounds of the offers in one call of Rust alone, parts of the measurement, seconds of a part: shorter than the turns in which a
# busy machine lets others run.
ROUNDS, PARTS, SECONDS = 40, 150, 0.01
generator = np.random.default_rng(1)
offers = generator.normal(size=(OFFERS, ARMS, DIMENSION)) / DIMENSION**0.5
theta = generator.normal(size=DIMENSION) / DIMENSION**0.5
rewards = offers @ theta + 0.1 * generator.normal(size=(OFFERS, ARMS))
contexts = generator.normal(size=(OFFERS, DIMENSION)) / DIMENSION**0.5
# What every package is given: an array for each offer, and rewards as the plain numbers that a program gets from its users.
each = list(offers)
paid = rewards.tolist()
alone = [contexts[day : day + 1] for day in range(OFFERS)]


Play = Callable[[slice], None]
# Days of one call, between two looks at the clock.
DAYS = 32


def rate(play: Play, interactions: int, seconds: float) -> float:
    """Interactions a second of ``play``, which has so many of them in a call, for so long."""
    count, first, start = 0, 0, time.process_time()
    while time.process_time() - start < seconds:
        play(slice(first, first + DAYS))
        count, first = count + interactions, (first + DAYS) % OFFERS
    return count / (time.process_time() - start)


def posse_loop() -> Play:
    import posse

    agent = posse.Federation("lin-ucb", dimension=DIMENSION).agent(0)

    def play(days: slice) -> None:
        for offer, pay in zip(each[days], paid[days], strict=True):
            arm = agent.choose(offer)
            agent.learn(arm, pay[arm])

    return play


def numpy_lin_ucb() -> Play:
    inverse, moment = np.eye(DIMENSION) / 0.1, np.zeros(DIMENSION)
    estimate = np.zeros(DIMENSION)

    def play(days: slice) -> None:
        nonlocal inverse, moment, estimate
        for offer, pay in zip(each[days], paid[days], strict=True):
            widths = np.sqrt(np.einsum("kd,kd->k", offer @ inverse, offer))
            arm = int(np.argmax(offer @ estimate + 0.5 * widths))
            x = offer[arm]
            u = inverse @ x
            inverse -= np.outer(u, u) / (1.0 + x @ u)
            moment += pay[arm] * x
            estimate = inverse @ moment

    return play


def vowpal_wabbit() -> Play:
    from vowpalwabbit import Workspace

    workspace = Workspace("--cb_explore_adf --squarecb --quiet")
    lines = [
        [f"|a {' '.join(f'{i}:{value:.6f}' for i, value in enumerate(arm))}" for arm in offer] for offer in offers
    ]
    cumulative = np.random.default_rng(2)

    def play(days: slice) -> None:
        for offer, pay in zip(lines[days], paid[days], strict=True):
            probabilities = np.asarray(workspace.predict(offer))
            arm = min(int(np.searchsorted(np.cumsum(probabilities), cumulative.uniform())), ARMS - 1)
            labelled = list(offer)
            labelled[arm] = f"0:{-pay[arm]}:{max(probabilities[arm], 1e-6)} {offer[arm]}"
            workspace.learn(labelled)

    return play


def coba_lin_ucb() -> Play:
    import coba

    learner = coba.LinUCBLearner(features=["a"])
    actions = [[list(arm) for arm in offer] for offer in offers]

    def play(days: slice) -> None:
        for offer, pay in zip(actions[days], paid[days], strict=True):
            action, probability = learner.predict(None, offer)[:2]
            learner.learn(None, action, pay[offer.index(action)], probability)

    return play


def river_lin_ucb() -> Play:
    from river import bandit

    policy = bandit.LinUCBDisjoint(alpha=0.5, seed=1)
    known = [{str(i): value for i, value in enumerate(context)} for context in contexts.tolist()]
    arms = list(range(ARMS))

    def play(days: slice) -> None:
        for context, pay in zip(known[days], paid[days], strict=True):
            arm = policy.pull(arms, context=context)
            policy.update(arm, context, pay[arm])

    return play


def mabwiser_lin_ucb() -> Play:
    from mabwiser.mab import MAB, LearningPolicy

    mab = MAB(arms=list(range(ARMS)), learning_policy=LearningPolicy.LinUCB(alpha=0.5))
    mab.fit(decisions=list(range(ARMS)), rewards=[0.0] * ARMS, contexts=contexts[:ARMS])

    def play(days: slice) -> None:
        for context, pay in zip(alone[days], paid[days], strict=True):
            arm = mab.predict(context)
            mab.partial_fit(decisions=[arm], rewards=[pay[arm]], contexts=context)

    return play


def contextualbandits_lin_ucb() -> Play:
    from contextualbandits.online import LinUCB

    policy = LinUCB(nchoices=ARMS, alpha=0.5, random_state=1)
    policy.fit(contexts[:ARMS], np.arange(ARMS), np.zeros(ARMS))

    def play(days: slice) -> None:
        for context, pay in zip(alone[days], rewards[days], strict=True):
            arm = int(policy.predict(context)[0])
            policy.partial_fit(context, np.array([arm]), pay[arm : arm + 1])

    return play


def posse_replay() -> Play:
    import posse

    agent = posse.Federation("lin-ucb", dimension=DIMENSION).agent(0)

    def play(_days: slice) -> None:
        agent.replay(offers, rewards)

    return play


def posse_core() -> Play:
    """The algorithm in Rust with offers that it has already: taking them over once is little among so many rounds."""
    import posse

    agent = posse.Federation("lin-ucb", dimension=DIMENSION).agent(0)

    def play(_days: slice) -> None:
        agent._play_prepared(offers, rewards, ROUNDS)

    return play


# How each is made, and how many interactions a call of it has.
CONTENDERS: dict[str, tuple[Callable[[], Play], int]] = {
    "posse, loop": (posse_loop, DAYS),
    "posse, replay in one call": (posse_replay, OFFERS),
    "posse in Rust alone": (posse_core, ROUNDS * OFFERS),
    "numpy (LinUCB by hand)": (numpy_lin_ucb, DAYS),
    "Vowpal Wabbit (squarecb)": (vowpal_wabbit, DAYS),
    "coba (LinUCBLearner)": (coba_lin_ucb, DAYS),
    "river (LinUCBDisjoint)": (river_lin_ucb, DAYS),
    "MABWiser (LinUCB)": (mabwiser_lin_ucb, DAYS),
    "contextualbandits (LinUCB)": (contextualbandits_lin_ucb, DAYS),
}


def main() -> None:
    warnings.simplefilter("ignore")
    plays = {}
    for name, (make, interactions) in CONTENDERS.items():
        try:
            plays[name] = make(), interactions
        except ImportError as missing:
            print(f"{name}: {missing}", file=sys.stderr)
    # In turns, the best of many short parts: what else the machine does disturbs all of them alike.
    measured = dict.fromkeys(plays, 0.0)
    for _ in range(PARTS):
        for name, (play, interactions) in plays.items():
            measured[name] = max(measured[name], rate(play, interactions, SECONDS))
    if "--json" in sys.argv:
        print(json.dumps(measured))
        return
    loop, core = measured["posse, loop"], measured["posse in Rust alone"]
    print(f"{os.cpu_count()} processors, {os.getloadavg()[0]:.1f} programs at work in the last minute\n")
    print("| | a second | µs | posse's loop is so many times faster |\n|---|--:|--:|--:|")
    for name, value in measured.items():
        print(f"| {name} | {value:,.0f} | {1e6 / value:.3g} | {loop / value:,.1f} |")
    replay = measured["posse, replay in one call"]
    print(f"\nOver Rust alone, an interaction takes {1e6 / loop - 1e6 / core:.2f} µs more in the loop, two calls and the")
    print(f"loop's own Python, and {100 * (core / replay - 1):.0f} % more time in a replay.")


if __name__ == "__main__":
    main()
