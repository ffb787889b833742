"""posse beside other packages: choices and observations a second with 25 arms of 25 features, one core, one run.

``cargo xtask python --compare`` builds the wheel, installs it with the other packages and runs this. Time is that of the
processor, so that other work on the machine disturbs little. Every package chooses and learns in a loop, as programs do; what
can be prepared outside of the loop is. Packages without features of arms have 25 arms and a context of 25 features, a model
for each arm.
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


def rate(step: Callable[[int], None], batch: int, seconds: float) -> float:
    """Interactions a second of ``step``, which has ``batch`` of them in a call, for so long."""
    count, start = 0, time.process_time()
    while time.process_time() - start < seconds:
        for _ in range(20 if batch == 1 else 1):
            step(count)
            count += batch
    return count / (time.process_time() - start)


def posse_loop() -> Callable[[int], None]:
    import posse

    agent = posse.Federation("lin-ucb", dimension=DIMENSION).agent(0)

    def step(count: int) -> None:
        day = count % OFFERS
        offer = each[day]
        arm = agent.choose(offer)
        agent.learn(offer[arm], paid[day][arm])

    return step


def numpy_lin_ucb() -> Callable[[int], None]:
    inverse, moment = np.eye(DIMENSION) / 0.1, np.zeros(DIMENSION)
    estimate = np.zeros(DIMENSION)

    def step(count: int) -> None:
        nonlocal inverse, moment, estimate
        day = count % OFFERS
        offer = each[day]
        widths = np.sqrt(np.einsum("kd,kd->k", offer @ inverse, offer))
        arm = int(np.argmax(offer @ estimate + 0.5 * widths))
        x = offer[arm]
        u = inverse @ x
        inverse -= np.outer(u, u) / (1.0 + x @ u)
        moment += paid[day][arm] * x
        estimate = inverse @ moment

    return step


def vowpal_wabbit() -> Callable[[int], None]:
    from vowpalwabbit import Workspace

    workspace = Workspace("--cb_explore_adf --squarecb --quiet")
    lines = [
        [f"|a {' '.join(f'{i}:{value:.6f}' for i, value in enumerate(arm))}" for arm in offer] for offer in offers
    ]
    cumulative = np.random.default_rng(2)

    def step(count: int) -> None:
        offer = lines[count % OFFERS]
        probabilities = np.asarray(workspace.predict(offer))
        arm = min(int(np.searchsorted(np.cumsum(probabilities), cumulative.uniform())), ARMS - 1)
        cost = -paid[count % OFFERS][arm]
        labelled = list(offer)
        labelled[arm] = f"0:{cost}:{max(probabilities[arm], 1e-6)} {offer[arm]}"
        workspace.learn(labelled)

    return step


def coba_lin_ucb() -> Callable[[int], None]:
    import coba

    learner = coba.LinUCBLearner(features=["a"])
    actions = [[list(arm) for arm in offer] for offer in offers]

    def step(count: int) -> None:
        offer = actions[count % OFFERS]
        action, probability = learner.predict(None, offer)[:2]
        learner.learn(None, action, paid[count % OFFERS][offer.index(action)], probability)

    return step


def river_lin_ucb() -> Callable[[int], None]:
    from river import bandit

    policy = bandit.LinUCBDisjoint(alpha=0.5, seed=1)
    known = [{str(i): value for i, value in enumerate(context)} for context in contexts.tolist()]
    arms = list(range(ARMS))

    def step(count: int) -> None:
        context = known[count % OFFERS]
        arm = policy.pull(arms, context=context)
        policy.update(arm, context, paid[count % OFFERS][arm])

    return step


def mabwiser_lin_ucb() -> Callable[[int], None]:
    from mabwiser.mab import MAB, LearningPolicy

    mab = MAB(arms=list(range(ARMS)), learning_policy=LearningPolicy.LinUCB(alpha=0.5))
    mab.fit(decisions=list(range(ARMS)), rewards=[0.0] * ARMS, contexts=contexts[:ARMS])

    def step(count: int) -> None:
        context = contexts[count % OFFERS : count % OFFERS + 1]
        arm = mab.predict(context)
        mab.partial_fit(decisions=[arm], rewards=[paid[count % OFFERS][arm]], contexts=context)

    return step


def contextualbandits_lin_ucb() -> Callable[[int], None]:
    from contextualbandits.online import LinUCB

    policy = LinUCB(nchoices=ARMS, alpha=0.5, random_state=1)
    policy.fit(contexts[:ARMS], np.arange(ARMS), np.zeros(ARMS))

    def step(count: int) -> None:
        context = contexts[count % OFFERS : count % OFFERS + 1]
        arm = int(policy.predict(context)[0])
        policy.partial_fit(context, np.array([arm]), rewards[count % OFFERS, arm : arm + 1])

    return step


def posse_replay() -> Callable[[int], None]:
    import posse

    agent = posse.Federation("lin-ucb", dimension=DIMENSION).agent(0)

    def step(count: int) -> None:
        agent.replay(offers, rewards)

    return step


def posse_core() -> Callable[[int], None]:
    """The algorithm in Rust with offers that it has already: taking them over once is little among so many rounds."""
    import posse

    agent = posse.Federation("lin-ucb", dimension=DIMENSION).agent(0)

    def step(count: int) -> None:
        agent._play_prepared(offers, rewards, ROUNDS)

    return step


CONTENDERS: dict[str, tuple[Callable[[], Callable[[int], None]], int]] = {
    "posse, loop": (posse_loop, 1),
    "posse, replay in one call": (posse_replay, OFFERS),
    "posse in Rust alone": (posse_core, ROUNDS * OFFERS),
    "numpy (LinUCB by hand)": (numpy_lin_ucb, 1),
    "Vowpal Wabbit (squarecb)": (vowpal_wabbit, 1),
    "coba (LinUCBLearner)": (coba_lin_ucb, 1),
    "river (LinUCBDisjoint)": (river_lin_ucb, 1),
    "MABWiser (LinUCB)": (mabwiser_lin_ucb, 1),
    "contextualbandits (LinUCB)": (contextualbandits_lin_ucb, 1),
}


def main() -> None:
    warnings.simplefilter("ignore")
    steps = {}
    for name, (make, batch) in CONTENDERS.items():
        try:
            steps[name] = make(), batch
        except ImportError as missing:
            print(f"{name}: {missing}", file=sys.stderr)
    # In turns, the best of many short parts: what else the machine does disturbs all of them alike.
    measured = dict.fromkeys(steps, 0.0)
    for _ in range(PARTS):
        for name, (step, batch) in steps.items():
            measured[name] = max(measured[name], rate(step, batch, SECONDS))
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
