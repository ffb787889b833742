"""Compares what posse promises with Google's dp-accounting (privacy-loss distributions).

    python promises.py PATH-OF-POSSE

`posse privacy plan --json` gives the loss and the noise of a promise. dp-accounting composes the Gaussian measurements that one
interaction is in, numerically and with pessimistic rounding, and says which epsilon that is at the promised delta. Exits with 1 if any
promise is smaller than that, beyond the rounding of its grid, or much larger.
"""

import json
import math
import subprocess
import sys

from dp_accounting.pld import privacy_loss_distribution as pld

GRID = 1e-4
# Replacing an interaction moves a measurement by this, where features and rewards have bound 1 (crates/core/src/privacy/budget.rs).
# The noise in sums of rewards is 1.5 times that in sums of features, the default of `vector_noise`.
REACH = 1**2 + (1 / 1.5) ** 2


def plan(posse, epsilon, delta, releases, tree):
    command = [posse, "privacy", "plan", "--json", "--dimension", "10", "--agents", "5", "--interactions", "1e6"]
    command += ["--epsilon", str(epsilon), "--delta", str(delta), "--releases", str(releases)]
    output = subprocess.run(command + (["--tree"] if tree else []), check=True, capture_output=True, text=True)
    return json.loads(output.stdout)["plan"]["calibration"]


def composed(noise, times, delta):
    """Epsilon of so many Gaussian measurements, each with this noise over the distance of two neighbours."""
    one = pld.from_gaussian_mechanism(noise, value_discretization_interval=GRID)
    return one.self_compose(times).get_epsilon_for_delta(delta)


def main():
    posse, worst = sys.argv[1], 0.0
    for epsilon in [0.5, 1, 2, 4, 8]:
        for delta in [0.1, 1e-5, 1e-9]:
            # One release: the loss in one piece. A tree of 16: one interaction is in five nodes, each with all the noise of a node.
            single = plan(posse, epsilon, delta, 1, False)
            theirs = [composed(1 / single["mu"], 1, delta), composed(single["cluster_noise"] / REACH, 1, delta)]
            tree = plan(posse, epsilon, delta, 16, True)
            # The worst release of 16 is number 15: four nodes. Its noise is twice that of one.
            theirs.append(composed(tree["cluster_noise"] / 2 / REACH, 5, delta))
            print(f"epsilon {epsilon:<4} delta {delta:<6g} dp-accounting {', '.join(f'{t:.6f}' for t in theirs)}")
            for their in theirs:
                # Their rounding is upwards by at most one step of the grid for each measurement.
                off = their - epsilon
                worst = max(worst, abs(off) / epsilon)
                if not -0.01 * epsilon <= off <= 6 * GRID + 1e-3 * epsilon or math.isnan(off):
                    sys.exit(f"posse promises {epsilon} at {delta}, and dp-accounting says {their}")
    print(f"largest relative difference {worst:.2e}")


if __name__ == "__main__":
    main()
